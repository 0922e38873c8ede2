//! The latest events, kept in memory so that an interrupted stream can resume.

use std::collections::VecDeque;

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use oprc_rest::Event;
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{clock, id};

const MAX_KEPT: usize = 4096;
/// Events that may wait for a slow subscriber before it has a gap.
const MAX_PENDING: usize = 1024;

#[derive(Debug)]
pub struct EventLog {
    kept: Mutex<VecDeque<Event>>,
    sender: broadcast::Sender<Event>,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { kept: Mutex::default(), sender: broadcast::Sender::new(MAX_PENDING) }
    }
}

#[derive(Clone, Debug)]
pub enum StreamItem {
    Event(Box<Event>),
    /// Events between the last item and the next were lost.
    Gap,
}

struct Subscription {
    missed: Vec<Event>,
    /// Whether events that were missed are no longer kept.
    gap: bool,
    coming: broadcast::Receiver<Event>,
}

impl EventLog {
    /// Sets the id and time of the event.
    pub fn publish(&self, event: Event) {
        let mut kept = self.kept.lock();
        let event = Event { id: id::new_id(), at: clock::now().to_string(), ..event };
        if kept.len() == MAX_KEPT {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        // Under the lock, so that subscribers receive events in the order of their ids. Fails if there is
        // no subscriber.
        let _ = self.sender.send(event);
    }

    /// Events after the one with that id, or from now on.
    pub fn stream(&self, after: Option<&str>) -> BoxStream<'static, StreamItem> {
        let Subscription { missed, gap, coming } = self.subscribe(after);
        let missed = missed.into_iter().map(|event| StreamItem::Event(Box::new(event)));
        let before = gap.then_some(StreamItem::Gap).into_iter().chain(missed);
        let coming = stream::unfold(coming, async |mut coming| {
            let item = match coming.recv().await {
                Ok(event) => StreamItem::Event(Box::new(event)),
                Err(RecvError::Lagged(_)) => StreamItem::Gap,
                Err(RecvError::Closed) => return None,
            };
            Some((item, coming))
        });
        stream::iter(before).chain(coming).boxed()
    }

    fn subscribe(&self, after: Option<&str>) -> Subscription {
        let kept = self.kept.lock();
        let coming = self.sender.subscribe();
        // If the last seen event isn't kept any more, later ones may have been lost.
        let gap = after.is_some_and(|after| !kept.iter().any(|event| event.id == after));
        let missed =
            kept.iter().filter(|event| after.is_some_and(|after| event.id.as_str() > after));
        Subscription { missed: missed.cloned().collect(), gap, coming }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(events: &EventLog, subject: usize) {
        events.publish(Event { subject: subject.to_string(), ..Event::default() });
    }

    #[test]
    fn stream_resumes_after_the_last_seen_event() {
        let events = EventLog::default();
        let mut first = events.subscribe(None);
        for subject in 0..3 {
            publish(&events, subject);
        }
        let seen = first.coming.try_recv().unwrap();
        let again = events.subscribe(Some(&seen.id));
        assert!(!again.gap);
        let missed: Vec<_> = again.missed.iter().map(|event| event.subject.as_str()).collect();
        assert_eq!(missed, ["1", "2"]);
    }

    #[test]
    fn reports_a_gap_if_too_many_events_were_missed() {
        let events = EventLog::default();
        let mut first = events.subscribe(None);
        publish(&events, 0);
        let seen = first.coming.try_recv().unwrap();
        for subject in 0..MAX_KEPT {
            publish(&events, subject);
        }
        let again = events.subscribe(Some(&seen.id));
        assert!(again.gap);
        assert_eq!(again.missed.len(), MAX_KEPT);
        assert!(events.subscribe(Some("0000000000000")).gap);
    }
}
