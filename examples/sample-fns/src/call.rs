//! Calls of the data grid: it sends the state of an object with each call, and stores the state of the
//! response.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) object: Object,
    /// Null if the caller sent none.
    #[serde(default)]
    args: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Object {
    pub(crate) id: String,
    state: Value,
}

/// A status from 400 to 499, and the reason. The data grid passes it on to the caller, and the object
/// stays as it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

pub(crate) type Answer = Result<Json<Value>, Refusal>;

pub(crate) fn conflict(reason: &str) -> Refusal {
    Refusal(StatusCode::CONFLICT, reason.to_owned())
}

fn parsed<T: DeserializeOwned>(what: &str, value: Value) -> Result<T, Refusal> {
    let invalid =
        |error| Refusal(StatusCode::UNPROCESSABLE_ENTITY, format!("invalid {what}: {error}"));
    serde_json::from_value(value).map_err(invalid)
}

impl Call {
    /// The state and the arguments. Arguments that are missing are those of an empty object.
    fn parse<S: DeserializeOwned, A: DeserializeOwned>(self) -> Result<(S, A), Refusal> {
        let args = if self.args.is_null() { json!({}) } else { self.args };
        Ok((parsed("state", self.object.state)?, parsed("arguments", args)?))
    }

    /// Answers with the changed state and the result of `method`.
    pub(crate) fn change<S, A, R>(
        self,
        method: impl FnOnce(&mut S, &A) -> Result<R, Refusal>,
    ) -> Answer
    where
        S: DeserializeOwned + Serialize,
        A: DeserializeOwned,
        R: Serialize,
    {
        let (mut state, args) = self.parse()?;
        let result = method(&mut state, &args)?;
        Ok(Json(json!({"object": {"state": state}, "result": result})))
    }

    /// Answers with the result of `method` only: the object stays as it is.
    pub(crate) fn read<S, A, R>(self, method: impl FnOnce(&S, &A) -> R) -> Answer
    where
        S: DeserializeOwned,
        A: DeserializeOwned,
        R: Serialize,
    {
        let (state, args) = self.parse()?;
        Ok(Json(json!({"result": method(&state, &args)})))
    }
}

/// A method without arguments; callers may send any.
#[derive(Debug, Deserialize)]
pub(crate) struct NoArgs {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The response to a call as the data grid sends it.
    pub(crate) fn called(method: &str, state: Value, args: Value) -> Result<Value, Refusal> {
        let mut call = json!({"method": method, "object": {"id": "a", "version": 1}});
        call["object"]["state"] = state;
        call["args"] = args;
        let Json(answer) = crate::dispatch(serde_json::from_value(call).unwrap())?;
        Ok(answer)
    }

    #[test]
    fn refuses_unknown_methods_and_invalid_arguments() {
        assert_eq!(called("grow", json!({}), json!(null)).unwrap_err().0, StatusCode::NOT_FOUND);
        let error = called("increment", json!({"value": 1}), json!({"by": "x"})).unwrap_err();
        assert_eq!(error.0, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(error.1.starts_with("invalid arguments"), "{}", error.1);
        let error = called("increment", json!({"value": "x"}), json!(null)).unwrap_err();
        assert!(error.1.starts_with("invalid state"), "{}", error.1);
    }
}
