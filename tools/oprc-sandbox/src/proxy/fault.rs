//! Faults, and which requests they befall.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::request::Asked;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed, and the API server never hears of the request.
    Refuse,
    /// The request goes on after that time.
    Delay(Duration),
    /// It is answered with this status, and the API server never hears of it. With a
    /// `Retry-After` of so many seconds where one is given.
    Status(u16, Option<u32>),
    /// The API server carries it out, and the connection is closed before the answer. A running
    /// watch is closed at once.
    Cut,
    /// It waits until the fault is taken back; so do the events of a running watch.
    Hold,
}

/// Which requests are meant: those that agree in everything that is given.
#[derive(Debug, Clone, Default)]
pub struct Match {
    client: Option<String>,
    verb: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    number: Option<u64>,
}

impl Match {
    /// All requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// Those of a client, by the common name of its certificate.
    #[must_use]
    pub fn client(mut self, client: &str) -> Self {
        self.client = Some(client.to_owned());
        self
    }

    /// Those with a verb, as [`Asked::verb`] names it.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Those for a resource, as [`Asked::resource`] names it.
    #[must_use]
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Those for an object of that name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The one with that number; every client's requests are numbered from 1.
    #[must_use]
    pub fn number(mut self, number: u64) -> Self {
        self.number = Some(number);
        self
    }

    fn agrees(&self, request: &Seen) -> bool {
        let same = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        same(&self.client, &request.client)
            && same(&self.verb, &request.asked.verb)
            && same(&self.resource, &request.asked.resource)
            && same(&self.name, request.asked.name.as_deref().unwrap_or_default())
            && self.number.is_none_or(|number| number == request.number)
    }
}

/// One request that the proxy has seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Who sent it.
    pub client: String,
    /// Its number among that client's.
    pub number: u64,
    /// What it asks for.
    pub asked: Asked,
}

struct Rule {
    id: u64,
    matches: Match,
    fault: Fault,
    left: u64,
}

/// The faults in force.
#[derive(Clone)]
pub(super) struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
    /// Changes with every rule that comes or goes; its value is the last id.
    changed: watch::Sender<u64>,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self { rules: Arc::default(), changed: watch::Sender::new(0) }
    }

    pub(super) fn inject(&self, matches: Match, fault: Fault, times: u64) -> Injected {
        let mut id = 0;
        self.changed.send_modify(|last| {
            *last += 1;
            id = *last;
            self.lock().push(Rule { id, matches, fault, left: times });
        });
        Injected { id, faults: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock()
    }

    /// The fault that befalls a new request, if any; it is used up by that.
    pub(super) fn befalling(&self, request: &Seen) -> Option<(u64, Fault)> {
        let mut rules = self.lock();
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && rule.matches.agrees(request))?;
        rule.left -= 1;
        Some((rule.id, rule.fault.clone()))
    }

    /// What befalls a watch that runs: it may be cut or held.
    pub(super) fn befalling_watch(&self, request: &Seen) -> Option<Fault> {
        let mut rules = self.lock();
        let rule = rules.iter_mut().find(|rule| {
            matches!(rule.fault, Fault::Cut | Fault::Hold)
                && rule.left > 0
                && rule.matches.agrees(request)
        })?;
        if rule.fault == Fault::Cut {
            rule.left -= 1;
        }
        Some(rule.fault.clone())
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits until a rule is gone.
    pub(super) async fn removed(&self, id: u64) {
        let mut changes = self.changes();
        while self.lock().iter().any(|rule| rule.id == id) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// A fault in force; it ends when this is dropped.
#[must_use = "the fault ends when this is dropped"]
pub struct Injected {
    id: u64,
    faults: Faults,
}

impl Drop for Injected {
    fn drop(&mut self) {
        self.faults.changed.send_modify(|_| self.faults.lock().retain(|rule| rule.id != self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: &str, verb: &str, number: u64) -> Seen {
        let asked =
            Asked { verb: verb.into(), resource: "pods".into(), namespace: None, name: None };
        Seen { client: client.into(), number, asked }
    }

    #[test]
    fn a_fault_befalls_only_what_agrees_and_only_so_often() {
        let faults = Faults::new();
        let injected = faults.inject(Match::any().client("a").verb("get"), Fault::Refuse, 2);
        assert!(faults.befalling(&request("b", "get", 1)).is_none());
        assert!(faults.befalling(&request("a", "list", 1)).is_none());
        assert!(faults.befalling(&request("a", "get", 2)).is_some());
        assert!(faults.befalling(&request("a", "get", 3)).is_some());
        assert!(faults.befalling(&request("a", "get", 4)).is_none());
        drop(injected);
        let _third = faults.inject(Match::any().number(3), Fault::Cut, u64::MAX);
        assert!(faults.befalling(&request("a", "get", 4)).is_none());
        assert!(faults.befalling(&request("a", "get", 3)).is_some());
    }

    #[test]
    fn a_fault_ends_when_it_is_dropped() {
        let faults = Faults::new();
        drop(faults.inject(Match::any(), Fault::Refuse, u64::MAX));
        assert!(faults.befalling(&request("a", "get", 1)).is_none());
    }
}
