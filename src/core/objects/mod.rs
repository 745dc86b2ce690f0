//! The Kubernetes objects of one cluster: one kind a file, each a pure function of the valid spec.

pub mod boot_file;
pub mod budgets;
pub mod claims;
pub mod config_map;
pub mod secrets;
pub mod services;
pub mod stateful_set;
pub mod users;

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use sha2::{Digest, Sha256};

use crate::api::names;
use crate::core::valid::{AuthSource, ValidCluster};
use secrets::Passwords;
use stateful_set::{Rollout, Spread};

/// All objects that the controller keeps equal to the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    pub server_secret: Secret,
    /// `None` when the application's password comes from a Secret of the user.
    pub auth_secret: Option<Secret>,
    pub config_map: ConfigMap,
    pub headless_service: Service,
    pub master_service: Service,
    pub replicas_service: Service,
    /// None for a single pod.
    pub budgets: Vec<PodDisruptionBudget>,
    pub stateful_set: StatefulSet,
}

/// Builds all objects. `replicas` is what the StatefulSet is to have now: usually the spec's.
pub fn build(cluster: &ValidCluster, passwords: &Passwords, replicas: u32, spread: Spread) -> Objects {
    let boot_file = boot_file::render(cluster);
    let users = users::render(&cluster.uid, passwords);
    let rollout = Rollout { replicas, spread, config_hash: hash(&[boot_file.as_bytes(), users.as_bytes()]) };
    Objects {
        server_secret: secrets::server(cluster, passwords, &users),
        auth_secret: match cluster.auth {
            AuthSource::Generated => Some(secrets::auth(cluster, passwords)),
            AuthSource::Secret(_) => None,
        },
        config_map: config_map::build(cluster, boot_file),
        headless_service: services::headless(cluster),
        master_service: services::master(cluster),
        replicas_service: services::replicas(cluster),
        budgets: budgets::build(cluster, replicas),
        stateful_set: stateful_set::build(cluster, &rollout),
    }
}

/// Label selector of the pods, as the scale subresource wants it.
pub fn selector(cluster: &str) -> String {
    format!("{}={cluster}", names::CLUSTER_LABEL)
}

/// Labels by which we find things again. They never change during the life of a cluster.
fn selector_labels(cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(names::CLUSTER_LABEL.to_owned(), cluster.to_owned())])
}

/// All labels: ours, and those that other tools know.
fn labels(cluster: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(cluster);
    for (key, value) in [("name", "redis"), ("instance", cluster), ("managed-by", "redis-ha-operator")] {
        labels.insert(format!("app.kubernetes.io/{key}"), value.to_owned());
    }
    labels
}

/// Selects all pods of the cluster.
fn label_selector(cluster: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(selector_labels(cluster)), ..LabelSelector::default() }
}

fn metadata(cluster: &ValidCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.namespace.clone()),
        labels: Some(labels(&cluster.name)),
        owner_references: Some(vec![cluster.owner()]),
        ..ObjectMeta::default()
    }
}

/// SHA-256 over the parts in lower-case hex.
pub fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_be_bytes()); // so that "ab","c" and "a","bc" differ
        hasher.update(part);
    }
    hex(&hasher.finalize())
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests;
