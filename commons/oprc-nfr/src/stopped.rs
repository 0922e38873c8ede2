//! Why enforcement doesn't change a value any more.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The number of instances was raised twice, without an effect on latency.
    NoEffect,
    /// The number of instances was raised, and the latency rose.
    Worse,
    /// Memory was raised twice, and instances were killed again.
    KilledAgain,
    /// Instances with a higher request could not be scheduled.
    Unschedulable,
    /// A requirement is violated since a migration.
    Violated,
    /// The workload didn't become ready after a migration.
    NotReady,
    /// A migration was the remedy against cold starts.
    ColdStarts,
}

impl Stopped {
    pub const ALL: [Self; 7] = [
        Self::NoEffect,
        Self::Worse,
        Self::KilledAgain,
        Self::Unschedulable,
        Self::Violated,
        Self::NotReady,
        Self::ColdStarts,
    ];

    /// The name that is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoEffect => "NoEffect",
            Self::Worse => "Worse",
            Self::KilledAgain => "KilledAgain",
            Self::Unschedulable => "Unschedulable",
            Self::Violated => "Violated",
            Self::NotReady => "NotReady",
            Self::ColdStarts => "ColdStarts",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoEffect => "more instances did not shorten the latency, twice",
            Self::Worse => "more instances made the latency longer",
            Self::KilledAgain => "more memory did not prevent out-of-memory kills, twice",
            Self::Unschedulable => "instances with a higher request could not be scheduled",
            Self::Violated => "a requirement was violated after the migration",
            Self::NotReady => "the new template did not become ready",
            Self::ColdStarts => "cold starts violated the latency requirement",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed() {
        for stopped in Stopped::ALL {
            assert_eq!(Stopped::parse(stopped.as_str()), Some(stopped));
        }
        assert_eq!(Stopped::parse("other"), None);
    }
}
