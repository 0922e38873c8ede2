//! Members of a deployment, each with a data grid of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A data grid with a part of the objects of the class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub id: i32,
    pub cluster: String,
    #[serde(default)]
    pub environment: Option<String>,
    /// Its URL for clients elsewhere, if one is configured.
    #[serde(default)]
    pub url: Option<String>,
}

/// An object, and the member that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherMember {
    pub id: String,
    pub member: Member,
}

impl fmt::Display for OtherMember {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, member: Member { id: member, cluster, environment, url } } = self;
        write!(formatter, "the object {id:?} belongs to member {member} in cluster {cluster}")?;
        if let Some(environment) = environment {
            write!(formatter, ", environment {environment}")?;
        }
        url.as_ref().map_or(Ok(()), |url| write!(formatter, ", at {url}"))
    }
}
