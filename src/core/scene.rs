//! Situations for tests, made by hand: a settled cluster, and ways to spoil it.
#![expect(clippy::missing_panics_doc, reason = "only tests use it")]

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::facts::{
    AttachedReplica, Desired, Info, Mono, NodeState, PLACEHOLDER_HOST, PodFact, REDIS_PORT, Role,
};
use super::members::{Link, Member, Members, Outstanding, Sample};
use super::situation::Situation;
use crate::api::status::{Lineage, ProcessRef, Supervision, WriteQuorum};
use crate::core::event::RoleCommand;

/// Everything is an hour after the start, so that ages fit.
pub const NOW: Mono = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

/// A situation that owns its parts.
#[expect(clippy::struct_excessive_bools, reason = "each is one independent fact")]
#[derive(Clone, Debug)]
pub struct Scene {
    pub desired: Desired,
    pub record: Supervision,
    pub members: Members,
    pub term: Option<String>,
    pub evidence_since: Mono,
    pub replaced_confirmed: bool,
    pub api_lost_since: Option<Mono>,
    pub step_since: Mono,
    pub definitive: bool,
    pub nothing_sent: bool,
    pub switch_not_before: Mono,
    pub request: Option<String>,
    pub last_switch_ago: Option<i64>,
    pub is_routed: bool,
}

/// The time of day at [`NOW`].
pub const WALL: Timestamp = Timestamp::UNIX_EPOCH;

impl Scene {
    /// `red-0` is the recorded master, well, with all others in sync, ten keys, and write quorum 1.
    pub fn settled(replicas: u32) -> Self {
        let mut scene = Self {
            desired: Desired { replicas, ..crate::core::valid::desired_from_running(3) },
            record: Supervision {
                epoch: 7,
                holder: Some("term".to_owned()),
                master: Some(ProcessRef { pod: "red-0".into(), uid: "u0".into(), run_id: "run0".into() }),
                ever_had_data: true,
                registered: (0..replicas).map(|ordinal| format!("u{ordinal}")).collect(),
                write_quorum: WriteQuorum { desired: 1, effective: 1 },
                lineage: vec![Lineage { id: "line".to_owned(), valid_up_to: None }],
                presumed: Vec::new(),
                plan: None,
            },
            members: Members::new(),
            term: Some("term".to_owned()),
            evidence_since: NOW.saturating_sub(Duration::from_secs(600)),
            replaced_confirmed: false,
            api_lost_since: None,
            step_since: NOW.saturating_sub(Duration::from_secs(600)),
            definitive: false,
            nothing_sent: false,
            switch_not_before: Mono::ZERO,
            request: None,
            last_switch_ago: None,
            is_routed: true,
        };
        for ordinal in 0..replicas {
            let member = member(ordinal, replicas);
            scene.members.insert(member.pod.uid.clone(), member);
        }
        scene
    }

    pub fn situation(&self) -> Situation<'_> {
        Situation {
            now: NOW,
            desired: &self.desired,
            record: &self.record,
            members: &self.members,
            term: self.term.as_deref(),
            evidence_since: self.evidence_since,
            replaced_confirmed: self.replaced_confirmed,
            api_lost_since: self.api_lost_since,
            step_since: self.step_since,
            definitive: self.definitive,
            nothing_sent: self.nothing_sent,
            switch_not_before: self.switch_not_before,
            request: self.request.as_deref(),
            last_switch_ago: self.last_switch_ago,
            is_routed: self.is_routed,
            next_epoch: self.record.epoch + 1,
            wall: WALL,
        }
    }

    pub fn member(&mut self, ordinal: u32) -> &mut Member {
        self.members.get_mut(&format!("u{ordinal}")).unwrap()
    }

    pub fn info(&mut self, ordinal: u32) -> &mut Info {
        &mut self.member(ordinal).sample.as_mut().unwrap().info
    }

    /// Our connection ended a moment ago and nothing listens any more.
    pub fn refuse(&mut self, ordinal: u32, since: Duration) {
        let member = self.member(ordinal);
        let start = NOW.saturating_sub(since);
        member.link_lost(start);
        member.refused(start + MS);
        member.refused(NOW.saturating_sub(MS));
        member.dial_failed(NOW.saturating_sub(MS));
    }

    /// No way there for this long; no connection ended.
    pub fn unroutable(&mut self, ordinal: u32, since: Duration) {
        let member = self.member(ordinal);
        member.hung_up(NOW.saturating_sub(since));
        member.unroutable(NOW.saturating_sub(since));
    }

    /// Connected, but no answer for this long.
    pub fn hang(&mut self, ordinal: u32, since: Duration) {
        let member = self.member(ordinal);
        member.asked = vec![NOW.saturating_sub(since)];
        member.suspect(NOW.saturating_sub(since) + 300 * MS);
    }

    /// A replica that lost its master this long ago, and said so just now.
    pub fn lose_link(&mut self, ordinal: u32, since: Duration) {
        let info = self.info(ordinal);
        info.link_up = false;
        info.last_io = Some(-1);
        info.link_down_since = Some(i64::try_from(since.as_secs()).unwrap());
    }

    /// The container runs a new process: fenced, with these keys and no position.
    pub fn restart(&mut self, ordinal: u32, keys: u64) {
        let fenced = fenced(ordinal, keys);
        let member = self.member(ordinal);
        member.run_id = Some(fenced.run_id.clone());
        member.link = Link::Open { id: 100 + u64::from(ordinal) };
        member.bad_since = None;
        member.lost_at = None;
        member.refused = None;
        member.asked.clear();
        member.fenced_since = Some(NOW.saturating_sub(MS));
        member.sample = Some(Sample {
            asked_at: NOW.saturating_sub(2 * MS),
            answered_at: NOW.saturating_sub(MS),
            info: fenced,
        });
    }

    pub fn command_under_way(&mut self, ordinal: u32) {
        self.member(ordinal).outstanding =
            Some(Outstanding { ticket: 1, command: RoleCommand::Detach, sent_at: NOW.saturating_sub(MS) });
    }
}

pub fn ip(ordinal: u32) -> IpAddr {
    IpAddr::from([10, 0, 0, u8::try_from(ordinal).unwrap() + 1])
}

fn member(ordinal: u32, replicas: u32) -> Member {
    let mut member = Member::new(PodFact {
        name: format!("red-{ordinal}"),
        uid: format!("u{ordinal}"),
        ordinal,
        ip: Some(ip(ordinal)),
        node: Some(format!("node-{ordinal}")),
        node_state: NodeState::Fit,
        terminating: false,
        role_label: None,
    });
    let info = if ordinal == 0 { master(replicas) } else { replica(ordinal) };
    member.connected(NOW.saturating_sub(MS), u64::from(ordinal) + 1, NOW.saturating_sub(2 * MS), info);
    member.last_asked = NOW.saturating_sub(2 * MS);
    if ordinal > 0 {
        member.streamed_at = Some(NOW.saturating_sub(Duration::from_secs(1)));
    }
    member
}

fn fenced(ordinal: u32, keys: u64) -> Info {
    Info {
        run_id: format!("run{ordinal}b"),
        redis_version: "7.0.15".to_owned(),
        uptime_seconds: 1,
        role: Role::Replica,
        master_host: Some(PLACEHOLDER_HOST.to_owned()),
        master_port: 0,
        link_up: false,
        link_down_since: Some(-1),
        last_io: Some(-1),
        sync_in_progress: false,
        replid: format!("random{ordinal}"),
        replid2: "0".repeat(40),
        second_offset: -1,
        master_offset: 0,
        replica_offset: Some(1),
        attached: Vec::new(),
        loading: false,
        keys,
        cannot_save: false,
        failover_running: false,
        good_replicas: None,
    }
}

fn master(replicas: u32) -> Info {
    let attached = (1..replicas)
        .map(|ordinal| AttachedReplica {
            ip: ip(ordinal).to_string(),
            port: REDIS_PORT,
            state: "online".to_owned(),
            offset: 1000,
            lag: 0,
        })
        .collect();
    Info {
        run_id: "run0".to_owned(),
        role: Role::Master,
        master_host: None,
        replid: "line".to_owned(),
        master_offset: 1000,
        replica_offset: None,
        link_down_since: None,
        last_io: None,
        attached,
        good_replicas: Some(replicas.saturating_sub(1)),
        ..fenced(0, 10)
    }
}

fn replica(ordinal: u32) -> Info {
    Info {
        run_id: format!("run{ordinal}"),
        master_host: Some(ip(0).to_string()),
        master_port: REDIS_PORT,
        link_up: true,
        link_down_since: None,
        last_io: Some(0),
        replid: "line".to_owned(),
        master_offset: 1000,
        replica_offset: Some(1000),
        ..fenced(ordinal, 10)
    }
}
