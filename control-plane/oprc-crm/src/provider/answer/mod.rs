//! Reads answers of the Prometheus API strictly and while they arrive: what isn't understood is an
//! error, not an empty result, and only one series is in memory.

mod document;
mod error;
mod limited;
mod point;
mod series;

use std::{
    cell::Cell,
    io::{BufReader, Read},
    rc::Rc,
};

use serde::de::DeserializeSeed as _;

use self::{
    document::{AnswerSeed, Status},
    error::{not_json, not_prometheus, rejection, shortened},
    limited::LimitedReader,
    series::SeriesReader,
};
pub(super) use self::{
    error::parse_error,
    series::{Expected, ResultType},
};
use super::{QueryError, SeriesSink};

const READ_BYTES: usize = 64 << 10;

/// Reads the answer to a query with HTTP status 200, and passes its series to the sink; they count only
/// if the answer is valid to its end. Returns whether it is partial.
pub(super) fn parse(
    body: impl Read,
    expected: Expected,
    sink: &dyn SeriesSink,
) -> Result<bool, QueryError> {
    let unparsed = Rc::new(Cell::new(0));
    let limited = LimitedReader::new(body, Rc::clone(&unparsed));
    let mut reader = SeriesReader::new(expected, sink, unparsed);
    let mut json =
        serde_json::Deserializer::from_reader(BufReader::with_capacity(READ_BYTES, limited));
    let answer = AnswerSeed(&mut reader).deserialize(&mut json);
    let answer = answer.and_then(|answer| json.end().map(|()| answer));
    if let Some(error) = reader.error {
        return Err(error);
    }
    let answer = answer.map_err(|error| not_json(&error))?;
    if answer.status == Status::Error {
        return Err(rejection(&answer.error).unwrap_or_else(|| not_prometheus("status error")));
    }
    let result_type = answer.result_type.ok_or_else(|| not_prometheus("missing data"))?;
    let wanted = expected.result_type.as_str();
    if result_type != wanted {
        let found = shortened(&result_type);
        return Err(QueryError::Invalid(format!("result type {found:?} instead of {wanted:?}")));
    }
    Ok(answer.has_warnings)
}

#[cfg(test)]
mod tests;
