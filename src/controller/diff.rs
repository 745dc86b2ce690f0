//! Whether a live object already is what we want. Pure.
//!
//! A live object holds more than we ask for (defaults, other people's labels), so we compare what we
//! want as a subset; a field that we do not want any more would go unnoticed, so a hash of all that
//! was applied is kept as an annotation.

use serde_json::{Map, Value};

use crate::api::names;
use crate::core::objects::hash;

/// Adds the hash of the object to it.
pub fn seal(object: &mut Value) {
    let digest = hash(&[object.to_string().as_bytes()]);
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = meta.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(names::APPLIED_ANNOTATION.to_owned(), Value::String(digest));
        }
    }
}

/// True when everything in `wanted` is in `live` with the same value.
pub fn is_within(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => wanted.iter().all(|(key, value)| {
            live.get(key).map_or_else(|| is_nothing(key, value), |live| is_within(value, live))
        }),
        (Value::Array(wanted), Value::Array(live)) => are_within(wanted, live),
        (wanted, live) => wanted == live,
    }
}

/// Lists of named things (containers, volumes, ports) are merged by name: other people may have added some.
/// Other lists are ours as a whole.
fn are_within(wanted: &[Value], live: &[Value]) -> bool {
    let named = |value: &Value| value.get("name").is_some();
    if !wanted.is_empty() && wanted.iter().all(named) {
        return wanted.iter().all(|want| {
            live.iter().any(|live| live.get("name") == want.get("name") && is_within(want, live))
        });
    }
    wanted.len() == live.len() && wanted.iter().zip(live).all(|(want, live)| is_within(want, live))
}

/// Fields that hold a map: an empty one says nothing. An empty object of another field does (`emptyDir: {}`).
const MAPS: [&str; 2] = ["matchLabels", "nodeSelector"];

/// The API server drops what says nothing.
fn is_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty() && MAPS.contains(&key),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_and_additions_of_others_are_no_difference() {
        let wanted = json!({"spec": {"ports": [{"name": "redis", "port": 6379}], "cluster_ip": "None"}});
        let live = json!({"spec": {"ports": [{"name": "web", "port": 80}, {"name": "redis", "port": 6379, "protocol": "TCP"}],
            "cluster_ip": "None", "type": "ClusterIP"}, "status": {}});
        assert!(is_within(&wanted, &live));
    }

    #[test]
    fn changed_missing_and_reordered_values_are_differences() {
        let wanted = json!({"command": ["a", "b"], "labels": {"x": "1"}});
        for live in [
            json!({"command": ["b", "a"], "labels": {"x": "1"}}),
            json!({"command": ["a", "b", "c"], "labels": {"x": "1"}}),
            json!({"command": ["a", "b"], "labels": {"x": "2"}}),
            json!({"command": ["a", "b"], "labels": {}}),
            json!({"command": ["a", "b"]}),
        ] {
            assert!(!is_within(&wanted, &live), "{live}");
        }
    }

    #[test]
    fn what_the_api_server_drops_is_no_difference() {
        let wanted = json!({"nodeSelector": {}, "tolerations": [{"key": "a", "value": ""}], "selector": {"matchLabels": {}},
            "list": [], "none": null});
        assert!(is_within(&wanted, &json!({"tolerations": [{"key": "a"}], "selector": {}})));
        assert!(!is_within(&wanted, &json!({"tolerations": [{"key": "a"}]})));
        assert!(!is_within(&json!({"list": []}), &json!({"list": [1]})));
        assert!(!is_within(&json!({"none": ""}), &json!({"none": "x"})));
    }

    #[test]
    fn an_empty_object_must_be_there() {
        assert!(!is_within(&json!({"emptyDir": {}}), &json!({"hostPath": {}})));
        assert!(is_within(&json!({"emptyDir": {}}), &json!({"emptyDir": {"medium": "Memory"}})));
    }

    #[test]
    fn a_field_that_is_no_longer_wanted_changes_the_seal() {
        let sealed = |value: Value| {
            let mut value = value;
            seal(&mut value);
            value
        };
        let before = sealed(json!({"metadata": {"name": "a"}, "spec": {"x": 1, "y": 2}}));
        let after = sealed(json!({"metadata": {"name": "a"}, "spec": {"x": 1}}));
        assert!(!is_within(&after, &before));
        assert!(is_within(&before, &before));
    }
}
