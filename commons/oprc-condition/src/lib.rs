//! Conditions of methods and triggers: expressions of the Common Expression Language (CEL).
//!
//! A condition reads `object` (`id`, `version`, `state`), `args` and `method`, and gives true or false.
//! Its cost is bounded when it is parsed: expressions are short and flat, and macros that loop over
//! lists aren't allowed, so that an evaluation takes time in proportion to the object and the arguments.

mod limits;
mod value;

use std::{sync::Arc, thread};

use cel::{Context, ExecutionError, Program};
use serde::Deserialize;
use serde_json::Value;

/// A longer text is rejected.
pub const MAX_BYTES: usize = 1024;
/// The parser is recursive. With this stack it can parse any text that isn't longer than allowed.
const PARSER_STACK_BYTES: usize = 16 << 20;

/// A condition that can be evaluated.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Condition {
    text: String,
    program: Arc<Program>,
}

/// Why a text isn't a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the condition is invalid: {0}")]
pub struct InvalidCondition(String);

/// Why a condition has no value for an object, such as a key that it doesn't have. Contains no values of the
/// object or the arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvaluationError(String);

/// What a condition is evaluated with.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub id: &'a str,
    pub version: u64,
    pub state: &'a serde_json::Map<String, Value>,
    pub args: &'a Value,
    pub method: &'a str,
}

/// Checks the text of a condition as the data grid does when it reads the definition of a class.
pub fn check_condition(text: &str) -> Result<(), InvalidCondition> {
    Condition::parse(text).map(drop)
}

impl Condition {
    pub fn parse(text: &str) -> Result<Self, InvalidCondition> {
        if text.len() > MAX_BYTES {
            let reason = format!("has {} bytes, at most {MAX_BYTES} are allowed", text.len());
            return Err(InvalidCondition(reason));
        }
        limits::check_brackets(text).map_err(InvalidCondition)?;
        let program = thread::scope(|scope| {
            let compile = || Program::compile(text).map_err(|error| first_line(&error.to_string()));
            let parser = thread::Builder::new().stack_size(PARSER_STACK_BYTES);
            let parsed = parser.spawn_scoped(scope, compile).map_err(|error| error.to_string())?;
            // The parser may panic on input that it doesn't expect.
            parsed.join().unwrap_or_else(|_| Err("it cannot be parsed".to_owned()))
        });
        let program = program.map_err(InvalidCondition)?;
        limits::check(program.expression()).map_err(InvalidCondition)?;
        Ok(Self { text: text.to_owned(), program: Arc::new(program) })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn evaluate(&self, input: &Input<'_>) -> Result<bool, EvaluationError> {
        let mut context = Context::default();
        context.add_variable_from_value("object", value::object(input));
        context.add_variable_from_value("args", value::from_json(input.args));
        context.add_variable_from_value("method", input.method.to_owned());
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(other) => {
                let kind = other.type_of();
                Err(EvaluationError(format!("it gives a value of type {kind}, not true or false")))
            }
            Err(error) => Err(EvaluationError(describe(&error))),
        }
    }
}

/// Errors of CEL may contain values, which callers must not see.
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("there is no key {:?}; use has() before", key),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::UndeclaredReference(name) => format!("{name:?} is not declared"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "division by zero".to_owned()
        }
        ExecutionError::Overflow(operator, ..) => format!("overflow of {operator}"),
        ExecutionError::IndexOutOfBounds(_) => "an index is out of bounds".to_owned(),
        ExecutionError::UnexpectedType { got, want } => format!("it has {got} instead of {want}"),
        _ => "a value has an unexpected type".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().find(|it| !it.trim().is_empty()).unwrap_or("it cannot be parsed").trim().to_owned()
}

impl TryFrom<String> for Condition {
    type Error = InvalidCondition;

    fn try_from(text: String) -> Result<Self, InvalidCondition> {
        Self::parse(&text)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.text.fmt(formatter)
    }
}

#[cfg(test)]
mod tests;
