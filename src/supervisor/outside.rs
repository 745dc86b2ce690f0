//! What a cluster's task asks of Kubernetes and of the people who watch. Traits only: `app.rs` joins them to
//! the rooms that talk to the API server, tests to a scripted one.
//!
//! Each future has a deadline of its own.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::ClusterKey;
use crate::api::RedisClusterStatus;
use crate::core::event::{Endpoint, Expect, Measure, Notice, Stored, WriteOutcome};

/// A read that brought nothing, as a sentence.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The world of the whole operator.
pub trait Outside: Send + Sync + 'static {
    /// The world of the cluster with this uid.
    fn cluster(&self, key: &ClusterKey, uid: &str) -> Arc<dyn Cluster>;

    /// A view of the lease. Each has its own idea of what it has seen last.
    fn leadership(&self) -> Box<dyn Leadership>;
}

/// Whether this operator may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds the lease, and its last renewal is recent enough by its own clock.
    Leading { term: String },
    /// It may not act, but has not read that another operator may.
    Unsure,
    /// Another operator holds the lease, or this one gave it back.
    Following,
}

/// A view of the lease.
pub trait Leadership: Send + Sync {
    /// Cheap: asked before each effect.
    fn standing(&self) -> Standing;

    /// Waits until the standing may be another one than at the last call. A renewal that is overdue need not
    /// wake it.
    fn changed(&mut self) -> BoxFuture<'_, ()>;

    /// Reads the lease live: does it show this operator in its present term?
    fn held_live(&self) -> BoxFuture<'static, Result<bool, Failure>>;

    /// Lets another operator lead, if there is one.
    fn hand_over(&self);
}

/// The Kubernetes side of one cluster.
pub trait Cluster: Send + Sync + 'static {
    fn write_status(
        &self,
        expect: Expect,
        status: Box<RedisClusterStatus>,
    ) -> BoxFuture<'static, WriteOutcome>;

    /// The object, live; `None`: there is none.
    fn read_object(&self) -> BoxFuture<'static, Result<Option<Stored>, Failure>>;

    /// What is known of the slice is taken when this is called, not when the future first runs.
    fn write_route(&self, endpoint: Option<Endpoint>, epoch: u64) -> BoxFuture<'static, WriteOutcome>;

    /// The watch saw the slice with this version; `None`: it is gone.
    fn route_seen(&self, resource_version: Option<String>);

    /// As [`Self::write_route`], for the replicas Service.
    fn write_reads(&self, endpoints: Vec<Endpoint>, epoch: u64) -> BoxFuture<'static, WriteOutcome>;

    /// As [`Self::route_seen`], for the replicas Service.
    fn reads_seen(&self, resource_version: Option<String>);

    /// Address of the pod with this uid, live; `None`: there is no such pod.
    fn confirm_pod(&self, pod: String, uid: String) -> BoxFuture<'static, Result<Option<IpAddr>, Failure>>;

    fn label_pod(
        &self,
        pod: String,
        uid: String,
        role: Option<&'static str>,
    ) -> BoxFuture<'static, WriteOutcome>;

    /// Deletes the pod with this uid.
    fn delete_pod(&self, pod: String, uid: String) -> BoxFuture<'static, WriteOutcome>;

    /// Removes the switchover annotation, if it still has this value.
    fn clear_switchover(&self, value: String) -> BoxFuture<'static, WriteOutcome>;

    /// Makes an Event of it.
    fn tell(&self, notice: Notice) -> BoxFuture<'static, WriteOutcome>;

    fn measure(&self, measure: &Measure);
}
