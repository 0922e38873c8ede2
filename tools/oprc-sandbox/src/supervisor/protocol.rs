//! What is said on a supervisor's socket: one JSON value a line each way.

use serde::{Deserialize, Serialize};

/// What a supervisor is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Tell about all components.
    Status,
    /// End everything.
    Shutdown,
    /// Do something to one component.
    Act {
        /// Its name.
        component: String,
        /// What to do.
        action: Action,
    },
    /// Run another component, as it is stored, in place of one of the same name.
    Renew {
        /// Its name.
        component: String,
    },
    /// Answer when the component runs, with another process than this one.
    AwaitRunning {
        /// Its name.
        component: String,
        /// The process that it had.
        not: Option<u32>,
    },
}

/// What can be done to a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Run it.
    Start,
    /// End it, and don't start it again.
    Stop,
    /// End it as a crash would.
    Kill,
    /// Keep its process from going on, as a machine under heavy load would.
    Freeze,
    /// Let a frozen one go on.
    Thaw,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// Done; the components as they are now.
    Components(Vec<ComponentStatus>),
    /// There is no such component; those that there are.
    Unknown(Vec<String>),
    /// It can't be done to a component that doesn't run.
    DoesNotRun,
}

/// How a component is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComponentStatus {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub state: State,
    /// Its process, while it runs.
    pub pid: Option<u32>,
    /// How often it was started after it had ended by itself.
    pub restarts: u32,
    /// How it ended last, if it ever did by itself.
    pub last_end: Option<String>,
    /// When it came into this state, in seconds since 1970.
    pub since: u64,
}

/// Whether a component runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// About to be started, or to be started again after a pause.
    Waiting,
    /// Running.
    Running,
    /// Running, but kept from going on.
    Frozen,
    /// Stopped on request.
    Stopped,
}
