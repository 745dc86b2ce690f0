//! Live acts on the pod with a certain uid: its address, its role label, its end.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::json;

use super::{Error, answer};
use crate::api::names::ROLE_LABEL;
use crate::core::event::WriteOutcome;

/// Address of the pod, from the API server's quorum. `None`: there is no pod with that name and uid.
pub async fn confirm_pod(
    client: &Client,
    namespace: &str,
    pod: &str,
    uid: &str,
) -> Result<Option<IpAddr>, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let act = format!("reading pod {namespace}/{pod}");
    let Some(found) = answer::read_opt(act.clone(), api.get(pod)).await? else { return Ok(None) };
    if found.metadata.uid.as_deref() != Some(uid) {
        return Ok(None);
    }
    let ip = found.status.and_then(|status| status.pod_ip).and_then(|ip| ip.parse().ok());
    ip.map(Some).ok_or(Error::NoAddress { act })
}

/// Deletes the pod with this uid, so that its process is ended and another one is made. A pod that is gone, or another
/// one under the same name, is no error.
pub async fn delete_pod(client: &Client, namespace: &str, pod: &str, uid: &str) -> WriteOutcome {
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), namespace);
    let params = DeleteParams {
        // It hangs: there is nothing that it could still finish.
        grace_period_seconds: Some(1),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    match answer::write(&format!("deleting pod {namespace}/{pod}"), api.delete(pod, &params)).await {
        Ok(_) | Err(WriteOutcome::Conflict | WriteOutcome::Gone) => WriteOutcome::Written,
        Err(outcome) => outcome,
    }
}

/// Sets or removes the role label of the pod with this uid. A pod that is gone, or another one under the
/// same name, needs no label: that is no error.
pub async fn label_pod(
    client: &Client,
    namespace: &str,
    pod: &str,
    uid: &str,
    role: Option<&str>,
) -> WriteOutcome {
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), namespace);
    let act = format!("labelling pod {namespace}/{pod}");
    let patch = match label_patch(uid, role) {
        Ok(patch) => patch,
        Err(error) => return WriteOutcome::Denied(format!("{act}: it cannot be written as JSON: {error}")),
    };
    match answer::write(&act, api.patch(pod, &PatchParams::default(), &patch)).await {
        Ok(_) | Err(WriteOutcome::Conflict | WriteOutcome::Gone) => WriteOutcome::Written,
        Err(outcome) => outcome,
    }
}

/// The test on the uid fails for another pod of the same name, and the removal for a pod without the label:
/// both mean that there is nothing to do. (A uid in a merge patch is no precondition: the API server calls
/// the field immutable, as it would any real mistake.)
fn label_patch(uid: &str, role: Option<&str>) -> serde_json::Result<Patch<()>> {
    let path = format!("/metadata/labels/{}", ROLE_LABEL.replace('/', "~1"));
    let change = match role {
        Some(role) => json!({"op": "add", "path": path, "value": role}),
        None => json!({"op": "remove", "path": path}),
    };
    let test = json!({"op": "test", "path": "/metadata/uid", "value": uid});
    Ok(Patch::Json(serde_json::from_value(json!([test, change]))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::scripted::{Answer, Server};

    fn pod(uid: &str, ip: Option<&str>) -> Answer {
        Answer::Body(
            200,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cache-1", "uid": uid},
                "status": {"podIP": ip}}),
        )
    }

    #[tokio::test]
    async fn a_pod_is_confirmed_by_its_uid_not_by_its_name() {
        for (found, expected) in [("pod-b", Some("10.244.1.7".parse().unwrap())), ("pod-c", None)] {
            let server = Server::start(move |_| pod(found, Some("10.244.1.7")));
            let confirmed = confirm_pod(&server.client, "shop", "cache-1", "pod-b").await.unwrap();
            assert_eq!(confirmed, expected);
        }
    }

    #[tokio::test]
    async fn a_pod_without_an_address_is_not_taken_for_gone() {
        let server = Server::start(|_| pod("pod-b", None));
        let confirmed = confirm_pod(&server.client, "shop", "cache-1", "pod-b").await;
        assert!(matches!(confirmed, Err(Error::NoAddress { .. })));
    }

    #[tokio::test]
    async fn a_pod_is_deleted_by_its_uid_and_another_one_is_no_error() {
        let server = Server::start(|_| Answer::conflict("pods", "cache-1"));
        assert_eq!(delete_pod(&server.client, "shop", "cache-1", "pod-b").await, WriteOutcome::Written);
        let request = server.requests().pop().unwrap();
        assert!(request.line.starts_with("DELETE /api/v1/namespaces/shop/pods/cache-1"), "{}", request.line);
        assert_eq!(request.body["preconditions"], json!({"uid": "pod-b"}));
        assert_eq!(request.body["gracePeriodSeconds"], json!(1));
    }

    #[tokio::test]
    async fn the_label_is_bound_to_the_uid_and_another_pod_is_no_error() {
        let server = Server::start(|_| Answer::failed_test());
        for (role, change) in [
            (
                Some("master"),
                json!({"op": "add", "path": "/metadata/labels/redis-ha.dev~1role", "value": "master"}),
            ),
            (None, json!({"op": "remove", "path": "/metadata/labels/redis-ha.dev~1role"})),
        ] {
            let outcome = label_pod(&server.client, "shop", "cache-1", "pod-b", role).await;
            assert_eq!(outcome, WriteOutcome::Written);
            let test = json!({"op": "test", "path": "/metadata/uid", "value": "pod-b"});
            assert_eq!(server.requests().pop().unwrap().body, json!([test, change]));
        }
    }
}
