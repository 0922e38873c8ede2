//! How much somebody may do.

use std::fmt;

/// How much somebody may do; each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look.
    Viewer,
    /// Publish and deploy.
    Deployer,
    /// Everything.
    Admin,
}

impl Role {
    /// All of them, the weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Deployer, Self::Admin];

    /// The role of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Deployer => "deployer",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
