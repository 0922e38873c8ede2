//! Versions, and ranges of them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    fault::Path,
    names::shown,
    text::{Node, Read, Reader, Scalar, scalar, unreadable},
};

/// A version, such as `1.4.2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub semver::Version);

impl Default for Version {
    fn default() -> Self {
        Self(semver::Version::new(0, 0, 0))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What a unit has room for.
        let parsed = (text.len() <= 128).then(|| semver::Version::parse(text).ok()).flatten();
        parsed.map(Self).ok_or_else(|| format!("{} is no version such as 1.4.2", shown(text)))
    }
}

impl Read for Version {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        read(node, path, reader, "is no version such as 1.4.2")
    }
}

/// The versions that will do. A full version, such as `1.4.2`, is just that one; everything else
/// is a range, such as `^1.4`, `~1.4.2`, `>=1.4, <3`, `1.*` or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    text: String,
    range: semver::VersionReq,
}

impl VersionRange {
    /// Whether a version will do.
    pub fn matches(&self, version: &Version) -> bool {
        match self.text.parse::<Version>() {
            Ok(exact) => exact == *version,
            Err(_) => self.range.matches(&version.0),
        }
    }

    /// Just this version.
    pub fn exact(version: &Version) -> Self {
        let range = semver::VersionReq::STAR;
        Self { text: version.to_string(), range }
    }

    /// The range as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Default for VersionRange {
    fn default() -> Self {
        Self { text: "*".to_owned(), range: semver::VersionReq::STAR }
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for VersionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Ok(exact) = text.parse() {
            return Ok(Self::exact(&exact));
        }
        let range = (text.len() <= 128).then(|| semver::VersionReq::parse(text).ok()).flatten();
        let range = range.ok_or_else(|| format!("{} {NO_RANGE}", shown(text)))?;
        Ok(Self { text: text.to_owned(), range })
    }
}

const NO_RANGE: &str = "is no version such as 1.4.2 and no range such as ^1.4 or >=1.4, <3";

impl Read for VersionRange {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        read(node, path, reader, NO_RANGE)
    }

    fn missing() -> Option<Self> {
        Some(Self::default())
    }

    fn left_out(&self) -> bool {
        self.text == "*"
    }
}

impl Serialize for VersionRange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for VersionRange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Versions are read as they are written, though `1.0` without quotes is a number.
fn read<T: FromStr>(node: &Node, path: &Path, reader: &mut Reader<'_>, why: &str) -> Option<T> {
    let Some((text, Scalar::Text | Scalar::Integer(_) | Scalar::Float(_))) = scalar(node) else {
        reader.expected("a version", node, path);
        return None;
    };
    let parsed = text.parse().ok();
    if parsed.is_none() {
        unreadable(node, path, reader, why);
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_version_is_just_that_one() {
        for (range, good, bad) in [
            ("1.4.2", "1.4.2", "1.4.3"),
            ("^1.4", "1.9.0", "2.0.0"),
            ("1.4", "1.5.0", "2.0.0"),
            (">=1.4, <3", "2.1.0", "3.0.0"),
            ("1.2.3-rc.1", "1.2.3-rc.1", "1.2.3"),
        ] {
            let range: VersionRange = range.parse().unwrap();
            assert!(range.matches(&good.parse().unwrap()), "{range} {good}");
            assert!(!range.matches(&bad.parse().unwrap()), "{range} {bad}");
        }
        for version in ["1.0.0+a", "1.0.0", "1.0.0-rc.1+a"] {
            let exact = VersionRange::exact(&version.parse().unwrap());
            assert_eq!(exact.as_str().parse(), Ok(exact.clone()));
            for other in ["1.0.0+a", "1.0.0+b", "1.0.0", "1.0.0-rc.1+a", "1.0.1"] {
                assert_eq!(exact.matches(&other.parse().unwrap()), version == other, "{other}");
            }
        }
        assert!("newest".parse::<VersionRange>().is_err());
        assert!("1.0".parse::<Version>().is_err());
    }
}
