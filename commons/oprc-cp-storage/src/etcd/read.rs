//! Reads.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Client,
    api::{
        KeyValue, RangeRequest, RangeResponse, TxnRequest, kv_client::KvClient, request_op::Request,
    },
    auth::with_token,
    call::Retry,
    end_of, header_revision, number, revision,
    write::{first_found, operation},
};
use crate::{Entry, Error, MAX_BYTES, Page, Result, Revision, snapshot::ReadSnapshot};

/// Entries per request. Each may be as large as a transaction.
const CHUNK_ENTRIES: usize = 128;
const MAX_RESPONSE_BYTES: usize = CHUNK_ENTRIES * (MAX_BYTES + 4096);

impl Client {
    async fn send_range(&self, request: RangeRequest) -> Result<RangeResponse> {
        self.call(Retry::Always, async |channel, token| {
            let mut client = KvClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
            client.range(with_token(request.clone(), token)).await
        })
        .await
    }

    pub(super) async fn revision(&self) -> Result<Revision> {
        let key = self.key("");
        let request =
            RangeRequest { range_end: end_of(&key), key, count_only: true, ..Default::default() };
        Ok(header_revision(self.send_range(request).await?.header))
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let request = RangeRequest { key: self.key(key), ..Default::default() };
        let found = self.send_range(request).await?.kvs.into_iter().next();
        found.map(|found| self.entry(found)).transpose()
    }

    /// Reads in one transaction, without asking the other members if `serializable`.
    pub(super) async fn get_many(
        &self,
        keys: &[String],
        serializable: bool,
    ) -> Result<Vec<Option<Entry>>> {
        let get = |key: &String| {
            let range = RangeRequest { key: self.key(key), serializable, ..Default::default() };
            operation(Request::RequestRange(range))
        };
        let request = TxnRequest { success: keys.iter().map(get).collect(), ..Default::default() };
        let response = self
            .call(Retry::Always, async |channel, token| {
                let mut client =
                    KvClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
                client.txn(with_token(request.clone(), token)).await
            })
            .await?;
        let found = response.responses.into_iter().map(first_found);
        found.map(|found| found.map(|it| self.entry(it)).transpose()).collect()
    }

    /// Reads from the member that is called, without asking the others.
    pub(super) async fn get_stale(&self, key: &str) -> Result<Option<Entry>> {
        let request = RangeRequest { key: self.key(key), serializable: true, ..Default::default() };
        let found = self.send_range(request).await?.kvs.into_iter().next();
        found.map(|found| self.entry(found)).transpose()
    }

    pub(super) async fn count(&self, prefix: &str) -> Result<u64> {
        let key = self.key(prefix);
        let request =
            RangeRequest { range_end: end_of(&key), key, count_only: true, ..Default::default() };
        Ok(u64::try_from(self.send_range(request).await?.count).unwrap_or_default())
    }

    pub(super) async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page> {
        let started = tokio::time::Instant::now();
        loop {
            match self.range_at(Revision(0), prefix, after, limit).await {
                // etcd compacted its history between two chunks.
                Err(Error::Gap) if started.elapsed() < self.deadline => {}
                Err(Error::Gap) => {
                    return Err(Error::unavailable("etcd compacts its history too fast"));
                }
                done => return done,
            }
        }
    }

    /// Reads in chunks, at a revision; at that of the first chunk if it is 0.
    async fn range_at(
        &self,
        revision: Revision,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page> {
        let mut page = Page { entries: Vec::new(), revision, more: true };
        let prefix = self.key(prefix);
        let range_end = end_of(&prefix);
        let mut key = after.map_or(prefix, |after| next(&self.key(after)));
        while page.more && page.entries.len() < limit {
            let chunk = CHUNK_ENTRIES.min(limit - page.entries.len());
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: i64::try_from(chunk).unwrap_or(i64::MAX),
                revision: number(page.revision),
                ..Default::default()
            };
            let response = self.send_range(request).await?;
            if page.revision.0 == 0 {
                page.revision = header_revision(response.header);
            }
            page.more = response.more;
            if let Some(last) = response.kvs.last() {
                key = next(&last.key);
            }
            for found in response.kvs {
                page.entries.push(self.entry(found)?);
            }
        }
        Ok(page)
    }

    fn entry(&self, found: KeyValue) -> Result<Entry> {
        let key = self.strip_root(&found.key)?;
        Ok(Entry { key, value: found.value, version: revision(found.mod_revision) })
    }
}

/// A revision that etcd keeps until it compacts its history.
pub(super) struct EtcdSnapshot {
    pub(super) client: Arc<Client>,
    pub(super) revision: Revision,
}

#[async_trait]
impl ReadSnapshot for EtcdSnapshot {
    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        self.client.range_at(self.revision, prefix, after, limit).await
    }
}

/// The smallest key that is greater.
fn next(key: &[u8]) -> bytes::Bytes {
    [key, b"\0"].concat().into()
}
