//! Objects with events: which is next, and which waits for what.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, VecDeque},
    time::{Duration, Instant as StdInstant},
};

use tokio::time::Instant;

const MAX_DELAY: Duration = Duration::from_secs(30);

/// What delivering the first events of an object led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// A trigger was called.
    Called,
    /// There is no event, or it is parked.
    Nothing,
    Failed,
    Refused,
}

#[derive(Debug)]
pub(super) struct ObjectQueue {
    all: HashMap<String, Object>,
    /// The times of all, in order.
    times: BTreeSet<WaitingSince>,
    /// The number of the next time.
    next_number: u64,
    /// Those whose events are read next, in this order.
    ready: VecDeque<String>,
    /// Those that wait for a time. An object that is in the queue meanwhile has another one.
    waiting: BinaryHeap<Reverse<(Instant, String)>>,
    /// Running calls of each trigger.
    calls: HashMap<String, usize>,
    /// Those that wait for another call of the trigger to end.
    blocked: HashMap<String, VecDeque<String>>,
    first_delay: Duration,
}

/// When it became known that an object has an event, or when its last event was delivered. The number
/// distinguishes objects of one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WaitingSince {
    at: StdInstant,
    number: u64,
}

#[derive(Debug)]
struct Object {
    since: WaitingSince,
    /// An event was added while it is delivered.
    again: bool,
    /// Consecutive failures of its first event, and how many of them are refusals.
    failures: u32,
    refusals: u32,
    wake: Option<Instant>,
    /// Events that it waits for, until the time.
    missing: Option<usize>,
}

impl Object {
    fn new(since: WaitingSince) -> Self {
        Self { since, again: false, failures: 0, refusals: 0, wake: None, missing: None }
    }
}

impl ObjectQueue {
    pub(super) fn new(first_delay: Duration) -> Self {
        Self {
            all: HashMap::new(),
            times: BTreeSet::new(),
            next_number: 0,
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            calls: HashMap::new(),
            blocked: HashMap::new(),
            first_delay,
        }
    }

    /// An event of an object was stored.
    pub(super) fn add(&mut self, object: &str) {
        let Some(known) = self.all.get_mut(object) else {
            let since = self.begin_waiting();
            self.all.insert(object.to_owned(), Object::new(since));
            self.ready.push_back(object.to_owned());
            return;
        };
        known.again = true;
        known.missing = known.missing.map(|it| it.saturating_sub(1));
        if known.missing == Some(0) {
            known.missing = None;
            known.wake = None;
            self.ready.push_back(object.to_owned());
        }
    }

    fn begin_waiting(&mut self) -> WaitingSince {
        let since = WaitingSince { at: StdInstant::now(), number: self.next_number };
        self.next_number += 1;
        self.times.insert(since);
        since
    }

    /// Since when the object that waits longest has an event. Called after each delivery, so it doesn't
    /// scan all objects.
    pub(super) fn oldest(&self) -> Option<StdInstant> {
        self.times.first().map(|it| it.at)
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.ready.pop_front()
    }

    /// Moves objects whose time has come to the queue.
    pub(super) fn wake(&mut self, now: Instant) {
        while self.waiting.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((at, object))) = self.waiting.pop() else { return };
            let Some(known) = self.all.get_mut(&object) else { continue };
            if known.wake == Some(at) {
                known.wake = None;
                known.missing = None;
                self.ready.push_back(object);
            }
        }
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse((at, _))| *at)
    }

    /// Has an object wait for further events until a time.
    pub(super) fn wait(&mut self, object: String, until: Instant, missing: usize) {
        let Some(known) = self.all.get_mut(&object) else { return };
        // Events that were added since they were read may be the missing ones.
        if known.again {
            known.again = false;
            self.ready.push_back(object);
            return;
        }
        known.missing = Some(missing);
        known.wake = Some(until);
        self.waiting.push(Reverse((until, object)));
    }

    /// Counts a call of a trigger; false if the object has to wait for another one to end.
    pub(super) fn acquire(&mut self, trigger: &str, object: &str, max: usize) -> bool {
        let calls = self.calls.entry(trigger.to_owned()).or_default();
        if *calls >= max {
            self.blocked.entry(trigger.to_owned()).or_default().push_back(object.to_owned());
            return false;
        }
        *calls += 1;
        true
    }

    pub(super) fn release(&mut self, trigger: &str) {
        if let Some(calls) = self.calls.get_mut(trigger) {
            *calls = calls.saturating_sub(1);
            if *calls == 0 {
                self.calls.remove(trigger);
            }
        }
        // An object may turn out to need no call, so the last one that ends wakes all.
        let is_idle = !self.calls.contains_key(trigger);
        let Some(blocked) = self.blocked.get_mut(trigger) else { return };
        let woken = if is_idle { blocked.len() } else { 1 };
        for object in blocked.drain(..woken.min(blocked.len())).rev() {
            self.ready.push_front(object);
        }
        if blocked.is_empty() {
            self.blocked.remove(trigger);
        }
    }

    pub(super) fn done(&mut self, object: String, delivery: Delivery) {
        let Some(known) = self.all.get_mut(&object) else { return };
        match delivery {
            Delivery::Nothing if !known.again => {
                self.times.remove(&known.since);
                self.all.remove(&object);
            }
            Delivery::Called | Delivery::Nothing => {
                self.times.remove(&known.since);
                let since = self.begin_waiting();
                self.all.insert(object.clone(), Object::new(since));
                self.ready.push_back(object);
            }
            Delivery::Failed | Delivery::Refused => {
                let factor = 1 << known.failures.min(16);
                let delay = self.first_delay.saturating_mul(factor).min(MAX_DELAY);
                known.failures += 1;
                known.refusals += u32::from(delivery == Delivery::Refused);
                let at = Instant::now() + delay;
                known.wake = Some(at);
                self.waiting.push(Reverse((at, object)));
            }
        }
    }

    pub(super) fn refusals(&self, object: &str) -> u32 {
        self.all.get(object).map_or(0, |it| it.refusals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> ObjectQueue {
        ObjectQueue::new(Duration::from_millis(100))
    }

    /// An object that another node owns now needs no call, and so wakes no other.
    #[test]
    fn the_last_call_of_a_trigger_wakes_all_objects_that_wait_for_it() {
        let mut queue = queue();
        for object in ["a", "b", "c", "d"] {
            queue.add(object);
            assert_eq!(queue.next().as_deref(), Some(object));
        }
        assert!(queue.acquire("t", "a", 1));
        for object in ["b", "c", "d"] {
            assert!(!queue.acquire("t", object, 1));
        }
        queue.release("t");
        let woken = std::iter::from_fn(|| queue.next()).collect::<Vec<_>>();
        assert_eq!(woken, ["b", "c", "d"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_events_during_a_delivery_are_not_missed() {
        let mut queue = queue();
        queue.add("a");
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.add("a");
        assert_eq!(queue.next(), None, "it is being delivered");
        queue.done("a".to_owned(), Delivery::Refused);
        assert_eq!(queue.refusals("a"), 1);
        queue.wake(Instant::now());
        assert_eq!(queue.next(), None);
        let first = queue.next_wake().unwrap();
        queue.wake(first);
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.done("a".to_owned(), Delivery::Failed);
        assert!(queue.next_wake().unwrap() > first);
        queue.wake(queue.next_wake().unwrap());
        queue.next().unwrap();
        queue.done("a".to_owned(), Delivery::Nothing);
        assert_eq!(queue.next().as_deref(), Some("a"), "an event was added meanwhile");
        queue.done("a".to_owned(), Delivery::Nothing);
        assert!(queue.next().is_none() && queue.all.is_empty());
    }

    #[test]
    fn the_oldest_is_known_after_any_sequence_of_deliveries() {
        let mut queue = queue();
        let mut random = fastrand::Rng::with_seed(7);
        let outcomes = [Delivery::Called, Delivery::Nothing, Delivery::Failed, Delivery::Refused];
        for _ in 0..2000 {
            queue.add(&random.u8(..20).to_string());
            if random.bool()
                && let Some(object) = queue.next()
            {
                queue.done(object, outcomes[random.usize(..outcomes.len())]);
            }
            let scanned = queue.all.values().map(|it| it.since.at).min();
            assert_eq!((queue.oldest(), queue.times.len()), (scanned, queue.all.len()));
        }
        while let Some(object) = queue.next() {
            queue.done(object.clone(), Delivery::Nothing);
        }
        queue.wake(Instant::now() + MAX_DELAY);
        while let Some(object) = queue.next() {
            queue.done(object, Delivery::Nothing);
        }
        assert!(queue.all.is_empty() && queue.oldest().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_waits_for_a_batch() {
        let mut queue = queue();
        let until = Instant::now() + Duration::from_secs(1);
        queue.add("a");
        queue.next().unwrap();
        queue.wait("a".to_owned(), until, 2);
        queue.add("a");
        assert_eq!(queue.next(), None);
        queue.add("a");
        assert_eq!(queue.next().as_deref(), Some("a"));
        // It must not be due again when the time has passed.
        queue.wake(until);
        assert_eq!(queue.next(), None);
        queue.done("a".to_owned(), Delivery::Called);
        queue.next().unwrap();
        queue.wait("a".to_owned(), until, 2);
        queue.wake(until);
        assert_eq!(queue.next().as_deref(), Some("a"));
        // The last event of a batch is added while its others are read.
        queue.add("a");
        queue.wait("a".to_owned(), until, 1);
        assert_eq!(queue.next().as_deref(), Some("a"));
    }

    #[tokio::test]
    async fn calls_of_one_trigger_do_not_block_those_of_another() {
        let mut queue = queue();
        for object in ["a", "b", "c"] {
            queue.add(object);
            queue.next().unwrap();
        }
        assert!(queue.acquire("slow", "a", 1));
        assert!(!queue.acquire("slow", "b", 1));
        assert!(queue.acquire("fast", "c", 1));
        assert_eq!(queue.next(), None);
        queue.release("slow");
        assert_eq!(queue.next().as_deref(), Some("b"));
        queue.release("fast");
        assert!(queue.calls.is_empty() && queue.blocked.is_empty());
    }
}
