//! What people ask for by annotations of the `RedisCluster`. They change no generation. Pure.

use std::collections::BTreeMap;

use crate::api::names::{ACKNOWLEDGE_ANNOTATION, SWITCHOVER_ANNOTATION};
use crate::core::facts::Desired;

/// Adds it to what the spec asks for.
pub fn add(annotations: &BTreeMap<String, String>, mut desired: Desired) -> Desired {
    let value = |name: &str| annotations.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
    desired.switchover = value(SWITCHOVER_ANNOTATION).map(str::to_owned);
    desired.acknowledged = value(ACKNOWLEDGE_ANNOTATION).and_then(|text| text.parse().ok());
    desired
}

/// Why an annotation says nothing, as a sentence.
pub fn unreadable(annotations: &BTreeMap<String, String>) -> Option<String> {
    let text = annotations.get(ACKNOWLEDGE_ANNOTATION)?;
    text.trim().parse::<u64>().is_err().then(|| {
        format!(
            "annotation {ACKNOWLEDGE_ANNOTATION} is {text:?}, which is no epoch: write the number that the Held condition \
             names"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::valid::desired_from_running;

    fn annotations(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_switch_is_asked_for_by_name_or_any() {
        for (text, expected) in [("any", Some("any")), (" cache-2 ", Some("cache-2")), ("", None)] {
            let desired = add(&annotations(SWITCHOVER_ANNOTATION, text), desired_from_running(3));
            assert_eq!(desired.switchover.as_deref(), expected);
        }
        assert_eq!(add(&BTreeMap::new(), desired_from_running(3)), desired_from_running(3));
    }

    #[test]
    fn an_epoch_is_a_number_and_anything_else_is_told() {
        for (text, expected) in [("17", Some(17)), ("yes", None), ("-1", None)] {
            let annotations = annotations(ACKNOWLEDGE_ANNOTATION, text);
            assert_eq!(add(&annotations, desired_from_running(3)).acknowledged, expected);
            assert_eq!(unreadable(&annotations).is_some(), expected.is_none());
        }
    }
}
