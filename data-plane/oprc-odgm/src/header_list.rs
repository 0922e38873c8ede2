//! Headers as pairs of texts, for calls between nodes.

use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de::Error as _};

type Headers = Vec<(HeaderName, HeaderValue)>;

pub(crate) fn serialize<S: Serializer>(
    headers: &[(HeaderName, HeaderValue)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    pairs.collect::<Vec<_>>().serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Headers, D::Error> {
    let pairs = Vec::<(String, Vec<u8>)>::deserialize(deserializer)?;
    let headers = pairs.into_iter().map(|(name, value)| {
        let name = HeaderName::try_from(name).map_err(D::Error::custom)?;
        Ok((name, HeaderValue::try_from(value).map_err(D::Error::custom)?))
    });
    headers.collect()
}
