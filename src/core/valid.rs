//! From the raw spec to a value that cannot be wrong. Everything later reads [`ValidCluster`] only. Pure.

mod additions;
mod storage;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use crate::api::pod_template::PodTemplate;
use crate::api::quantity::Quantity;
use crate::api::service::ServiceOptions;
use crate::api::spec::{FailoverMode, Persistence, Profile, ResourceList};
use crate::api::{RedisCluster, names};
use crate::core::facts::Desired;
pub use storage::ValidStorage;

/// Replication backlog of each server, in bytes. Redis counts it toward `maxmemory`.
pub const BACKLOG_BYTES: u64 = 64 << 20;
/// Smallest memory limit that leaves room for data beside the backlog, in bytes.
const MIN_MEMORY_LIMIT: u64 = 160 << 20;
/// Without a word from a master for this long, it counts as dead (unless `unreachableAfter` says otherwise).
const UNREACHABLE_AFTER: Duration = Duration::from_secs(3);
/// As long it may accept connections and answer nothing: over Redis' own 5 s, after which it says that a script runs.
const HUNG_AFTER: Duration = Duration::from_secs(6);
/// The same in the profile Cache.
const CACHE_HUNG_AFTER: Duration = Duration::from_secs(2);

/// A cluster whose spec makes sense. Made by [`validate`] alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidCluster {
    pub namespace: String,
    pub name: String,
    /// Uid of the `RedisCluster`.
    pub uid: String,
    pub generation: Option<i64>,
    /// Pods, master included.
    pub replicas: u32,
    pub image: String,
    /// Objects are left as they are.
    pub paused: bool,
    /// `None`: the disk lives as long as the pod.
    pub storage: Option<ValidStorage>,
    pub persistence: Persistence,
    pub auth: AuthSource,
    pub profile: Profile,
    pub unreachable_after: Duration,
    pub hung_after: Duration,
    /// A successor that is known to lack more bytes of the stream is refused.
    pub max_lost_bytes: Option<u64>,
    /// The operator replaces a dead master by itself.
    pub automatic: bool,
    /// Requests and limits, in the API server's own spelling.
    pub requests: Amounts,
    pub limits: Amounts,
    /// `maxmemory` in bytes; `None` without a memory limit.
    pub max_memory: Option<u64>,
    /// What is added to each pod.
    pub pod_template: PodTemplate,
    /// The Service that leads to the master.
    pub service: ServiceOptions,
    /// The Service that leads to the replicas.
    pub replicas_service: ServiceOptions,
}

/// Where the application's password comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthSource {
    /// Generated once, kept in Secret `<name>-auth`.
    Generated,
    /// The user's Secret of this name.
    Secret(String),
}

/// CPU and memory in the API server's own spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cpu: Option<String>,
    pub memory: Option<String>,
}

/// Why a spec cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "metadata.name {0:?} is no name for pods and Services: use at most 40 lower-case letters, digits and '-', beginning with a letter"
    )]
    Name(String),
    #[error("the object has no {0}: it was not read from an API server")]
    Incomplete(&'static str),
    #[error("spec.replicas is {0}: use 1 to 9")]
    Replicas(i32),
    #[error("spec.image is empty and the operator has no --default-redis-image: set one of them")]
    NoImage,
    #[error("spec.image {0:?} contains spaces: write registry/name:tag")]
    Image(String),
    #[error("spec.failover.unreachableAfter {0:?} is no duration from 1s to 5m: write for example 3s")]
    UnreachableAfter(String),
    #[error("spec.failover.hungAfter {0:?} is no duration from 300ms to 5m: write for example 6s")]
    HungAfter(String),
    #[error("spec.failover.maxLostBytes {0:?} is no number of bytes: write for example 1Mi")]
    MaxLostBytes(String),
    #[error("spec.auth.secretName {0:?} cannot be used: name a Secret of yours, or leave auth out")]
    SecretName(String),
    #[error("spec.storage.size {0:?} is no size of a volume: write for example 10Gi")]
    StorageSize(String),
    #[error("spec.persistence None would leave the volumes of spec.storage empty: leave one of the two out")]
    StorageWithoutPersistence,
    #[error("spec.{field} has the key {key:?}, which is the operator's own: use another key")]
    OwnKey { field: &'static str, key: String },
    #[error(
        "spec.podTemplate.securityContext has runAsUser without fsGroup, so the servers could not read their files: set fsGroup to a group of that user"
    )]
    NoFsGroup,
    #[error("spec.{field} has options that need type {needs}: change the type or remove them")]
    ServiceType { field: &'static str, needs: &'static str },
    #[error("spec.resources.{field} {value:?} is no quantity: write for example {example}")]
    Quantity { field: &'static str, value: String, example: &'static str },
    #[error(
        "spec.resources.limits.memory is too small for the replication backlog and data: use at least 160Mi"
    )]
    MemoryLimit,
    #[error("spec.resources.requests.{0} exceeds the limit: raise the limit or lower the request")]
    RequestAboveLimit(&'static str),
}

impl Refusal {
    /// One CamelCase word for conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "NameNotUsable",
            Self::Incomplete(_) => "ObjectIncomplete",
            Self::Replicas(_) => "ReplicasOutOfRange",
            Self::NoImage => "NoImage",
            Self::Image(_) => "ImageNotUsable",
            Self::UnreachableAfter(_) => "UnreachableAfterOutOfRange",
            Self::HungAfter(_) => "HungAfterOutOfRange",
            Self::MaxLostBytes(_) => "MaxLostBytesNotReadable",
            Self::SecretName(_) => "SecretNameNotUsable",
            Self::StorageSize(_) => "StorageSizeNotUsable",
            Self::StorageWithoutPersistence => "StorageWithoutPersistence",
            Self::OwnKey { .. } => "KeyNotYours",
            Self::NoFsGroup => "FsGroupMissing",
            Self::ServiceType { .. } => "ServiceTypeNotFitting",
            Self::Quantity { .. } => "QuantityNotReadable",
            Self::MemoryLimit => "MemoryLimitTooSmall",
            Self::RequestAboveLimit(_) => "RequestAboveLimit",
        }
    }
}

/// Resolves the spec; `default_image` is the operator's.
pub fn validate(cluster: &RedisCluster, default_image: &str) -> Result<ValidCluster, Refusal> {
    let meta = &cluster.metadata;
    let spec = &cluster.spec;
    let name = meta.name.clone().ok_or(Refusal::Incomplete("name"))?;
    if !is_dns_1035(&name) || name.len() > names::MAX_NAME {
        return Err(Refusal::Name(name));
    }
    let none = ResourceList::default();
    let resources = spec.resources.as_ref();
    let failover = spec.failover.as_ref();
    let requests = resources.and_then(|resources| resources.requests.as_ref()).unwrap_or(&none);
    let limits = resources.and_then(|resources| resources.limits.as_ref()).unwrap_or(&none);
    check_request("cpu", requests.cpu.as_ref(), limits.cpu.as_ref())?;
    check_request("memory", requests.memory.as_ref(), limits.memory.as_ref())?;
    Ok(ValidCluster {
        namespace: meta.namespace.clone().ok_or(Refusal::Incomplete("namespace"))?,
        uid: meta.uid.clone().ok_or(Refusal::Incomplete("uid"))?,
        generation: meta.generation,
        replicas: replicas(spec.replicas)?,
        image: image(spec.image.as_deref().unwrap_or_default(), default_image)?,
        paused: spec.paused,
        storage: spec.storage.as_ref().map(storage::storage).transpose()?,
        persistence: storage::persistence(spec)?,
        auth: auth(spec.auth.as_ref().and_then(|auth| auth.secret_name.as_deref()), &name)?,
        profile: spec.profile,
        unreachable_after: unreachable_after(failover.and_then(|it| it.unreachable_after.as_deref()))?,
        hung_after: hung_after(spec.profile, failover.and_then(|it| it.hung_after.as_deref()))?,
        max_lost_bytes: max_lost_bytes(failover.and_then(|it| it.max_lost_bytes.as_ref()))?,
        automatic: failover.is_none_or(|failover| failover.mode == FailoverMode::Automatic),
        requests: Amounts {
            cpu: amount("requests.cpu", "500m", requests.cpu.as_ref())?,
            memory: amount("requests.memory", "1Gi", requests.memory.as_ref())?,
        },
        limits: Amounts {
            cpu: amount("limits.cpu", "2", limits.cpu.as_ref())?,
            memory: amount("limits.memory", "2Gi", limits.memory.as_ref())?,
        },
        max_memory: limits.memory.as_ref().map(max_memory).transpose()?,
        pod_template: additions::pod_template(spec.pod_template.as_ref())?,
        service: additions::service("service", "service.annotations", spec.service.as_ref())?,
        replicas_service: additions::service(
            "replicasService",
            "replicasService.annotations",
            spec.replicas_service.as_ref(),
        )?,
        name,
    })
}

impl ValidCluster {
    /// What the supervisor needs to know, for this many pods. What the volumes say is added later.
    pub fn desired(&self, replicas: u32) -> Desired {
        Desired {
            replicas,
            write_quorum: write_quorum(self.profile, replicas),
            profile: self.profile,
            unreachable_after: self.unreachable_after,
            hung_after: self.hung_after,
            max_lost_bytes: self.max_lost_bytes,
            automatic: self.automatic,
            data_expected: false,
            scale_in_to: None,
            switchover: None,
            acknowledged: None,
        }
    }

    /// Makes the object ours, and has it deleted with the `RedisCluster`.
    pub fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: RedisCluster::api_version(&()).into_owned(),
            kind: RedisCluster::kind(&()).into_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

/// What to ask of the supervisor when no valid spec was ever seen, but pods run.
pub fn desired_from_running(replicas: u32) -> Desired {
    Desired {
        replicas,
        write_quorum: write_quorum(Profile::Balanced, replicas),
        profile: Profile::Balanced,
        unreachable_after: UNREACHABLE_AFTER,
        hung_after: HUNG_AFTER,
        max_lost_bytes: None,
        automatic: true,
        data_expected: false,
        scale_in_to: None,
        switchover: None,
        acknowledged: None,
    }
}

/// With a replica, a write needs one in sync: a master that nobody follows must not go on alone. A cache may.
fn write_quorum(profile: Profile, replicas: u32) -> u32 {
    u32::from(replicas > 1 && profile != Profile::Cache)
}

/// A cache is replaced sooner; elsewhere a long script (busy after 5 s) is not yet a reason.
fn hung_after(profile: Profile, text: Option<&str>) -> Result<Duration, Refusal> {
    match (text, profile) {
        (None, Profile::Cache) => Ok(CACHE_HUNG_AFTER),
        (None, Profile::Balanced | Profile::Durable) => Ok(HUNG_AFTER),
        (Some(text), _) => parse_duration(text)
            .filter(|after| (Duration::from_millis(300)..=Duration::from_secs(300)).contains(after))
            .ok_or_else(|| Refusal::HungAfter(text.to_owned())),
    }
}

fn max_lost_bytes(quantity: Option<&Quantity>) -> Result<Option<u64>, Refusal> {
    let Some(quantity) = quantity else { return Ok(None) };
    quantity.units().map(Some).ok_or_else(|| Refusal::MaxLostBytes(quantity.0.clone()))
}

fn replicas(replicas: i32) -> Result<u32, Refusal> {
    u32::try_from(replicas).ok().filter(|count| (1..=9).contains(count)).ok_or(Refusal::Replicas(replicas))
}

fn image(image: &str, default_image: &str) -> Result<String, Refusal> {
    let image = if image.is_empty() { default_image } else { image };
    match image {
        "" => Err(Refusal::NoImage),
        image if image.contains(char::is_whitespace) => Err(Refusal::Image(image.to_owned())),
        image => Ok(image.to_owned()),
    }
}

fn auth(secret: Option<&str>, cluster: &str) -> Result<AuthSource, Refusal> {
    match secret {
        None => Ok(AuthSource::Generated),
        Some(name) if !is_dns_1123(name) || name == names::server_secret(cluster) => {
            Err(Refusal::SecretName(name.to_owned()))
        }
        Some(name) => Ok(AuthSource::Secret(name.to_owned())),
    }
}

fn unreachable_after(text: Option<&str>) -> Result<Duration, Refusal> {
    let Some(text) = text else { return Ok(UNREACHABLE_AFTER) };
    parse_duration(text)
        .filter(|after| (Duration::from_secs(1)..=Duration::from_secs(300)).contains(after))
        .ok_or_else(|| Refusal::UnreachableAfter(text.to_owned()))
}

/// `1m30s`, `2.5s`, `1500ms`: numbers with the units m, s and ms, one after the other.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len()));
        let seconds = match unit {
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    Some(total)
}

fn amount(
    field: &'static str,
    example: &'static str,
    quantity: Option<&Quantity>,
) -> Result<Option<String>, Refusal> {
    let Some(quantity) = quantity else { return Ok(None) };
    quantity.canonical().map(Some).ok_or_else(|| Refusal::Quantity {
        field,
        value: quantity.0.clone(),
        example,
    })
}

fn check_request(
    name: &'static str,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Result<(), Refusal> {
    let value = |quantity: Option<&Quantity>| quantity.and_then(Quantity::thousandths);
    match (value(request), value(limit)) {
        (Some(request), Some(limit)) if request > limit => Err(Refusal::RequestAboveLimit(name)),
        _ => Ok(()),
    }
}

/// 0.6 of the limit. While a snapshot or a sync runs, up to 1.6 times the data was measured in use.
fn max_memory(limit: &Quantity) -> Result<u64, Refusal> {
    match limit.units() {
        Some(bytes) if bytes >= MIN_MEMORY_LIMIT => Ok(bytes / 10 * 6),
        Some(_) => Err(Refusal::MemoryLimit),
        None => Err(Refusal::Quantity { field: "limits.memory", value: limit.0.clone(), example: "2Gi" }),
    }
}

fn is_dns_1035(name: &str) -> bool {
    is_dns_1123(name) && !name.contains('.') && name.starts_with(|c: char| c.is_ascii_lowercase())
}

fn is_dns_1123(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.starts_with(plain)
        && name.ends_with(plain)
        && name.chars().all(|c| plain(c) || c == '-' || c == '.')
}

#[cfg(test)]
mod tests;
