//! Everything a rule may look at, in one borrowed value. Pure.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::facts::{Desired, Info, Mono, REDIS_PORT, Role};
use super::members::{Class, Member, Members};
use crate::api::names::ACKNOWLEDGE_ANNOTATION;
use crate::api::status::{Plan, ProcessRef, Supervision};

/// A replica that lags less than this behind its master's word is fresh.
pub const WITNESS_WORD: i64 = 2;

/// A witness counts when it was seen streaming at most this long before the master's last good answer.
pub const WITNESS_WINDOW: Duration = Duration::from_secs(5);

/// Silence of a replica's master link, in seconds, after which the replica is no sign of life.
pub const WITNESS_SILENCE: i64 = 3;

/// The supervisor's view at one moment.
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact")]
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    pub now: Mono,
    pub desired: &'a Desired,
    pub record: &'a Supervision,
    pub members: &'a Members,
    /// The lease term of this operator; `None` while it may only watch.
    pub term: Option<&'a str>,
    /// Evidence before this moment is void.
    pub evidence_since: Mono,
    /// The recorded master's pod was read live and has another process.
    pub replaced_confirmed: bool,
    /// The API server does not answer since.
    pub api_lost_since: Option<Mono>,
    /// When this supervisor first saw the open plan at its present step.
    pub step_since: Mono,
    /// The death of `plan.from` was certain for this supervisor.
    pub definitive: bool,
    /// This supervisor opened the plan in its present term, and has demoted nobody for it.
    pub nothing_sent: bool,
    /// No switch by our own decision before.
    pub switch_not_before: Mono,
    /// A switch that a person asks for, and that was not answered yet.
    pub request: Option<&'a str>,
    /// Seconds since the last finished switch on record.
    pub last_switch_ago: Option<i64>,
    /// The master Service leads to the recorded master.
    pub is_routed: bool,
    /// Larger than any epoch seen.
    pub next_epoch: u64,
    /// The time of day: only for how long ago something on record was, where no clock of ours has seen it.
    pub wall: Timestamp,
}

impl<'a> Situation<'a> {
    /// A person has seen what happened up to this epoch.
    pub fn acknowledged(&self) -> bool {
        self.desired.acknowledged.is_some_and(|epoch| epoch >= self.record.epoch)
    }

    /// What a person has to do for a decision that may cost data.
    pub fn how_to_acknowledge(&self) -> String {
        format!("annotate the RedisCluster with {ACKNOWLEDGE_ANNOTATION}={}", self.record.epoch)
    }

    pub fn plan(&self) -> Option<&'a Plan> {
        self.record.plan.as_ref()
    }

    pub fn member_of(&self, process: &ProcessRef) -> Option<&'a Member> {
        self.members.get(&process.uid)
    }

    /// The recorded master and what is known of its pod.
    pub fn master(&self) -> Option<(&'a ProcessRef, Option<&'a Member>)> {
        self.record.master.as_ref().map(|master| (master, self.member_of(master)))
    }

    pub fn others<'b>(&'b self, process: &'b ProcessRef) -> impl Iterator<Item = &'a Member> + 'b {
        self.members.values().filter(move |member| member.pod.uid != process.uid)
    }

    pub fn listed(&self) -> impl Iterator<Item = &'a Member> + '_ {
        self.members.values().filter(|member| member.listed)
    }

    pub fn current_id(&self) -> Option<&'a str> {
        self.record.lineage.last().map(|lineage| lineage.id.as_str())
    }

    /// Does this data belong to the recorded data set?
    pub fn in_lineage(&self, id: &str, offset: i64) -> bool {
        self.record
            .lineage
            .iter()
            .any(|lineage| lineage.id == id && lineage.valid_up_to.is_none_or(|end| offset <= end))
    }

    /// The recorded master, answering as such, in time.
    pub fn well_master(&self) -> Option<(&'a Member, &'a Info)> {
        let (process, member) = self.master()?;
        let member = member?;
        let info = member.reading(self.now)?;
        (member.is(process) && info.role == Role::Master && member.bad_since.is_none())
            .then_some((member, info))
    }

    /// Is this replica streaming from the pod with that address, as far as it says?
    pub fn streams_from(info: &Info, ip: IpAddr) -> bool {
        Member::follows(info, ip, REDIS_PORT) && info.link_up
    }

    /// A pod that is in sync with the master by both their words.
    pub fn in_sync(&self, member: &Member) -> bool {
        let Some((master, master_info)) = self.well_master() else { return false };
        let (Some(ip), Some(own)) = (master.pod.ip, member.pod.ip) else { return false };
        let Some(info) = member.reading(self.now) else { return false };
        let acknowledged = master_info.attached.iter().any(|attached| {
            attached.ip.parse::<IpAddr>().ok() == Some(own)
                && attached.state == "online"
                && attached.offset > 0
        });
        Self::streams_from(info, ip) && !info.loading && !info.sync_in_progress && acknowledged
    }

    /// Replicas in sync with the recorded master.
    pub fn in_sync_count(&self) -> u32 {
        let Some((master, _)) = self.master() else { return 0 };
        self.others(master)
            .filter(|member| member.listed && self.in_sync(member))
            .count()
            .try_into()
            .unwrap_or(0)
    }

    /// Replicas in the master's INFO that are none of our pods.
    pub fn foreign_replicas(&self) -> usize {
        let Some((_, info)) = self.well_master() else { return 0 };
        let ours = |ip: &str| {
            ip.parse::<IpAddr>().is_ok_and(|ip| self.members.values().any(|member| member.pod.ip == Some(ip)))
        };
        info.attached.iter().filter(|attached| !ours(&attached.ip)).count()
    }

    /// Reachable, whatever it says.
    pub fn reachable(&self, member: &Member) -> bool {
        matches!(member.class(self.now), Class::Ok | Class::Loading | Class::Busy) && member.sample.is_some()
    }
}
