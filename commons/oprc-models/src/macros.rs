//! Macros that declare the model's types, so that all are read, written and rejected alike.

/// Declares object types. Field names are written in camelCase and also read in snake_case.
/// `= "wire"` sets another serialised name, `| "alias"` adds a name to read by, and `=> rejected`
/// lists known fields that are not supported, each with the reason.
macro_rules! models {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $(
                $(#[$doc:meta])*
                $field:ident $(= $wire:literal)? $(| $alias:literal)*: $type:ty,
            )*
        }
        $(=> rejected { $($no:literal => $why:literal,)* })?
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$doc])*
                $(#[serde(rename = $wire)])?
                // utoipa does not see a serde attribute that comes out of a macro fragment.
                $(#[cfg_attr(feature = "openapi", schema(rename = $wire))])?
                #[serde(default, skip_serializing_if = "crate::yaml::FromNode::is_default")]
                pub $field: $type,
            )*
        }

        impl crate::yaml::FromNode for $name {
            #[allow(unused_assignments)]
            fn from_node(
                node: &crate::yaml::Node,
                path: &crate::diagnostics::Path,
                reader: &mut crate::yaml::Reader<'_>,
            ) -> Option<Self> {
                const FIELDS: &[crate::yaml::Field] = &[$(crate::yaml::Field {
                    name: stringify!($field),
                    wire: $crate::macros::first!($($wire)?),
                    aliases: &[$($alias),*],
                }),*];
                const REJECTED: &[(&str, &str)] = &[$($(($no, $why)),*)?];
                let found = reader.match_fields(node, path, FIELDS, REJECTED)?;
                let mut next = 0;
                // Reads every field before failing, so that all problems are reported.
                $(
                    let $field = reader.read_field::<$type>(&found, FIELDS, next, path);
                    next += 1;
                )*
                Some(Self { $($field: $field?),* })
            }
        }

        #[cfg(test)]
        impl crate::tests::Sample for $name {
            fn sample(rng: &mut crate::tests::TestRng) -> Self {
                Self { $($field: crate::tests::Sample::sample(rng)),* }
            }
        }
    )*};
}

macro_rules! first {
    () => {
        None
    };
    ($first:literal) => {
        Some($first)
    };
}

/// Declares enums that are serialised as one of the given strings and read in any case, with or
/// without separators.
macro_rules! string_enums {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// Ignores case, hyphens, underscores and spaces.
            pub fn parse(text: &str) -> Option<Self> {
                let normalized = $crate::names::normalize(text);
                Self::ALL.iter().copied().find(|it| $crate::names::normalize(it.as_str()) == normalized)
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
                    serde::de::Error::custom($crate::names::unknown_value(
                        &text,
                        Self::ALL.iter().map(|it| it.as_str()),
                    ))
                })
            }
        }

        impl crate::yaml::FromNode for $name {
            fn from_node(
                node: &crate::yaml::Node,
                path: &crate::diagnostics::Path,
                reader: &mut crate::yaml::Reader<'_>,
            ) -> Option<Self> {
                crate::yaml::read_enum(node, path, reader, Self::parse, &[$($text),*])
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                $crate::macros::string_enum_schema(&[$($text),*])
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $name {}

        #[cfg(test)]
        impl crate::tests::Sample for $name {
            fn sample(rng: &mut crate::tests::TestRng) -> Self {
                *rng.one_of(Self::ALL)
            }
        }
    )*};
}

#[cfg(feature = "openapi")]
pub(crate) fn string_enum_schema(
    values: &'static [&'static str],
) -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    use utoipa::openapi::schema::{ObjectBuilder, Type};
    let values = values.iter().copied();
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values)).into()
}

pub(crate) use {first, models, string_enums};
