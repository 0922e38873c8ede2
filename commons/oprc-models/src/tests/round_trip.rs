//! What is written is read as the same.

use proptest::prelude::*;

use super::{Chance, Sample};
use crate::{Body, OClassDeployment, OPackage, parse, to_yaml};

fn body(seed: u64) -> Body {
    let mut chance = Chance(seed);
    if chance.below(3) == 0 {
        Body::Deployment(Box::new(OClassDeployment::sample(&mut chance)))
    } else {
        Body::Package(Box::new(OPackage::sample(&mut chance)))
    }
}

fn read(text: &str) -> Vec<Body> {
    let documents = parse(text, "written").unwrap_or_else(|faults| panic!("{faults}"));
    documents.into_iter().map(|it| it.body).collect()
}

proptest! {
    #[test]
    fn as_yaml(seeds in proptest::collection::vec(any::<u64>(), 1..4)) {
        let bodies: Vec<Body> = seeds.into_iter().map(body).collect();
        let text = to_yaml(&bodies).unwrap();
        prop_assert_eq!(&read(&text), &bodies);
        // And writing says the same each time.
        prop_assert_eq!(to_yaml(&read(&text)).unwrap(), text);
    }

    #[test]
    fn as_json(seed: u64) {
        let body = body(seed);
        // JSON lets this one stand as it is, YAML doesn't.
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

    /// Whatever stands in a package: checking and resolving it ends, and says the same again.
    #[test]
    fn whatever_is_said_is_checked(seed: u64) {
        if let Body::Package(package) = body(seed) {
            prop_assert_eq!(crate::check(&package), crate::check(&package));
            prop_assert_eq!(crate::resolve(&package, &()), crate::resolve(&package, &()));
            let _ = crate::check_update(&package, &package);
        }
    }

    #[test]
    fn whatever_is_written_is_read(text in "\\PC{0,200}") {
        let _ = parse(&text, "chance");
    }
}
