//! What the pods keep their data on, as users write it. Types only.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::Quantity;

/// A volume for each pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("isQuantity(string(self.size)) && quantity(string(self.size)).isGreaterThan(quantity('0'))").message("spec.storage.size must be more than 0, for example 10Gi"),
    validation = Rule::new("!isQuantity(string(self.size)) || !isQuantity(string(oldSelf.size)) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) == 0").message("spec.storage.size cannot be changed: a StatefulSet cannot resize volumes. Edit the size of the claims data-<name>-<number> where their class allows it, or create a new RedisCluster and copy the data"),
    validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)").message("spec.storage.storageClassName cannot be changed: create a new RedisCluster and copy the data")
)]
pub struct Storage {
    /// Bytes of each volume, for example `10Gi`. Give it more than twice the memory that the data takes: while the
    /// append-only file is rewritten, the old and the new one are both there.
    pub size: Quantity,
    /// Class of the volumes; without it the default one of the Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// What becomes of the volumes when pods are removed by scaling in, or when the object is deleted: `Retain` (they
    /// stay until somebody deletes their claims) or `Delete`. Can be changed.
    #[serde(default)]
    pub retain: Retain,
}

/// What becomes of the volumes of pods that are not wanted any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Retain {
    /// They stay until somebody deletes their claims.
    #[default]
    Retain,
    /// They are deleted with the pods.
    Delete,
}
