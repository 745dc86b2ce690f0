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
    insta::assert_yaml_snapshot!([objects.headless_service, objects.master_service]);
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
        stateful_set,
    } = objects(&json!({}));
    let text =
        serde_json::to_string(&json!([config_map, headless_service, master_service, stateful_set])).unwrap();
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
