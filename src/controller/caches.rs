//! What is known of the API server without asking: one watch a kind, our label only. Reads, never writes.

use std::fmt::Debug;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as start_watch};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::Guarded;
use crate::api::{RedisCluster, names};
use crate::supervisor::ClusterKey;

/// A watch that ends unnoticed is opened again after this many seconds.
const WATCH_SECONDS: u32 = 240;

/// The last seen state of all objects.
pub struct Caches {
    pub clusters: Store<Guarded>,
    pub stateful_sets: Store<StatefulSet>,
    pub services: Store<Service>,
    pub config_maps: Store<ConfigMap>,
    pub secrets: Store<Secret>,
    pub budgets: Store<PodDisruptionBudget>,
    pub claims: Store<PersistentVolumeClaim>,
    pub lists: Lists,
}

/// How many watches have listed their objects once. A store's own readiness will not do: it wakes only whoever asked
/// last, and here passes look while others wait.
#[derive(Clone, Default)]
pub struct Lists(watch::Sender<usize>);

/// Fields of [`Streams`].
pub(super) const WATCHES: usize = 7;

/// The watches that fill the caches; they must be polled.
pub struct Streams {
    pub clusters: BoxStream<'static, watcher::Result<Event<Guarded>>>,
    pub stateful_sets: Touched<StatefulSet>,
    pub services: Touched<Service>,
    pub config_maps: Touched<ConfigMap>,
    pub secrets: Touched<Secret>,
    pub budgets: Touched<PodDisruptionBudget>,
    pub claims: Touched<PersistentVolumeClaim>,
}

type Touched<K> = BoxStream<'static, watcher::Result<K>>;

/// Prepares all watches.
pub fn watch(client: &Client, namespace: Option<&str>) -> (Caches, Streams) {
    let everything = watcher::Config::default().timeout(WATCH_SECONDS);
    let ours = everything.clone().labels(names::CLUSTER_LABEL);
    let lists = Lists::default();
    let (clusters, cluster_events) = reflect(api(client, namespace), everything, &lists);
    let (stateful_sets, stateful_set_events) = reflect(api(client, namespace), ours.clone(), &lists);
    let (services, service_events) = reflect(api(client, namespace), ours.clone(), &lists);
    let (config_maps, config_map_events) = reflect(api(client, namespace), ours.clone(), &lists);
    let (secrets, secret_events) = reflect(api(client, namespace), ours.clone(), &lists);
    let (budgets, budget_events) = reflect(api(client, namespace), ours.clone(), &lists);
    let (claims, claim_events) = reflect(api(client, namespace), ours, &lists);
    (
        Caches { clusters, stateful_sets, services, config_maps, secrets, budgets, claims, lists },
        Streams {
            clusters: cluster_events.boxed(),
            stateful_sets: stateful_set_events.touched_objects().boxed(),
            services: service_events.touched_objects().boxed(),
            config_maps: config_map_events.touched_objects().boxed(),
            secrets: secret_events.touched_objects().boxed(),
            budgets: budget_events.touched_objects().boxed(),
            claims: claim_events.touched_objects().boxed(),
        },
    )
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn reflect<K>(
    api: Api<K>,
    config: watcher::Config,
    lists: &Lists,
) -> (Store<K>, impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (reader, writer) = reflector::store();
    let events = start_watch(api, config)
        .default_backoff()
        // Half of an object's memory, and never read.
        .modify(|object| object.meta_mut().managed_fields = None)
        .reflect(writer)
        .inspect(lists.one_more());
    (reader, events)
}

/// The object of an event by which a pass is started.
pub fn applied(event: watcher::Result<Event<Guarded>>) -> Option<watcher::Result<Guarded>> {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => Some(Ok(object)),
        Ok(Event::Delete(_) | Event::Init | Event::InitDone) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Whose object this is: by its owner, and by its label, for a label can be changed by hand and a Secret of the
/// user has no owner.
#[allow(clippy::needless_pass_by_value)] // the mapper of a watch gets it by value
pub fn belongs_to<K: Resource<DynamicType = ()>>(object: K) -> Vec<ObjectRef<Guarded>> {
    let meta = object.meta();
    let Some(namespace) = meta.namespace.as_deref() else { return Vec::new() };
    let owner = meta
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == RedisCluster::kind(&()))
        .map(|owner| owner.name.as_str());
    let labelled = object.labels().get(names::CLUSTER_LABEL).map(String::as_str);
    let mut names: Vec<&str> = owner.into_iter().chain(labelled).collect();
    names.dedup();
    names.into_iter().map(|name| ObjectRef::new(name).within(namespace)).collect()
}

impl Caches {
    pub fn stateful_set(&self, key: &ClusterKey, name: &str) -> Option<Arc<StatefulSet>> {
        self.stateful_sets.get(&ObjectRef::new(name).within(&key.namespace))
    }

    pub fn secret(&self, key: &ClusterKey, name: &str) -> Option<Arc<Secret>> {
        self.secrets.get(&ObjectRef::new(name).within(&key.namespace))
    }

    pub fn claim(&self, key: &ClusterKey, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.get(&ObjectRef::new(name).within(&key.namespace))
    }

    /// Whether a cluster of that name exists.
    pub fn has_key(&self, key: &ClusterKey) -> bool {
        self.cluster(key).is_some()
    }

    /// Whether this very cluster exists and is not being deleted.
    pub fn has_cluster(&self, key: &ClusterKey, uid: &str) -> bool {
        self.cluster(key).is_some_and(|object| {
            object.meta().uid.as_deref() == Some(uid) && object.meta().deletion_timestamp.is_none()
        })
    }

    fn cluster(&self, key: &ClusterKey) -> Option<Arc<Guarded>> {
        self.clusters.get(&ObjectRef::new(&key.name).within(&key.namespace))
    }

    /// Whether each watch has listed its objects once. Before that, absent means unknown.
    pub fn are_filled(&self) -> bool {
        self.lists.are_complete()
    }

    /// Returns once [`Caches::are_filled`].
    pub async fn filled(&self) {
        self.lists.completed().await;
    }
}

impl Lists {
    /// For one watch: notes the end of its first list.
    pub fn one_more<K>(&self) -> impl FnMut(&watcher::Result<Event<K>>) + Send + use<K> {
        let mut listing = Some(self.clone());
        move |event| {
            if matches!(event, Ok(Event::InitDone))
                && let Some(lists) = listing.take()
            {
                lists.0.send_modify(|count| *count += 1);
            }
        }
    }

    fn are_complete(&self) -> bool {
        *self.0.borrow() >= WATCHES
    }

    async fn completed(&self) {
        // Cannot fail: the sender is ours.
        let _ = self.0.subscribe().wait_for(|count| *count >= WATCHES).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_looks_does_not_take_the_wake_up_of_whoever_waits() {
        let lists = Lists::default();
        let mut watches: Vec<_> = (0..WATCHES).map(|_| lists.one_more::<Secret>()).collect();
        let waiting = lists.clone();
        let waiting = tokio::spawn(async move { waiting.completed().await });
        tokio::task::yield_now().await;
        for watch in &mut watches {
            assert!(!lists.are_complete());
            watch(&Ok(Event::InitDone));
            watch(&Ok(Event::InitDone)); // a list after a gap is no first one
        }
        assert!(lists.are_complete());
        tokio::time::timeout(std::time::Duration::from_secs(5), waiting).await.unwrap().unwrap();
    }
}
