//! What the claims of a cluster say about its data. They outlive its status, and even its object, so that it is
//! written on them that there was data; and whoever finds older claims does not take his start for the first one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tracing::info;

use super::Context;
use super::apply::{self, Error};
use super::caches::Caches;
use crate::api::{RedisClusterStatus, names};
use crate::supervisor::ClusterKey;

/// A cluster has at most so many pods.
const MOST_PODS: u32 = 9;

/// The cluster whose claims are looked at.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    pub key: &'a ClusterKey,
    pub created: Option<&'a Time>,
}

impl Owner<'_> {
    /// The claims that the pods of this cluster have or will get.
    fn claims(self, caches: &Caches) -> Vec<Arc<PersistentVolumeClaim>> {
        (0..MOST_PODS)
            .filter_map(|ordinal| caches.claim(self.key, &names::claim(&self.key.name, ordinal)))
            .collect()
    }

    /// Times are whole seconds: what was made at once is not older.
    fn is_younger_than(self, claim: &PersistentVolumeClaim) -> bool {
        let times = self.created.zip(claim.metadata.creation_timestamp.as_ref());
        times.is_some_and(|(object, claim)| claim.0 < object.0)
    }
}

/// Whether the cached claims say that there was data: one is marked so, or is older than the object.
pub fn data_expected(caches: &Caches, owner: Owner<'_>) -> bool {
    owner.claims(caches).iter().any(|claim| owner.is_younger_than(claim) || is_marked(claim))
}

/// Writes on each claim, once, that there was data.
pub async fn mark(
    ctx: &Context,
    caches: &Caches,
    owner: Owner<'_>,
    status: &RedisClusterStatus,
) -> Result<(), Error> {
    let key = owner.key;
    let api: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &key.namespace);
    if !status.supervision.as_ref().is_some_and(|record| record.ever_had_data) {
        return Ok(());
    }
    for claim in owner.claims(caches) {
        if is_marked(&claim) || claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if !ctx.leadership.is_leader() {
            return Ok(());
        }
        let name = claim.name_any();
        let annotations = json!({names::EVER_HAD_DATA_ANNOTATION: "true"});
        // The uid: a claim that was made anew meanwhile is not meant.
        let patch = Patch::Merge(json!({"metadata": {"uid": claim.uid(), "annotations": annotations}}));
        let (params, title) = (PatchParams::default(), format!("PersistentVolumeClaim {name}"));
        match apply::within_deadline("mark", title, api.patch_metadata(&name, &params, &patch)).await {
            Ok(_) => info!(namespace = key.namespace, name, "claim marked"),
            // Gone, or another one: the watch tells.
            Err(Error::Call { source, .. })
                if apply::is_status(&source, 404) || apply::is_status(&source, 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_marked(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().get(names::EVER_HAD_DATA_ANNOTATION).is_some_and(|value| value == "true")
}
