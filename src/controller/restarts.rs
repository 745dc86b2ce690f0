//! Which pods run with an older template. The StatefulSet does not restart them by itself.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::Context;
use super::apply::{self, Error};
use crate::core::objects;
use crate::supervisor::ClusterKey;

/// Pods: the template that they were made from.
const REVISION_LABEL: &str = "controller-revision-hash";

/// Their names, in order. The API server is asked only when the counts of the StatefulSet say that there may be some:
/// a pod that is being deleted counts as old there, whatever it was made from.
pub async fn pending(ctx: &Context, key: &ClusterKey, live: &StatefulSet) -> Result<Vec<String>, Error> {
    let Some(revision) = maybe_pending(live) else { return Ok(Vec::new()) };
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let params = ListParams::default().labels(&objects::selector(&key.name));
    let pods =
        apply::within_deadline("list", format!("pods of {}", key.name), api.list_metadata(&params)).await?;
    let ours = live.metadata.uid.as_deref().unwrap_or_default();
    let mut old: Vec<String> = pods
        .items
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && apply::is_controlled_by(*pod, ours))
        .filter(|pod| pod.labels().get(REVISION_LABEL) != Some(&revision))
        .map(ResourceExt::name_any)
        .collect();
    old.sort();
    Ok(old)
}

/// The newest revision, when the counts do not rule out that older pods run. They lag behind the spec; then nothing is
/// known yet.
fn maybe_pending(live: &StatefulSet) -> Option<String> {
    let status = live.status.as_ref()?;
    let old = status.observed_generation == live.metadata.generation
        && status.current_revision != status.update_revision
        && status.updated_replicas.unwrap_or(0) < status.replicas;
    status.update_revision.clone().filter(|_| old)
}
