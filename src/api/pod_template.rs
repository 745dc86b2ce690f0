//! What users add to the pods. Kubernetes' own types, so that `kubectl apply` refuses what no pod has. Types only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, PodSecurityContext, Toleration, TopologySpreadConstraint,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Labels of pods that are the operator's, besides all under `redis-ha.dev/`.
pub const OWN_POD_LABELS: [&str; 3] =
    ["app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"];

/// What is added to each pod, as in a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Labels. Those under `redis-ha.dev/` and `app.kubernetes.io/name`, `instance`, `managed-by` are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.all(key, !key.startsWith('redis-ha.dev/') && !(key in ['app.kubernetes.io/name', 'app.kubernetes.io/instance', 'app.kubernetes.io/managed-by']))").message("labels under redis-ha.dev/ and app.kubernetes.io/name, instance, managed-by are the operator's: use other keys"))]
    pub labels: BTreeMap<String, String>,
    /// Annotations. Those under `redis-ha.dev/` are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.all(key, !key.startsWith('redis-ha.dev/'))").message("annotations under redis-ha.dev/ are the operator's: use other keys"))]
    pub annotations: BTreeMap<String, String>,
    /// Nodes and other pods that a pod is to be near to or away from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints of nodes that a pod bears.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// How pods are spread over nodes and zones, instead of one pod a node. One without `labelSelector` means the pods
    /// of this cluster. An empty list: no spread; then a node can take the master and its replicas with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Which pods go first when there is too little room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// User, group and the like of a pod's processes, instead of user and group 999 that is not root. The container
    /// stays without privileges, with a root directory that cannot be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,
    /// Secrets with which the image is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
}
