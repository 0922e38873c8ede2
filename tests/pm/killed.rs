//! PM is killed while packages are published: acknowledged ones are stored.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use futures::future::join_all;
use hyper::Method;
use oprc_tests::pm::{Pm, Setup};
use serde_json::{Value, json};
use tokio::sync::Notify;

const WRITERS: usize = 4;
/// Bound on the first response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Two packages in one request: both are stored, or none.
fn pair(name: &str) -> Value {
    let one = |name: &str| json!({"name": name, "version": "1.0.0", "classes": [{"key": "A", "functions": []}]});
    json!([one(&format!("{name}-left")), one(&format!("{name}-right"))])
}

async fn write(
    pm: &Pm,
    (round, writer): (usize, usize),
    acknowledged: &mut Vec<String>,
    any: &Notify,
) {
    for number in 0.. {
        let name = format!("p-{round}-{writer}-{number}");
        let bodies = pair(&name);
        let text: Vec<_> = bodies.as_array().into_iter().flatten().map(Value::to_string).collect();
        // Several documents in one body.
        match pm.publish_text(&text.join("\n---\n")).await {
            Ok(()) => {
                acknowledged.push(name);
                any.notify_one();
            }
            Err(_) => return,
        }
    }
}

/// Kills PM during writes, and checks its store each time.
pub(crate) async fn kills(rounds: usize) -> usize {
    let mut pm = Pm::start(&Setup::default()).await;
    let mut all = BTreeSet::new();
    for round in 0..rounds {
        let mut acknowledged = vec![Vec::new(); WRITERS];
        let any = Notify::new();
        let writers = acknowledged.iter_mut().enumerate();
        let writing = join_all(writers.map(|(at, own)| write(&pm, (round, at), own, &any)));
        let moment = Duration::from_micros(RandomState::new().hash_one(0) % 150_000);
        let kill = async {
            // Alternately during the first writes, and after some were acknowledged.
            if round % 2 == 0 {
                let _ = tokio::time::timeout(RESPONSE_TIMEOUT, any.notified()).await;
            }
            tokio::time::sleep(moment).await;
            pm.kill();
        };
        futures::join!(writing, kill);
        all.extend(acknowledged.into_iter().flatten());
        pm = pm.restart().await;
        let names = names(&pm).await;
        for name in &all {
            for side in ["left", "right"] {
                assert!(names.contains(&format!("{name}-{side}")), "{name} was acknowledged");
            }
        }
        for name in &names {
            let (name, side) = name.rsplit_once('-').unwrap();
            let other = if side == "left" { "right" } else { "left" };
            assert!(names.contains(&format!("{name}-{other}")), "{name} is half");
        }
    }
    all.len()
}

async fn names(pm: &Pm) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut next = String::new();
    loop {
        let page = pm.call(Method::GET, &format!("/packages?limit=500{next}"), None).await.unwrap();
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|it| it["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => return names,
        }
    }
}
