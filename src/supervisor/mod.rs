//! The shell around the pure supervisor: one task per cluster feeds events into [`crate::core`] and
//! performs effects, nothing else.

pub mod clock;
pub mod crash_points;
mod links;
pub mod outside;
mod perform;
pub mod registry;
mod task;

pub use registry::Supervisors;
pub use task::Machine;

use crate::core::facts::{ControllerReport, Desired, PodFact, ReadsFact, RouteFact};

/// Namespace and name of one `RedisCluster`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterKey {
    pub namespace: String,
    pub name: String,
}

/// What the controller hands over after each pass.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterInput {
    /// Uid of the `RedisCluster`.
    pub uid: String,
    /// `None` while the spec was never valid: the task then only publishes the status.
    pub desired: Option<Desired>,
    /// `None` until the server Secret exists.
    pub credentials: Option<Credentials>,
    /// Pods that are not owned by this `StatefulSet` are ignored.
    pub stateful_set_uid: Option<String>,
    pub report: ControllerReport,
}

/// How the operator gets into the servers of one cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub operator_user: String,
    pub operator_password: String,
    /// Switched on and off by the supervisor; its password never leaves the servers.
    pub replication_user: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("operator_user", &self.operator_user).finish_non_exhaustive()
    }
}

/// A pod as watched, with the uid of its controlling owner.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedPod {
    pub owner_uid: Option<String>,
    pub fact: PodFact,
}

/// The master's slice as watched, with the resource version that the next write must name.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedRoute {
    pub resource_version: String,
    pub fact: RouteFact,
}

/// The replicas' slice as watched.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedReads {
    pub resource_version: String,
    pub fact: ReadsFact,
}

#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
