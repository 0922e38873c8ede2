//! Changes of the deployments of one package, one after the other: each writes the package's head,
//! and of those that come at once all but one would only have to begin anew.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

use crate::error::Error;

/// How many packages may be changed at once, those aside that share a place by chance.
const PLACES: u64 = 64;
/// How long one waits for others.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whose turn it is, by package.
#[derive(Debug)]
pub struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }
}

impl Turns {
    /// Waits for the turn of a package's change, which lasts until it is dropped.
    pub(super) async fn of(&self, package: &str) -> Result<Option<MutexGuard<'_, ()>>, Error> {
        let mut hasher = DefaultHasher::new();
        package.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % PLACES).unwrap_or_default();
        let Some(turn) = self.0.get(place) else { return Ok(None) };
        let turn = timeout(PATIENCE, turn.lock()).await;
        let late = |_| Error::Unavailable(format!("{package} is changed by many; try again"));
        turn.map(Some).map_err(late)
    }
}
