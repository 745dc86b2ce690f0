//! Scenarios of the route writer against a scripted API server.

use serde_json::{Value, json};

use super::*;
use crate::kube::scripted::{Answer, Asked, Server};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";

fn writer(server: &Server) -> RouteWriter {
    let key = ClusterKey { namespace: "shop".into(), name: "cache".into() };
    RouteWriter::new(server.client.clone(), key, "cluster-uid", "cache")
}

fn endpoint(ip: &str) -> Endpoint {
    Endpoint {
        pod: "cache-1".into(),
        uid: "pod-uid".into(),
        ip: ip.parse().unwrap(),
        node: Some("node-2".into()),
    }
}

fn stored(version: &str, epoch: u64, owner: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "cache", "namespace": "shop", "uid": "slice-uid", "resourceVersion": version,
            "annotations": {"redis-ha.dev/epoch": epoch.to_string(), "redis-ha.dev/pod-uid": "old-pod"},
            "ownerReferences": [{"apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster",
                "name": "cache", "uid": owner}]},
        "endpoints": [{"addresses": ["10.244.0.5"]}]})
}

/// Stores what is sent, gives it the next version, and refuses a version that is not the stored one.
fn store(mut version: u64, mut exists: bool) -> impl FnMut(&Asked) -> Answer + Send {
    move |asked| {
        let (method, _) = asked.line.split_once(' ').unwrap();
        let mut body = asked.body.clone();
        match method {
            "GET" if !exists => return Answer::missing("endpointslices", "cache"),
            "GET" => return Answer::Body(200, stored(&version.to_string(), 3, "cluster-uid")),
            "POST" if exists => {
                return Answer::refused(409, "AlreadyExists", "endpointslices", "cache");
            }
            "PUT" if body["metadata"]["resourceVersion"] != json!(version.to_string()) => {
                return Answer::conflict("endpointslices", "cache");
            }
            _ => {}
        }
        exists = true;
        version += 1;
        body["metadata"]["resourceVersion"] = json!(version.to_string());
        body["metadata"]["uid"] = json!("slice-uid");
        Answer::Body(200, body)
    }
}

#[tokio::test]
async fn the_first_write_reads_and_creates_and_the_next_one_replaces_its_own_version() {
    let server = Server::start(store(10, false));
    let writer = writer(&server);
    assert_eq!(writer.write(&[endpoint("10.244.1.7")], 4).await, WriteOutcome::Written);
    assert_eq!(writer.write(&[endpoint("10.244.1.8")], 5).await, WriteOutcome::Written);
    let named = format!("{SLICES}/cache");
    assert_eq!(server.lines(), [format!("GET {named}"), format!("POST {SLICES}"), format!("PUT {named}")]);
    let requests = server.requests();
    assert_eq!(
        requests[1].body,
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "cache", "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "cache", "redis-ha.dev/cluster": "cache",
                    "endpointslice.kubernetes.io/managed-by": "redis-ha.dev"},
                "annotations": {"redis-ha.dev/epoch": "4", "redis-ha.dev/pod-uid": "pod-uid"},
                "ownerReferences": [{"apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster",
                    "name": "cache", "uid": "cluster-uid", "controller": true}]},
            "endpoints": [{"addresses": ["10.244.1.7"], "nodeName": "node-2",
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "name": "cache-1", "namespace": "shop", "uid": "pod-uid"}}],
            "ports": [{"name": "redis", "port": 6379, "protocol": "TCP"}]})
    );
    assert_eq!(requests[2].body["metadata"]["resourceVersion"], json!("11"));
    assert_eq!(requests[2].body["metadata"]["uid"], json!("slice-uid"));
}

#[tokio::test]
async fn a_conflict_is_told_and_the_next_write_reads_first() {
    let mut puts = 0;
    let server = Server::start(move |asked| {
        let mut normal = store(10, true);
        if asked.line.starts_with("PUT") {
            puts += 1;
        }
        if puts == 1 && asked.line.starts_with("PUT") {
            return Answer::conflict("endpointslices", "cache");
        }
        normal(asked)
    });
    let writer = writer(&server);
    writer.read().await.unwrap();
    assert_eq!(writer.write(&[endpoint("10.244.1.7")], 4).await, WriteOutcome::Conflict);
    assert_eq!(writer.write(&[endpoint("10.244.1.7")], 4).await, WriteOutcome::Written);
    let methods: Vec<String> =
        server.lines().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(methods, ["GET", "PUT", "GET", "PUT"]);
}

#[tokio::test]
async fn a_slice_of_another_owner_is_never_written() {
    let server = Server::start(|_| Answer::Body(200, stored("10", 1, "another-uid")));
    let writer = writer(&server);
    let outcome = writer.write(&[endpoint("10.244.1.7")], 4).await;
    assert!(matches!(&outcome, WriteOutcome::Denied(why) if why.contains("does not belong")), "{outcome:?}");
    // Nor when the watch has told its version.
    writer.seen(Some("10".into()));
    assert!(matches!(writer.write(&[], 4).await, WriteOutcome::Denied(_)));
    assert!(server.lines().iter().all(|line| line.starts_with("GET")), "{:?}", server.lines());
}

#[tokio::test]
async fn a_decision_older_than_the_one_in_the_slice_is_refused() {
    let server = Server::start(|_| Answer::Body(200, stored("10", 9, "cluster-uid")));
    assert_eq!(writer(&server).write(&[endpoint("10.244.1.7")], 8).await, WriteOutcome::Conflict);
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn a_version_seen_after_the_decision_does_not_let_the_old_decision_through() {
    let server = Server::start(store(10, true));
    let writer = writer(&server);
    writer.read().await.unwrap();
    let paused = writer.write(&[endpoint("10.244.1.7")], 4);
    let other = super::RouteWriter::new(server.client.clone(), writer.key.clone(), "cluster-uid", "cache");
    assert_eq!(other.write(&[endpoint("10.244.1.8")], 5).await, WriteOutcome::Written);
    writer.seen(Some("11".into()));
    assert_eq!(paused.await, WriteOutcome::Conflict);
}

#[tokio::test]
async fn what_the_watch_saw_is_written_against_unless_it_is_an_older_echo() {
    let server = Server::start(store(20, true));
    let writer = writer(&server);
    writer.read().await.unwrap();
    for (seen, expected) in [("9", "20"), ("19", "20"), ("not-a-number", "20"), ("21", "21"), ("100", "100")]
    {
        writer.seen(Some(seen.into()));
        let known = writer.known().clone();
        assert!(
            matches!(&known, Known::Slice { resource_version, .. } if resource_version == expected),
            "{seen}: {known:?}"
        );
    }
    writer.seen(None);
    assert_eq!(*writer.known(), Known::Absent);
}

#[tokio::test]
async fn emptying_keeps_the_address_type_and_a_missing_slice_needs_no_emptying() {
    let server = Server::start(store(10, true));
    let writer = writer(&server);
    assert_eq!(writer.write(&[], 4).await, WriteOutcome::Written);
    let emptied = server.requests().pop().unwrap();
    assert_eq!(emptied.body["addressType"], "IPv4");
    assert_eq!(emptied.body["endpoints"], json!([]));
    assert_eq!(emptied.body["metadata"]["annotations"], json!({"redis-ha.dev/epoch": "4"}));

    let server = Server::start(store(10, false));
    assert_eq!(super::tests::writer(&server).write(&[], 4).await, WriteOutcome::Written);
    assert_eq!(server.lines(), [format!("GET {SLICES}/cache")]);
}

#[tokio::test]
async fn an_ipv6_endpoint_makes_an_ipv6_slice() {
    let server = Server::start(store(10, false));
    writer(&server).write(&[endpoint("fd00::7")], 4).await;
    let created = server.requests().pop().unwrap();
    assert_eq!(
        (&created.body["addressType"], &created.body["endpoints"][0]["addresses"][0]),
        (&json!("IPv6"), &json!("fd00::7"))
    );
}

#[tokio::test]
async fn a_slice_deleted_by_hand_is_a_conflict_and_then_made_again() {
    let mut gone = false;
    let server = Server::start(move |asked| {
        if asked.line.starts_with("PUT") {
            gone = true;
        }
        if gone && !asked.line.starts_with("POST") {
            return Answer::missing("endpointslices", "cache");
        }
        store(10, !gone)(asked)
    });
    let writer = writer(&server);
    writer.read().await.unwrap();
    assert_eq!(writer.write(&[endpoint("10.244.1.7")], 4).await, WriteOutcome::Conflict);
    assert_eq!(writer.write(&[endpoint("10.244.1.7")], 4).await, WriteOutcome::Written);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_unknown_and_forgets_the_version() {
    let server = Server::start(|asked| {
        let put = asked.line.starts_with("PUT");
        if put { Answer::Silence } else { Answer::Body(200, stored("10", 1, "cluster-uid")) }
    });
    let writer = writer(&server);
    let outcome = writer.write(&[endpoint("10.244.1.7")], 4).await;
    assert!(matches!(outcome, WriteOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(*writer.known(), Known::Nothing);
}
