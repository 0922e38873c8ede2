//! Classes: state, bindings, references and inheritance.

use super::{Consistency, Constraints, Requirements};
use crate::macros::{models, string_enums};

models! {
    /// A class: the state of its objects, and the functions that can be called on them.
    OClass {
        /// Key of the class, unique in the package regardless of case. Sent to CRM as
        /// `deployment_unit.class`.
        key | "_key": String,
        /// Display name, shown in the catalogue.
        name: Option<String>,
        /// Purpose of the class, shown in the catalogue.
        description: Option<String>,
        /// Number and use of the objects of the class. Inherited; the default is NORMAL. Sent to CRM
        /// as `state.state_type`.
        state_type: Option<StateType>,
        /// State of the objects. A class that has or inherits a state specification gets a data grid
        /// (addon `odgm`), unless its provider is NONE.
        state_spec: Option<StateSpec>,
        /// Functions of the class and the names they are called by. Sent to CRM as
        /// `functions[].bindings`.
        functions | "bindings": Vec<FunctionBinding>,
        /// Classes that objects of this class refer to. An object has the id of the other object, or
        /// a list of ids, below the name of the reference. Macros may call functions of those
        /// classes. Sent to CRM as `references`.
        ref_spec | "references": Vec<Reference>,
        /// Classes that this class inherits from: `class`, or `package.class` for a dependency. Where
        /// several define the same name, the first wins. PM resolves inheritance before deployment.
        parents: Vec<String>,
        /// Requirements of the class as a whole. Sent to CRM as `nfr_requirements`.
        requirements: Option<Requirements>,
        /// Limits for each function of the class. Sent to CRM as `constraints`.
        constraints: Option<Constraints>,
        /// Whether a proxy runs in front of functions, to measure calls and enforce limits; the
        /// default is AUTO. Inherited. Sent to CRM as `proxy`.
        proxy: Option<ProxyMode>,
        /// Excludes the class from deployment; other classes can still inherit from it.
        disabled: bool,
        /// Allows a later compatible version to remove the class.
        mark_for_removal: bool,
    }
    => rejected {
        "status" => "it is set by PM",
        "_rev" => "PM counts revisions",
        "rev" => "PM counts revisions",
        "pkg" => "it is the name of the enclosing package",
        "odgm" => "set it on the deployment",
    }
}

string_enums! {
    /// Whether a proxy runs in front of functions.
    ProxyMode {
        /// In front of functions with requirements or constraints.
        #[default]
        Auto = "AUTO",
        /// In front of all functions.
        Always = "ALWAYS",
        /// In front of none. Can't be combined with `maxConcurrency`.
        Never = "NEVER",
    }

    /// Number and use of the objects of a class.
    StateType {
        /// Any number of objects.
        #[default]
        Normal = "NORMAL",
        /// Any number of objects, accessed in bulk.
        Collection = "COLLECTION",
        /// Exactly one object.
        Singleton = "SINGLETON",
    }
}

models! {
    /// State of the objects of a class.
    StateSpec {
        /// Keys of the state. If there are any, objects have no others, and macros can use only these.
        /// Sent to CRM as `state.key_specs`.
        key_specs: Vec<KeySpec>,
        /// Storage of the state; the default is ODGM, which adds the addon `odgm`.
        default_provider: Option<Provider>,
        /// Consistency of reads. Sent to CRM as `state.consistency`.
        consistency: Option<Consistency>,
        /// Whether data survives the pods that store it. Sent to CRM as `state.persistence`.
        persistence: Option<Persistence>,
        /// Expected use of the data. Sent to CRM as `state.access_patterns`.
        access_patterns: Vec<AccessPattern>,
        /// Who may read and write objects without calling a function; the default is INTERNAL. Sent to
        /// CRM as `state.access`.
        access: Option<Access>,
    }

    /// A key of an object's state.
    KeySpec {
        /// Name of the key.
        name: String,
        /// Type of the value.
        kind = "type": KeyType,
        /// Whether objects may lack the key.
        optional: bool,
        /// Whether the value can't be changed once it is set.
        immutable: bool,
    }
}

string_enums! {
    /// Type of a state key.
    KeyType {
        #[default]
        String = "STRING",
        Integer = "INTEGER",
        Double = "DOUBLE",
        Boolean = "BOOLEAN",
        Json = "JSON",
    }

    /// Storage of the state of objects.
    Provider {
        /// The data grid.
        #[default]
        Odgm = "ODGM",
        /// The class has no state.
        None = "NONE",
    }

    /// Whether data survives the pods that store it.
    Persistence {
        #[default]
        Persistent = "PERSISTENT",
        Ephemeral = "EPHEMERAL",
    }

    /// Expected use of data.
    AccessPattern {
        #[default]
        ReadWrite = "READ_WRITE",
        ReadOnly = "READ_ONLY",
        WriteOnly = "WRITE_ONLY",
        /// Many objects per read.
        BatchRead = "BATCH_READ",
    }
}

models! {
    /// A function of a class, and the name it is called by.
    FunctionBinding {
        /// Name of the binding, unique in the class.
        name: String,
        /// The function: `key`, or `package.key` for a dependency.
        function | "functionKey": String,
        /// Allowed callers; the default is INTERNAL. Sent to CRM as `bindings[].access`.
        access: Option<Access>,
        /// Whether `oprc invoke` calls this binding when none is named; at most one per class.
        default_route: bool,
        /// Prevents changes by inheriting classes and by later versions.
        immutable: bool,
        /// CEL expression that must be true for a call; it reads `object` (`id`, `version`, `state`),
        /// `args` and `method`. Sent to CRM as `bindings[].condition`.
        condition: Option<String>,
        /// Whether a state change of an object calls the function. Sent to CRM as
        /// `bindings[].trigger_on_state_change`.
        trigger_on_state_change: bool,
        /// Whether triggered calls run asynchronously. Sent to CRM as `bindings[].async_execution`.
        async_execution | "async": bool,
    }
    => rejected {
        "noMain" => "functions of a class are always called on an object",
        "status" => "it is set by PM",
    }
}

string_enums! {
    /// Allowed callers of a function, and clients of the state of objects.
    Access {
        /// Functions of the same class.
        Private = "PRIVATE",
        /// Any client in the cluster.
        #[default]
        Internal = "INTERNAL",
        /// Any client.
        Public = "PUBLIC",
    }
}

models! {
    /// A reference from objects of this class to another class.
    Reference {
        /// Name of the reference, unique in the class.
        name: String,
        /// The class: `class`, or `package.class` for a dependency.
        class | "cls": String,
        /// Macros that may use the reference: those of this class (PRIVATE), of this package
        /// (INTERNAL, the default) or any (PUBLIC).
        access: Option<Access>,
    }
}
