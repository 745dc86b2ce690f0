//! The routes: one EndpointSlice behind the master Service, one behind the replicas Service. Each write names the
//! version of the slice that its writer knew, so that a late write of an older leader is refused.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{
    Endpoint as SliceEndpoint, EndpointConditions, EndpointPort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use tokio::time::timeout;

use super::{DEADLINE, Error, answer};
use crate::api::RedisCluster;
use crate::api::names::{CLUSTER_LABEL, EPOCH_ANNOTATION, MANAGER, POD_UID_ANNOTATION, PORT_NAME};
use crate::core::event::{Endpoint, WriteOutcome};
use crate::core::facts::{REDIS_PORT, RouteFact};
use crate::supervisor::{ClusterKey, WatchedRoute};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Label that keeps Kubernetes' own slice controllers away.
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// Writes one slice of one cluster.
#[derive(Clone)]
pub struct RouteWriter {
    api: Api<EndpointSlice>,
    key: ClusterKey,
    /// Name of the slice and of its Service.
    service: String,
    cluster_uid: String,
    known: Arc<Mutex<Known>>,
}

/// What this writer knows of the stored slice.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// Nothing: the next write reads first.
    Nothing,
    /// There is none.
    Absent,
    /// It is ours.
    Slice { uid: Option<String>, resource_version: String, address_type: String },
}

impl RouteWriter {
    /// `cluster_uid`: uid of the `RedisCluster`; a slice that belongs to another object is never touched. `service`:
    /// name of the Service, which is the slice's as well.
    pub fn new(
        client: Client,
        key: ClusterKey,
        cluster_uid: impl Into<String>,
        service: impl Into<String>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, &key.namespace),
            key,
            service: service.into(),
            cluster_uid: cluster_uid.into(),
            known: Arc::new(Mutex::new(Known::Nothing)),
        }
    }

    /// The watch saw the slice with this version; `None`: it is gone. An older version than the known one
    /// is an echo of an earlier write and changes nothing.
    pub fn seen(&self, resource_version: Option<String>) {
        let mut known = self.known();
        *known = match (&*known, resource_version) {
            (_, None) => Known::Absent,
            (Known::Slice { uid, resource_version: mine, address_type }, Some(seen)) => {
                let newest = if is_newer(&seen, mine) { seen } else { mine.clone() };
                Known::Slice {
                    uid: uid.clone(),
                    resource_version: newest,
                    address_type: address_type.clone(),
                }
            }
            // Whose it is has to be read before it is written.
            (Known::Nothing | Known::Absent, Some(_)) => Known::Nothing,
        };
    }

    /// Reads the slice live, and writes from then on against what was read. `None`: there is none.
    pub async fn read(&self) -> Result<Option<WatchedRoute>, Error> {
        let act = format!("reading EndpointSlice {}/{}", self.key.namespace, self.service);
        let slice = answer::read_opt(act, self.api.get(&self.service)).await?;
        *self.known() = match &slice {
            None => Known::Absent,
            Some(slice) if self.owns(slice) => known_from(slice),
            Some(_) => Known::Nothing,
        };
        Ok(slice.as_ref().map(watched))
    }

    /// Points the Service to these endpoints, or to nobody. Where there is no slice, nobody needs no write.
    ///
    /// What is known of the slice is taken when this is called, not when the future first runs: a version
    /// that arrives after the decision must not let an old decision through.
    pub fn write(
        &self,
        endpoints: &[Endpoint],
        epoch: u64,
    ) -> impl Future<Output = WriteOutcome> + Send + use<> {
        let known = self.known().clone();
        let slice = self.slice(endpoints, epoch);
        let writer = self.clone();
        async move {
            let act = format!("writing EndpointSlice {}/{}", writer.key.namespace, writer.service);
            let outcome = timeout(DEADLINE, writer.put(&act, known, slice, epoch)).await;
            let outcome = outcome.unwrap_or_else(|_| answer::silent(&act));
            if outcome != WriteOutcome::Written {
                *writer.known() = Known::Nothing;
            }
            outcome
        }
    }

    async fn put(&self, act: &str, known: Known, mut slice: EndpointSlice, epoch: u64) -> WriteOutcome {
        let known = match known {
            Known::Nothing => match self.look(act, epoch).await {
                Ok(known) => known,
                Err(outcome) => return outcome,
            },
            known => known,
        };
        let params = PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
        let written = match known {
            Known::Nothing | Known::Absent if slice.endpoints.is_empty() => return WriteOutcome::Written,
            Known::Nothing | Known::Absent => answer::write(act, self.api.create(&params, &slice)).await,
            Known::Slice { uid, resource_version, address_type } => {
                slice.metadata.uid = uid;
                slice.metadata.resource_version = Some(resource_version);
                if slice.endpoints.is_empty() {
                    slice.address_type = address_type; // cannot be changed
                }
                let replaced = answer::write(act, self.api.replace(&self.service, &params, &slice)).await;
                // Somebody deleted it: as much a foreign write as any other.
                replaced.map_err(|outcome| match outcome {
                    WriteOutcome::Gone => WriteOutcome::Conflict,
                    other => other,
                })
            }
        };
        match written {
            Ok(stored) => {
                *self.known() = known_from(&stored);
                WriteOutcome::Written
            }
            Err(outcome) => outcome,
        }
    }

    /// Reads the slice before a write that knows nothing of it.
    async fn look(&self, act: &str, epoch: u64) -> Result<Known, WriteOutcome> {
        let slice = match answer::write(act, self.api.get(&self.service)).await {
            Ok(slice) => slice,
            Err(WriteOutcome::Gone) => return Ok(Known::Absent),
            Err(outcome) => return Err(outcome),
        };
        if !self.owns(&slice) {
            return Err(WriteOutcome::Denied(format!(
                "{act}: it exists and does not belong to this RedisCluster; delete or rename it"
            )));
        }
        // A newer decision is in force: this one comes too late.
        if watched(&slice).fact.epoch > epoch { Err(WriteOutcome::Conflict) } else { Ok(known_from(&slice)) }
    }

    fn owns(&self, slice: &EndpointSlice) -> bool {
        let owners = slice.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|owner| owner.uid == self.cluster_uid)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slice(&self, endpoints: &[Endpoint], epoch: u64) -> EndpointSlice {
        let mut annotations = vec![(EPOCH_ANNOTATION, epoch.to_string())];
        if let [endpoint] = endpoints {
            annotations.push((POD_UID_ANNOTATION, endpoint.uid.clone()));
        }
        // All addresses of a slice are of one family, as all addresses of a cluster's pods are.
        let is_v6 = endpoints.first().is_some_and(|endpoint| endpoint.ip.is_ipv6());
        let endpoints = endpoints.iter().filter(|endpoint| endpoint.ip.is_ipv6() == is_v6);
        let labels = [
            (SERVICE_LABEL, self.service.as_str()),
            (MANAGED_BY_LABEL, MANAGER),
            (CLUSTER_LABEL, self.key.name.as_str()),
        ];
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(self.service.clone()),
                namespace: Some(self.key.namespace.clone()),
                labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
                annotations: Some(annotations.into_iter().map(|(key, value)| (key.into(), value)).collect()),
                owner_references: Some(vec![self.owner()]),
                ..ObjectMeta::default()
            },
            address_type: if is_v6 { "IPv6" } else { "IPv4" }.into(),
            endpoints: endpoints.map(|endpoint| self.endpoint(endpoint)).collect(),
            ports: Some(vec![EndpointPort {
                name: Some(PORT_NAME.into()),
                port: Some(i32::from(REDIS_PORT)),
                protocol: Some("TCP".into()),
                ..EndpointPort::default()
            }]),
        }
    }

    fn endpoint(&self, endpoint: &Endpoint) -> SliceEndpoint {
        SliceEndpoint {
            addresses: vec![endpoint.ip.to_string()],
            conditions: Some(EndpointConditions {
                ready: Some(true),
                serving: Some(true),
                terminating: Some(false),
            }),
            node_name: endpoint.node.clone(),
            target_ref: Some(ObjectReference {
                kind: Some("Pod".into()),
                name: Some(endpoint.pod.clone()),
                namespace: Some(self.key.namespace.clone()),
                uid: Some(endpoint.uid.clone()),
                ..ObjectReference::default()
            }),
            ..SliceEndpoint::default()
        }
    }

    fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: RedisCluster::api_version(&()).into(),
            kind: RedisCluster::kind(&()).into(),
            name: self.key.name.clone(),
            uid: self.cluster_uid.clone(),
            controller: Some(true),
            // Would need a right on the finalizers of the owner where that admission plugin is on.
            block_owner_deletion: None,
        }
    }
}

/// Versions of one kind of object are numbers that grow; where they are not, the known one is kept.
fn is_newer(seen: &str, known: &str) -> bool {
    matches!((seen.parse::<u128>(), known.parse::<u128>()), (Ok(seen), Ok(known)) if seen > known)
}

fn known_from(slice: &EndpointSlice) -> Known {
    match &slice.metadata.resource_version {
        None => Known::Nothing,
        Some(version) => Known::Slice {
            uid: slice.metadata.uid.clone(),
            resource_version: version.clone(),
            address_type: slice.address_type.clone(),
        },
    }
}

fn watched(slice: &EndpointSlice) -> WatchedRoute {
    let addresses = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    watched_route(&slice.metadata, addresses.map(String::as_str))
}

/// The fact in a slice, however it was decoded.
pub(super) fn watched_route<'a>(
    metadata: &ObjectMeta,
    mut addresses: impl Iterator<Item = &'a str>,
) -> WatchedRoute {
    let annotation = |name| metadata.annotations.as_ref().and_then(|all| all.get(name));
    WatchedRoute {
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        fact: RouteFact {
            ip: addresses.next().map(str::to_owned),
            uid: annotation(POD_UID_ANNOTATION).cloned(),
            epoch: annotation(EPOCH_ANNOTATION).and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
        },
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
