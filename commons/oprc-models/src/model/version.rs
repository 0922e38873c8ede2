//! Versions and version ranges.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    diagnostics::Path,
    names::quote,
    yaml::{FromNode, Node, Reader, Scalar, scalar},
};

/// A semantic version, such as `1.4.2`.
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
        // The limit of a deployment unit.
        let parsed = (text.len() <= 128).then(|| semver::Version::parse(text).ok()).flatten();
        parsed.map(Self).ok_or_else(|| format!("{} is not a version such as 1.4.2", quote(text)))
    }
}

impl FromNode for Version {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        read(node, path, reader)
    }
}

/// A set of versions. A full version such as `1.4.2` matches only itself; otherwise a range such as
/// `^1.4`, `~1.4.2`, `>=1.4, <3`, `1.*` or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    text: String,
    range: semver::VersionReq,
}

impl VersionRange {
    pub fn matches(&self, version: &Version) -> bool {
        match self.text.parse::<Version>() {
            Ok(exact) => exact == *version,
            Err(_) => self.range.matches(&version.0),
        }
    }

    /// Matches only this version.
    pub fn exact(version: &Version) -> Self {
        let range = semver::VersionReq::STAR;
        Self { text: version.to_string(), range }
    }

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
        let range = range.ok_or_else(|| {
            let examples = "a version such as 1.4.2 or a range such as ^1.4 or >=1.4, <3";
            format!("{} is not {examples}", quote(text))
        })?;
        Ok(Self { text: text.to_owned(), range })
    }
}

impl FromNode for VersionRange {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        read(node, path, reader)
    }

    fn if_absent() -> Option<Self> {
        Some(Self::default())
    }

    fn is_default(&self) -> bool {
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

/// Accepts numbers, too: `1.0` without quotes is a number in YAML.
fn read<T: FromStr<Err = String>>(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<T> {
    let Some((text, Scalar::Text | Scalar::Integer(_) | Scalar::Float(_))) = scalar(node) else {
        return reader.type_mismatch("a version", node, path);
    };
    text.parse().map_err(|message: String| reader.add(path, node.position, message)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_version_matches_only_itself() {
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
