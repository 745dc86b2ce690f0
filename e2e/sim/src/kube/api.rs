//! What the API server stores, and the conditions under which it lets itself be written.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use redis_ha_operator::api::status::{RedisClusterStatus, Supervision};
use redis_ha_operator::core::event::{Endpoint, Expect, WriteOutcome};
use redis_ha_operator::core::facts::{Desired, Profile, ReadsFact, RouteFact};
use redis_ha_operator::core::mechanism::{Mechanism, on};
use redis_ha_operator::core::valid::desired_from_running;

use crate::time::{MS, SECOND, Time, duration};
use crate::world::{Ev, World};

/// Uid of the one `RedisCluster`.
pub const CLUSTER_UID: &str = "cluster";

/// The API server.
#[derive(Clone, Debug)]
pub struct Api {
    /// Pods that the spec wants.
    pub wanted: u32,
    /// Pods that the StatefulSet makes.
    pub size: u32,
    pub desired: Desired,
    pub status: Option<RedisClusterStatus>,
    pub version: u64,
    pub route: Option<(RouteFact, u64)>,
    pub reads: Option<(ReadsFact, u64)>,
    pub lease: Option<(LeaseSpec, u64)>,
    /// When each proxy change was made last.
    pub routed_at: Time,
    // What is wrong with it.
    pub down: u32,
    pub slow: u32,
    pub lose_requests: u32,
    pub lose_replies: u32,
    /// Requests that arrive after their sender gave them up.
    pub late: u32,
    pub conflicts: u32,
    pub stale_watch: u32,
}

impl Api {
    pub fn new(replicas: u32, profile: Profile) -> Self {
        Self {
            wanted: replicas,
            size: replicas,
            desired: desired(replicas, profile),
            status: None,
            version: 1,
            route: None,
            reads: None,
            lease: None,
            routed_at: 0,
            down: 0,
            slow: 0,
            lose_requests: 0,
            lose_replies: 0,
            late: 0,
            conflicts: 0,
            stale_watch: 0,
        }
    }

    pub fn record(&self) -> Option<&Supervision> {
        self.status.as_ref().and_then(|status| status.supervision.as_ref())
    }

    pub fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

/// As the operator resolves the spec.
pub fn desired(replicas: u32, profile: Profile) -> Desired {
    let running = desired_from_running(replicas);
    let cache = profile == Profile::Cache;
    Desired {
        profile,
        write_quorum: if cache { 0 } else { running.write_quorum },
        hung_after: if cache { duration(2 * SECOND) } else { running.hung_after },
        ..running
    }
}

impl World {
    /// The JSON Patch: its tests, then the whole status.
    pub fn store_status(&mut self, expect: &Expect, status: RedisClusterStatus, op: usize) -> WriteOutcome {
        let record = self.api.record();
        let holds = match expect {
            Expect::First { uid, resource_version } => {
                uid == CLUSTER_UID && *resource_version == self.api.version.to_string()
            }
            Expect::At { uid, epoch, plan } => {
                uid == CLUSTER_UID
                    && record.is_some_and(|record| record.epoch == *epoch)
                    && plan.as_ref().is_none_or(|plan| {
                        record.and_then(|record| record.plan.as_ref()).is_some_and(|it| it.id == *plan)
                    })
            }
        };
        if !holds && on(Mechanism::EpochAndPlanTest) {
            return WriteOutcome::Conflict;
        }
        let before = self.api.record().cloned().unwrap_or_default();
        let had_record = self.api.record().is_some();
        self.api.next_version();
        self.api.status = Some(status);
        self.counts.status_writes += 1;
        self.status_stored(&before, op);
        if self.api.record().is_some() != had_record {
            self.report_changed();
        }
        self.control();
        WriteOutcome::Written
    }

    /// Replaces the master's slice if the version is still that; `None`: there must be none.
    pub fn store_route(
        &mut self,
        endpoint: Option<&Endpoint>,
        epoch: u64,
        version: Option<u64>,
    ) -> WriteOutcome {
        let unchanged = self.api.route.as_ref().map(|(_, version)| *version) == version;
        if !unchanged && on(Mechanism::RoutePrecondition) {
            return WriteOutcome::Conflict;
        }
        let fact = RouteFact {
            ip: endpoint.map(|endpoint| endpoint.ip.to_string()),
            uid: endpoint.map(|endpoint| endpoint.uid.clone()),
            epoch,
        };
        let version = self.api.next_version();
        self.say(|_| format!("the master Service leads to {}", endpoint.map_or("nobody", |it| &it.pod)));
        self.api.route = Some((fact, version));
        self.counts.route_writes += 1;
        self.check_route(endpoint);
        self.route_changed();
        // kube-proxy takes a change after a quiet second at once, and lets the next one wait.
        let quiet = self.now >= self.api.routed_at + SECOND;
        let after = if quiet { self.rng.range(27, 60) * MS } else { self.rng.range(300, 1260) * MS };
        self.api.routed_at = self.now;
        self.later(after, Ev::Proxy { ip: endpoint.map(|endpoint| endpoint.ip) });
        WriteOutcome::Written
    }

    pub fn store_reads(&mut self, endpoints: &[Endpoint], epoch: u64, version: Option<u64>) -> WriteOutcome {
        if self.api.reads.as_ref().map(|(_, version)| *version) != version {
            return WriteOutcome::Conflict;
        }
        let endpoints: BTreeSet<(String, String)> =
            endpoints.iter().map(|endpoint| (endpoint.ip.to_string(), endpoint.uid.clone())).collect();
        let version = self.api.next_version();
        self.api.reads = Some((ReadsFact { endpoints, epoch }, version));
        self.counts.reads_writes += 1;
        self.reads_changed();
        WriteOutcome::Written
    }
}
