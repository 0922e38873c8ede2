//! The format of all records, so that a store of an incompatible version isn't taken for an empty one.

use anyhow::ensure;
use oprc_cp_storage::{Check, Lease, Store, Transaction};

use super::schema::{FORMAT_KEY, decode, encode};

/// Incremented when stored records change incompatibly.
const FORMAT: u32 = 2;

/// Writes the format into an empty store; fails if the store has another format. Only the owner of
/// the store may call it.
pub async fn check_format(store: &Store, lease: &Lease) -> anyhow::Result<()> {
    let found = match store.get(FORMAT_KEY).await? {
        Some(entry) => decode::<u32>(FORMAT_KEY, &entry.value)?.to_string(),
        None => {
            if store.range("", None, 1).await?.entries.is_empty() {
                let change = Transaction::new().check(FORMAT_KEY, Check::Absent);
                store.commit(change.put(FORMAT_KEY, encode(&FORMAT)?).fenced(lease)).await?;
                return Ok(());
            }
            "none".to_owned()
        }
    };
    ensure!(
        found == FORMAT.to_string(),
        "the store has an unsupported format (found {found}, expected {FORMAT}): delete the store, \
         or use the PM version that wrote it; running classes stay and can be adopted as orphans"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rejects_a_store_of_another_format() {
        let store = Store::memory();
        let lease = store.acquire_lease("pm", "a test").await.unwrap();
        for _ in 0..2 {
            check_format(&store, &lease).await.unwrap();
        }
        store.commit(Transaction::new().put("package/a", "{}")).await.unwrap();
        check_format(&store, &lease).await.unwrap();
        for (change, found) in [
            (Transaction::new().put(FORMAT_KEY, "3"), "found 3, expected 2"),
            (Transaction::new().delete(FORMAT_KEY), "found none, expected 2"),
        ] {
            store.commit(change).await.unwrap();
            let error = check_format(&store, &lease).await.unwrap_err().to_string();
            assert!(error.contains(found) && error.contains("delete the store"), "{error}");
        }
    }
}
