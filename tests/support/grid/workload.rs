//! Clients that do random operations on the objects of a grid, and record them.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fastrand::Rng;
use serde_json::{Map, Value, json};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{
    client::{Attempt, Client, Delivery},
    function::Calls,
    history::{Args, History, Kind, Operation, Outcome, Response},
};

/// Between two attempts of an operation.
const BACKOFF: Duration = Duration::from_millis(50);
/// An operation that is retried succeeds within this time after the last fault.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);
const COUNTER: &str = "counter";
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Clients and objects. The first objects are counters: they are created before the load, and never
/// replaced or deleted, so that their count is known at the end.
#[derive(Clone, Debug)]
pub struct Workload {
    pub seed: u64,
    pub clients: usize,
    pub objects: usize,
    pub counters: usize,
    /// Counters are only incremented.
    pub increments_only: bool,
    /// URLs of nodes. Each request goes to a random one.
    pub nodes: Vec<String>,
    /// The longest pause of a client between two operations.
    pub max_pause: Duration,
    /// How many of 100 responses are lost.
    pub lost_responses: u32,
}

impl Workload {
    pub fn new(seed: u64, nodes: Vec<String>) -> Self {
        Self {
            seed,
            clients: 8,
            objects: 20,
            counters: 10,
            increments_only: false,
            nodes,
            max_pause: Duration::from_millis(20),
            lost_responses: 2,
        }
    }

    /// Runs until `end` resolves, then finishes the operations that are retried, and reads all objects.
    pub async fn run(&self, calls: &Calls, end: impl AsyncFnOnce(&History)) -> History {
        let history = Arc::new(History::default());
        let (stop, stopped) = watch::channel(false);
        let mut setup = self.client(0, &history, &stopped);
        for object in 0..self.counters {
            setup.create_counter(&self.name(object)).await;
        }
        let mut clients = JoinSet::new();
        for number in 1..=self.clients {
            clients.spawn(self.client(number, &history, &stopped).run());
        }
        end(&history).await;
        stop.send_replace(true);
        for key in clients.join_all().await.concat() {
            assert!(calls.executions(&key) > 0, "{key} was acknowledged, but never executed");
        }
        for object in 0..self.objects {
            setup.read_finally(&self.name(object)).await;
        }
        drop(setup);
        Arc::into_inner(history).expect("no other client")
    }

    fn client(
        &self,
        number: usize,
        history: &Arc<History>,
        stopped: &watch::Receiver<bool>,
    ) -> RandomClient {
        RandomClient {
            workload: self.clone(),
            number,
            random: Rng::with_seed(self.seed.wrapping_mul(1000) + u64::try_from(number).unwrap()),
            http: Client::default(),
            history: history.clone(),
            stopped: stopped.clone(),
            versions: HashMap::new(),
            written: 0,
        }
    }

    fn is_counter(&self, object: usize) -> bool {
        object < self.counters
    }

    /// The name of an object. Another seed has other objects.
    pub fn name(&self, object: usize) -> String {
        let kind = if self.is_counter(object) { COUNTER } else { "object" };
        format!("{kind}-{}-{object}", self.seed)
    }

    /// Asserts that each acknowledged increment of a counter was counted once, and nothing else was.
    /// Returns their number.
    pub fn assert_counts(&self, history: &History) -> u64 {
        let (increments, mut total) = (history.increments(), 0);
        for object in 0..self.counters {
            let name = self.name(object);
            let (acknowledged, unknown) = increments.get(&name).copied().unwrap_or_default();
            assert_eq!(unknown, 0, "{name}: increments were retried, but never acknowledged");
            let read = history.last_read(&name).expect("a read at the end");
            assert_eq!(read["count"], json!(acknowledged), "{name}: the count is wrong");
            total += acknowledged;
        }
        total
    }
}

/// A client with its own random numbers.
struct RandomClient {
    workload: Workload,
    number: usize,
    random: Rng,
    http: Client,
    history: Arc<History>,
    stopped: watch::Receiver<bool>,
    /// The versions of objects that it has seen last.
    versions: HashMap<String, u64>,
    /// Makes values unique.
    written: u64,
}

impl RandomClient {
    /// Returns the idempotency keys of acknowledged increments.
    async fn run(mut self) -> Vec<String> {
        let mut acknowledged = Vec::new();
        while !*self.stopped.borrow() {
            let (object, kind, args) = self.choose();
            if kind == Kind::Increment {
                acknowledged.extend(self.increment(&object, args).await);
            } else {
                self.once(&object, kind, args).await;
            }
            let pause = self.random.u64(0..=millis(self.workload.max_pause));
            sleep(Duration::from_millis(pause)).await;
        }
        acknowledged
    }

    fn choose(&mut self) -> (String, Kind, Args) {
        let number = self.random.usize(0..self.workload.objects);
        let object = self.workload.name(number);
        let kind = if self.workload.is_counter(number) {
            match self.random.u32(0..100) {
                _ if self.workload.increments_only => Kind::Increment,
                0..60 => Kind::Increment,
                60..85 => Kind::Get,
                _ => Kind::Patch,
            }
        } else {
            match self.random.u32(0..100) {
                0..25 => Kind::Increment,
                25..50 => Kind::Get,
                50..65 => Kind::Put,
                65..80 => Kind::Patch,
                80..90 => Kind::Create,
                _ => Kind::Delete,
            }
        };
        let version = self.versions.get(&object).copied();
        let is_conditional = matches!(kind, Kind::Put | Kind::Patch | Kind::Delete);
        let args = Args {
            state: match kind {
                Kind::Create | Kind::Put => Some(self.new_state()),
                Kind::Patch => Some(self.new_changes()),
                Kind::Delete | Kind::Increment | Kind::Get => None,
            },
            by: (kind == Kind::Increment).then(|| self.random.u64(1..=3)),
            version: version.filter(|_| is_conditional && self.random.bool()),
        };
        (object, kind, args)
    }

    fn new_value(&mut self) -> Value {
        self.written += 1;
        json!(format!("{}-{}", self.number, self.written))
    }

    fn new_state(&mut self) -> Map<String, Value> {
        let key = self.random.choice(KEYS).unwrap_or_default();
        [("count".to_owned(), json!(0)), (key.to_owned(), self.new_value())].into_iter().collect()
    }

    fn new_changes(&mut self) -> Map<String, Value> {
        let key = self.random.choice(KEYS).unwrap_or_default();
        let value = if self.random.u32(0..4) == 0 { Value::Null } else { self.new_value() };
        [(key.to_owned(), value)].into_iter().collect()
    }

    async fn attempt(
        &mut self,
        object: &str,
        kind: Kind,
        args: &Args,
        key: Option<&str>,
    ) -> Attempt {
        let node = self.random.choice(&self.workload.nodes).expect("a node").clone();
        let delivery = match self.random.u32(0..100) {
            lost if lost >= self.workload.lost_responses => Delivery::Normal,
            lost if lost % 2 == 0 => Delivery::Lost,
            _ => Delivery::Abandoned(Duration::from_millis(self.random.u64(1..10))),
        };
        self.http.send(&node, object, kind, args, key, delivery).await
    }

    /// An operation that isn't retried.
    async fn once(&mut self, object: &str, kind: Kind, args: Args) {
        let call = self.history.now();
        match self.attempt(object, kind, &args, None).await {
            Attempt::Done(response) => self.record(object, kind, args, call, Some(response)),
            Attempt::NotDone(_) => {}
            // A read changes nothing.
            Attempt::Unknown(_) if kind == Kind::Get => {}
            Attempt::Unknown(_) => self.record(object, kind, args, call, None),
        }
    }

    /// Retries with the same idempotency key until the increment is acknowledged. Returns the key then.
    async fn increment(&mut self, object: &str, args: Args) -> Option<String> {
        let (call, mut is_unknown, mut stopped_at) = (self.history.now(), false, None);
        self.written += 1;
        let key = format!("{}-{}-{}", self.workload.seed, self.number, self.written);
        loop {
            match self.attempt(object, Kind::Increment, &args, Some(&key)).await {
                Attempt::Done(response) => {
                    let is_ok = response.outcome == Outcome::Ok;
                    // An earlier attempt may still find the object, if it is created meanwhile.
                    let is_open = is_unknown && !is_ok && !object.starts_with(COUNTER);
                    let response = Some(response).filter(|_| !is_open);
                    self.record(object, Kind::Increment, args, call, response);
                    return is_ok.then_some(key);
                }
                Attempt::NotDone(_) => {}
                Attempt::Unknown(_) => is_unknown = true,
            }
            if *self.stopped.borrow() {
                let at = *stopped_at.get_or_insert_with(Instant::now);
                if at.elapsed() > SETTLE_TIMEOUT {
                    break;
                }
            }
            sleep(BACKOFF).await;
        }
        if is_unknown {
            self.record(object, Kind::Increment, args, call, None);
        }
        None
    }

    fn record(
        &mut self,
        object: &str,
        kind: Kind,
        args: Args,
        call: u64,
        result: Option<Response>,
    ) {
        if let Some(version) = result.as_ref().and_then(|it| it.version) {
            self.versions.insert(object.to_owned(), version);
        }
        let (client, returned) = (self.number, self.history.now());
        let object = object.to_owned();
        self.history.record(Operation { client, object, kind, args, result, call, returned });
    }

    async fn create_counter(&mut self, name: &str) {
        let state = [("count".to_owned(), json!(0))].into_iter().collect();
        let args = Args { state: Some(state), ..Args::default() };
        self.certainly(name, Kind::Create, args).await;
    }

    async fn read_finally(&mut self, name: &str) {
        self.certainly(name, Kind::Get, Args::default()).await;
    }

    /// Retries an operation without faults until its outcome is known.
    async fn certainly(&mut self, name: &str, kind: Kind, args: Args) {
        let started = Instant::now();
        let node = self.random.choice(&self.workload.nodes).expect("a node").clone();
        loop {
            let call = self.history.now();
            match self.http.send(&node, name, kind, &args, None, Delivery::Normal).await {
                Attempt::Done(response) => {
                    self.record(name, kind, args, call, Some(response));
                    return;
                }
                Attempt::Unknown(reason) | Attempt::NotDone(reason) => {
                    assert!(started.elapsed() < SETTLE_TIMEOUT, "{kind:?} {name}: {reason}");
                    if kind == Kind::Create {
                        self.record(name, kind, args.clone(), call, None);
                    }
                }
            }
            sleep(BACKOFF).await;
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}
