//! How types and words are declared, so that they are read, written and refused in the same way.

/// A type that is read from files: camelCase is written, snake_case is read too. `= "wire"` gives a
/// field another name, `| "alias"` one more that it is read by. What stands under `refused` is
/// known, and refused with a reason.
macro_rules! model {
    (
        $(#[$meta:meta])*
        $name:ident {
            $(
                $(#[$doc:meta])*
                $field:ident $(= $wire:literal)? $(| $alias:literal)*: $type:ty,
            )*
        }
        $(refused { $($no:literal => $why:literal,)* })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$doc])*
                $(#[serde(rename = $wire)])?
                // What is read as it is for serde isn't for this when it comes through a macro.
                $(#[cfg_attr(feature = "openapi", schema(rename = $wire))])?
                #[serde(default, skip_serializing_if = "crate::text::Read::left_out")]
                pub $field: $type,
            )*
        }

        impl crate::text::Read for $name {
            #[allow(unused_assignments)]
            fn read(
                node: &crate::text::Node,
                path: &crate::fault::Path,
                reader: &mut crate::text::Reader<'_>,
            ) -> Option<Self> {
                const FIELDS: &[crate::text::Field] = &[$(crate::text::Field {
                    name: stringify!($field),
                    wire: $crate::macros::first!($($wire)?),
                    aliases: &[$($alias),*],
                }),*];
                const REFUSED: &[(&str, &str)] = &[$($(($no, $why)),*)?];
                let found = reader.fields(node, path, FIELDS, REFUSED)?;
                let mut next = 0;
                // All are read before one that can't be ends it.
                $(
                    let $field = reader.take::<$type>(&found, FIELDS, next, path);
                    next += 1;
                )*
                Some(Self { $($field: $field?),* })
            }
        }

        #[cfg(test)]
        impl crate::tests::Sample for $name {
            fn sample(chance: &mut crate::tests::Chance) -> Self {
                Self { $($field: crate::tests::Sample::sample(chance)),* }
            }
        }
    };
}

macro_rules! first {
    () => {
        None
    };
    ($first:literal) => {
        Some($first)
    };
}

/// One of some words, read in any case, written as it stands here.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $name:ident {
            $($(#[$doc:meta])* $word:ident = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $word,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// The word as it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }

            /// The one of that name, however it is written.
            pub fn parse(text: &str) -> Option<Self> {
                let wanted = $crate::macros::bare(text);
                Self::ALL.iter().copied().find(|it| $crate::macros::bare(it.as_str()) == wanted)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
                Self::parse(&text).ok_or_else(|| {
                    serde::de::Error::custom($crate::macros::no_word(
                        &text,
                        Self::ALL.iter().map(|it| it.as_str()),
                    ))
                })
            }
        }

        impl crate::text::Read for $name {
            fn read(
                node: &crate::text::Node,
                path: &crate::fault::Path,
                reader: &mut crate::text::Reader<'_>,
            ) -> Option<Self> {
                crate::text::word(
                    node,
                    path,
                    reader,
                    Self::parse,
                    &[$($text),*],
                )
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::schema::words(&[$($text),*])
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}

        #[cfg(test)]
        impl crate::tests::Sample for $name {
            fn sample(chance: &mut crate::tests::Chance) -> Self {
                *chance.one_of(Self::ALL)
            }
        }
    };
}

/// A word without what people write differently.
pub(crate) fn bare(word: &str) -> String {
    let kept = word.chars().filter(|letter| !matches!(letter, '_' | '-' | ' '));
    kept.map(|letter| letter.to_ascii_uppercase()).collect()
}

/// What is said of a word that isn't one of those that there are.
pub(crate) fn no_word<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    format!("{} is none of {}", crate::names::shown(word), words.join(", "))
}

pub(crate) use {first, model, words};
