//! Texts of errors that live as long as the program.

use std::{borrow::Cow, collections::BTreeSet};

use parking_lot::Mutex;
use serde::{Deserialize as _, Deserializer};

/// Serde would borrow a field with the type itself from the input.
pub(crate) type StaticText = &'static str;

/// More than the program has.
const MAX_TEXTS: usize = 256;

/// Another node sends texts that are constants of the program, so only few are kept.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<StaticText, D::Error> {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let text = Cow::<str>::deserialize(deserializer)?;
    let mut texts = TEXTS.lock();
    if let Some(known) = texts.get(text.as_ref()) {
        return Ok(known);
    }
    if texts.len() >= MAX_TEXTS {
        return Ok("a part of the call");
    }
    let kept: &'static str = Box::leak(text.into_owned().into_boxed_str());
    texts.insert(kept);
    Ok(kept)
}
