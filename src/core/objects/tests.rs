//! The objects as they are sent, and that no password is where it must not be.

use serde_json::{Value, json};

use super::*;
use crate::api::RedisCluster;
use crate::core::valid::validate;

const APPLICATION: &[u8] = b"swordfish \"\n\xff#";

fn cluster(spec: &Value) -> ValidCluster {
    let object: RedisCluster = serde_json::from_value(json!({
        "apiVersion": "redis-ha.dev/v1alpha1",
        "kind": "RedisCluster",
        "metadata": {"name": "cache", "namespace": "shop", "uid": "0a1b2c3d-4e5f", "generation": 2},
        "spec": spec,
    }))
    .unwrap();
    validate(&object, "registry.example/redis:8.2").unwrap()
}

fn passwords() -> Passwords {
    Passwords { operator: "0".repeat(64), replication: "1".repeat(64), application: APPLICATION.to_vec() }
}

fn objects(spec: &Value) -> Objects {
    let cluster = cluster(spec);
    build(&cluster, &passwords(), cluster.replicas, Spread::DoNotSchedule)
}

#[test]
fn stateful_set_is_as_reviewed() {
    let spec = json!({"resources": {"requests": {"cpu": 1}, "limits": {"memory": "1024Mi"}}});
    insta::assert_yaml_snapshot!(objects(&spec).stateful_set);
}

#[test]
fn services_are_as_reviewed() {
    let objects = objects(&json!({}));
    insta::assert_yaml_snapshot!([
        objects.headless_service,
        objects.master_service,
        objects.replicas_service
    ]);
}

#[test]
fn boot_file_is_as_reviewed() {
    insta::assert_snapshot!(boot_file::render(&cluster(
        &json!({"resources": {"limits": {"memory": "1Gi"}}})
    )));
}

#[test]
fn users_file_is_as_reviewed() {
    insta::assert_snapshot!(users::render("0a1b2c3d-4e5f", &passwords()));
}

#[test]
fn persistence_is_what_the_spec_says() {
    let file = |persistence| boot_file::render(&cluster(&json!({"persistence": persistence})));
    assert!(file("AOF").contains("appendonly yes"));
    assert!(file("RDB").contains("\nsave 60 10000\n") && file("RDB").contains("appendonly no"));
    assert!(file("None").contains("save \"\"") && file("None").contains("appendonly no"));
    assert!(!file("None").contains("maxmemory"), "without a limit there is nothing to derive it from");
}

#[test]
fn no_password_outside_of_secrets() {
    let Objects {
        server_secret: _,
        auth_secret: _,
        config_map,
        headless_service,
        master_service,
        replicas_service,
        budgets,
        stateful_set,
    } = objects(&json!({}));
    let services = [headless_service, master_service, replicas_service];
    let text = serde_json::to_string(&json!([config_map, services, budgets, stateful_set])).unwrap();
    for secret in ["0".repeat(64), "1".repeat(64), "swordfish".to_owned()] {
        assert!(!text.contains(&secret));
    }
    assert!(!format!("{:?}", passwords()).contains("000"));
}

#[test]
fn users_file_holds_the_application_password_only_as_a_hash() {
    let file = users::render("0a1b2c3d-4e5f", &passwords());
    assert!(!file.contains("swordfish") && !file.contains(&"0".repeat(64)));
    assert!(file.is_ascii() && file.lines().count() == 5);
}

#[test]
fn server_secret_gives_back_what_was_put_in() {
    let Objects { server_secret, auth_secret, .. } = objects(&json!({}));
    assert_eq!(secrets::stored(&server_secret), Some(passwords()));
    assert_eq!(secrets::application_password(&auth_secret.unwrap()).as_deref(), Some(APPLICATION));
}

#[test]
fn damaged_server_secret_is_not_believed() {
    let mut damaged = objects(&json!({})).server_secret;
    damaged.data.as_mut().unwrap().get_mut("operator-password").unwrap().0.pop();
    assert_eq!(secrets::stored(&damaged), None);
}

#[test]
fn a_secret_of_the_user_is_not_made() {
    assert_eq!(objects(&json!({"auth": {"secretName": "mine"}})).auth_secret, None);
}

#[test]
fn pods_change_with_their_files_and_not_otherwise() {
    let hash = |objects: &Objects| {
        let template = &objects.stateful_set.spec.as_ref().unwrap().template;
        template.metadata.as_ref().unwrap().annotations.clone().unwrap()
    };
    let plain = objects(&json!({}));
    assert_eq!(hash(&plain), hash(&objects(&json!({"replicas": 5}))));
    assert_ne!(hash(&plain), hash(&objects(&json!({"persistence": "AOF"}))));
    let cluster = cluster(&json!({}));
    let rotated = Passwords { application: b"new".to_vec(), ..passwords() };
    assert_ne!(hash(&plain), hash(&build(&cluster, &rotated, 3, Spread::DoNotSchedule)));
}

#[test]
fn spread_is_chosen_by_nodes_and_kept() {
    assert_eq!(Spread::choose(3, 3), Spread::DoNotSchedule);
    assert_eq!(Spread::choose(3, 2), Spread::ScheduleAnyway);
    for spread in [Spread::DoNotSchedule, Spread::ScheduleAnyway] {
        let live = build(&cluster(&json!({})), &passwords(), 3, spread).stateful_set;
        assert_eq!(Spread::kept(&live), Some(spread));
    }
}

#[test]
fn budgets_are_as_reviewed() {
    insta::assert_yaml_snapshot!(objects(&json!({})).budgets);
}

#[test]
fn one_replica_at_a_time_may_go_and_a_single_pod_always() {
    let least = |replicas: u32| {
        let budgets = budgets::build(&cluster(&json!({})), replicas);
        let name = |budget: &PodDisruptionBudget| budget.metadata.name.clone().unwrap();
        let least = |budget: &PodDisruptionBudget| budget.spec.clone().unwrap().min_available.unwrap();
        budgets.iter().map(|budget| json!([name(budget), least(budget)])).collect::<Vec<_>>()
    };
    assert_eq!(least(1), [] as [Value; 0]);
    for (replicas, replicas_least) in [(2, 0), (3, 1), (9, 7)] {
        assert_eq!(least(replicas), [json!(["cache-master", 1]), json!(["cache-replicas", replicas_least])]);
    }
}

#[test]
fn storage_is_claimed_instead_of_an_empty_directory() {
    let spec = json!({"storage": {"size": "2048Mi", "storageClassName": "fast", "retain": "Delete"}});
    let set = objects(&spec).stateful_set.spec.unwrap();
    insta::assert_yaml_snapshot!(json!([
        set.volume_claim_templates,
        set.persistent_volume_claim_retention_policy
    ]));
    let volumes = set.template.spec.unwrap().volumes.unwrap();
    assert!(volumes.iter().all(|volume| volume.name != names::DATA_VOLUME), "{volumes:?}");
    let kept = objects(&json!({"storage": {"size": "1Gi"}})).stateful_set.spec.unwrap();
    let policy = kept.persistent_volume_claim_retention_policy.unwrap();
    assert_eq!(
        (policy.when_deleted.as_deref(), policy.when_scaled.as_deref()),
        (Some("Retain"), Some("Retain"))
    );
    assert_eq!(kept.volume_claim_templates.unwrap()[0].spec.as_ref().unwrap().storage_class_name, None);
}

#[test]
fn the_names_of_claims_are_those_that_the_stateful_set_gives() {
    assert_eq!(names::claim("cache", 2), "data-cache-2");
}

#[test]
fn a_server_that_ends_has_time_for_its_snapshot() {
    let grace = |spec: &Value| {
        let pod = objects(spec).stateful_set.spec.unwrap().template.spec.unwrap();
        pod.termination_grace_period_seconds.unwrap()
    };
    let limits = json!({"limits": {"memory": "20G"}}); // maxmemory 12 GB
    assert_eq!(grace(&json!({})), 45);
    assert_eq!(grace(&json!({"persistence": "RDB"})), 45);
    assert_eq!(grace(&json!({"persistence": "AOF", "resources": limits})), 45);
    assert_eq!(grace(&json!({"persistence": "RDB", "resources": limits})), 160);
}

#[test]
fn services_are_exposed_as_the_spec_says() {
    let objects = objects(&json!({
        "service": {"type": "LoadBalancer", "annotations": {"cloud.example/internal": "true"},
            "loadBalancerClass": "cloud.example/lb", "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "externalTrafficPolicy": "Local"},
        "replicasService": {"type": "NodePort"},
    }));
    insta::assert_yaml_snapshot!([objects.master_service, objects.replicas_service].map(|service| {
        let spec = service.spec.unwrap();
        assert_eq!(spec.selector, None, "the slice is the supervisor's");
        json!({"annotations": service.metadata.annotations, "spec": spec})
    }));
}

#[test]
fn pods_are_as_the_template_says_and_ours_all_the_same() {
    let constraint = json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"});
    let spec = json!({"podTemplate": {
        "labels": {"team": "shop"}, "annotations": {"note": "x"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}},
        "tolerations": [{"key": "redis", "operator": "Exists"}],
        "nodeSelector": {"pool": "redis"},
        "topologySpreadConstraints": [constraint],
        "priorityClassName": "high",
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1001, "fsGroup": 1001},
        "imagePullSecrets": [{"name": "registry"}],
    }});
    let template = objects(&spec).stateful_set.spec.unwrap().template;
    let meta = template.metadata.unwrap();
    let labels = meta.labels.unwrap();
    assert_eq!((labels["team"].as_str(), labels[names::CLUSTER_LABEL].as_str()), ("shop", "cache"));
    let annotations = meta.annotations.unwrap();
    assert!(annotations["note"] == "x" && annotations.contains_key("redis-ha.dev/config-hash"));
    let mut pod = serde_json::to_value(template.spec.unwrap()).unwrap();
    for ours in ["containers", "volumes", "terminationGracePeriodSeconds"] {
        assert!(pod.as_object_mut().unwrap().remove(ours).is_some());
    }
    insta::assert_yaml_snapshot!(pod);
}

#[test]
fn the_kept_spread_is_ours_and_not_a_constraint_of_the_user() {
    let zones = json!({"podTemplate": {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}});
    assert_eq!(Spread::kept(&objects(&zones).stateful_set), None);
}
