//! The example packages are valid.

use crate::{Body, StateType, parse, resolve};

pub(super) const EXAMPLES: [(&str, &str); 3] = [
    ("hello.yaml", include_str!("../../../../examples/packages/hello.yaml")),
    ("counter.yaml", include_str!("../../../../examples/packages/counter.yaml")),
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
    assert_eq!(circle.requirements.as_ref().unwrap().availability(), Some(0.99));
    let drawing = shapes.class("Drawing").unwrap();
    assert_eq!(drawing.state_type, StateType::Collection);
    assert_eq!(drawing.requirements.as_ref().unwrap().availability(), Some(0.999));
    assert_eq!(drawing.references[0].class, "shapes.Circle");
}
