//! Protocol of a supervisor's socket: one JSON value per line in each direction.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    Status,
    Shutdown,
    Act {
        component: String,
        action: Action,
    },
    /// Starts a stored companion; a running one of the same name is stopped first.
    #[serde(rename = "renew")]
    Replace {
        component: String,
    },
    /// Responds when the component runs with a process other than `not`.
    AwaitRunning {
        component: String,
        not: Option<u32>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Start,
    /// Terminates the process; it is not restarted.
    Stop,
    /// Kills the process like a crash; it is restarted.
    Kill,
    /// Stops the process with SIGSTOP.
    Freeze,
    /// Resumes a frozen process.
    Thaw,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// The status of all components after the request.
    Components(Vec<ComponentStatus>),
    /// Unknown component; contains the names of all components.
    Unknown(Vec<String>),
    /// The action needs a running component.
    #[serde(rename = "does_not_run")]
    NotRunning,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ComponentStatus {
    pub name: String,
    pub state: State,
    pub pid: Option<u32>,
    /// Restarts after unrequested exits.
    pub restarts: u32,
    /// Exit status of the last unrequested exit.
    pub last_end: Option<String>,
    /// Start of the present state, in seconds since 1970.
    pub since: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Starting, or in backoff before a restart.
    Waiting,
    Running,
    /// Stopped with SIGSTOP.
    Frozen,
    /// Terminated on request.
    Stopped,
}
