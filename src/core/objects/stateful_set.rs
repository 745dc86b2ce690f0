//! StatefulSet `<name>`: the pods. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, ExecAction,
    KeyToPath, Lifecycle, LifecycleHandler, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, TCPSocketAction,
    TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::boot_file::{BOOT_DIR, BOOT_FILE, DATA_DIR, USERS_DIR};
use super::users::USERS_FILE;
use super::{claims, label_selector, labels, metadata};
use crate::api::names;
use crate::api::spec::Persistence;
use crate::core::facts::REDIS_PORT;
use crate::core::valid::{Amounts, ValidCluster};

/// Pods: hash of the files they boot from. A difference means that a restart would change something.
const CONFIG_HASH_ANNOTATION: &str = "redis-ha.dev/config-hash";
/// A server that gets SIGTERM may wait for its replicas and write a snapshot.
const GRACE_SECONDS: u64 = 45;
/// Time for everything but the snapshot, in seconds: the hand-over before the end, and replicas.
const GRACE_WITHOUT_SNAPSHOT: u64 = 40;
/// A master that is to end waits so long to be relieved.
const HAND_OVER_SECONDS: u64 = 25;
/// A snapshot at shutdown was measured to be written with 110 to 175 MB a second.
const SNAPSHOT_BYTES_A_SECOND: u64 = 100_000_000;
/// The kept spread is told by it from a constraint of the user.
const NODE_TOPOLOGY: &str = "kubernetes.io/hostname";
/// `redis` in the official images of Redis and Valkey.
const REDIS_UID: i64 = 999;

/// What is not the spec's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Pods now; differs from the spec while a scale step waits.
    pub replicas: u32,
    pub spread: Spread,
    pub config_hash: String,
}

/// What happens when pods cannot all be on different nodes. Chosen at creation, kept afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// There are enough nodes: a master and its only proven witness never share one.
    DoNotSchedule,
    /// Fewer nodes than pods: better together than not at all.
    ScheduleAnyway,
}

impl Spread {
    /// For a new cluster of that many pods on that many usable nodes.
    pub fn choose(replicas: u32, nodes: usize) -> Self {
        let enough = usize::try_from(replicas).is_ok_and(|replicas| nodes >= replicas);
        if enough { Self::DoNotSchedule } else { Self::ScheduleAnyway }
    }

    /// What an existing StatefulSet has; `None` when it has none that we know.
    pub fn kept(live: &StatefulSet) -> Option<Self> {
        let pods = live.spec.as_ref()?.template.spec.as_ref()?;
        let constraints = pods.topology_spread_constraints.as_ref()?;
        // One of the user's own looks different, or does the same.
        let ours = constraints.iter().filter(|constraint| {
            constraint.topology_key == NODE_TOPOLOGY
                && constraint.max_skew == 1
                && constraint.node_taints_policy.as_deref() == Some("Honor")
        });
        ours.into_iter().find_map(|constraint| {
            [Self::DoNotSchedule, Self::ScheduleAnyway]
                .into_iter()
                .find(|spread| spread.as_str() == constraint.when_unsatisfiable)
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::DoNotSchedule => "DoNotSchedule",
            Self::ScheduleAnyway => "ScheduleAnyway",
        }
    }
}

/// Builds it.
pub fn build(cluster: &ValidCluster, rollout: &Rollout) -> StatefulSet {
    StatefulSet {
        metadata: metadata(cluster, cluster.name.clone()),
        spec: Some(StatefulSetSpec {
            replicas: i32::try_from(rollout.replicas).ok(),
            service_name: Some(names::headless_service(&cluster.name)),
            // A pod must come back although another one is down.
            pod_management_policy: Some("Parallel".to_owned()),
            // The supervisor orders restarts, since only it knows who is master.
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            selector: label_selector(&cluster.name),
            template: PodTemplateSpec {
                metadata: Some(pod_metadata(cluster, &rollout.config_hash)),
                spec: Some(pod(cluster, rollout.spread)),
            },
            volume_claim_templates: cluster
                .storage
                .as_ref()
                .map(|storage| vec![claims::template(&cluster.name, storage)]),
            persistent_volume_claim_retention_policy: cluster
                .storage
                .as_ref()
                .map(|storage| claims::retention(storage.retain)),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

/// The user's labels and annotations with ours; a key of ours among the user's was refused before.
fn pod_metadata(cluster: &ValidCluster, config_hash: &str) -> ObjectMeta {
    let template = &cluster.pod_template;
    let mut all_labels = template.labels.clone();
    all_labels.extend(labels(&cluster.name));
    let mut annotations = template.annotations.clone();
    annotations.insert(CONFIG_HASH_ANNOTATION.to_owned(), config_hash.to_owned());
    ObjectMeta { labels: Some(all_labels), annotations: Some(annotations), ..ObjectMeta::default() }
}

fn pod(cluster: &ValidCluster, spread: Spread) -> PodSpec {
    let template = &cluster.pod_template;
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: i64::try_from(grace_seconds(cluster)).ok(),
        security_context: Some(template.security_context.clone().unwrap_or_else(security_context)),
        topology_spread_constraints: Some(match &template.topology_spread_constraints {
            Some(constraints) => {
                constraints.iter().map(|constraint| of_cluster(cluster, constraint)).collect()
            }
            None => vec![one_pod_a_node(cluster, spread)],
        }),
        affinity: template.affinity.clone(),
        tolerations: template.tolerations.clone(),
        node_selector: template.node_selector.clone(),
        priority_class_name: template.priority_class_name.clone(),
        image_pull_secrets: template.image_pull_secrets.clone(),
        containers: vec![container(cluster)],
        volumes: Some(volumes(cluster)),
        ..PodSpec::default()
    }
}

/// The server of a pod that is to end is told so only when it is not a master that serves replicas any more, or after
/// its time. The replication user is on at the recorded master alone, so it can log in there and nowhere else; a demotion
/// that is undone switches it off for a moment only. Its password comes from the users file and goes through the
/// environment. An image without redis-cli has no such hand-over.
fn hand_over_first() -> String {
    format!(
        "\
command -v redis-cli >/dev/null || exit 0
users={USERS_DIR}/{USERS_FILE}
user=$(sed -n 's/^masteruser //p' $users)
export REDISCLI_AUTH=$(sed -n 's/^masterauth //p' $users)
end=$(($(date +%s) + {HAND_OVER_SECONDS})) no=0
while [ \"$(date +%s)\" -lt $end ] && [ $no -lt 10 ]; do
  set -- $(timeout 1 redis-cli -p {REDIS_PORT} --user \"$user\" --no-auth-warning role 2>/dev/null)
  # The word, the position, and three words for each replica.
  if [ \"$1\" = master ] && [ $# -gt 2 ]; then no=0; else no=$((no + 1)); fi
  sleep 0.1
done
"
    )
}

/// With save points a server that ends writes all its data first.
fn grace_seconds(cluster: &ValidCluster) -> u64 {
    let snapshot = match (cluster.persistence, cluster.max_memory) {
        (Persistence::Rdb, Some(bytes)) => bytes / SNAPSHOT_BYTES_A_SECOND,
        (Persistence::Rdb | Persistence::Aof | Persistence::None, _) => 0,
    };
    GRACE_SECONDS.max(GRACE_WITHOUT_SNAPSHOT + snapshot)
}

/// Fit for Pod Security "restricted".
fn security_context() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(REDIS_UID),
        run_as_group: Some(REDIS_UID),
        fs_group: Some(REDIS_UID),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..PodSecurityContext::default()
    }
}

fn one_pod_a_node(cluster: &ValidCluster, spread: Spread) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: NODE_TOPOLOGY.to_owned(),
        when_unsatisfiable: spread.as_str().to_owned(),
        label_selector: Some(label_selector(&cluster.name)),
        // A node that no pod may use must not count as an empty one.
        node_taints_policy: Some("Honor".to_owned()),
        ..TopologySpreadConstraint::default()
    }
}

/// Without a selector a constraint counts no pods and does nothing.
fn of_cluster(cluster: &ValidCluster, constraint: &TopologySpreadConstraint) -> TopologySpreadConstraint {
    let selector = constraint.label_selector.clone().unwrap_or_else(|| label_selector(&cluster.name));
    TopologySpreadConstraint { label_selector: Some(selector), ..constraint.clone() }
}

fn container(cluster: &ValidCluster) -> Container {
    Container {
        name: names::CONTAINER.to_owned(),
        image: Some(cluster.image.clone()),
        command: Some(vec!["redis-server".to_owned(), format!("{BOOT_DIR}/{BOOT_FILE}")]),
        ports: Some(vec![ContainerPort {
            name: Some(names::PORT_NAME.to_owned()),
            container_port: i32::from(REDIS_PORT),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(vec!["sh".to_owned(), "-c".to_owned(), hand_over_first()]),
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        // A fenced, loading or busy server is alive and ready: probes see the process, never its role.
        startup_probe: Some(probe(1, 60)),
        liveness_probe: Some(probe(10, 6)),
        readiness_probe: Some(probe(5, 3)),
        resources: resources(&cluster.requests, &cluster.limits),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(
            [("config", BOOT_DIR, true), ("users", USERS_DIR, true), (names::DATA_VOLUME, DATA_DIR, false)]
                .map(|(name, path, read_only)| VolumeMount {
                    name: name.to_owned(),
                    mount_path: path.to_owned(),
                    read_only: read_only.then_some(true),
                    ..VolumeMount::default()
                })
                .to_vec(),
        ),
        ..Container::default()
    }
}

fn volumes(cluster: &ValidCluster) -> Vec<Volume> {
    let config = Volume {
        name: "config".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: names::config_map(&cluster.name),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    // The users file alone: the passwords beside it are the operator's.
    let users = Volume {
        name: "users".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(names::server_secret(&cluster.name)),
            default_mode: Some(0o440),
            items: Some(vec![KeyToPath {
                key: USERS_FILE.to_owned(),
                path: USERS_FILE.to_owned(),
                ..KeyToPath::default()
            }]),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    // With storage the volume comes from a claim of the same name.
    let data = cluster.storage.is_none().then(|| Volume {
        name: names::DATA_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    [config, users].into_iter().chain(data).collect()
}

/// `period` in seconds.
fn probe(period: i32, failures: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(i32::from(REDIS_PORT)),
            ..TCPSocketAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(2),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn resources(requests: &Amounts, limits: &Amounts) -> Option<ResourceRequirements> {
    let map = |amounts: &Amounts| {
        let entries: BTreeMap<_, _> = [("cpu", &amounts.cpu), ("memory", &amounts.memory)]
            .into_iter()
            .filter_map(|(name, amount)| Some((name.to_owned(), Quantity(amount.clone()?))))
            .collect();
        (!entries.is_empty()).then_some(entries)
    };
    let (requests, limits) = (map(requests), map(limits));
    (requests.is_some() || limits.is_some()).then(|| ResourceRequirements {
        requests,
        limits,
        ..ResourceRequirements::default()
    })
}
