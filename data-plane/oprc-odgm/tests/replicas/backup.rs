//! Backups of a grid that changes.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::Value;

use crate::harness::TestGrid;

/// Objects with their counts.
fn counts(lines: &[Value]) -> BTreeMap<String, i64> {
    let objects = lines.iter().filter_map(|line| {
        let id = line["key"].as_str()?.strip_prefix("o/Counter/")?;
        Some((id.to_owned(), line["value"]["state"]["count"].as_i64()?))
    });
    objects.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_a_point_in_history() {
    let grid = TestGrid::start().await;
    let ids: Vec<_> = (0..200).map(|it| format!("object-{it:03}")).collect();
    grid.create(&ids).await;
    // One after the other: at any time the counts are those of a prefix of the writes.
    let writer = {
        let (grid, ids) = (grid.clone(), ids.clone());
        tokio::spawn(async move {
            for (number, id) in ids.iter().enumerate() {
                assert_eq!(grid.add(number % 3, id).await.0, StatusCode::OK);
            }
        })
    };
    let mut backups = Vec::new();
    for index in (0..3).cycle() {
        backups.push(grid.backup(index).await);
        if writer.is_finished() {
            break;
        }
    }
    writer.await.unwrap();
    backups.push(grid.backup(0).await);
    for lines in &backups {
        let counts: Vec<_> = counts(lines).into_values().collect();
        assert_eq!(counts.len(), 200);
        assert!(counts.is_sorted_by(|before, after| before >= after), "{counts:?}");
    }
    let written: Vec<i64> = backups.iter().map(|it| counts(it).values().sum()).collect();
    assert!(written.is_sorted() && *written.last().unwrap() == 200, "{written:?}");
    // The last backup, restored into another grid.
    let text: Vec<_> = backups.last().unwrap().iter().map(Value::to_string).collect();
    let other = TestGrid::start().await;
    let (status, body) = other.send(1, "POST", "/restore", &(text.join("\n") + "\n")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(counts(&other.backup(2).await), counts(backups.last().unwrap()));
    assert_eq!(other.add(0, "object-007").await.1, 2);
}
