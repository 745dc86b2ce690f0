//! The loop that makes Kubernetes objects equal to the spec. It owns objects, never roles; it never
//! writes status, but hands its part over to the supervisor's task. Only the leader writes.

mod apply;
mod caches;
mod claims;
mod diff;
mod memory;
mod passwords;
mod presence;
mod reconcile;
mod report;
mod requests;
mod restarts;
mod scale;
mod spread;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action, Config, Controller};
use kube::{Client, Resource};
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::api::RedisCluster;
use crate::supervisor::{ClusterInput, ClusterKey};
use caches::Caches;
use memory::Memory;

/// A stored object that may be malformed: one bad object must not stop the watch of the others.
type Guarded = DeserializeGuard<RedisCluster>;

/// Everything the controller needs.
pub struct Context {
    /// For watches: patient.
    pub watches: Client,
    /// For everything else: it must not repeat a call by itself, since leadership is asked for once a call.
    pub client: Client,
    /// `--default-redis-image`; empty: each spec must name its image.
    pub default_image: String,
    /// Namespace to look after; `None`: all of them.
    pub namespace: Option<String>,
    /// Asked at each write.
    pub leadership: Arc<dyn Leads>,
    pub handover: Arc<dyn Handover>,
    pub announce: Arc<dyn Announce>,
    /// Set once the caches are filled.
    pub synced: Arc<AtomicBool>,
}

/// Whether this operator may write now.
pub trait Leads: Send + Sync {
    fn is_leader(&self) -> bool;
    /// One item each time that this operator becomes the leader: then every cluster is looked at.
    fn became_leader(&self) -> BoxStream<'static, ()>;
}

impl Leads for watch::Receiver<bool> {
    fn is_leader(&self) -> bool {
        *self.borrow()
    }

    fn became_leader(&self) -> BoxStream<'static, ()> {
        stream::unfold(self.clone(), |mut leading| async move {
            loop {
                leading.changed().await.ok()?;
                if *leading.borrow_and_update() {
                    return Some(((), leading));
                }
            }
        })
        .boxed()
    }
}

/// Where the controller's results go: the supervisors' tasks.
pub trait Handover: Send + Sync {
    /// The cluster exists and this is what is known of it; replaces what was said before.
    fn set(&self, key: ClusterKey, input: ClusterInput);
    /// The cluster is gone or going: nothing more is to be done for it.
    fn remove(&self, key: &ClusterKey);
}

/// Tells people by an Event. Must return at once.
pub trait Announce: Send + Sync {
    fn warn(&self, cluster: &ObjectReference, reason: &'static str, message: &str);
}

/// What every pass has at hand.
struct Room {
    ctx: Context,
    caches: Caches,
    memory: Memory,
}

/// Passes that may run at once; each cluster has at most one.
const CONCURRENCY: u16 = 16;

/// Runs until the process ends.
pub async fn run(ctx: Context) {
    let (caches, streams) = caches::watch(&ctx.watches, ctx.namespace.as_deref());
    let room = Arc::new(Room { ctx, caches, memory: Memory::default() });
    let departures = Arc::clone(&room);
    let clusters = streams.clusters.filter_map(move |event| {
        if let Ok(event) = &event {
            departures.notice_departures(event);
        }
        std::future::ready(caches::applied(event))
    });
    Controller::for_stream(clusters, room.caches.clusters.clone())
        .with_config(Config::default().concurrency(CONCURRENCY))
        .watches_stream(streams.stateful_sets, caches::belongs_to)
        .watches_stream(streams.services, caches::belongs_to)
        .watches_stream(streams.config_maps, caches::belongs_to)
        .watches_stream(streams.secrets, caches::belongs_to)
        .watches_stream(streams.budgets, caches::belongs_to)
        .watches_stream(streams.claims, caches::belongs_to)
        .reconcile_all_on(reasons_to_reconcile_all(&room))
        .run(reconcile::reconcile, after_failure, room)
        .for_each(|result| {
            if let Err(error) = result {
                debug!(%error, "pass ended early"); // reported to people by the pass itself
            }
            std::future::ready(())
        })
        .await;
}

/// Becoming leader, and the caches being filled for the first time: passes before that did nothing.
fn reasons_to_reconcile_all(room: &Arc<Room>) -> impl Stream<Item = ()> + Send + use<> {
    let filled = Arc::clone(room);
    let caches_filled = stream::once(async move {
        filled.caches.filled().await;
        filled.ctx.synced.store(true, Ordering::Release);
    });
    stream::select(caches_filled, room.ctx.leadership.became_leader())
}

/// A pass that failed is repeated, less and less often.
#[allow(clippy::needless_pass_by_value)] // the signature is kube's
fn after_failure(object: Arc<Guarded>, error: &apply::Error, room: Arc<Room>) -> Action {
    let Some(key) = cluster_key(&*object) else { return Action::await_change() };
    let wait: Duration = room.memory.failed(&key);
    warn!(namespace = key.namespace, cluster = key.name, %error, retry_in = ?wait, "objects are not equal to the spec");
    Action::requeue(wait)
}

fn cluster_key(object: &impl Resource) -> Option<ClusterKey> {
    let meta = object.meta();
    Some(ClusterKey { namespace: meta.namespace.clone()?, name: meta.name.clone()? })
}
