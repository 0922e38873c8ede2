//! Takes secrets out of documents that leave the machine.

use serde_json::Value;

/// What stands where a secret was.
const REMOVED: &str = "[removed]";

/// Names whose values are secrets, however they are spelled.
const SECRET: [&str; 9] = [
    "token",
    "password",
    "passwd",
    "secret",
    "authorization",
    "credential",
    "apikey",
    "privatekey",
    "cookie",
];

/// Names of what people put secrets into: all values below are removed, the names stay.
const HOLDERS: [&str; 6] =
    ["env", "environment_variables", "annotations", "parameters", "command", "args"];

/// Removes secrets from a document: values of fields that are called like secrets, everything in
/// environments and command lines of functions, and passwords within addresses.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // `{name: PASSWORD, value: …}` is a field as well.
            let named = fields.get("name").or_else(|| fields.get("key"));
            let secret = named.and_then(Value::as_str).is_some_and(is_secret);
            for (name, value) in fields.iter_mut() {
                if is_secret(name) || (secret && name == "value") {
                    blank(value);
                } else if HOLDERS.contains(&name.to_ascii_lowercase().as_str()) {
                    blank_below(value);
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) => {
            if let Some(plain) = without_password(text) {
                *text = plain;
            }
        }
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let bare: String =
        name.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    // Files are told by their names, which are no secrets.
    !bare.ends_with("file") && SECRET.iter().any(|word| bare.contains(word))
}

fn blank(value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) => {}
        _ => *value = Value::String(REMOVED.to_owned()),
    }
}

fn blank_below(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields
                .iter_mut()
                .filter(|(name, _)| *name != "name")
                .for_each(|(_, it)| blank_below(it));
        }
        Value::Array(items) => items.iter_mut().for_each(blank_below),
        other => blank(other),
    }
}

/// `scheme://user:password@host` without who it is.
fn without_password(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let (_, host) = authority.rsplit_once('@')?;
    Some(format!("{scheme}://{REMOVED}@{host}{path}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        let mut value = json!({
            "name": "hello",
            "config": {"env": {"STEP": "canary", "n": 3}, "timeout": 2000},
            "list": [{"name": "DB_PASSWORD", "value": "canary"}],
            "env": [{"name": "A", "value": "canary"}],
            "container": {"command": ["/fn", "canary"], "args": ["--password", "canary"]},
            "apiKey": "canary", "tokenFile": "/run/token", "accessToken": {"x": ["canary"]},
            "url": "https://me:canary@host/path",
        });
        redact(&mut value);
        assert!(!value.to_string().contains("canary"), "{value}");
        assert_eq!(value["config"]["timeout"], 2000);
        assert_eq!(value["config"]["env"]["STEP"], REMOVED);
        assert_eq!(value["env"][0]["name"], "A");
        assert_eq!(value["container"]["args"], json!([REMOVED, REMOVED]));
        assert_eq!(value["tokenFile"], "/run/token");
        assert_eq!(value["url"], "https://[removed]@host/path");
    }

    proptest! {
        #[test]
        fn environments_never_leave(name in "[A-Z_]{1,8}", secret in "canary[a-z]{4}") {
            let mut value = json!({"functions": [{"config": {"env": {name: &secret}}}]});
            redact(&mut value);
            prop_assert!(!value.to_string().contains(&secret));
        }
    }
}
