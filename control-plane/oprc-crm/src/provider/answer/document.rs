//! The JSON document around the series of an answer.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{
    error::ErrorFields,
    series::{SeriesReader, SeriesSeed},
};

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Success,
    Error,
}

/// An answer without its series.
pub(super) struct Answer {
    pub(super) status: Status,
    /// None without data.
    pub(super) result_type: Option<String>,
    pub(super) error: ErrorFields,
    pub(super) has_warnings: bool,
}

pub(super) struct AnswerSeed<'a, 'e>(pub(super) &'a mut SeriesReader<'e>);

impl<'de> DeserializeSeed<'de> for AnswerSeed<'_, '_> {
    type Value = Answer;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Answer, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AnswerSeed<'_, '_> {
    type Value = Answer;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an answer of Prometheus")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Answer, A::Error> {
        let (mut status, mut result_type) = (None, None);
        let (mut error, mut has_warnings) = (ErrorFields::default(), false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" if status.is_none() => status = Some(map.next_value()?),
                "data" if result_type.is_none() => {
                    result_type = map.next_value_seed(DataSeed(&mut *self.0))?;
                }
                "errorType" => error.error_type = map.next_value()?,
                "error" => error.error = map.next_value()?,
                // Elements without a size.
                "warnings" => {
                    let warnings: Option<Vec<IgnoredAny>> = map.next_value()?;
                    has_warnings |= warnings.is_some_and(|warnings| !warnings.is_empty());
                }
                "status" | "data" => return Err(de::Error::custom("a field is there twice")),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let status = status.ok_or_else(|| de::Error::missing_field("status"))?;
        Ok(Answer { status, result_type, error, has_warnings })
    }
}

/// Reads the data of an answer, and returns its result type.
struct DataSeed<'a, 'e>(&'a mut SeriesReader<'e>);

impl<'de> DeserializeSeed<'de> for DataSeed<'_, '_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for DataSeed<'_, '_> {
    type Value = Option<String>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the data of an answer")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut result_type, mut has_result) = (None::<String>, false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "resultType" if result_type.is_none() => result_type = Some(map.next_value()?),
                "result" if !has_result => {
                    has_result = true;
                    let wanted = self.0.expected.result_type.as_str();
                    // Of another type, which is an error once the answer has been read.
                    if result_type.as_ref().is_some_and(|found| found != wanted) {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        map.next_value_seed(ResultSeed(&mut *self.0))?;
                    }
                }
                "resultType" | "result" => return Err(de::Error::custom("a field is there twice")),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !has_result {
            return Err(de::Error::missing_field("result"));
        }
        result_type.map(Some).ok_or_else(|| de::Error::missing_field("resultType"))
    }
}

struct ResultSeed<'a, 'e>(&'a mut SeriesReader<'e>);

impl<'de> DeserializeSeed<'de> for ResultSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ResultSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        loop {
            self.0.start_series();
            if list.next_element_seed(SeriesSeed(&mut *self.0))?.is_none() {
                return Ok(());
            }
            if self.0.error.is_none() {
                self.0.error = self.0.end_series().err();
            }
            if self.0.error.is_some() {
                return Err(de::Error::custom("stopped"));
            }
        }
    }
}
