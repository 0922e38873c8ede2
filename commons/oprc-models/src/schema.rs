//! Schemas of what isn't written as it is declared, for OpenAPI documents.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        OneOfBuilder, Ref, RefOr, Schema,
        schema::{ObjectBuilder, Type},
    },
};

use crate::model::{
    Amount, Collection, CollectionSpec, EnvSource, EnvValue, Text, Version, VersionRange,
};

/// One of some words.
pub(crate) fn words(words: &'static [&'static str]) -> RefOr<Schema> {
    let words = words.iter().copied();
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).into()
}

macro_rules! texts {
    ($($name:ident)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                String::schema()
            }
        }

        impl ToSchema for $name {}
    )*};
}

texts! { Amount Text Version VersionRange }

macro_rules! texts_or {
    ($($name:ident or $other:ident,)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let other = Ref::from_schema_name($other::name());
                OneOfBuilder::new().item(String::schema()).item(other).into()
            }
        }

        impl ToSchema for $name {
            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                schemas.push(($other::name().into_owned(), $other::schema()));
                $other::schemas(schemas);
            }
        }
    )*};
}

texts_or! { Collection or CollectionSpec, EnvValue or EnvSource, }
