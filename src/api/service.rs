//! How a Service is reached from outside of the Kubernetes cluster, as users write it. Types only.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type and annotations of a Service, as in a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.type == 'LoadBalancer' || (!has(self.loadBalancerClass) && !has(self.loadBalancerSourceRanges))").message("loadBalancerClass and loadBalancerSourceRanges need type LoadBalancer"),
    validation = Rule::new("self.type != 'ClusterIP' || !has(self.externalTrafficPolicy)").message("externalTrafficPolicy needs type NodePort or LoadBalancer"),
    validation = Rule::new("self.type != 'LoadBalancer' || oldSelf.type != 'LoadBalancer' || (has(self.loadBalancerClass) == has(oldSelf.loadBalancerClass) && (!has(self.loadBalancerClass) || self.loadBalancerClass == oldSelf.loadBalancerClass))").message("loadBalancerClass cannot be changed while the type is LoadBalancer: set the type to ClusterIP first")
)]
pub struct ServiceOptions {
    /// Who reaches the Service: everybody in the Kubernetes cluster (`ClusterIP`), or others through a port of each
    /// node (`NodePort`) or a load balancer (`LoadBalancer`). Connections are not encrypted.
    #[serde(default, rename = "type")]
    pub kind: ServiceType,
    /// Annotations of the Service, for example for a cloud's load balancer. Keys under `redis-ha.dev/` are the
    /// operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = Rule::new("self.all(key, !key.startsWith('redis-ha.dev/'))").message("annotations under redis-ha.dev/ are the operator's: use other keys"))]
    pub annotations: BTreeMap<String, String>,
    /// Which load balancer serves the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub load_balancer_class: Option<String>,
    /// Addresses of clients that the load balancer lets in, for example `10.0.0.0/8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 64), regex(pattern = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")))]
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// `Cluster`, or `Local`: only the node of the pod takes connections from outside, and the client's address stays
    /// visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<ExternalTrafficPolicy>,
}

/// Who reaches a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Everybody in the Kubernetes cluster.
    #[default]
    ClusterIP,
    /// Others through a port of each node.
    NodePort,
    /// Others through a load balancer.
    LoadBalancer,
}

impl ServiceType {
    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// Which nodes take connections from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalTrafficPolicy {
    /// Every node.
    Cluster,
    /// The node of the pod.
    Local,
}

impl ExternalTrafficPolicy {
    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}
