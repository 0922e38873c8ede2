//! Removes secrets from documents of a bug report.

use serde_json::Value;

const REMOVED: &str = "[removed]";

/// Parts of normalized field names whose values are secrets.
const SECRET_NAMES: [&str; 9] = [
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

/// Normalized names of fields that may contain secrets: all values below are removed, names stay.
const SECRET_CONTAINERS: [&str; 6] =
    ["env", "environmentvariables", "annotations", "parameters", "command", "args"];

/// Removes values of fields with secret names, values of environment variables and command lines,
/// and user info and query values of URLs.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // `{name: PASSWORD, value: …}` counts as a field PASSWORD.
            let named = fields.get("name").or_else(|| fields.get("key"));
            let secret = named.and_then(Value::as_str).is_some_and(is_secret);
            for (name, value) in fields.iter_mut() {
                if is_secret(name) || (secret && name == "value") {
                    blank(value);
                } else if SECRET_CONTAINERS.contains(&normalized(name).as_str()) {
                    blank_below(value);
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) => *text = without_queries(&without_users(text)),
        _ => {}
    }
}

fn normalized(name: &str) -> String {
    name.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}

fn is_secret(name: &str) -> bool {
    let name = normalized(name);
    // Fields such as tokenFile hold a path.
    !name.ends_with("file") && SECRET_NAMES.iter().any(|word| name.contains(word))
}

fn blank(value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) => {}
        _ => *value = Value::String(REMOVED.to_owned()),
    }
}

fn blank_below(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(blank_below),
        Value::Array(items) => items.iter_mut().for_each(blank_item),
        other => blank(other),
    }
}

/// In a list, a variable is `{name: A, value: …}`; in a map, `name` is an ordinary variable.
fn blank_item(item: &mut Value) {
    match item {
        Value::Object(fields)
            if fields.contains_key("value") || fields.contains_key("valueFrom") =>
        {
            let others = fields.iter_mut().filter(|(name, _)| *name != "name");
            others.for_each(|(_, it)| blank_below(it));
        }
        other => blank_below(other),
    }
}

/// Whether a URL within a text ends here.
fn ends_url(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '"' | '<' | '>')
}

/// Removes `user:password` from each `scheme://user:password@host`.
fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|it| ends_url(it) || matches!(it, '/' | '?' | '#'));
        let (authority, rest) =
            part.split_at_checked(end.unwrap_or(part.len())).unwrap_or_default();
        plain.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => plain.extend([REMOVED, "@", host]),
            None => plain.push_str(authority),
        }
        plain.push_str(rest);
    }
    plain
}

/// Removes the values of each `?name=value&…`.
fn without_queries(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let (mut query, mut value) = (false, false);
    for letter in text.chars() {
        match letter {
            it if ends_url(it) => (query, value) = (false, false),
            '?' | '#' if !value => query = true,
            '&' => value = false,
            '=' if query && !value => {
                value = true;
                plain.extend(["=", REMOVED]);
            }
            _ => {}
        }
        if !value {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn removes_secrets_only() {
        let mut value = json!({
            "name": "hello",
            "config": {"env": {"STEP": "canary", "n": 3}, "timeout": 2000},
            "list": [{"name": "DB_PASSWORD", "value": "canary"}],
            "env": [{"name": "A", "value": "canary"}],
            "container": {"command": ["/fn", "canary"], "args": ["--password", "canary"]},
            "apiKey": "canary", "tokenFile": "/run/token", "accessToken": {"x": ["canary"]},
            "url": "https://me:canary@host/path",
            "environmentVariables": {"name": "canary"},
            "parameters": [{"name": "canary"}, "canary"],
            "message": "http://a/b?x to https://canary@c/d?token=canary&sig=ca=canary failed",
            "path": "/fn?a=canary#access=canary",
        });
        redact(&mut value);
        assert!(!value.to_string().contains("canary"), "{value}");
        assert_eq!(value["config"]["timeout"], 2000);
        assert_eq!(value["config"]["env"]["STEP"], REMOVED);
        assert_eq!(value["env"][0]["name"], "A");
        assert_eq!(value["container"]["args"], json!([REMOVED, REMOVED]));
        assert_eq!(value["tokenFile"], "/run/token");
        assert_eq!(value["url"], "https://[removed]@host/path");
        let expected = "http://a/b?x to https://[removed]@c/d?token=[removed]&sig=[removed] failed";
        assert_eq!(value["message"], expected);
    }

    proptest! {
        #[test]
        fn removes_all_environment_values(name in "name|value|[A-Z_]{1,8}", secret in "canary[a-z]{4}") {
            let mut value = json!({"functions": [{"config": {"env": {name: &secret}}}]});
            redact(&mut value);
            prop_assert!(!value.to_string().contains(&secret));
        }

        #[test]
        fn keeps_text_without_urls(text in "[^?#]{0,40}") {
            prop_assume!(!text.contains("://"));
            let mut value = Value::String(text.clone());
            redact(&mut value);
            prop_assert_eq!(value, Value::String(text));
        }
    }
}
