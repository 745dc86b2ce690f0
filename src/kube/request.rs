//! What people ask for by annotation is taken away once it is answered.

use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::json;

use super::answer;
use crate::api::RedisCluster;
use crate::api::names::SWITCHOVER_ANNOTATION;
use crate::core::event::WriteOutcome;
use crate::supervisor::ClusterKey;

/// Removes the switchover annotation if it still has this value. When it has not, somebody asks for something else, or
/// nobody for anything: that is no error.
pub async fn clear_switchover(client: &Client, key: &ClusterKey, uid: &str, value: &str) -> WriteOutcome {
    let act =
        format!("removing annotation {SWITCHOVER_ANNOTATION} of RedisCluster {}/{}", key.namespace, key.name);
    let path = format!("/metadata/annotations/{}", SWITCHOVER_ANNOTATION.replace('/', "~1"));
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": path, "value": value},
        {"op": "remove", "path": path},
    ]);
    let removal: Patch<()> = match serde_json::from_value(operations) {
        Ok(operations) => Patch::Json(operations),
        Err(error) => return WriteOutcome::Denied(format!("{act}: it cannot be written as JSON: {error}")),
    };
    let api: Api<PartialObjectMeta<RedisCluster>> = Api::namespaced(client.clone(), &key.namespace);
    match answer::write(&act, api.patch(&key.name, &PatchParams::default(), &removal)).await {
        Ok(_) | Err(WriteOutcome::Conflict | WriteOutcome::Gone) => WriteOutcome::Written,
        Err(outcome) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::scripted::{Answer, Server};

    #[tokio::test]
    async fn only_the_answered_value_is_removed_and_another_one_is_no_error() {
        let server = Server::start(|_| Answer::failed_test());
        let key = ClusterKey { namespace: "shop".into(), name: "cache".into() };
        assert_eq!(clear_switchover(&server.client, &key, "u-1", "any").await, WriteOutcome::Written);
        let request = server.requests().pop().unwrap();
        assert_eq!(request.line, "PATCH /apis/redis-ha.dev/v1alpha1/namespaces/shop/redisclusters/cache");
        let path = "/metadata/annotations/redis-ha.dev~1switchover";
        assert_eq!(
            request.body,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u-1"},
                {"op": "test", "path": path, "value": "any"},
                {"op": "remove", "path": path},
            ])
        );
    }
}
