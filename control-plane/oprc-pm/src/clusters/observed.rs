//! What a cluster has told of its classes.

use std::{collections::BTreeMap, sync::Arc};

use oprc_grpc::deployment::{ClassRuntime, WatchEvent, watch_event::Kind};
use oprc_rest::Contact;

use crate::{
    dispatcher::{Seen, sight},
    stamp::Millis,
};

/// Classes by id and namespace.
type Classes = BTreeMap<(String, String), Arc<ClassRuntime>>;

/// What a cluster has told.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    classes: Classes,
    /// A snapshot that isn't complete yet.
    coming: Option<Classes>,
    /// Whether a snapshot was ever complete.
    synced: bool,
    streaming: bool,
    /// Whether the stream hasn't caught up yet with what happened while it was broken.
    behind: bool,
    /// Whether the CRM is cut off from its API server.
    stale: bool,
    token: String,
    away_since: Option<Millis>,
    last_seen: Option<Millis>,
    trouble: String,
}

impl Observed {
    /// Nothing was heard yet.
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            away_since: Some(now),
            trouble: "nothing was heard of it yet".to_owned(),
            ..Self::default()
        }
    }

    /// Where the stream is to go on.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The stream is open. `stale` is what the CRM says of itself at that time.
    pub(crate) fn opened(&mut self, stale: bool, now: Millis) {
        self.streaming = true;
        self.behind = true;
        self.stale = stale;
        self.heard(now);
    }

    /// The stream broke.
    pub(crate) fn lost(&mut self, why: String, now: Millis) {
        self.streaming = false;
        self.coming = None;
        self.trouble = why;
        self.away_since.get_or_insert(now);
    }

    fn heard(&mut self, now: Millis) {
        self.last_seen = Some(now);
        if self.is_known() {
            self.away_since = None;
            self.trouble.clear();
        } else {
            self.away_since.get_or_insert(now);
            if self.stale {
                "its CRM is cut off from the API server".clone_into(&mut self.trouble);
            }
        }
    }

    /// Takes in what the stream tells.
    pub(crate) fn apply(&mut self, event: WatchEvent, now: Millis) {
        let kind = event.kind();
        self.stale = event.stale;
        if !event.resume_token.is_empty() {
            self.token = event.resume_token;
        }
        let class = event.class_runtime.map(Arc::new);
        let key = |class: &ClassRuntime| (class.deployment_id.clone(), class.namespace.clone());
        match (kind, class) {
            (Kind::SnapshotBegin, _) => {
                self.coming = Some(Classes::new());
                self.behind = true;
            }
            (Kind::Snapshot, Some(class)) => {
                if let Some(coming) = &mut self.coming {
                    coming.insert(key(&class), class);
                }
            }
            (Kind::SnapshotEnd, _) => {
                if let Some(coming) = self.coming.take() {
                    self.classes = coming;
                    self.synced = true;
                    self.behind = false;
                }
            }
            (Kind::Changed, Some(class)) => self.put(class),
            (Kind::Deleted, Some(class)) => {
                let key = key(&class);
                // One that was made again under the name may have been told by an answer already.
                if self.classes.get(&key).is_some_and(|known| known.uid == class.uid) {
                    self.classes.remove(&key);
                }
            }
            // It is the first after what was missed, too.
            (Kind::Contact, _) => self.behind &= self.coming.is_some(),
            _ => {}
        }
        self.heard(now);
    }

    /// Takes in news of a class, unless an answer has told more already.
    fn put(&mut self, class: Arc<ClassRuntime>) {
        self.put_unless(class, |known, class| known > class);
    }

    /// Takes in a class that an answer tells of, if it is new: of one that is known the stream may
    /// have told a later status by now.
    pub(crate) fn answered(&mut self, class: Arc<ClassRuntime>) {
        self.put_unless(class, |known, class| known >= class);
    }

    fn put_unless(&mut self, class: Arc<ClassRuntime>, older: impl Fn(i64, i64) -> bool) {
        let key = (class.deployment_id.clone(), class.namespace.clone());
        let known = self.classes.get(&key).filter(|known| known.uid == class.uid);
        if !known.is_some_and(|known| older(known.generation, class.generation)) {
            self.classes.insert(key, class);
        }
    }

    /// Whether what is told is complete and up to date.
    pub fn is_known(&self) -> bool {
        self.synced && self.streaming && !self.behind && !self.stale
    }

    /// Whether it can be believed.
    pub fn contact(&self) -> Contact {
        match (self.is_known(), self.synced) {
            (true, _) => Contact::Fresh,
            (false, true) => Contact::Stale,
            (false, false) => Contact::Unknown,
        }
    }

    /// Whether the CRM answers.
    pub fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// Since when it is away.
    pub fn away_since(&self) -> Option<Millis> {
        self.away_since
    }

    /// When it was heard of last.
    pub fn last_seen(&self) -> Option<Millis> {
        self.last_seen
    }

    /// What is wrong.
    pub fn trouble(&self) -> &str {
        &self.trouble
    }

    /// All classes that were told of, however long ago.
    pub fn classes(&self) -> impl Iterator<Item = &Arc<ClassRuntime>> {
        self.classes.values()
    }

    /// A class, by its id and the namespace that it should be in, if that is known.
    pub fn class(&self, id: &str, namespace: &str) -> Option<&Arc<ClassRuntime>> {
        if !namespace.is_empty() {
            return self.classes.get(&(id.to_owned(), namespace.to_owned()));
        }
        let begin = (id.to_owned(), String::new());
        self.classes.range(begin..).take_while(|((of, _), _)| of == id).map(|(_, it)| it).next()
    }

    /// What is known of a unit for sure.
    pub fn seen(&self, id: &str, namespace: &str) -> Seen {
        if !self.is_known() {
            return Seen::Unknown;
        }
        self.class(id, namespace).map_or(Seen::Absent, |class| Seen::Present(sight(class)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(id: &str, uid: &str, generation: i64) -> ClassRuntime {
        ClassRuntime {
            deployment_id: id.to_owned(),
            namespace: "default".to_owned(),
            uid: uid.to_owned(),
            generation,
            ..ClassRuntime::default()
        }
    }

    fn event(kind: Kind, class: Option<ClassRuntime>) -> WatchEvent {
        WatchEvent { kind: kind.into(), class_runtime: class, ..WatchEvent::default() }
    }

    fn told() -> Observed {
        let mut observed = Observed::new(0);
        observed.opened(false, 1);
        observed.apply(event(Kind::SnapshotBegin, None), 1);
        observed.apply(event(Kind::Snapshot, Some(class("a", "1", 1))), 1);
        observed
    }

    #[test]
    fn nothing_is_known_before_a_snapshot_is_complete() {
        let mut observed = told();
        assert_eq!(observed.seen("a", ""), Seen::Unknown);
        assert_eq!(observed.contact(), Contact::Unknown);
        observed.apply(event(Kind::SnapshotEnd, None), 2);
        assert!(matches!(observed.seen("a", ""), Seen::Present(_)));
        assert!(matches!(observed.seen("a", "default"), Seen::Present(_)));
        assert_eq!(observed.seen("a", "other"), Seen::Absent);
        assert_eq!(observed.seen("b", ""), Seen::Absent);
        assert_eq!(observed.away_since(), None);
    }

    #[test]
    fn a_snapshot_forgets_what_was_before_it_and_a_broken_one_nothing() {
        let mut observed = told();
        observed.apply(event(Kind::SnapshotEnd, None), 2);
        observed.apply(event(Kind::SnapshotBegin, None), 3);
        observed.lost("cut".to_owned(), 4);
        assert_eq!(observed.contact(), Contact::Stale);
        assert_eq!(observed.away_since(), Some(3), "since it began to be told anew");
        assert_eq!(observed.classes().count(), 1);
        observed.opened(false, 5);
        observed.apply(event(Kind::SnapshotBegin, None), 5);
        observed.apply(event(Kind::SnapshotEnd, None), 5);
        assert_eq!(observed.seen("a", ""), Seen::Absent);
    }

    #[test]
    fn what_was_known_before_a_break_is_old_until_all_that_was_missed_is_told() {
        let mut observed = told();
        observed.apply(event(Kind::SnapshotEnd, None), 2);
        observed.lost("cut".to_owned(), 3);
        observed.opened(false, 4);
        assert_eq!(observed.seen("a", ""), Seen::Unknown);
        observed.apply(event(Kind::Changed, Some(class("a", "1", 2))), 5);
        assert_eq!(observed.seen("a", ""), Seen::Unknown);
        observed.apply(event(Kind::Contact, None), 6);
        assert!(matches!(observed.seen("a", ""), Seen::Present(_)));
    }

    #[test]
    fn old_news_undo_nothing() {
        let mut observed = told();
        observed.apply(event(Kind::SnapshotEnd, None), 2);
        observed.answered(Arc::new(class("a", "1", 2)));
        observed.apply(event(Kind::Changed, Some(class("a", "1", 1))), 3);
        let generation = |observed: &Observed| observed.class("a", "").unwrap().generation;
        assert_eq!(generation(&observed), 2);
        let told = ClassRuntime { name: "told".to_owned(), ..class("a", "1", 2) };
        observed.apply(event(Kind::Changed, Some(told)), 3);
        observed.answered(Arc::new(class("a", "1", 2)));
        assert_eq!(observed.class("a", "").unwrap().name, "told");
        observed.answered(Arc::new(class("a", "2", 1)));
        observed.apply(event(Kind::Deleted, Some(class("a", "1", 2))), 4);
        assert_eq!(generation(&observed), 1);
        observed.apply(event(Kind::Deleted, Some(class("a", "2", 1))), 5);
        assert_eq!(observed.seen("a", ""), Seen::Absent);
    }

    #[test]
    fn a_crm_that_is_cut_off_knows_nothing_for_sure() {
        let mut observed = told();
        observed.apply(event(Kind::SnapshotEnd, None), 2);
        let cut = WatchEvent { stale: true, ..event(Kind::Contact, None) };
        observed.apply(cut, 3);
        assert_eq!(observed.seen("a", ""), Seen::Unknown);
        assert_eq!(observed.away_since(), Some(3));
        observed.apply(event(Kind::Contact, None), 4);
        assert!(observed.is_known());
    }
}
