//! The process of a store is killed during writes.

use std::{
    collections::BTreeMap,
    env,
    hash::{BuildHasher as _, RandomState},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use oprc_cp_storage::{Check, Error, RedbOptions, Store, Transaction};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use oprc_tests::etcd::Etcd;

/// The store file of a child process.
const FILE: &str = "OPRC_TEST_STORE";
const WRITERS: u64 = 4;
/// Pairs of entries per writer, written in turn.
const PAIRS: u64 = 20;
/// Bound on opening a store and on the first acknowledgement.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

fn redb(path: &Path) -> RedbOptions {
    RedbOptions::new(path, "a test")
}

/// The child process: counts, and prints the progress of each writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Some(path) = env::var_os(FILE) else { return };
    let store = open(&PathBuf::from(path)).await;
    join_all(
        (0..WRITERS)
            .map(|writer| count(&store, writer, move |number| println!("\nack {writer} {number}"))),
    )
    .await;
}

/// Opens a store. A process that another test has forked may hold the lock until it calls exec.
async fn open(path: &Path) -> Store {
    let started = Instant::now();
    loop {
        match Store::redb(redb(path)).await {
            Err(Error::LeaseHeld { .. }) if started.elapsed() < RESPONSE_TIMEOUT => {
                sleep(Duration::from_millis(10)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Counts until the store is unavailable.
async fn count(store: &Store, writer: u64, acknowledged: impl Fn(u64)) {
    loop {
        let counter = match store.get(&format!("{writer}/counter")).await {
            Ok(counter) => counter,
            Err(Error::Unavailable { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let number = counter.as_ref().map_or(0, |entry| parse(&entry.value)) + 1;
        let check = counter.map_or(Check::Absent, |entry| Check::Version(entry.version));
        let pair = number % PAIRS;
        let transaction = Transaction::new()
            .check(format!("{writer}/counter"), check)
            .put(format!("{writer}/left/{pair}"), number.to_string())
            .put(format!("{writer}/counter"), number.to_string())
            .put(format!("{writer}/right/{pair}"), number.to_string());
        match store.commit(transaction).await {
            Ok(_) => acknowledged(number),
            Err(Error::Unavailable { .. } | Error::UnknownOutcome { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn parse(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// The acknowledged counters by writer.
pub(crate) type Acknowledged = BTreeMap<u64, u64>;

/// Starts a child on a file and kills it shortly after its start, or after some writes.
pub(crate) fn kill_child(path: &Path, early: bool, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["killed::child", "--exact", "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (lines, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.split(b'\n').map_while(Result::ok) {
            let _ = lines.send(String::from_utf8(line).unwrap());
        }
    });
    let random = RandomState::new().hash_one(0);
    let mut output_lines = Vec::new();
    if early {
        std::thread::sleep(Duration::from_micros(random % 60_000));
    } else {
        let enough = random % 400;
        while output_lines.len() < usize::try_from(enough).unwrap() {
            output_lines.push(received.recv().unwrap());
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    output_lines.extend(received.try_iter());
    for line in output_lines {
        let words: Vec<_> = line.split(' ').collect();
        if let ["ack", writer, number] = words[..] {
            // A truncated line has too small a number, or none.
            let (Ok(writer), Ok(number)) = (writer.parse(), number.parse::<u64>()) else {
                continue;
            };
            let newest = acknowledged.entry(writer).or_default();
            *newest = number.max(*newest);
        }
    }
}

/// Asserts that all acknowledged writes are stored, and none partially.
pub(crate) async fn check(store: &Store, acknowledged: &Acknowledged) {
    let page = store.list("").await.unwrap();
    let stored: BTreeMap<_, _> =
        page.entries.iter().map(|entry| (entry.key.as_str(), parse(&entry.value))).collect();
    for writer in 0..WRITERS {
        let acknowledged = acknowledged.get(&writer).copied().unwrap_or_default();
        let counter = stored.get(format!("{writer}/counter").as_str()).copied().unwrap_or_default();
        assert!(
            counter >= acknowledged,
            "{acknowledged} was acknowledged, but {counter} is stored"
        );
        // At most one write was in flight.
        assert!(
            counter <= acknowledged + 1,
            "{counter} is stored, but only {acknowledged} was acknowledged"
        );
        for pair in 0..PAIRS {
            let side = |side: &str| stored.get(format!("{writer}/{side}/{pair}").as_str()).copied();
            assert_eq!(side("left"), side("right"), "a transaction is stored partially");
            let expected = (0..PAIRS).find_map(|back| {
                let number = counter.checked_sub(back)?;
                (number > 0 && number % PAIRS == pair).then_some(number)
            });
            assert_eq!(side("left"), expected);
        }
    }
}

/// One round on a file, which may be reused.
pub(crate) async fn round_on_redb(path: &Path, early: bool, acknowledged: &mut Acknowledged) {
    kill_child(path, early, acknowledged);
    let store = Store::redb(redb(path)).await.unwrap();
    check(&store, acknowledged).await;
    // Writes in flight that were stored count from now on.
    for writer in 0..WRITERS {
        if let Some(counter) = store.get(&format!("{writer}/counter")).await.unwrap() {
            acknowledged.insert(writer, parse(&counter.value));
        }
    }
    store.close().await;
}

/// One round on an etcd, which is killed: one store writes, the other one reads.
pub(crate) async fn round_on_etcd(
    etcd: &Etcd,
    (writing, reading): &(Store, Store),
    acknowledged: &mut Acknowledged,
) {
    let newest = std::sync::Mutex::new(std::mem::take(acknowledged));
    let first_write = Notify::new();
    let writers = join_all((0..WRITERS).map(|writer| {
        let (newest, first_write) = (&newest, &first_write);
        count(writing, writer, move |number| {
            newest.lock().unwrap().insert(writer, number);
            first_write.notify_one();
        })
    }));
    let kill = async {
        let _ = timeout(RESPONSE_TIMEOUT, first_write.notified()).await;
        sleep(Duration::from_micros(RandomState::new().hash_one(0) % 300_000)).await;
        etcd.kill();
    };
    tokio::join!(writers, kill);
    etcd.restart();
    *acknowledged = newest.into_inner().unwrap();
    check(reading, acknowledged).await;
    for writer in 0..WRITERS {
        if let Some(counter) = reading.get(&format!("{writer}/counter")).await.unwrap() {
            acknowledged.insert(writer, parse(&counter.value));
        }
    }
}
