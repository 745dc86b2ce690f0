//! The spec: what users write.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::RedisClusterStatus;

/// A Redis that stays writable when its master dies.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "redis-ha.dev",
    version = "v1alpha1",
    kind = "RedisCluster",
    plural = "redisclusters",
    namespaced
)]
#[kube(status = "RedisClusterStatus", shortname = "rdc", category = "all")]
#[serde(rename_all = "camelCase")]
pub struct RedisClusterSpec {}
