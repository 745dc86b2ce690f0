//! The status of a `RedisCluster`: live reads, and the compare-and-swap on which every role change rests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Error, answer};
use crate::api::names::MANAGER;
use crate::api::{RedisCluster, RedisClusterStatus};
use crate::core::event::{Expect, Stored, WriteOutcome};
use crate::supervisor::ClusterKey;

/// The object without its spec, which is the controller's to read (and may be malformed).
#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = RedisCluster)]
struct Record {
    metadata: ObjectMeta,
    status: Option<RedisClusterStatus>,
}

/// Reads the object from the API server's quorum, never from its cache. `None`: there is no such object.
pub async fn read(client: &Client, key: &ClusterKey) -> Result<Option<Stored>, Error> {
    let api: Api<Record> = Api::namespaced(client.clone(), &key.namespace);
    let act = format!("reading RedisCluster {}/{}", key.namespace, key.name);
    // A get without resourceVersion is answered by the quorum.
    let record = answer::read_opt(act, api.get(&key.name)).await?;
    Ok(record.map(|record| Stored {
        uid: record.metadata.uid.unwrap_or_default(),
        resource_version: record.metadata.resource_version.unwrap_or_default(),
        status: record.status,
    }))
}

/// Replaces the whole status if `expect` still holds, in one request.
pub async fn write(
    client: &Client,
    key: &ClusterKey,
    expect: &Expect,
    status: &RedisClusterStatus,
) -> WriteOutcome {
    let act = format!("writing the status of RedisCluster {}/{}", key.namespace, key.name);
    let patch = match patch(expect, status) {
        Ok(patch) => patch,
        Err(error) => return WriteOutcome::Denied(format!("{act}: it cannot be written as JSON: {error}")),
    };
    // Only the metadata of the answer is decoded: a malformed spec must not hide that this was written.
    let api: Api<PartialObjectMeta<RedisCluster>> = Api::namespaced(client.clone(), &key.namespace);
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    match answer::write(&act, api.patch_status(&key.name, &params, &patch)).await {
        Ok(_) => WriteOutcome::Written,
        Err(outcome) => outcome,
    }
}

/// The tests come first: the API server applies all operations or none, and does so again on each of its
/// own retries. A path that is missing fails its test, too.
fn patch(expect: &Expect, status: &RedisClusterStatus) -> serde_json::Result<Patch<()>> {
    let status = serde_json::to_value(status)?;
    let operations: Vec<Value> = match expect {
        Expect::First { uid, resource_version } => vec![
            test("/metadata/uid", uid.as_str()),
            test("/metadata/resourceVersion", resource_version.as_str()),
            json!({"op": "add", "path": "/status", "value": status}),
        ],
        Expect::At { uid, epoch, plan } => {
            let mut operations =
                vec![test("/metadata/uid", uid.as_str()), test("/status/supervision/epoch", *epoch)];
            operations.extend(plan.as_ref().map(|plan| test("/status/supervision/plan/id", plan.as_str())));
            operations.push(json!({"op": "replace", "path": "/status", "value": status}));
            operations
        }
    };
    Ok(Patch::Json(serde_json::from_value(Value::Array(operations))?))
}

fn test(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "test", "path": path, "value": value.into()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::scripted::{Answer, Server};

    fn key() -> ClusterKey {
        ClusterKey { namespace: "shop".into(), name: "cache".into() }
    }

    fn object() -> Value {
        json!({"apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster", "spec": {"replicas": "many"},
            "metadata": {"name": "cache", "namespace": "shop", "uid": "u-1", "resourceVersion": "41"},
            "status": {"epoch": 4, "supervision": {"epoch": 4, "everHadData": true}}})
    }

    #[tokio::test]
    async fn the_patch_tests_uid_epoch_and_plan_before_it_replaces_the_status() {
        let server = Server::start(|_| Answer::Body(200, object()));
        let expect = Expect::At { uid: "u-1".into(), epoch: 4, plan: Some("p-4".into()) };
        let status = RedisClusterStatus { epoch: 5, ..RedisClusterStatus::default() };
        let outcome = write(&server.client, &key(), &expect, &status).await;
        assert_eq!(outcome, WriteOutcome::Written);
        let requests = server.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(
            requests[0].line,
            "PATCH /apis/redis-ha.dev/v1alpha1/namespaces/shop/redisclusters/cache/status"
        );
        assert_eq!(
            requests[0].body,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u-1"},
                {"op": "test", "path": "/status/supervision/epoch", "value": 4},
                {"op": "test", "path": "/status/supervision/plan/id", "value": "p-4"},
                {"op": "replace", "path": "/status",
                    "value": {"epoch": 5, "replicas": 0, "readyReplicas": 0}},
            ])
        );
    }

    #[tokio::test]
    async fn the_first_write_tests_the_resource_version_since_nothing_else_can_be_tested() {
        let server = Server::start(|_| Answer::Body(200, object()));
        let expect = Expect::First { uid: "u-1".into(), resource_version: "41".into() };
        write(&server.client, &key(), &expect, &RedisClusterStatus::default()).await;
        let operations: Vec<String> = server.requests()[0]
            .body
            .as_array()
            .unwrap()
            .iter()
            .map(|operation| format!("{} {}", operation["op"], operation["path"]).replace('"', ""))
            .collect();
        assert_eq!(operations, ["test /metadata/uid", "test /metadata/resourceVersion", "add /status"]);
    }

    #[test]
    fn without_a_plan_only_uid_and_epoch_are_tested() {
        let expect = Expect::At { uid: "u-1".into(), epoch: 4, plan: None };
        let Ok(Patch::Json(patch)) = patch(&expect, &RedisClusterStatus::default()) else { panic!() };
        let patch = serde_json::to_string(&patch).unwrap();
        assert!(!patch.contains("plan"), "{patch}");
        assert_eq!(patch.matches("\"test\"").count(), 2);
    }

    #[tokio::test]
    async fn a_failed_test_is_a_conflict() {
        let server = Server::start(|_| Answer::failed_test());
        let expect = Expect::At { uid: "u-1".into(), epoch: 4, plan: None };
        let outcome = write(&server.client, &key(), &expect, &RedisClusterStatus::default()).await;
        assert_eq!(outcome, WriteOutcome::Conflict);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_an_answer_is_unknown_and_is_not_sent_again() {
        let server = Server::start(|_| Answer::Silence);
        let expect = Expect::At { uid: "u-1".into(), epoch: 4, plan: None };
        let outcome = write(&server.client, &key(), &expect, &RedisClusterStatus::default()).await;
        assert!(matches!(outcome, WriteOutcome::Unknown(_)), "{outcome:?}");
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test]
    async fn a_read_asks_the_quorum_and_survives_a_malformed_spec() {
        let server = Server::start(|_| Answer::Body(200, object()));
        let stored = read(&server.client, &key()).await.unwrap().unwrap();
        assert_eq!((stored.uid.as_str(), stored.resource_version.as_str()), ("u-1", "41"));
        assert_eq!(stored.status.unwrap().supervision.unwrap().epoch, 4);
        assert!(!server.requests()[0].query.contains("resourceVersion"));
    }

    #[tokio::test]
    async fn only_an_answer_that_names_the_object_means_that_it_is_gone() {
        let missing = Server::start(|_| Answer::missing("redisclusters", "cache"));
        assert_eq!(read(&missing.client, &key()).await.unwrap(), None);
        let starting = Server::start(|_| Answer::Text(404, "404 page not found"));
        assert!(read(&starting.client, &key()).await.is_err());
    }
}
