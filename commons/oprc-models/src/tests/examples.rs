//! The example packages are valid.

use crate::{Body, StateType, parse, resolve};

pub(super) const EXAMPLES: [(&str, &str); 6] = [
    ("hello.yaml", include_str!("../../../../examples/packages/hello.yaml")),
    ("counter.yaml", include_str!("../../../../examples/packages/counter.yaml")),
    ("counter-py.yaml", include_str!("../../../../examples/packages/counter-py.yaml")),
    ("cart.yaml", include_str!("../../../../examples/packages/cart.yaml")),
    ("chat.yaml", include_str!("../../../../examples/packages/chat.yaml")),
    ("shapes.yaml", include_str!("../../../../examples/packages/shapes.yaml")),
];

fn resolved(name: &str) -> crate::ResolvedPackage {
    let (source, text) = EXAMPLES.into_iter().find(|(it, _)| *it == name).unwrap();
    let documents = parse(text, source).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let mut found = None;
    for document in &documents {
        document.check().unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        match &document.body {
            Body::Package(package) => {
                let resolved = resolve(package, &()).map_err(|it| document.locate(it));
                found = Some(resolved.unwrap_or_else(|diagnostics| panic!("{diagnostics}")));
            }
            Body::Deployment(deployment) => {
                let against = crate::check_against(deployment, found.as_ref().unwrap());
                against.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
            }
        }
    }
    found.unwrap()
}

#[test]
fn hello_has_one_function_and_no_state() {
    let hello = resolved("hello.yaml");
    let class = hello.class("Hello").unwrap();
    assert!(!class.has_grid());
    assert_eq!(class.functions.len(), 1);
    let container = class.functions[0].function.container().unwrap();
    assert_eq!(container.image.as_deref(), Some("oprc.local/hello-fn:dev"));
}

#[test]
fn counter_has_state_and_a_trigger() {
    let counter = resolved("counter.yaml");
    let class = counter.class("Counter").unwrap();
    assert!(class.has_grid());
    let triggers: Vec<_> = class
        .bindings
        .iter()
        .filter(|it| it.trigger_on_state_change && it.async_execution)
        .collect();
    assert_eq!(triggers.len(), 1);
    assert_eq!(triggers[0].function, "announce");
}

#[test]
fn one_function_of_a_counter_has_several_names() {
    for name in ["counter.yaml", "counter-py.yaml"] {
        let counter = resolved(name);
        let class = counter.class("Counter").unwrap();
        let changing = class.bindings.iter().filter(|it| it.function == "counter");
        let names: Vec<_> = changing.map(|it| it.name.as_str()).collect();
        assert!(names.starts_with(&["increment", "reset"]), "{names:?}");
    }
}

#[test]
fn cart_has_a_trigger_and_a_macro() {
    let cart = resolved("cart.yaml");
    let class = cart.class("Cart").unwrap();
    let triggers = class.bindings.iter().filter(|it| it.trigger_on_state_change);
    assert_eq!(triggers.map(|it| it.name.as_str()).collect::<Vec<_>>(), ["total"]);
    let flows = class.functions.iter().filter_map(|it| it.function.flow.as_ref());
    let steps: Vec<_> = flows.flat_map(|it| &it.steps).map(|it| it.function.as_str()).collect();
    assert_eq!(steps, ["reserve", "pay", "close"]);
}

#[test]
fn chat_room_is_a_collection_with_a_reference() {
    let chat = resolved("chat.yaml");
    let room = chat.class("Room").unwrap();
    assert_eq!(room.state_type, StateType::Collection);
    assert_eq!((&*room.references[0].name, &*room.references[0].class), ("owner", "chat.Member"));
}

#[test]
fn shapes_inherit() {
    let shapes = resolved("shapes.yaml");
    let circle = shapes.class("Circle").unwrap();
    let names: Vec<_> = circle.bindings.iter().map(|it| (&*it.name, &*it.function)).collect();
    let expected = [("area", "circle-area"), ("scale", "scale"), ("scaled-area", "scaled-area")];
    assert_eq!(names, expected);
    // The macro calls `area`, so the class includes it.
    let functions: Vec<_> = circle.functions.iter().map(|it| &*it.key).collect();
    assert_eq!(functions, ["circle-area", "scale", "scaled-area", "area"]);
    let keys = &circle.state_spec.as_ref().unwrap().key_specs;
    assert_eq!(keys.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["label", "radius"]);
    assert_eq!(circle.requirements.as_ref().unwrap().throughput, Some(20));
    let drawing = shapes.class("Drawing").unwrap();
    assert_eq!(drawing.state_type, StateType::Collection);
    let requirements = drawing.requirements.as_ref().unwrap();
    assert_eq!((requirements.throughput, requirements.latency), (Some(20), Some(500)));
    assert_eq!(drawing.references[0].class, "shapes.Circle");
}
