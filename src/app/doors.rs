//! Joins the rooms: what the supervisor and the controller ask for, answered by the Kubernetes room and by
//! the reports. Each door only passes on; nothing is decided here.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

use crate::api::{RedisClusterStatus, names};
use crate::controller;
use crate::core::event::{Effect, Endpoint, Event, Expect, Measure, Notice, Stored, WriteOutcome};
use crate::core::facts::{Mono, Now};
use crate::core::supervisor::Supervisor;
use crate::kube::lease::{self, Leadership};
use crate::kube::route::RouteWriter;
use crate::kube::{live, request, status, watch};
use crate::report::events::Teller;
use crate::report::metrics::Metrics;
use crate::supervisor::outside::{self, Failure};
use crate::supervisor::{
    ClusterInput, ClusterKey, Machine, OwnedPod, Supervisors, WatchedReads, WatchedRoute, clock,
};

/// What the supervisors' tasks see of everything else.
pub struct World {
    pub client: Client,
    pub leadership: Leadership,
    pub teller: Teller,
    pub metrics: Metrics,
}

impl outside::Outside for World {
    fn cluster(&self, key: &ClusterKey, uid: &str) -> Arc<dyn outside::Cluster> {
        Arc::new(ClusterWorld {
            client: self.client.clone(),
            key: key.clone(),
            uid: uid.into(),
            route: RouteWriter::new(self.client.clone(), key.clone(), uid, &key.name),
            reads: RouteWriter::new(
                self.client.clone(),
                key.clone(),
                uid,
                names::replicas_service(&key.name),
            ),
            teller: self.teller.clone(),
            metrics: self.metrics.clone(),
        })
    }

    fn leadership(&self) -> Box<dyn outside::Leadership> {
        Box::new(self.leadership.clone())
    }
}

impl outside::Leadership for Leadership {
    fn standing(&self) -> outside::Standing {
        match (self.term(), Leadership::standing(self)) {
            (Some(term), _) => outside::Standing::Leading { term },
            // Its time is over, and the election has not noticed yet.
            (None, lease::Standing::Leading { .. } | lease::Standing::Unsure) => outside::Standing::Unsure,
            (None, lease::Standing::Following { .. } | lease::Standing::Released) => {
                outside::Standing::Following
            }
        }
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        Leadership::changed(self).boxed()
    }

    fn held_live(&self) -> BoxFuture<'static, Result<bool, Failure>> {
        let leadership = self.clone();
        async move { Leadership::held_live(&leadership).await.map_err(Failure::from) }.boxed()
    }

    fn hand_over(&self) {
        Leadership::hand_over(self);
    }
}

/// The Kubernetes side of one cluster, and its reports.
#[derive(Clone)]
struct ClusterWorld {
    client: Client,
    key: ClusterKey,
    uid: Arc<str>,
    route: RouteWriter,
    reads: RouteWriter,
    teller: Teller,
    metrics: Metrics,
}

impl outside::Cluster for ClusterWorld {
    fn write_status(
        &self,
        expect: Expect,
        status: Box<RedisClusterStatus>,
    ) -> BoxFuture<'static, WriteOutcome> {
        let world = self.clone();
        async move { status::write(&world.client, &world.key, &expect, &status).await }.boxed()
    }

    fn read_object(&self) -> BoxFuture<'static, Result<Option<Stored>, Failure>> {
        let world = self.clone();
        async move { status::read(&world.client, &world.key).await.map_err(Failure::from) }.boxed()
    }

    fn write_route(&self, endpoint: Option<Endpoint>, epoch: u64) -> BoxFuture<'static, WriteOutcome> {
        self.route.write(endpoint.as_slice(), epoch).boxed()
    }

    fn write_reads(&self, endpoints: Vec<Endpoint>, epoch: u64) -> BoxFuture<'static, WriteOutcome> {
        self.reads.write(&endpoints, epoch).boxed()
    }

    fn reads_seen(&self, resource_version: Option<String>) {
        self.reads.seen(resource_version);
    }

    fn route_seen(&self, resource_version: Option<String>) {
        self.route.seen(resource_version);
    }

    fn confirm_pod(&self, pod: String, uid: String) -> BoxFuture<'static, Result<Option<IpAddr>, Failure>> {
        let world = self.clone();
        async move {
            let found = live::confirm_pod(&world.client, &world.key.namespace, &pod, &uid).await;
            found.map_err(Failure::from)
        }
        .boxed()
    }

    fn label_pod(
        &self,
        pod: String,
        uid: String,
        role: Option<&'static str>,
    ) -> BoxFuture<'static, WriteOutcome> {
        let world = self.clone();
        async move { live::label_pod(&world.client, &world.key.namespace, &pod, &uid, role).await }.boxed()
    }

    fn delete_pod(&self, pod: String, uid: String) -> BoxFuture<'static, WriteOutcome> {
        let world = self.clone();
        async move { live::delete_pod(&world.client, &world.key.namespace, &pod, &uid).await }.boxed()
    }

    fn clear_switchover(&self, value: String) -> BoxFuture<'static, WriteOutcome> {
        let world = self.clone();
        async move { request::clear_switchover(&world.client, &world.key, &world.uid, &value).await }.boxed()
    }

    fn tell(&self, notice: Notice) -> BoxFuture<'static, WriteOutcome> {
        let (world, at) = (self.clone(), clock::now().wall);
        async move { world.teller.tell(&world.key, &world.uid, &notice, at).await }.boxed()
    }

    fn measure(&self, measure: &Measure) {
        self.metrics.measure(&self.key, measure);
    }
}

impl watch::Sink for Supervisors {
    fn pods(&self, cluster: &ClusterKey, pods: Vec<OwnedPod>) {
        Supervisors::pods(self, cluster, pods);
    }

    fn route(&self, cluster: &ClusterKey, route: Option<WatchedRoute>) {
        Supervisors::route(self, cluster, route);
    }

    fn reads(&self, cluster: &ClusterKey, reads: Option<WatchedReads>) {
        Supervisors::reads(self, cluster, reads);
    }
}

impl controller::Leads for Leadership {
    fn is_leader(&self) -> bool {
        Leadership::is_leader(self)
    }

    fn became_leader(&self) -> BoxStream<'static, ()> {
        stream::unfold(self.clone(), |mut leadership| async move {
            loop {
                leadership.changed().await;
                if leadership.is_leader() {
                    return Some(((), leadership));
                }
            }
        })
        .boxed()
    }
}

/// Where the controller's results go.
pub struct Handover {
    pub supervisors: Arc<Supervisors>,
    pub metrics: Metrics,
}

impl controller::Handover for Handover {
    fn set(&self, key: ClusterKey, input: ClusterInput) {
        self.supervisors.set(&key, input);
    }

    fn remove(&self, key: &ClusterKey) {
        self.supervisors.remove(key);
        self.metrics.forget(key);
    }
}

impl controller::Announce for Teller {
    fn warn(&self, cluster: &ObjectReference, reason: &'static str, message: &str) {
        let (teller, at) = (self.clone(), clock::now().wall);
        let (cluster, message) = (cluster.clone(), message.to_owned());
        tokio::spawn(async move {
            let outcome = teller.warn(cluster, reason, &message, at).await;
            if outcome != WriteOutcome::Written {
                tracing::warn!(?outcome, "an Event could not be created");
            }
        });
    }
}

impl Machine for Supervisor {
    fn handle(&mut self, now: Now, event: Event) -> Vec<Effect> {
        Supervisor::handle(self, now, event)
    }

    fn wake_at(&self) -> Option<Mono> {
        Supervisor::wake_at(self)
    }
}
