//! What is resolved and what is refused, without an API server.

use serde_json::{Value, json};

use super::*;

fn cluster(name: &str, spec: &Value) -> RedisCluster {
    serde_json::from_value(json!({
        "apiVersion": "redis-ha.dev/v1alpha1",
        "kind": "RedisCluster",
        "metadata": {"name": name, "namespace": "shop", "uid": "1b2c3d4e-0000", "generation": 4},
        "spec": spec,
    }))
    .unwrap()
}

fn refusal(name: &str, spec: &Value) -> Refusal {
    validate(&cluster(name, spec), "redis:8").unwrap_err()
}

#[test]
fn empty_spec_is_three_pods_with_the_default_image() {
    let valid = validate(&cluster("cache", &json!({})), "redis:8").unwrap();
    assert_eq!(valid.image, "redis:8");
    assert_eq!(valid.persistence, Persistence::None);
    assert_eq!(valid.auth, AuthSource::Generated);
    assert_eq!(valid.max_memory, None);
    assert_eq!(
        valid.desired(valid.replicas),
        Desired {
            replicas: 3,
            write_quorum: 1,
            profile: Profile::Balanced,
            unreachable_after: Duration::from_secs(3),
            hung_after: Duration::from_secs(6),
            max_lost_bytes: None,
            automatic: true,
            data_expected: false,
            scale_in_to: None,
            switchover: None,
            acknowledged: None,
        }
    );
}

#[test]
fn write_quorum_needs_a_replica() {
    let valid = validate(&cluster("cache", &json!({"replicas": 1})), "redis:8").unwrap();
    assert_eq!(valid.desired(1).write_quorum, 0);
    assert_eq!(valid.desired(2).write_quorum, 1);
}

#[test]
fn what_is_named_overrides_the_profile_and_that_the_built_in() {
    let desired = |spec: &Value| validate(&cluster("cache", spec), "redis:8").unwrap().desired(3);
    for (spec, quorum, hung_after) in [
        (json!({}), 1, 6000),
        (json!({"profile": "Balanced"}), 1, 6000),
        (json!({"profile": "Durable"}), 1, 6000),
        (json!({"profile": "Cache"}), 0, 2000),
        (json!({"profile": "Cache", "failover": {"hungAfter": "10s"}}), 0, 10_000),
        (json!({"profile": "Durable", "failover": {"hungAfter": "300ms"}}), 1, 300),
    ] {
        let desired = desired(&spec);
        assert_eq!(desired.write_quorum, quorum, "{spec}");
        assert_eq!(desired.hung_after, Duration::from_millis(hung_after), "{spec}");
        assert_eq!(desired.max_lost_bytes, None, "{spec}");
    }
    let limited = desired(&json!({"failover": {"maxLostBytes": "1Ki"}}));
    assert_eq!(limited.max_lost_bytes, Some(1024));
}

#[test]
fn maxmemory_is_six_tenths_of_the_limit() {
    let spec = json!({"resources": {"limits": {"memory": "1000M"}}});
    let valid = validate(&cluster("cache", &spec), "redis:8").unwrap();
    assert_eq!(valid.max_memory, Some(600_000_000));
    assert_eq!(valid.limits.memory.as_deref(), Some("1G"));
}

#[test]
fn durations_are_read_in_all_spellings() {
    for (text, millis) in [("1s", 1000), ("1500ms", 1500), ("2.5s", 2500), ("1m30s", 90_000), ("5m", 300_000)]
    {
        assert_eq!(unreachable_after(Some(text)).unwrap(), Duration::from_millis(millis), "{text}");
    }
}

#[test]
fn what_the_api_server_let_through_is_refused_here() {
    for (spec, reason) in [
        (json!({"replicas": 0}), "ReplicasOutOfRange"),
        (json!({"replicas": -3}), "ReplicasOutOfRange"),
        (json!({"image": "a b"}), "ImageNotUsable"),
        (json!({"failover": {"unreachableAfter": "999ms"}}), "UnreachableAfterOutOfRange"),
        (json!({"failover": {"unreachableAfter": "301s"}}), "UnreachableAfterOutOfRange"),
        (json!({"failover": {"unreachableAfter": "1.2.3s"}}), "UnreachableAfterOutOfRange"),
        (json!({"failover": {"unreachableAfter": "s"}}), "UnreachableAfterOutOfRange"),
        (json!({"failover": {"unreachableAfter": "30"}}), "UnreachableAfterOutOfRange"),
        (json!({"failover": {"hungAfter": "299ms"}}), "HungAfterOutOfRange"),
        (json!({"failover": {"hungAfter": "5m1s"}}), "HungAfterOutOfRange"),
        (json!({"failover": {"hungAfter": "soon"}}), "HungAfterOutOfRange"),
        (json!({"failover": {"maxLostBytes": "much"}}), "MaxLostBytesNotReadable"),
        (json!({"failover": {"maxLostBytes": "-1"}}), "MaxLostBytesNotReadable"),
        (json!({"auth": {"secretName": "cache-server"}}), "SecretNameNotUsable"),
        (json!({"auth": {"secretName": "../etc"}}), "SecretNameNotUsable"),
        (json!({"storage": {"size": "0"}}), "StorageSizeNotUsable"),
        (json!({"storage": {"size": "big"}}), "StorageSizeNotUsable"),
        (json!({"storage": {"size": "1Gi"}, "persistence": "None"}), "StorageWithoutPersistence"),
        (json!({"podTemplate": {"labels": {"redis-ha.dev/role": "master"}}}), "KeyNotYours"),
        (json!({"podTemplate": {"labels": {"app.kubernetes.io/name": "x"}}}), "KeyNotYours"),
        (json!({"podTemplate": {"annotations": {"redis-ha.dev/config-hash": "x"}}}), "KeyNotYours"),
        (json!({"podTemplate": {"securityContext": {"runAsUser": 1001}}}), "FsGroupMissing"),
        (json!({"service": {"annotations": {"redis-ha.dev/applied": "x"}}}), "KeyNotYours"),
        (json!({"service": {"loadBalancerClass": "x"}}), "ServiceTypeNotFitting"),
        (json!({"replicasService": {"externalTrafficPolicy": "Local"}}), "ServiceTypeNotFitting"),
        (json!({"resources": {"requests": {"cpu": "many"}}}), "QuantityNotReadable"),
        (json!({"resources": {"limits": {"memory": "100Mi"}}}), "MemoryLimitTooSmall"),
        (json!({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}), "RequestAboveLimit"),
    ] {
        assert_eq!(refusal("cache", &spec).reason(), reason, "{spec}");
    }
    for name in ["9", "a.b", "a-", "A", &"a".repeat(41)] {
        assert_eq!(refusal(name, &json!({})).reason(), "NameNotUsable", "{name}");
    }
}

#[test]
fn without_any_image_the_spec_is_refused() {
    assert_eq!(validate(&cluster("cache", &json!({})), ""), Err(Refusal::NoImage));
}

#[test]
fn owner_reference_names_the_uid() {
    let owner = validate(&cluster("cache", &json!({})), "redis:8").unwrap().owner();
    assert_eq!((owner.uid.as_str(), owner.controller), ("1b2c3d4e-0000", Some(true)));
}

#[test]
fn persistence_follows_storage_unless_it_is_named() {
    let persistence = |spec: &Value| validate(&cluster("cache", spec), "redis:8").unwrap().persistence;
    let storage = json!({"size": "1Gi"});
    assert_eq!(persistence(&json!({"storage": storage})), Persistence::Aof);
    assert_eq!(persistence(&json!({"storage": storage, "persistence": "RDB"})), Persistence::Rdb);
    assert_eq!(persistence(&json!({"persistence": "AOF"})), Persistence::Aof);
}

#[test]
fn size_of_volumes_is_spelled_as_the_api_server_does() {
    let spec = json!({"storage": {"size": "1024Mi"}});
    let storage = validate(&cluster("cache", &spec), "redis:8").unwrap().storage.unwrap();
    assert_eq!((storage.size.as_str(), storage.class), ("1Gi", None));
}

#[test]
fn manual_mode_is_handed_on() {
    let automatic = |spec: &Value| validate(&cluster("cache", spec), "redis:8").unwrap().desired(3).automatic;
    assert!(automatic(&json!({"failover": {"unreachableAfter": "2s"}})));
    assert!(automatic(&json!({"failover": {"mode": "Automatic"}})));
    assert!(!automatic(&json!({"failover": {"mode": "Manual"}})));
}
