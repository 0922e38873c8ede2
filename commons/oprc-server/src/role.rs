use std::fmt;

/// The permissions of a caller; each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Publishes and deploys.
    Deployer,
    Admin,
}

impl Role {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Viewer, Self::Deployer, Self::Admin].into_iter().find(|role| role.as_str() == name)
    }

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
