//! Calls with an idempotency key.

use jiff::Timestamp;
use oprc_cp_storage::{Check, Entry, Transaction};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    Error, Invocation, Outcome,
    record::{InvocationRecord, decode, encode, invocation_key, period, short_digest},
};

const MAX_IDEMPOTENCY_KEY_BYTES: usize = 128;
/// The longest duration of a call, in periods, for which its idempotency key is certainly recognised.
const MAX_PERIODS: i64 = 50;

/// A call whose change is stored at most once.
pub(crate) struct Once {
    object_key: String,
    key: String,
    fingerprint: String,
    /// The period in which the call began.
    pub(crate) began: i64,
}

impl Once {
    pub(crate) fn new(call: &Invocation, object_key: &str, key: &str) -> Result<Self, Error> {
        let is_valid = !key.is_empty()
            && key.len() <= MAX_IDEMPOTENCY_KEY_BYTES
            && key.chars().all(|it| it.is_ascii_graphic());
        if !is_valid {
            let limit = MAX_IDEMPOTENCY_KEY_BYTES;
            let reason = format!("must have 1 to {limit} visible ASCII characters");
            return Err(Error::InvalidIdempotencyKey(reason));
        }
        let mut hash = Sha256::new();
        hash.update(&call.method);
        hash.update([0]);
        hash.update(call.args.to_string());
        Ok(Self {
            object_key: object_key.to_owned(),
            key: key.to_owned(),
            fingerprint: short_digest(&hash.finalize()),
            began: period(Timestamp::now().as_millisecond()),
        })
    }

    /// Where a result may be, by the period of its end; also in the next period, if the clock of another
    /// node is ahead.
    pub(crate) fn keys(&self, until: i64) -> impl Iterator<Item = String> + '_ {
        let first = (self.began - 1).max(until - MAX_PERIODS);
        (first..=until + 1).map(|it| invocation_key(it, &self.object_key, &self.key))
    }

    /// The outcome of an earlier call, from the results that were found.
    pub(crate) fn earlier(
        &self,
        mut found: impl Iterator<Item = Entry>,
    ) -> Result<Option<Outcome>, Error> {
        let Some(Entry { key, value, .. }) = found.next() else { return Ok(None) };
        let record: InvocationRecord = decode(&key, &value)?;
        if record.fingerprint != self.fingerprint {
            return Err(Error::IdempotencyKeyReused);
        }
        let (result, repeated) = (record.result, true);
        Ok(Some(Outcome { result, version: None, repeated, triggers_pending: false }))
    }

    /// Adds the result to a transaction, and returns the bytes that are kept of it.
    pub(crate) fn record(
        &self,
        transaction: Transaction,
        result: &Value,
    ) -> Result<(Transaction, usize), Error> {
        let at = Timestamp::now().as_millisecond();
        let record =
            InvocationRecord { fingerprint: self.fingerprint.clone(), result: result.clone(), at };
        let present = period(at);
        let absent = |transaction: Transaction, key| transaction.check(key, Check::Absent);
        let transaction = self.keys(present).fold(transaction, absent);
        let key = invocation_key(present, &self.object_key, &self.key);
        let record = encode(&record)?;
        let bytes = key.len() + record.len();
        Ok((transaction.put(key, record), bytes))
    }
}
