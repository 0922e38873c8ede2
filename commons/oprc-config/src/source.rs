use std::{fmt, path::PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Including the dashes.
    Flag(String),
    Env(String),
    /// With the key's full path as written in the file.
    File {
        path: PathBuf,
        key: String,
    },
    /// With the profile.
    Default(String),
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(out, "flag {name}"),
            Self::Env(name) => write!(out, "variable {name}"),
            Self::File { path, key } => write!(out, "file {} ({key})", path.display()),
            Self::Default(profile) if profile.is_empty() => out.write_str("default"),
            Self::Default(profile) => write!(out, "default of {profile}"),
        }
    }
}
