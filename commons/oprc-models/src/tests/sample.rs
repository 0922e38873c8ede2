//! Values of every type, by chance: texts are such as are hard to write.

use std::collections::BTreeMap;

use crate::{Amount, Collection, CollectionSpec, EnvSource, EnvValue, Text, Version, VersionRange};

/// Numbers that look like chance and are always the same (splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
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

/// Something that there can be any of.
pub(crate) trait Sample {
    fn sample(chance: &mut Chance) -> Self;
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
    fn sample(chance: &mut Chance) -> Self {
        let mut text = (*chance.one_of(TEXTS)).to_owned();
        while chance.below(3) == 0 {
            text.push_str(chance.one_of::<&str>(TEXTS));
        }
        text
    }
}

impl Sample for bool {
    fn sample(chance: &mut Chance) -> Self {
        chance.below(2) == 0
    }
}

impl Sample for i32 {
    fn sample(chance: &mut Chance) -> Self {
        *chance.one_of(&[0, 1, -1, 3, 80, 8080, Self::MAX, Self::MIN])
    }
}

impl Sample for i64 {
    fn sample(chance: &mut Chance) -> Self {
        *chance.one_of(&[0, 1, -1, 1000, Self::MAX, Self::MIN])
    }
}

impl Sample for f64 {
    fn sample(chance: &mut Chance) -> Self {
        *chance.one_of(&[0.0, 1.0, 0.5, 0.999, 99.9, -1.5, 1e-7, 1e300, 123_456_789.123])
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(chance: &mut Chance) -> Self {
        (chance.below(3) == 0).then(|| T::sample(chance))
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(chance: &mut Chance) -> Self {
        let count = chance.below(3);
        (0..count).map(|_| T::sample(chance)).collect()
    }
}

impl<T: Sample> Sample for BTreeMap<String, T> {
    fn sample(chance: &mut Chance) -> Self {
        let count = chance.below(3);
        (0..count).map(|_| (String::sample(chance), T::sample(chance))).collect()
    }
}

impl Sample for Amount {
    fn sample(chance: &mut Chance) -> Self {
        Self(String::sample(chance))
    }
}

impl Sample for Text {
    fn sample(chance: &mut Chance) -> Self {
        Self(String::sample(chance))
    }
}

impl Sample for EnvValue {
    fn sample(chance: &mut Chance) -> Self {
        if bool::sample(chance) {
            Self::Plain(String::sample(chance))
        } else {
            Self::From(EnvSource::sample(chance))
        }
    }
}

impl Sample for Collection {
    fn sample(chance: &mut Chance) -> Self {
        if bool::sample(chance) {
            Self::named(String::sample(chance))
        } else {
            Self(CollectionSpec::sample(chance))
        }
    }
}

impl Sample for Version {
    fn sample(chance: &mut Chance) -> Self {
        chance.one_of(&["0.0.0", "1.2.3", "1.0.0-rc.1+b7", "10.20.30"]).parse().unwrap()
    }
}

impl Sample for VersionRange {
    fn sample(chance: &mut Chance) -> Self {
        let ranges = ["*", "1", "1.2", "1.2.3", "^1.2", "~1.2.3", ">=1, <3", "1.*", "=1.2.3"];
        chance.one_of(&ranges).parse().unwrap()
    }
}
