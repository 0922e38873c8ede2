//! Reads.

use super::{
    Client,
    api::{KeyValue, RangeRequest, RangeResponse, kv_client::KvClient},
    auth::with_token,
    call::Repeat,
    end_of, number, revision,
};
use crate::{Entry, Error, MAX_BYTES, Page, Result, Revision};

/// How many entries are asked for at once: each may have as many bytes as a transaction.
const CHUNK: usize = 128;
const MAX_ANSWER_BYTES: usize = CHUNK * (MAX_BYTES + 4096);

impl Client {
    async fn ask(&self, request: RangeRequest) -> Result<RangeResponse> {
        self.call(Repeat::Always, |channel, token| {
            let request = with_token(request.clone(), token);
            let mut client = KvClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
            async move { client.range(request).await }
        })
        .await
    }

    /// The newest revision.
    pub(super) async fn revision(&self) -> Result<Revision> {
        let key = self.key("");
        let request =
            RangeRequest { range_end: end_of(&key), key, count_only: true, ..Default::default() };
        Ok(revision_of(&self.ask(request).await?))
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let request = RangeRequest { key: self.key(key), ..Default::default() };
        let found = self.ask(request).await?.kvs.into_iter().next();
        found.map(|found| self.entry(found)).transpose()
    }

    pub(super) async fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page> {
        let begun = tokio::time::Instant::now();
        loop {
            match self.range_once(prefix, after, limit).await {
                // History was dropped between two chunks.
                Err(Error::Gap) if begun.elapsed() < self.deadline => {}
                Err(Error::Gap) => {
                    return Err(Error::unavailable("etcd drops its history too fast"));
                }
                done => return done,
            }
        }
    }

    /// In chunks, the first of which says at which revision the others are asked for.
    async fn range_once(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        let mut page = Page { entries: Vec::new(), revision: Revision(0), more: true };
        let prefix = self.key(prefix);
        let range_end = end_of(&prefix);
        let mut key = after.map_or(prefix, |after| next(&self.key(after)));
        while page.more && page.entries.len() < limit {
            let chunk = CHUNK.min(limit - page.entries.len());
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: i64::try_from(chunk).unwrap_or(i64::MAX),
                revision: number(page.revision),
                ..Default::default()
            };
            let answer = self.ask(request).await?;
            if page.revision.0 == 0 {
                page.revision = revision_of(&answer);
            }
            page.more = answer.more;
            if let Some(last) = answer.kvs.last() {
                key = next(&last.key);
            }
            for found in answer.kvs {
                page.entries.push(self.entry(found)?);
            }
        }
        Ok(page)
    }

    fn entry(&self, found: KeyValue) -> Result<Entry> {
        let key = self.own_key(&found.key)?;
        Ok(Entry { key, value: found.value, version: revision(found.mod_revision) })
    }
}

/// The key that comes right after.
fn next(key: &[u8]) -> bytes::Bytes {
    [key, b"\0"].concat().into()
}

fn revision_of(answer: &RangeResponse) -> Revision {
    revision(answer.header.as_ref().map_or(0, |header| header.revision))
}
