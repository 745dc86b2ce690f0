//! What the claims of a cluster say about its data. They outlive its status, and even its object, so that it is
//! written on them that there was data; and whoever finds older claims does not take his start for the first one.

use std::collections::BTreeSet;
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
use crate::api::names;
use crate::supervisor::ClusterKey;

/// A cluster has at most so many pods.
const MOST_PODS: u32 = 9;

/// What the volumes say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// There was data: a claim is marked so, or is older than the object.
    pub data_expected: bool,
    /// Numbers of the pods whose claim was made after the object.
    pub own: BTreeSet<u32>,
}

/// The claims that the pods of this cluster have or will get, with the pods' numbers.
fn of(caches: &Caches, key: &ClusterKey) -> Vec<(u32, Arc<PersistentVolumeClaim>)> {
    (0..MOST_PODS)
        .filter_map(|ordinal| Some((ordinal, caches.claim(key, &names::claim(&key.name, ordinal))?)))
        .collect()
}

/// What the cached claims say of the cluster whose object was created then.
pub fn volumes(caches: &Caches, key: &ClusterKey, created: Option<&Time>) -> Volumes {
    let mut volumes = Volumes::default();
    for (ordinal, claim) in of(caches, key) {
        let older = created.zip(claim.metadata.creation_timestamp.as_ref()).is_some_and(|(object, claim)| {
            claim.0 < object.0 // whole seconds: what was made at once is not older
        });
        volumes.data_expected |= older || is_marked(&claim);
        if !older {
            volumes.own.insert(ordinal);
        }
    }
    volumes
}

/// Writes on each claim, once, that there was data.
pub async fn mark(ctx: &Context, caches: &Caches, key: &ClusterKey) -> Result<(), Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &key.namespace);
    for (_, claim) in of(caches, key) {
        if is_marked(&claim) || claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if !ctx.leadership.is_leader() {
            return Ok(());
        }
        let name = claim.name_any();
        // The uid: a claim that was made anew meanwhile is not meant.
        let body = json!({"metadata": {
            "uid": claim.uid(), "annotations": {(names::EVER_HAD_DATA_ANNOTATION): "true"}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(body));
        let title = format!("PersistentVolumeClaim {name}");
        match apply::within_deadline("mark", title, api.patch_metadata(&name, &params, &patch)).await {
            Ok(_) => info!(namespace = key.namespace, name, "claim marked: the cluster has had data"),
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
