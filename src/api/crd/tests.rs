//! What `kubectl apply` refuses and with which sentence, evaluated without an API server; and that the
//! committed file is what the types say.

use kube::core::cel::Validator;
use serde_json::{Value, json};

use super::*;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crds/redisclusters.redis-ha.dev.yaml");

fn schema() -> Value {
    json().unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn cluster(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "redis-ha.dev/v1alpha1",
        "kind": "RedisCluster",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
    })
}

/// All sentences with which the object is refused.
fn refusals(new: &Value, old: Option<&Value>) -> String {
    match Validator::new().validate(&schema(), new, old) {
        Ok(()) => String::new(),
        Err(errors) => errors.into_iter().map(|error| error.message).collect::<Vec<_>>().join("\n"),
    }
}

#[test]
fn committed_crd_is_fresh() {
    let generated = yaml().unwrap();
    let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
    assert!(generated == committed, "crds/ is stale: run `make generate`");
}

#[test]
fn empty_spec_is_accepted() {
    assert_eq!(refusals(&cluster("cache", &json!({})), None), "");
}

#[test]
fn full_spec_is_accepted_and_unchanged_on_update() {
    let full = cluster(
        "cache",
        &json!({
            "replicas": 9,
            "image": "registry.example/redis:8.2",
            "paused": true,
            "storage": {"size": "10Gi", "storageClassName": "fast", "retain": "Delete"},
            "persistence": "AOF",
            "auth": {"secretName": "cache-password"},
            "profile": "Durable",
            "failover": {"mode": "Manual", "unreachableAfter": "1m30s", "hungAfter": "300ms", "maxLostBytes": "1Mi"},
            "podTemplate": {
                "labels": {"team": "shop"}, "annotations": {"example.org/note": "x"},
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "shop"}}}]}},
                "tolerations": [{"key": "redis", "operator": "Exists", "tolerationSeconds": 5}],
                "nodeSelector": {"pool": "redis"},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "priorityClassName": "high",
                "securityContext": {"runAsUser": 1001},
                "imagePullSecrets": [{"name": "registry"}],
            },
            "service": {"type": "LoadBalancer", "loadBalancerClass": "x.example/y",
                "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"], "externalTrafficPolicy": "Local",
                "annotations": {"x.example/internal": "true"}},
            "replicasService": {"type": "NodePort", "externalTrafficPolicy": "Cluster"},
            "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": 2_147_483_648_i64}},
        }),
    );
    assert_eq!(refusals(&full, None), "");
    assert_eq!(refusals(&full, Some(&full)), "");
}

#[test]
fn bytes_are_a_number_or_a_quantity_from_nothing_up() {
    for bytes in [json!(0), json!(1_048_576), json!("0"), json!("64k"), json!("1.5Gi")] {
        let spec = json!({"failover": {"maxLostBytes": bytes}});
        assert_eq!(refusals(&cluster("cache", &spec), None), "", "{spec}");
    }
}

#[test]
fn null_and_absent_mean_the_same() {
    let text = json().unwrap().to_string();
    assert!(!text.contains("nullable"), "the API server must drop nulls before the rules see them");
}

#[test]
fn wrong_specs_are_refused_with_a_sentence() {
    for (spec, sentence) in [
        (json!({"replicas": 0}), "spec.replicas must be 1 to 9"),
        (json!({"replicas": 10}), "spec.replicas must be 1 to 9"),
        (json!({"image": "redis: 8"}), "spec.image must not contain spaces"),
        (json!({"failover": {"unreachableAfter": "900ms"}}), "must be a duration from 1s to 5m"),
        (json!({"failover": {"unreachableAfter": "6m"}}), "must be a duration from 1s to 5m"),
        (json!({"failover": {"unreachableAfter": "soon"}}), "must be a duration from 1s to 5m"),
        (json!({"failover": {"unreachableAfter": ""}}), "must be a duration from 1s to 5m"),
        (json!({"failover": {"hungAfter": "299ms"}}), "must be a duration from 300ms to 5m"),
        (json!({"failover": {"hungAfter": "6m"}}), "must be a duration from 300ms to 5m"),
        (json!({"failover": {"hungAfter": "6"}}), "must be a duration from 300ms to 5m"),
        (json!({"failover": {"maxLostBytes": "much"}}), "maxLostBytes must be a number of bytes"),
        (json!({"failover": {"maxLostBytes": -1}}), "maxLostBytes must be a number of bytes"),
        (json!({"auth": {"secretName": ""}}), "spec.auth.secretName must be the name of a Secret"),
        (json!({"auth": {"secretName": "My Secret"}}), "spec.auth.secretName must be the name of a Secret"),
        (json!({"auth": {"secretName": "cache-server"}}), "must not be the operator's own Secret"),
        (json!({"storage": {"size": "0"}}), "spec.storage.size must be more than 0"),
        (json!({"storage": {"size": "0Gi"}}), "spec.storage.size must be more than 0"),
        (json!({"storage": {"size": "1Gi"}, "persistence": "None"}), "would leave the volumes"),
        (json!({"service": {"annotations": {"redis-ha.dev/x": ""}}}), "are the operator's: use other keys"),
        (json!({"service": {"loadBalancerClass": "x"}}), "need type LoadBalancer"),
        (
            json!({"replicasService": {"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
            "need type LoadBalancer",
        ),
        (json!({"service": {"externalTrafficPolicy": "Local"}}), "needs type NodePort or LoadBalancer"),
        (json!({"podTemplate": {"labels": {"redis-ha.dev/role": "master"}}}), "use other keys"),
        (json!({"podTemplate": {"labels": {"app.kubernetes.io/instance": "x"}}}), "use other keys"),
        (json!({"podTemplate": {"annotations": {"redis-ha.dev/config-hash": "x"}}}), "use other keys"),
        (json!({"resources": {"limits": {"memory": "128Mi"}}}), "limits.memory must be at least 160Mi"),
        (json!({"resources": {"limits": {"memory": "lots"}}}), "limits.memory must be at least 160Mi"),
        (
            json!({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}),
            "requests.memory must not exceed",
        ),
        (
            json!({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}),
            "requests.cpu must not exceed",
        ),
    ] {
        let said = refusals(&cluster("cache", &spec), None);
        assert!(said.contains(sentence), "{spec}: said {said:?}");
        assert_eq!(said.lines().count(), 1, "{spec}: one mistake, one sentence; said {said:?}");
    }
}

#[test]
fn wrong_names_are_refused_with_a_sentence() {
    for name in ["9lives", "my.cache", "cache-", "a-name-of-more-than-forty-characters-is-x"] {
        let said = refusals(&cluster(name, &json!({})), None);
        assert!(said.contains("metadata.name must be at most 40"), "{name}: said {said:?}");
    }
}

#[test]
fn changes_that_would_lose_something_are_refused_with_a_sentence() {
    for (old, new, sentence) in [
        (json!({"persistence": "AOF"}), json!({"persistence": "RDB"}), "spec.persistence cannot be changed"),
        (json!({"persistence": "AOF"}), json!({}), "spec.persistence cannot be changed"),
        (json!({}), json!({"persistence": "RDB"}), "spec.persistence cannot be changed"),
        (
            json!({"storage": {"size": "1Gi"}}),
            json!({"storage": {"size": "1Gi"}, "persistence": "RDB"}),
            "spec.persistence cannot be changed",
        ),
        (json!({}), json!({"storage": {"size": "1Gi"}}), "spec.storage cannot be added or removed"),
        (json!({"storage": {"size": "1Gi"}}), json!({}), "spec.storage cannot be added or removed"),
        (
            json!({"storage": {"size": "1Gi"}}),
            json!({"storage": {"size": "2Gi"}}),
            "spec.storage.size cannot be changed",
        ),
        (
            json!({"storage": {"size": "1Gi", "storageClassName": "a"}}),
            json!({"storage": {"size": "1Gi", "storageClassName": "b"}}),
            "spec.storage.storageClassName cannot be changed",
        ),
        (
            json!({"storage": {"size": "1Gi"}}),
            json!({"storage": {"size": "1Gi", "storageClassName": ""}}),
            "spec.storage.storageClassName cannot be changed",
        ),
        (
            json!({"service": {"type": "LoadBalancer"}}),
            json!({"service": {"type": "LoadBalancer", "loadBalancerClass": "x"}}),
            "loadBalancerClass cannot be changed while",
        ),
        (json!({}), json!({"auth": {"secretName": "mine"}}), "spec.auth.secretName cannot be changed"),
        (
            json!({"auth": {"secretName": "mine"}}),
            json!({"auth": {}}),
            "spec.auth.secretName cannot be changed",
        ),
    ] {
        let said = refusals(&cluster("cache", &new), Some(&cluster("cache", &old)));
        assert!(said.contains(sentence), "{old} -> {new}: said {said:?}");
        assert_eq!(said.lines().count(), 1, "{old} -> {new}: one mistake, one sentence; said {said:?}");
    }
}

#[test]
fn naming_the_default_is_no_change() {
    let said = refusals(
        &cluster("cache", &json!({"persistence": "None", "auth": {}})),
        Some(&cluster("cache", &json!({}))),
    );
    assert_eq!(said, "");
}

#[test]
fn what_loses_nothing_may_be_changed() {
    for (old, new) in [
        (json!({"storage": {"size": "1Gi"}}), json!({"storage": {"size": "1024Mi", "retain": "Delete"}})),
        (json!({"storage": {"size": "1Gi"}}), json!({"storage": {"size": "1Gi"}, "persistence": "AOF"})),
        (json!({"service": {"type": "LoadBalancer", "loadBalancerClass": "x"}}), json!({"service": {}})),
        (json!({}), json!({"paused": true, "podTemplate": {"labels": {"a": "b"}}})),
    ] {
        let said = refusals(&cluster("cache", &new), Some(&cluster("cache", &old)));
        assert_eq!(said, "", "{old} -> {new}");
    }
}

/// `kubectl apply` keeps a copy of what it applies in an annotation, of at most 262,144 bytes.
#[test]
fn definition_is_small_enough_for_kubectl_apply() {
    let bytes = json().unwrap().to_string().len();
    assert!(bytes < 100_000, "{bytes} bytes");
}

#[test]
fn columns_and_subresources_are_there() {
    let crd = object().unwrap();
    let version = &crd.spec.versions[0];
    let columns: Vec<_> =
        version.additional_printer_columns.iter().flatten().map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["Phase", "Master", "Ready", "Epoch", "Age"]);
    let subresources = version.subresources.clone().unwrap();
    assert!(subresources.status.is_some());
    let scale = subresources.scale.unwrap();
    assert_eq!(scale.spec_replicas_path, ".spec.replicas");
    assert_eq!(scale.status_replicas_path, ".status.replicas");
    assert_eq!(scale.label_selector_path.as_deref(), Some(".status.selector"));
    assert_eq!(crd.spec.names.short_names.as_deref(), Some(&["rdc".to_owned()][..]));
}
