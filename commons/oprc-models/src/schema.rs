//! OpenAPI schemas of types whose serialised form differs from their declaration.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{OneOfBuilder, Ref, RefOr, Schema},
};

use crate::model::{
    Collection, CollectionSpec, EnvSource, EnvValue, Quantity, Text, Version, VersionRange,
};

macro_rules! string_schema {
    ($($name:ident)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                String::schema()
            }
        }

        impl ToSchema for $name {}
    )*};
}

string_schema! { Quantity Text Version VersionRange }

macro_rules! string_or_object_schema {
    ($($name:ident or $object:ident,)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let object = Ref::from_schema_name($object::name());
                OneOfBuilder::new().item(String::schema()).item(object).into()
            }
        }

        impl ToSchema for $name {
            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                schemas.push(($object::name().into_owned(), $object::schema()));
                $object::schemas(schemas);
            }
        }
    )*};
}

string_or_object_schema! { Collection or CollectionSpec, EnvValue or EnvSource, }
