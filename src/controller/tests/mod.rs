//! Scenarios: which requests a pass sends, and above all which it does not.

mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::runtime::controller::Action;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use world::{CREATED, World, budget, cluster_path, core, key, stateful_set, writes};

use crate::controller::{reconcile, run};

/// A world in which all objects were made.
async fn settled(spec: Value) -> World {
    let mut world = World::new(&spec);
    world.pass().await.0.unwrap();
    world.sync();
    world
}

fn recorded(master: &str) -> Value {
    let members = ["cache-0", "cache-1", "cache-2"].map(|pod| {
        let (role, state) = if pod == master { ("master", "Master") } else { ("replica", "InSync") };
        json!({"pod": pod, "role": role, "state": state})
    });
    json!({"supervision": {"epoch": 3, "master": {"pod": master, "uid": "u", "runId": "r"}}, "epoch": 3,
        "replicas": 3, "readyReplicas": 3, "observedGeneration": 7, "members": members})
}

fn set_status(world: &mut World, status: Value) {
    let mut object = world.get(&cluster_path()).unwrap();
    object["status"] = status;
    world.put(&cluster_path(), object);
}

#[tokio::test]
async fn first_pass_makes_everything_without_force_and_hands_over() {
    let mut world = World::new(&json!({}));
    let (result, requests) = world.pass().await;
    assert_eq!(result.unwrap(), Action::await_change());
    let made: Vec<String> = [
        core("secrets", "cache-server"),
        core("secrets", "cache-auth"),
        core("configmaps", "cache-config"),
        core("services", "cache-headless"),
        core("services", "cache"),
        core("services", "cache-replicas"),
        budget("cache-master"),
        budget("cache-replicas"),
        stateful_set(),
    ]
    .map(|path| format!("PATCH {path}"))
    .to_vec();
    assert_eq!(writes(&requests), made);
    let input = world.input();
    assert_eq!(input.desired.unwrap().replicas, 3);
    assert_eq!(input.credentials.unwrap().operator_user, "rha-op-0a1b2c3d");
    assert_eq!(input.stateful_set_uid.unwrap(), format!("uid:{}", stateful_set()));
    assert_eq!(input.report.observed_generation, Some(7));
    assert_eq!(input.report.progressing, None);
    assert_eq!(input.report.selector.as_deref(), Some("redis-ha.dev/cluster=cache"));
}

#[tokio::test]
async fn nothing_is_sent_when_nothing_differs() {
    let mut world = settled(json!({"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}})).await;
    // Defaults and other people's additions, as an API server and its users leave them behind.
    world.edit(
        &stateful_set(),
        "/spec/template/spec/containers/0/resources",
        json!({
        "limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}),
    );
    world.edit(&core("services", "cache"), "/spec", json!({"type": "ClusterIP", "clusterIP": "10.96.0.7",
        "ports": [{"name": "redis", "port": 6379, "protocol": "TCP", "targetPort": 6379}], "sessionAffinity": "None"}));
    let (result, requests) = world.pass().await;
    assert_eq!(result.unwrap(), Action::await_change());
    assert_eq!(requests, Vec::<String>::new());
}

#[tokio::test]
async fn edited_object_is_repaired_alone() {
    let mut world = settled(json!({})).await;
    world.edit(&core("configmaps", "cache-config"), "/data/redis.conf", json!("port 1"));
    let (_, requests) = world.pass().await;
    assert_eq!(requests, [format!("PATCH force {}", core("configmaps", "cache-config"))]);
    assert!(world.get(&core("configmaps", "cache-config")).unwrap()["data"]["redis.conf"] != json!("port 1"));
}

#[tokio::test]
async fn object_that_cannot_be_applied_any_more_is_overwritten() {
    let mut world = settled(json!({})).await;
    world.edit(&core("services", "cache"), "/spec/ports", json!([{"name": "redis", "port": 1234}]));
    world.server.lock().unwrap().refuses_to_apply = Some("cache");
    let (result, requests) = world.pass().await;
    result.unwrap();
    let path = core("services", "cache");
    assert_eq!(requests, [format!("PATCH force {path}"), format!("PATCH {path}")]);
    assert_eq!(world.get(&path).unwrap()["spec"]["ports"][0]["port"], 6379);
    assert_eq!(world.pass().await.1, Vec::<String>::new());
}

#[tokio::test]
async fn deleted_secrets_come_back_unchanged() {
    let mut world = settled(json!({})).await;
    for name in ["cache-auth", "cache-server"] {
        let before = world.get(&core("secrets", name)).unwrap()["data"].clone();
        world.delete(&core("secrets", name));
        let (_, requests) = world.pass().await;
        assert_eq!(writes(&requests), [format!("PATCH {}", core("secrets", name))]);
        assert_eq!(world.get(&core("secrets", name)).unwrap()["data"], before, "{name}");
    }
}

#[tokio::test]
async fn a_new_leader_takes_the_passwords_that_are_there() {
    let world = settled(json!({})).await;
    let before = world.get(&core("secrets", "cache-server")).unwrap();
    let mut successor = World::new(&json!({}));
    let objects = world.server.lock().unwrap().objects.clone();
    successor.server.lock().unwrap().objects = objects;
    // Its caches have not seen the objects yet: it must look before it makes them.
    let (result, requests) = successor.stale_pass().await;
    result.unwrap();
    assert_eq!(writes(&requests), Vec::<&str>::new());
    assert_eq!(successor.get(&core("secrets", "cache-server")).unwrap(), before);
    assert_eq!(successor.input().credentials, world.input().credentials);
}

#[tokio::test]
async fn object_whose_label_was_removed_is_repaired() {
    let mut world = settled(json!({})).await;
    world.edit(&core("services", "cache"), "/metadata/labels", json!({}));
    let (_, requests) = world.pass().await;
    assert_eq!(writes(&requests), [format!("PATCH force {}", core("services", "cache"))]);
}

#[tokio::test]
async fn foreign_object_is_left_alone_and_told_once() {
    for owners in [
        json!([]),
        json!([{"apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster", "name": "other",
        "uid": "other", "controller": true}]),
    ] {
        let mut world = World::new(&json!({}));
        let foreign = json!({"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"app": "shop"}},
            "metadata": {"name": "cache", "namespace": "shop", "uid": "f", "ownerReferences": owners}});
        world.put(&core("services", "cache"), foreign.clone());
        let (result, requests) = world.pass().await;
        assert_eq!(result.unwrap(), Action::requeue(Duration::from_secs(60)), "no watch tells when it goes");
        assert_eq!(writes(&requests).len(), 7, "the others are made: {requests:?}");
        assert_eq!(world.get(&stateful_set()), None, "what stands behind that Service stays alone there");
        assert_eq!(world.get(&core("services", "cache")).unwrap(), foreign);
        assert_eq!(world.progressing().as_deref(), Some("ForeignObject"));
        assert_eq!(world.input().report.observed_generation, None);
        world.pass().await.0.unwrap();
        assert_eq!(world.heard.events.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn pods_do_not_boot_from_a_foreign_secret() {
    let mut world = World::new(&json!({}));
    world.put(
        &core("secrets", "cache-server"),
        json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "cache-server", "namespace": "shop", "uid": "f"}}),
    );
    world.pass().await.0.unwrap();
    assert_eq!(world.get(&stateful_set()), None);
    assert_eq!(world.progressing().as_deref(), Some("ForeignObject"));
}

#[tokio::test]
async fn a_failing_object_does_not_stop_the_others() {
    let mut world = World::new(&json!({}));
    world.server.lock().unwrap().broken =
        Some("PATCH /apis/policy/v1/namespaces/shop/poddisruptionbudgets/cache-master");
    let (result, requests) = world.pass().await;
    assert!(result.unwrap_err().to_string().contains("cannot apply PodDisruptionBudget cache-master"));
    assert_eq!(writes(&requests).len(), 9, "{requests:?}");
    assert_eq!(world.progressing().as_deref(), Some("ApiCallFailed"));
    assert!(world.input().stateful_set_uid.is_some());
}

#[tokio::test]
async fn standby_sends_nothing_but_is_ready() {
    let mut world = settled(json!({})).await;
    let led = world.input();
    world.leading.send_replace(false);
    world.delete(&core("services", "cache"));
    world.heard.inputs.lock().unwrap().clear();
    let (result, requests) = world.pass().await;
    assert_eq!(result.unwrap(), Action::await_change());
    assert_eq!(requests, Vec::<String>::new());
    let input = world.input();
    assert_eq!((input.desired, input.credentials), (led.desired, led.credentials));
    assert_eq!(input.stateful_set_uid, led.stateful_set_uid);
}

#[tokio::test]
async fn losing_the_lease_in_the_middle_stops_the_writes() {
    let mut world = World::new(&json!({}));
    world.server.lock().unwrap().lose_leadership_after = Some(2);
    let (_, requests) = world.pass().await;
    assert_eq!(writes(&requests).len(), 2, "{requests:?}");
}

#[tokio::test]
async fn scaling_in_waits_while_the_master_would_be_removed() {
    let mut world = settled(json!({})).await;
    world.edit(&cluster_path(), "/spec", json!({"replicas": 1}));
    set_status(&mut world, recorded("cache-2"));
    let (_, requests) = world.pass().await;
    assert_eq!(requests, Vec::<String>::new());
    assert_eq!(world.progressing().as_deref(), Some("MasterWouldBeRemoved"));
    let desired = world.input().desired.unwrap();
    assert_eq!((desired.replicas, desired.write_quorum), (3, 1), "the pods that stay still count");

    set_status(&mut world, recorded("cache-0"));
    let (_, mut requests) = world.pass().await;
    requests[1..3].sort(); // a cache has no order
    assert_eq!(
        requests,
        [
            format!("GET {}", cluster_path()),
            format!("DELETE {}", budget("cache-master")),
            format!("DELETE {}", budget("cache-replicas")),
            format!("PATCH force {}", stateful_set())
        ]
    );
    assert_eq!(world.get(&stateful_set()).unwrap()["spec"]["replicas"], 1);
    assert_eq!(world.progressing(), None);
    assert_eq!(world.input().desired.unwrap().write_quorum, 0);
}

#[tokio::test]
async fn scaling_in_believes_the_live_record_not_the_cached_one() {
    let mut world = settled(json!({"replicas": 3})).await;
    world.edit(&cluster_path(), "/spec", json!({"replicas": 2}));
    set_status(&mut world, recorded("cache-0"));
    world.sync();
    set_status(&mut world, recorded("cache-2")); // a failover that the cache has not seen
    let (_, requests) = world.stale_pass().await;
    assert_eq!(writes(&requests), Vec::<&str>::new());
    assert_eq!(world.progressing().as_deref(), Some("MasterWouldBeRemoved"));
}

#[tokio::test]
async fn changed_template_waits_for_restarts_and_says_which() {
    let mut world = settled(json!({})).await;
    world.edit(&cluster_path(), "/spec", json!({"podTemplate": {"labels": {"team": "shop"}}}));
    let (_, requests) = world.pass().await;
    assert_eq!(requests, [format!("PATCH force {}", stateful_set())]);
    let mut object = world.get(&stateful_set()).unwrap();
    let uid = object["metadata"]["uid"].clone();
    object["metadata"]["generation"] = json!(2);
    let mut pod = |ordinal: u8, revision: &str, terminating: bool| {
        let name = format!("cache-{ordinal}");
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cache", "uid": uid, "controller": true}]);
        let mut meta = json!({"name": name, "ownerReferences": owner,
            "labels": {"redis-ha.dev/cluster": "cache", "controller-revision-hash": revision}});
        if terminating {
            meta["deletionTimestamp"] = json!(CREATED);
        }
        world.put(&core("pods", &name), json!({"metadata": meta}));
    };
    pod(0, "b", false);
    pod(1, "a", false);
    pod(2, "b", true); // counts as old in the StatefulSet
    let list = [format!("GET /api/v1{}/pods", world::NAMESPACE)];
    for (observed, updated, pending) in [(1, 0, None), (2, 3, None), (2, 1, Some("cache-1 run with"))] {
        object["status"] = json!({"observedGeneration": observed, "replicas": 3, "updatedReplicas": updated,
            "currentRevision": "a", "updateRevision": "b"});
        world.put(&stateful_set(), object.clone());
        let (_, requests) = world.pass().await;
        assert_eq!(requests, if pending.is_some() { &list[..] } else { &[] }, "{observed} {updated}");
        let said = world.input().report.progressing;
        assert_eq!(said.is_some(), pending.is_some(), "{observed} {updated}: {said:?}");
        if let (Some((reason, sentence)), Some(pending)) = (said, pending) {
            assert_eq!(reason, "RestartPending");
            assert!(sentence.starts_with(pending), "{sentence}");
        }
        assert_eq!(world.input().report.replicas, 3);
    }
    world.edit(&core("pods", "cache-1"), "/metadata/labels/controller-revision-hash", json!("b"));
    assert_eq!(world.pass().await.1, list);
    assert_eq!(world.progressing(), None, "the pod on its way out was new");
}

#[tokio::test]
async fn budgets_follow_the_number_of_pods() {
    let mut world = settled(json!({})).await;
    for (replicas, least) in [(5, 3), (2, 0), (3, 1)] {
        world.edit(&cluster_path(), "/spec", json!({"replicas": replicas}));
        set_status(&mut world, recorded("cache-0"));
        world.pass().await.0.unwrap();
        assert_eq!(world.get(&budget("cache-replicas")).unwrap()["spec"]["minAvailable"], least);
        assert_eq!(world.get(&budget("cache-master")).unwrap()["spec"]["minAvailable"], 1);
    }
}

#[tokio::test]
async fn a_paused_cluster_is_left_as_it_is_and_supervised_as_it_runs() {
    let mut world = settled(json!({})).await;
    let credentials = world.input().credentials;
    world.edit(&cluster_path(), "/spec", json!({"paused": true, "replicas": 5, "image": "another"}));
    world.delete(&core("services", "cache"));
    let (result, requests) = world.pass().await;
    assert_eq!(result.unwrap(), Action::await_change());
    assert_eq!(requests, Vec::<String>::new());
    let input = world.input();
    assert!(input.report.paused);
    assert_eq!(input.desired.unwrap().replicas, 3, "so many run");
    assert_eq!(input.credentials, credentials);
    world.edit(&cluster_path(), "/spec/paused", json!(false));
    let (_, requests) = world.pass().await;
    assert_eq!(writes(&requests).len(), 3, "Service, budget, StatefulSet: {requests:?}");
    assert!(!world.input().report.paused);
}

fn put_claim(world: &mut World, ordinal: u8, created: &str) -> String {
    let name = format!("data-cache-{ordinal}");
    let path = core("persistentvolumeclaims", &name);
    world.put(
        &path,
        json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("claim-{ordinal}"),
            "labels": {"redis-ha.dev/cluster": "cache"}, "creationTimestamp": created}}),
    );
    path
}

#[tokio::test]
async fn claims_are_marked_once_the_cluster_has_had_data() {
    let mut world = settled(json!({"storage": {"size": "1Gi"}})).await;
    let paths = [0, 1].map(|ordinal| put_claim(&mut world, ordinal, CREATED));
    set_status(&mut world, recorded("cache-0"));
    assert_eq!(world.pass().await.1, Vec::<String>::new(), "no data yet");
    assert!(!world.input().desired.unwrap().data_expected);

    world.edit(&cluster_path(), "/status/supervision", json!({"epoch": 3, "everHadData": true}));
    let (_, requests) = world.pass().await;
    assert_eq!(requests, paths.each_ref().map(|path| format!("PATCH {path}")));
    let marked = world.get(&paths[1]).unwrap();
    assert_eq!(marked["metadata"]["annotations"]["redis-ha.dev/ever-had-data"], "true");
    assert_eq!(world.pass().await.1, Vec::<String>::new(), "once");

    // The status is lost: the claims still know.
    set_status(&mut world, json!({}));
    assert_eq!(world.pass().await.1, Vec::<String>::new());
    assert!(world.input().desired.unwrap().data_expected);
}

#[tokio::test]
async fn claims_older_than_the_object_are_data_of_an_earlier_one() {
    let mut world = settled(json!({"storage": {"size": "1Gi"}})).await;
    put_claim(&mut world, 0, "2026-01-02T03:04:06Z");
    put_claim(&mut world, 2, "2026-01-02T03:04:04Z");
    world.pass().await.0.unwrap();
    assert!(world.input().desired.unwrap().data_expected);
    let mut status = recorded("cache-0");
    status["supervision"]["everHadData"] = json!(true);
    set_status(&mut world, status);
    assert_eq!(world.pass().await.1.len(), 2, "both are marked");
    assert_eq!(world.pass().await.1, Vec::<String>::new(), "once");

    world.leading.send_replace(false);
    world.pass().await.0.unwrap();
    assert!(world.input().desired.unwrap().data_expected, "a standby knows it, too");
}

#[tokio::test]
async fn missing_secret_of_the_user_changes_nothing() {
    let mut world = World::new(&json!({"auth": {"secretName": "mine"}}));
    let (_, requests) = world.pass().await;
    assert_eq!(writes(&requests), Vec::<&str>::new());
    let (reason, sentence) = world.input().report.spec_invalid.unwrap();
    assert_eq!(reason, "AuthSecretMissing");
    assert!(sentence.contains("Secret mine does not exist"), "{sentence}");

    world.put(
        &core("secrets", "mine"),
        json!({"metadata": {"name": "mine", "namespace": "shop"},
        "data": {"password": ""}}),
    );
    world.pass().await.0.unwrap();
    assert_eq!(world.input().report.spec_invalid.unwrap().0, "AuthSecretWithoutPassword");

    world.edit(&core("secrets", "mine"), "/data/password", json!("/wAK")); // bytes ff 00 0a
    let (_, requests) = world.pass().await;
    assert_eq!(world.input().report.spec_invalid, None);
    assert_eq!(writes(&requests).len(), 8, "no <name>-auth: {requests:?}");
}

#[tokio::test]
async fn secret_that_vanishes_later_stops_nothing_that_runs() {
    let mut world = World::new(&json!({"auth": {"secretName": "mine"}}));
    world.put(
        &core("secrets", "mine"),
        json!({"metadata": {"name": "mine", "namespace": "shop"},
        "data": {"password": "c2VzYW1l"}}),
    );
    world.pass().await.0.unwrap();
    let before = world.input();
    world.delete(&core("secrets", "mine"));
    let (_, requests) = world.pass().await;
    assert_eq!(writes(&requests), Vec::<&str>::new());
    let after = world.input();
    assert!(after.report.spec_invalid.is_some());
    assert_eq!((after.desired, after.credentials), (before.desired, before.credentials));
}

#[tokio::test]
async fn malformed_object_keeps_its_supervisor() {
    let mut world = settled(json!({})).await;
    world.edit(&cluster_path(), "/spec", json!({"replicas": "three"}));
    let (result, requests) = world.pass().await;
    result.unwrap();
    assert_eq!(requests, Vec::<String>::new());
    let input = world.input();
    assert_eq!(input.report.spec_invalid.unwrap().0, "ObjectNotReadable");
    assert_eq!(input.desired.unwrap().replicas, 3);
    assert!(input.credentials.is_some() && input.stateful_set_uid.is_some());
}

#[tokio::test]
async fn invalid_spec_after_a_restart_still_supervises_what_runs() {
    let world = settled(json!({"replicas": 5})).await;
    let mut restarted = World::new(&json!({"replicas": 77}));
    let mut objects = std::mem::take(&mut world.server.lock().unwrap().objects);
    objects.insert(cluster_path(), restarted.get(&cluster_path()).unwrap());
    restarted.server.lock().unwrap().objects = objects;
    let (_, requests) = restarted.pass().await;
    assert_eq!(requests, Vec::<String>::new());
    let input = restarted.input();
    assert_eq!(input.report.spec_invalid.unwrap().0, "ReplicasOutOfRange");
    assert_eq!(input.desired.unwrap().replicas, 5);
    assert_eq!(input.credentials, world.input().credentials);
}

#[tokio::test]
async fn orphan_of_this_cluster_is_deleted_and_others_are_not() {
    let mut world = settled(json!({})).await;
    let budget = |name: &str| format!("/apis/policy/v1/namespaces/shop/poddisruptionbudgets/{name}");
    let mut orphan = world.get(&budget("cache-master")).unwrap();
    orphan["metadata"]["name"] = json!("cache-old");
    world.put(&budget("cache-old"), orphan.clone());
    orphan["metadata"]["name"] = json!("cache-lookalike");
    orphan["metadata"]["ownerReferences"] = json!([]);
    world.put(&budget("cache-lookalike"), orphan);
    // A copy that somebody made with everything in it is theirs.
    let mut copy = world.get(&core("secrets", "cache-auth")).unwrap();
    copy["metadata"]["name"] = json!("app-auth");
    world.put(&core("secrets", "app-auth"), copy);
    let (_, requests) = world.pass().await;
    assert_eq!(requests, [format!("DELETE {}", budget("cache-old"))]);
}

#[tokio::test]
async fn deletion_ends_all_work_at_once() {
    let mut world = settled(json!({})).await;
    let mut object = world.get(&cluster_path()).unwrap();
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.put(&cluster_path(), object);
    world.delete(&core("services", "cache"));
    let (_, requests) = world.pass().await;
    assert_eq!(requests, Vec::<String>::new());
    assert!(world.heard.inputs.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_pass_that_ends_after_the_object_is_gone_does_not_bring_its_supervisor_back() {
    let mut world = settled(json!({})).await;
    let cluster = world.room.caches.clusters.state().pop().unwrap();
    world.delete(&cluster_path());
    world.sync();
    world.room.notice_departures(&Event::Delete((*cluster).clone()));
    assert!(world.heard.inputs.lock().unwrap().is_empty());
    reconcile::reconcile(cluster, Arc::clone(&world.room)).await.unwrap();
    assert!(world.heard.inputs.lock().unwrap().is_empty());
}

#[tokio::test]
async fn object_that_went_while_the_watch_was_down_is_noticed() {
    let mut world = settled(json!({})).await;
    world.delete(&cluster_path());
    world.sync();
    world.room.notice_departures(&Event::InitDone);
    assert!(!world.heard.inputs.lock().unwrap().contains_key(&key()));
}

#[tokio::test]
async fn a_standby_that_becomes_leader_makes_everything() {
    let world = World::new(&json!({}));
    world.leading.send_replace(false);
    let ctx = world.context();
    let synced = Arc::clone(&ctx.synced);
    let running = tokio::spawn(run(ctx));
    until(|| synced.load(Ordering::Acquire) && world.heard.inputs.lock().unwrap().contains_key(&key())).await;
    assert_eq!(writes(&world.server.lock().unwrap().requests), Vec::<&str>::new());
    world.leading.send_replace(true);
    until(|| world.get(&stateful_set()).is_some() && world.input().stateful_set_uid.is_some()).await;
    assert_eq!(writes(&world.server.lock().unwrap().requests).len(), 9);
    running.abort();
}

async fn until(met: impl Fn() -> bool) {
    let wait = async {
        while !met() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap();
}
