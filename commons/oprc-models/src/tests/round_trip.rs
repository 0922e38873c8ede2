//! Written documents are read back unchanged.

use proptest::prelude::*;

use super::{Sample, TestRng};
use crate::{Body, OClassDeployment, OPackage, parse, to_yaml};

fn body(seed: u64) -> Body {
    let mut rng = TestRng(seed);
    if rng.below(3) == 0 {
        Body::Deployment(Box::new(OClassDeployment::sample(&mut rng)))
    } else {
        Body::Package(Box::new(OPackage::sample(&mut rng)))
    }
}

fn read(text: &str) -> Vec<Body> {
    let documents = parse(text, "written").unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    documents.into_iter().map(|it| it.body).collect()
}

proptest! {
    #[test]
    fn yaml_round_trips(seeds in proptest::collection::vec(any::<u64>(), 1..4)) {
        let bodies: Vec<Body> = seeds.into_iter().map(body).collect();
        let text = to_yaml(&bodies).unwrap();
        prop_assert_eq!(&read(&text), &bodies);
        // Output is deterministic.
        prop_assert_eq!(to_yaml(&read(&text)).unwrap(), text);
    }

    #[test]
    fn json_round_trips(seed: u64) {
        let body = body(seed);
        // JSON allows DEL unescaped, YAML does not.
        let text = serde_json::to_string(&body).unwrap().replace('\u{7f}', "\\u007f");
        prop_assert_eq!(read(&text), [body.clone()]);
        match &body {
            Body::Package(package) => {
                let text = serde_json::to_string(package).unwrap();
                prop_assert_eq!(&serde_json::from_str::<OPackage>(&text).unwrap(), &**package);
            }
            Body::Deployment(deployment) => {
                let text = serde_json::to_string(deployment).unwrap();
                let again: OClassDeployment = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(&again, &**deployment);
            }
        }
    }

    #[test]
    fn checks_are_deterministic_for_any_package(seed: u64) {
        if let Body::Package(package) = body(seed) {
            prop_assert_eq!(crate::check(&package), crate::check(&package));
            prop_assert_eq!(crate::resolve(&package, &()), crate::resolve(&package, &()));
            let _ = crate::check_update(&package, &package);
        }
    }

    #[test]
    fn parsing_any_text_does_not_panic(text in "\\PC{0,200}") {
        let _ = parse(&text, "chance");
    }
}
