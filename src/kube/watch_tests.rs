//! The watches against scripted event streams, and their decoding.

use std::sync::Mutex;

use futures::stream;
use serde_json::{Value, json};

use super::*;

fn pod(name: &str, uid: &str, ip: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": uid,
            "labels": {"redis-ha.dev/cluster": "cache", "redis-ha.dev/role": "replica"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "other", "uid": "other-uid"},
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cache", "uid": "set-uid",
                    "controller": true}]},
        "spec": {"nodeName": "node-3", "containers": [{"name": "redis"}]},
        "status": {"podIP": ip, "phase": "Running"}})
}

fn decode<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[test]
fn of_a_pod_only_the_facts_stay() {
    let entry = decode::<SlimPod>(pod("cache-12", "pod-uid", Some("fd00::9"))).entry().unwrap();
    assert_eq!((entry.namespace.as_str(), entry.cluster.as_str()), ("shop", "cache"));
    assert_eq!(
        entry.value,
        OwnedPod {
            owner_uid: Some("set-uid".into()),
            fact: PodFact {
                name: "cache-12".into(),
                uid: "pod-uid".into(),
                ordinal: 12,
                ip: Some("fd00::9".parse().unwrap()),
                node: Some("node-3".into()),
                node_state: NodeState::Fit,
                terminating: false,
                role_label: Some("replica".into()),
            },
        }
    );
}

#[test]
fn a_pod_that_is_being_deleted_or_has_no_address_is_still_a_pod() {
    let mut leaving = pod("cache-0", "pod-uid", None);
    leaving["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
    let fact = decode::<SlimPod>(leaving).entry().unwrap().value.fact;
    assert!(fact.terminating);
    assert_eq!(fact.ip, None);
}

#[test]
fn a_pod_without_a_number_is_ignored() {
    assert!(decode::<SlimPod>(pod("cache-backup", "pod-uid", None)).entry().is_none());
}

fn slice(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "shop", "resourceVersion": "77",
            "labels": {"redis-ha.dev/cluster": "cache"},
            "annotations": {"redis-ha.dev/epoch": "6", "redis-ha.dev/pod-uid": "pod-uid"}},
        "addressType": "IPv4", "endpoints": [
            {"addresses": ["10.244.1.7"], "targetRef": {"kind": "Pod", "uid": "uid-7"}},
            {"addresses": ["10.244.2.8"], "targetRef": {"kind": "Pod", "uid": "uid-8"}}]})
}

#[test]
fn the_slices_of_both_services_are_told_apart_by_their_names() {
    let WatchedSlice::Master(route) = decode::<SlimSlice>(slice("cache")).entry().unwrap().value else {
        panic!("the cluster's own name is the master's");
    };
    assert_eq!(route.resource_version, "77");
    assert_eq!((route.fact.ip.as_deref(), route.fact.epoch), (Some("10.244.1.7"), 6));
    assert_eq!(route.fact.uid.as_deref(), Some("pod-uid"));
    let WatchedSlice::Replicas(reads) = decode::<SlimSlice>(slice("cache-replicas")).entry().unwrap().value
    else {
        panic!("this one is for reads");
    };
    assert_eq!((reads.resource_version.as_str(), reads.fact.epoch), ("77", 6));
    let expected = [("10.244.1.7", "uid-7"), ("10.244.2.8", "uid-8")];
    assert_eq!(reads.fact.endpoints, expected.map(|(ip, uid)| (ip.to_owned(), uid.to_owned())).into());
    assert!(decode::<SlimSlice>(slice("cache-headless")).entry().is_none());
}

#[test]
fn an_edited_or_empty_slice_is_still_a_route() {
    let route = decode::<SlimSlice>(json!({"metadata": {"name": "cache", "namespace": "shop",
        "labels": {"redis-ha.dev/cluster": "cache"}, "annotations": {"redis-ha.dev/epoch": "many"}},
        "addressType": "IPv4", "endpoints": null}));
    let WatchedSlice::Master(WatchedRoute { fact, .. }) = route.entry().unwrap().value else { panic!() };
    assert_eq!((fact.ip, fact.uid, fact.epoch), (None, None, 0));
}

#[tokio::test]
async fn each_change_tells_the_complete_list_and_a_new_list_drops_what_is_gone() {
    let object = |name: &str| decode::<SlimPod>(pod(name, &format!("uid-of-{name}"), None));
    let events = stream::iter([
        Ok(Event::Init),
        Ok(Event::InitApply(object("cache-0"))),
        Ok(Event::InitApply(object("cache-1"))),
        Ok(Event::InitDone),
        Ok(Event::Apply(object("cache-1"))),
        Ok(Event::Apply(object("cache-2"))),
        Err(watcher::Error::NoResourceVersion),
        Ok(Event::Init),
        Ok(Event::InitApply(object("cache-2"))),
        Ok(Event::InitDone),
        Ok(Event::Delete(object("cache-2"))),
    ]);
    let told = Mutex::new(Vec::new());
    let synced = AtomicBool::new(false);
    follow(events, SlimPod::entry, &synced, |index: &Index<OwnedPod>, key| {
        let names = index.of(key).into_iter().map(|pod| pod.fact.name).collect::<Vec<_>>().join(" ");
        told.lock().unwrap().push(format!("{}/{}: {names}", key.namespace, key.name));
    })
    .await;
    assert_eq!(
        *told.lock().unwrap(),
        [
            "shop/cache: cache-0 cache-1",
            "shop/cache: cache-0 cache-1 cache-2",
            "shop/cache: cache-2",
            "shop/cache: ",
        ]
    );
    assert!(synced.load(Ordering::Acquire));
}
