//! Faults and the requests that they apply to.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::request::RequestInfo;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Closes the connection; the API server doesn't get the request.
    DropRequest,
    /// Forwards the request after a delay.
    Delay(Duration),
    /// Responds with this status and, if given, `Retry-After` in seconds; the API server doesn't get
    /// the request.
    Status(u16, Option<u32>),
    /// Closes the connection after the API server has handled the request, before the response. A
    /// running watch is closed immediately.
    DropResponse,
    /// Holds the request, or the events of a running watch, until the fault is removed.
    Hold,
}

/// Selects the requests that match all given criteria.
#[must_use]
#[derive(Debug, Clone, Default)]
pub struct Match {
    client: Option<String>,
    verb: Option<String>,
    resource: Option<String>,
    name: Option<String>,
    number: Option<u64>,
}

impl Match {
    pub fn any() -> Self {
        Self::default()
    }

    /// By the common name of the client's certificate.
    pub fn client(self, client: &str) -> Self {
        Self { client: Some(client.to_owned()), ..self }
    }

    /// By [`RequestInfo::verb`].
    pub fn verb(self, verb: &str) -> Self {
        Self { verb: Some(verb.to_owned()), ..self }
    }

    /// By [`RequestInfo::resource`].
    pub fn resource(self, resource: &str) -> Self {
        Self { resource: Some(resource.to_owned()), ..self }
    }

    /// By the name of the object.
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// By number; the requests of each client are numbered from 1.
    pub fn number(self, number: u64) -> Self {
        Self { number: Some(number), ..self }
    }

    fn matches(&self, request: &RecordedRequest) -> bool {
        let same = |expected: &Option<String>, found: &str| {
            expected.as_deref().is_none_or(|expected| expected == found)
        };
        same(&self.client, &request.client)
            && same(&self.verb, &request.info.verb)
            && same(&self.resource, &request.info.resource)
            && same(&self.name, request.info.name.as_deref().unwrap_or_default())
            && self.number.is_none_or(|number| number == request.number)
    }
}

#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Common name of the client's certificate.
    pub client: String,
    /// Counted from 1 for each client.
    pub number: u64,
    pub info: RequestInfo,
}

struct Rule {
    id: u64,
    matches: Match,
    fault: Fault,
    left: u64,
}

#[derive(Clone, Default)]
pub(super) struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
    /// Notifies of added and removed rules; the value is the last id.
    pub(super) changed: watch::Sender<u64>,
}

impl Faults {
    pub(super) fn inject(&self, matches: Match, fault: Fault, times: u64) -> InjectedFault {
        let mut id = 0;
        self.changed.send_modify(|last| {
            *last += 1;
            id = *last;
            self.rules.lock().push(Rule { id, matches, fault, left: times });
        });
        InjectedFault { id, faults: self.clone() }
    }

    /// The fault for a new request; uses up one of the rule's repetitions.
    pub(super) fn take(&self, request: &RecordedRequest) -> Option<(u64, Fault)> {
        let mut rules = self.rules.lock();
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && rule.matches.matches(request))?;
        rule.left -= 1;
        Some((rule.id, rule.fault.clone()))
    }

    /// The fault for a running watch: `DropResponse` or `Hold`.
    pub(super) fn take_for_watch(&self, request: &RecordedRequest) -> Option<Fault> {
        let mut rules = self.rules.lock();
        let rule = rules.iter_mut().find(|rule| {
            matches!(rule.fault, Fault::DropResponse | Fault::Hold)
                && rule.left > 0
                && rule.matches.matches(request)
        })?;
        if rule.fault == Fault::DropResponse {
            rule.left -= 1;
        }
        Some(rule.fault.clone())
    }

    /// Waits until a rule is removed.
    pub(super) async fn removed(&self, id: u64) {
        let is_removed = |_: &u64| self.rules.lock().iter().all(|rule| rule.id != id);
        let _ = self.changed.subscribe().wait_for(is_removed).await;
    }
}

/// An active fault; dropping this removes it.
#[must_use = "dropping this removes the fault"]
pub struct InjectedFault {
    id: u64,
    faults: Faults,
}

impl Drop for InjectedFault {
    fn drop(&mut self) {
        self.faults
            .changed
            .send_modify(|_| self.faults.rules.lock().retain(|rule| rule.id != self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(client: &str, verb: &str, number: u64) -> RecordedRequest {
        let info =
            RequestInfo { verb: verb.into(), resource: "pods".into(), namespace: None, name: None };
        RecordedRequest { client: client.into(), number, info }
    }

    #[test]
    fn applies_to_matching_requests_up_to_its_limit() {
        let faults = Faults::default();
        let injected = faults.inject(Match::any().client("a").verb("get"), Fault::DropRequest, 2);
        assert!(faults.take(&request("b", "get", 1)).is_none());
        assert!(faults.take(&request("a", "list", 1)).is_none());
        assert!(faults.take(&request("a", "get", 2)).is_some());
        assert!(faults.take(&request("a", "get", 3)).is_some());
        assert!(faults.take(&request("a", "get", 4)).is_none());
        drop(injected);
        let _third = faults.inject(Match::any().number(3), Fault::DropResponse, u64::MAX);
        assert!(faults.take(&request("a", "get", 4)).is_none());
        assert!(faults.take(&request("a", "get", 3)).is_some());
    }

    #[test]
    fn dropping_the_guard_removes_the_fault() {
        let faults = Faults::default();
        drop(faults.inject(Match::any(), Fault::DropRequest, u64::MAX));
        assert!(faults.take(&request("a", "get", 1)).is_none());
    }
}
