//! The classes `Room` and `Member` of `examples/packages/chat.yaml`.

use std::collections::VecDeque;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::call::{NoArgs, Refusal};

/// The state of a room is sent with each call, so it keeps only the last messages.
const MAX_MESSAGES: usize = 50;
const MAX_TEXT_CHARS: usize = 500;

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Room {
    topic: String,
    /// The id of a `Member`.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default)]
    messages: VecDeque<Message>,
    /// Number of all messages.
    #[serde(default)]
    count: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Message {
    from: String,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Say {
    from: String,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct History {
    #[serde(default = "ten")]
    last: usize,
}

fn ten() -> usize {
    10
}

impl Room {
    /// Returns the number of the message.
    pub(crate) fn say(&mut self, args: &Say) -> Result<u64, Refusal> {
        let Say { from, text } = args;
        if text.is_empty() || text.chars().count() > MAX_TEXT_CHARS {
            let reason = format!("text must have 1 to {MAX_TEXT_CHARS} characters");
            return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, reason));
        }
        self.messages.push_back(Message { from: from.clone(), text: text.clone() });
        while self.messages.len() > MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.count += 1;
        Ok(self.count)
    }

    pub(crate) fn history(&self, args: &History) -> Vec<String> {
        let skipped = self.messages.len().saturating_sub(args.last);
        let last = self.messages.iter().skip(skipped);
        last.map(|it| format!("{}: {}", it.from, it.text)).collect()
    }
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Member {
    name: String,
}

impl Member {
    pub(crate) fn greet(&self, _: &NoArgs) -> String {
        format!("Hello, {}!", self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::tests::called;

    #[test]
    fn keeps_the_last_messages() {
        let mut state = json!({"topic": "tea", "owner": "ann"});
        for number in 1..=MAX_MESSAGES + 1 {
            let args = json!({"from": "ann", "text": format!("message {number}")});
            let mut answer = called("say", state, args).unwrap();
            assert_eq!(answer["result"], number);
            state = answer["object"]["state"].take();
        }
        assert_eq!(state["messages"].as_array().unwrap().len(), MAX_MESSAGES);
        assert_eq!(state["owner"], "ann");
        let answer = called("history", state.clone(), json!({"last": 2})).unwrap();
        assert_eq!(answer, json!({"result": ["ann: message 50", "ann: message 51"]}));
        let error = called("say", state, json!({"from": "ann", "text": ""})).unwrap_err();
        assert_eq!(error.0, StatusCode::UNPROCESSABLE_ENTITY);
    }

    #[test]
    fn greets_a_member() {
        let answer = called("greet", json!({"name": "Ann"}), json!(null)).unwrap();
        assert_eq!(answer, json!({"result": "Hello, Ann!"}));
    }
}
