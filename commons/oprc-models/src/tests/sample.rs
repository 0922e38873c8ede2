//! Random values of every model type, with strings that are hard to serialise.

use std::collections::BTreeMap;

use crate::{
    Collection, CollectionSpec, EnvSource, EnvValue, Quantity, Text, Version, VersionRange,
};

/// Deterministic random numbers (splitmix64).
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A type with random values.
pub(crate) trait Sample {
    fn sample(rng: &mut TestRng) -> Self;
}

const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "key",
    "null",
    "~",
    "true",
    "False",
    "yes",
    "off",
    "1",
    "-1",
    "1.0",
    ".5",
    "0x1f",
    "1e3",
    ".inf",
    ".nan",
    "a: b",
    "a:b",
    "# no",
    "a # b",
    "- a",
    "-",
    "?",
    "[a]",
    "{a: b}",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a`",
    "|",
    ">",
    "'",
    "\"",
    "'a'",
    "\"a\"",
    "\\",
    "\\n",
    "a\nb",
    "a\n",
    "\na",
    "a\n\nb\n",
    "a\r\nb",
    "\t",
    "a\tb",
    " a",
    "a ",
    "---",
    "...",
    "<<",
    "=",
    ",",
    "a,b",
    "é",
    "漢字",
    "😀",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "\u{feff}",
    "\u{0}",
    "\u{1b}",
    "2001-01-01",
    "1:30",
    "$args.x",
    "$",
    "org.example.shop",
    "shop:1",
    "^1.2",
    "250m",
    "a word after another that together are longer than any line that somebody would want to read \
     without an end to it, and so are folded by those who write it",
];

impl Sample for String {
    fn sample(rng: &mut TestRng) -> Self {
        let mut text = (*rng.one_of(TEXTS)).to_owned();
        while rng.below(3) == 0 {
            text.push_str(rng.one_of::<&str>(TEXTS));
        }
        text
    }
}

impl Sample for bool {
    fn sample(rng: &mut TestRng) -> Self {
        rng.below(2) == 0
    }
}

impl Sample for i32 {
    fn sample(rng: &mut TestRng) -> Self {
        *rng.one_of(&[0, 1, -1, 3, 80, 8080, Self::MAX, Self::MIN])
    }
}

impl Sample for i64 {
    fn sample(rng: &mut TestRng) -> Self {
        *rng.one_of(&[0, 1, -1, 1000, Self::MAX, Self::MIN])
    }
}

impl Sample for f64 {
    fn sample(rng: &mut TestRng) -> Self {
        *rng.one_of(&[0.0, 1.0, 0.5, 0.999, 99.9, -1.5, 1e-7, 1e300, 123_456_789.123])
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(rng: &mut TestRng) -> Self {
        (rng.below(3) == 0).then(|| T::sample(rng))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(rng: &mut TestRng) -> Self {
        let count = rng.below(3);
        (0..count).map(|_| T::sample(rng)).collect()
    }
}

impl<T: Sample> Sample for BTreeMap<String, T> {
    fn sample(rng: &mut TestRng) -> Self {
        let count = rng.below(3);
        (0..count).map(|_| (String::sample(rng), T::sample(rng))).collect()
    }
}

impl Sample for Quantity {
    fn sample(rng: &mut TestRng) -> Self {
        Self(String::sample(rng))
    }
}

impl Sample for Text {
    fn sample(rng: &mut TestRng) -> Self {
        Self(String::sample(rng))
    }
}

impl Sample for EnvValue {
    fn sample(rng: &mut TestRng) -> Self {
        if bool::sample(rng) {
            Self::Plain(String::sample(rng))
        } else {
            Self::From(EnvSource::sample(rng))
        }
    }
}

impl Sample for Collection {
    fn sample(rng: &mut TestRng) -> Self {
        if bool::sample(rng) {
            Self::named(String::sample(rng))
        } else {
            Self(CollectionSpec::sample(rng))
        }
    }
}

impl Sample for Version {
    fn sample(rng: &mut TestRng) -> Self {
        rng.one_of(&["0.0.0", "1.2.3", "1.0.0-rc.1+b7", "10.20.30"]).parse().unwrap()
    }
}

impl Sample for VersionRange {
    fn sample(rng: &mut TestRng) -> Self {
        let ranges = ["*", "1", "1.2", "1.2.3", "^1.2", "~1.2.3", ">=1, <3", "1.*", "=1.2.3"];
        rng.one_of(&ranges).parse().unwrap()
    }
}
