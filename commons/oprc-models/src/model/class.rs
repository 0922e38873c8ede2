//! Classes: what their objects keep, and what can be done with them.

use super::{Consistency, Constraints, Requirements};
use crate::macros::{model, words};

model! {
    /// A class.
    OClass {
        /// What it is known by within the package. Goes into `deployment_unit.class`.
        key | "_key": String,
        /// What people call it, for the catalogue.
        name: Option<String>,
        /// What it is for, for the catalogue.
        description: Option<String>,
        /// What an object of the class is; as that of the parents, or NORMAL. Goes into
        /// `state.state_type`.
        state_type: Option<StateType>,
        /// What its objects keep. A class that has one, or inherits one, has a data grid (addon
        /// `odgm`), unless its provider is NONE.
        state_spec: Option<StateSpec>,
        /// The names under which functions are offered. Go into `functions[].bindings`.
        functions | "bindings": Vec<FunctionBinding>,
        /// Other classes that objects of this one refer to. PM sees to it that they are there, and
        /// macros may call functions of them; the catalogue shows them.
        ref_spec | "references": Vec<Reference>,
        /// The classes that it inherits from, as `class` or as `package.class` of a dependency.
        /// What several of them have is taken from the first. PM settles this before anything is
        /// deployed.
        parents: Vec<String>,
        /// What is required of the class as a whole. Goes into `nfr_requirements`.
        requirements: Option<Requirements>,
        /// What none of its functions may exceed. Goes into `constraints`.
        constraints: Option<Constraints>,
        /// Whether it can't be deployed. It can be inherited from.
        disabled: bool,
        /// Whether a later version may come without it.
        mark_for_removal: bool,
    }
    refused {
        "status" => "PM tells it, nobody sets it",
        "_rev" => "PM counts revisions by itself",
        "rev" => "PM counts revisions by itself",
        "pkg" => "follows from the package that it stands in",
        "odgm" => "how the data grid is made is said by a deployment's odgm",
    }
}

words! {
    /// What an object of a class is.
    StateType {
        /// One of many.
        #[default]
        Normal = "NORMAL",
        /// One of many, used many at a time.
        Collection = "COLLECTION",
        /// The only one.
        Singleton = "SINGLETON",
    }
}

model! {
    /// What objects of a class keep.
    StateSpec {
        /// The keys of an object's state. Macros may only use keys that are here; the catalogue
        /// shows them.
        key_specs: Vec<KeySpec>,
        /// What keeps the state: ODGM, unless said otherwise. Decides on the addon `odgm`.
        default_provider: Option<Provider>,
        /// What readers may see. Goes into `state.consistency`.
        consistency: Option<Consistency>,
        /// Whether data outlives the pods that keep it. Goes into `state.persistence`.
        persistence: Option<Persistence>,
        /// How data is used. Go into `state.access_patterns`.
        access_patterns: Vec<AccessPattern>,
    }
}

model! {
    /// One key of an object's state.
    KeySpec {
        /// Its name.
        name: String,
        /// What stands there.
        kind = "type": KeyType,
        /// Whether it may be left out.
        optional: bool,
    }
}

words! {
    /// What stands under a key.
    KeyType {
        /// Text.
        #[default]
        String = "STRING",
        /// A whole number.
        Integer = "INTEGER",
        /// Any number.
        Double = "DOUBLE",
        /// True or false.
        Boolean = "BOOLEAN",
        /// Anything that JSON can say.
        Json = "JSON",
    }
}

words! {
    /// What keeps the state of objects.
    Provider {
        /// The data grid.
        #[default]
        Odgm = "ODGM",
        /// Nothing: the class has no state.
        None = "NONE",
    }
}

words! {
    /// Whether data outlives the pods that keep it.
    Persistence {
        /// It does.
        #[default]
        Persistent = "PERSISTENT",
        /// It doesn't.
        Ephemeral = "EPHEMERAL",
    }
}

words! {
    /// How data is used.
    AccessPattern {
        /// Read and written one by one.
        #[default]
        ReadWrite = "READ_WRITE",
        /// Read only.
        ReadOnly = "READ_ONLY",
        /// Written only.
        WriteOnly = "WRITE_ONLY",
        /// Read many at a time.
        BatchRead = "BATCH_READ",
    }
}

model! {
    /// A name under which a class offers a function.
    FunctionBinding {
        /// The name.
        name: String,
        /// The function, as `key` or as `package.key` of a dependency.
        function | "functionKey": String,
        /// Who may call it. Goes into `bindings[].access`.
        access: Option<Access>,
        /// Whether calls that name no binding go here. `oprc invoke` and the catalogue heed it; a
        /// class has one at most.
        default_route: bool,
        /// Whether neither classes that inherit it nor later versions may change it.
        immutable: bool,
        /// Whether the function is called when an object of the class changes. Goes into
        /// `bindings[].trigger_on_state_change`.
        trigger_on_state_change: bool,
        /// Whether such a call isn't waited for. Goes into `bindings[].async_execution`.
        async_execution | "async": bool,
    }
    refused {
        "condition" => "nothing evaluates conditions of bindings, so the function would be called \
            whatever it says; let the function decide",
        "noMain" => "calls of a class's own functions always come with an object, so there is \
            nothing that would heed it",
        "status" => "PM tells it, nobody sets it",
    }
}

words! {
    /// Who may call a function.
    Access {
        /// Functions of the class itself.
        Private = "PRIVATE",
        /// Everything in the cluster.
        #[default]
        Internal = "INTERNAL",
        /// Everybody.
        Public = "PUBLIC",
    }
}

model! {
    /// Another class that objects of this one refer to.
    Reference {
        /// What the reference is called.
        name: String,
        /// The class, as `class` or as `package.class` of a dependency.
        class | "cls": String,
        /// Who may follow it: macros of this class (PRIVATE), of this package (INTERNAL), or of
        /// any. PM checks it when macros are resolved.
        access: Option<Access>,
    }
}
