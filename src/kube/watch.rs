//! Watches pods and EndpointSlices of all clusters and hands each change on. Only reads.
//!
//! Objects are decoded into slim shapes: of a pod that is 20 kB on the wire, a few fields stay in memory.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{Stream, StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

use super::answer::chain;
use super::index::{Entry, Index};
use super::nodes::Placed;
use super::route::{MANAGED_BY_LABEL, watched_route};
use crate::api::names::{CLUSTER_LABEL, MANAGER, ROLE_LABEL, replicas_service};
use crate::core::facts::{NodeState, PodFact, ReadsFact};
use crate::supervisor::{ClusterKey, OwnedPod, WatchedReads, WatchedRoute};

/// A watch that says nothing for this long is renewed: a connection that was cut silently is noticed then.
const RENEW_SECONDS: u32 = 60;

/// Who hears of changes. Must return at once.
pub trait Sink: Send + Sync + 'static {
    /// All pods that the cluster has now.
    fn pods(&self, cluster: &ClusterKey, pods: Vec<OwnedPod>);
    /// The slice of the cluster's master Service; `None`: there is none (any more).
    fn route(&self, cluster: &ClusterKey, route: Option<WatchedRoute>);
    /// The slice of the cluster's replicas Service; `None`: there is none (any more).
    fn reads(&self, cluster: &ClusterKey, reads: Option<WatchedReads>);
}

/// True once the first list is complete: caches of a fresh operator know nothing before.
pub type Synced = Arc<AtomicBool>;

/// Watches the pods of all clusters, in all namespaces or in one. Never ends by itself.
pub async fn pods<S: Sink + ?Sized>(
    client: Client,
    namespace: Option<&str>,
    placed: Arc<Placed<S>>,
    synced: Synced,
) {
    let events = watched::<SlimPod>(client, namespace, CLUSTER_LABEL);
    follow(events, SlimPod::entry, &synced, |index, key| placed.pods(key, index.of(key))).await;
}

/// Watches the slices that the operator manages.
pub async fn routes<S: Sink + ?Sized>(client: Client, namespace: Option<&str>, sink: Arc<S>, synced: Synced) {
    let events = watched::<SlimSlice>(client, namespace, &format!("{MANAGED_BY_LABEL}={MANAGER}"));
    follow(events, SlimSlice::entry, &synced, |index, key| {
        let (mut route, mut reads) = (None, None);
        for slice in index.of(key) {
            match slice {
                WatchedSlice::Master(seen) => route = Some(seen),
                WatchedSlice::Replicas(seen) => reads = Some(seen),
            }
        }
        sink.route(key, route);
        sink.reads(key, reads);
    })
    .await;
}

fn watched<K>(
    client: Client,
    namespace: Option<&str>,
    labels: &str,
) -> impl Stream<Item = watcher::Result<Event<K>>> + use<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    watcher(api, watcher::Config::default().labels(labels).timeout(RENEW_SECONDS)).default_backoff()
}

/// Files each event and tells the clusters for which anything changed.
async fn follow<K: Resource, T: Clone + PartialEq>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    entry: impl Fn(K) -> Option<Entry<T>>,
    synced: &AtomicBool,
    tell: impl Fn(&Index<T>, &ClusterKey),
) {
    let mut index = Index::default();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let changed = match event {
            Ok(Event::Apply(object)) => entry(object).map(|entry| index.apply(entry)).unwrap_or_default(),
            Ok(Event::Delete(object)) => {
                let meta = object.meta();
                let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
                index.delete(namespace.unwrap_or_default(), name.unwrap_or_default()).into_iter().collect()
            }
            Ok(Event::Init) => {
                index.begin_list();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                if let Some(entry) = entry(object) {
                    index.listed(entry);
                }
                continue;
            }
            Ok(Event::InitDone) => {
                let changed = index.end_list();
                synced.store(true, Ordering::Release);
                changed
            }
            Err(error) => {
                // The watcher goes on by itself, after a pause that grows.
                if synced.load(Ordering::Acquire) {
                    debug!(error = chain(&error), "a watch broke and is taken up again");
                } else {
                    warn!(
                        error = chain(&error),
                        "a first list could not be read; check the operator's role and the API server"
                    );
                }
                continue;
            }
        };
        for cluster in &changed {
            tell(&index, cluster);
        }
    }
}

#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = Pod)]
struct SlimPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimPodSpec,
    #[serde(default)]
    status: SlimPodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimPodSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SlimPodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

impl SlimPod {
    fn entry(self) -> Option<Entry<OwnedPod>> {
        let Self { metadata, spec, status } = self;
        let (namespace, name) = (metadata.namespace?, metadata.name?);
        let mut labels = metadata.labels.unwrap_or_default();
        let cluster = labels.remove(CLUSTER_LABEL)?;
        // A pod without a number is none of a StatefulSet's.
        let ordinal = name.rsplit_once('-')?.1.parse().ok()?;
        let owners = metadata.owner_references.unwrap_or_default();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        let fact = PodFact {
            name: name.clone(),
            uid: metadata.uid?,
            ordinal,
            ip: status.pod_ip.and_then(|ip| ip.parse().ok()),
            node: spec.node_name,
            node_state: NodeState::Fit,
            terminating: metadata.deletion_timestamp.is_some(),
            role_label: labels.remove(ROLE_LABEL),
        };
        let value = OwnedPod { owner_uid: owner.map(|owner| owner.uid), fact };
        Some(Entry { namespace, name, cluster, value })
    }
}

#[derive(Resource, Clone, Debug, Deserialize)]
#[resource(inherit = EndpointSlice)]
struct SlimSlice {
    metadata: ObjectMeta,
    #[serde(default)]
    endpoints: Option<Vec<SlimEndpoint>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    target_ref: Option<SlimTarget>,
}

#[derive(Clone, Debug, Deserialize)]
struct SlimTarget {
    uid: Option<String>,
}

/// A slice of one of the cluster's two Services.
#[derive(Clone, Debug, PartialEq)]
enum WatchedSlice {
    Master(WatchedRoute),
    Replicas(WatchedReads),
}

impl SlimSlice {
    /// The slices bear the names of their Services.
    fn entry(self) -> Option<Entry<WatchedSlice>> {
        let Self { metadata, endpoints } = self;
        let endpoints = endpoints.unwrap_or_default();
        let (namespace, name) = (metadata.namespace.clone()?, metadata.name.clone()?);
        let cluster = metadata.labels.as_ref()?.get(CLUSTER_LABEL)?.clone();
        let addresses = endpoints.iter().flat_map(|endpoint| &endpoint.addresses).map(String::as_str);
        let route = watched_route(&metadata, addresses);
        let value = if name == cluster {
            WatchedSlice::Master(route)
        } else if name == replicas_service(&cluster) {
            let WatchedRoute { resource_version, fact } = route;
            let endpoints = endpoints.into_iter().filter_map(SlimEndpoint::fact).collect();
            WatchedSlice::Replicas(WatchedReads {
                resource_version,
                fact: ReadsFact { endpoints, epoch: fact.epoch },
            })
        } else {
            return None;
        };
        Some(Entry { namespace, name, cluster, value })
    }
}

impl SlimEndpoint {
    /// Address and uid of the pod.
    fn fact(self) -> Option<(String, String)> {
        let uid = self.target_ref.and_then(|target| target.uid).unwrap_or_default();
        Some((self.addresses.into_iter().next()?, uid))
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
