//! What the claims of a cluster say about its data. They outlive its status, and even its object, so that it is
//! written on them that there was data; and whoever finds older claims does not take his start for the first one.

use std::collections::{BTreeMap, BTreeSet};
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

/// What the volumes say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// There was data: a claim is marked so, or is older than the object.
    pub data_expected: bool,
    /// Numbers of the pods whose volume holds this cluster's own data: the claim was made after the object, or its pod
    /// was in sync once.
    pub own: BTreeSet<u32>,
}

/// The cluster whose claims are looked at.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    pub key: &'a ClusterKey,
    /// Uid of the `RedisCluster`.
    pub uid: &'a str,
    pub created: Option<&'a Time>,
}

impl Owner<'_> {
    /// The claims that the pods of this cluster have or will get, with the pods' numbers.
    fn claims(self, caches: &Caches) -> Vec<(u32, Arc<PersistentVolumeClaim>)> {
        (0..MOST_PODS)
            .filter_map(|ordinal| {
                Some((ordinal, caches.claim(self.key, &names::claim(&self.key.name, ordinal))?))
            })
            .collect()
    }

    /// Times are whole seconds: what was made at once is not older.
    fn is_younger_than(self, claim: &PersistentVolumeClaim) -> bool {
        let times = self.created.zip(claim.metadata.creation_timestamp.as_ref());
        times.is_some_and(|(object, claim)| claim.0 < object.0)
    }

    fn has_data_on(self, claim: &PersistentVolumeClaim) -> bool {
        let marked = claim.annotations().get(names::DATA_OF_ANNOTATION).is_some_and(|uid| uid == self.uid);
        marked || !self.is_younger_than(claim)
    }
}

/// What the cached claims say.
pub fn volumes(caches: &Caches, owner: Owner<'_>) -> Volumes {
    let mut volumes = Volumes::default();
    for (ordinal, claim) in owner.claims(caches) {
        volumes.data_expected |= owner.is_younger_than(&claim) || is_marked(&claim);
        if owner.has_data_on(&claim) {
            volumes.own.insert(ordinal);
        }
    }
    volumes
}

/// Writes on each claim, once, that there was data, and on an older one whose data it holds now.
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
    for (ordinal, claim) in owner.claims(caches) {
        let mut news = BTreeMap::new();
        if !is_marked(&claim) {
            news.insert(names::EVER_HAD_DATA_ANNOTATION, "true");
        }
        if !owner.has_data_on(&claim) && is_in_place(status, &format!("{}-{ordinal}", key.name)) {
            news.insert(names::DATA_OF_ANNOTATION, owner.uid);
        }
        if news.is_empty() || claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if !ctx.leadership.is_leader() {
            return Ok(());
        }
        let name = claim.name_any();
        // The uid: a claim that was made anew meanwhile is not meant.
        let patch = Patch::Merge(json!({"metadata": {"uid": claim.uid(), "annotations": news}}));
        let (params, title) = (PatchParams::default(), format!("PersistentVolumeClaim {name}"));
        match apply::within_deadline("mark", title, api.patch_metadata(&name, &params, &patch)).await {
            Ok(_) => info!(namespace = key.namespace, name, ?news, "claim marked"),
            // Gone, or another one: the watch tells.
            Err(Error::Call { source, .. })
                if apply::is_status(&source, 404) || apply::is_status(&source, 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The pod is the master, or has taken over its data.
fn is_in_place(status: &RedisClusterStatus, pod: &str) -> bool {
    status.members.iter().any(|member| member.pod == pod && ["Master", "InSync"].contains(&&*member.state))
}

fn is_marked(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().get(names::EVER_HAD_DATA_ANNOTATION).is_some_and(|value| value == "true")
}
