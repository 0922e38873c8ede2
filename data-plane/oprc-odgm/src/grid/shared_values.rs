//! Values that the first node stores and all others read.

use oprc_cp_storage::{Check, Error as StoreError, Store, Transaction};
use serde::{Serialize, de::DeserializeOwned};

use super::MAX_ATTEMPTS;
use crate::{
    Error,
    record::{CALL_KEY, EPOCH, decode, encode},
};

/// Distinguishes the versions of this store from those of another one.
pub(super) async fn epoch(store: &Store) -> Result<u32, Error> {
    stored_once(store, EPOCH, fastrand::u32(..)).await
}

/// Signs call tokens.
pub(super) async fn call_key(store: &Store) -> Result<[u8; 32], Error> {
    let mut key = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut key)
        .map_err(|_| Error::Unavailable("the system has no random numbers".to_owned()))?;
    stored_once(store, CALL_KEY, key).await
}

/// The stored value of a key. The first node that needs it stores `value`.
async fn stored_once<T: Serialize + DeserializeOwned>(
    store: &Store,
    key: &str,
    value: T,
) -> Result<T, Error> {
    let value = encode(&value)?;
    for _ in 0..MAX_ATTEMPTS {
        if let Some(entry) = store.get(key).await? {
            return decode(key, &entry.value);
        }
        let transaction = Transaction::new().check(key, Check::Absent).put(key, value.clone());
        // Another node may have stored one meanwhile.
        match store.commit(transaction).await {
            Ok(_) | Err(StoreError::Conflict { .. } | StoreError::UnknownOutcome { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Unavailable(format!("{key} cannot be stored")))
}
