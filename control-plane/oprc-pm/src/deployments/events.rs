//! What happens, for those who listen: the latest of it is kept, so that a stream that broke can go
//! on where it was.

use std::collections::VecDeque;

use oprc_rest::Event;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::broadcast;

use crate::stamp;

/// How many events are kept.
const KEPT: usize = 4096;
/// How many may wait for one who listens slowly.
const WAITING: usize = 1024;

/// What happens.
#[derive(Debug)]
pub struct Events {
    kept: Mutex<VecDeque<Event>>,
    sender: broadcast::Sender<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Self { kept: Mutex::default(), sender: broadcast::Sender::new(WAITING) }
    }
}

/// What a listener gets first, and then.
#[derive(Debug)]
pub struct Listening {
    /// What it has missed.
    pub missed: Vec<Event>,
    /// Whether more was missed than is kept: it has to read anew what it goes by.
    pub gap: bool,
    /// What comes. One who lags has to begin anew.
    pub coming: broadcast::Receiver<Event>,
}

impl Events {
    fn kept(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.kept.lock()
    }

    /// Tells of something. Its id and time are given here.
    pub fn publish(&self, event: Event) {
        let mut kept = self.kept();
        let event = Event { id: stamp::id(), at: stamp::text(stamp::now()), ..event };
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        // Under the lock, so that all are told in the order of their ids. Nobody may listen.
        let _ = self.sender.send(event);
    }

    /// Listens from after the event of that id on, or from now.
    pub fn listen(&self, after: Option<&str>) -> Listening {
        let kept = self.kept();
        let coming = self.sender.subscribe();
        let Some(after) = after else {
            return Listening { missed: Vec::new(), gap: false, coming };
        };
        // Where the one that was seen last isn't kept, nobody knows what came after it.
        let gap = !kept.iter().any(|event| event.id == after);
        let missed = kept.iter().filter(|event| event.id.as_str() > after).cloned().collect();
        Listening { missed, gap, coming }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(events: &Events, subject: usize) {
        events.publish(Event { subject: subject.to_string(), ..Event::default() });
    }

    #[test]
    fn a_stream_goes_on_where_it_broke() {
        let events = Events::default();
        let mut first = events.listen(None);
        for subject in 0..3 {
            tell(&events, subject);
        }
        let seen = first.coming.try_recv().unwrap();
        let again = events.listen(Some(&seen.id));
        assert!(!again.gap);
        let missed: Vec<_> = again.missed.iter().map(|event| event.subject.as_str()).collect();
        assert_eq!(missed, ["1", "2"]);
    }

    #[test]
    fn who_missed_too_much_is_told() {
        let events = Events::default();
        let mut first = events.listen(None);
        tell(&events, 0);
        let seen = first.coming.try_recv().unwrap();
        for subject in 0..KEPT {
            tell(&events, subject);
        }
        let again = events.listen(Some(&seen.id));
        assert!(again.gap);
        assert_eq!(again.missed.len(), KEPT);
        assert!(events.listen(Some("0000000000000")).gap);
    }
}
