//! How the fake servers behave: roles, streams, leases, and what INFO says.

use std::net::IpAddr;
use std::sync::Arc;

use crate::api::status::{PlanKind, PlanStep};
use crate::core::event::{Effect, Event, ProbeOutcome, RoleCommand};
use crate::core::facts::{AttachedReplica, Info, Mono, PLACEHOLDER_HOST, REDIS_PORT, Role};

use super::{REPL_TIMEOUT, Stage};

impl Stage {
    /// The process does not read, or nothing gets through to it.
    pub(super) fn is_deaf(&self, uid: &str) -> bool {
        let linked = self.links.contains_key(uid);
        linked && self.nodes.iter().any(|node| node.uid == uid && node.up && (node.frozen || node.cut_off))
    }

    /// Servers that read again carry out what lay in their sockets.
    pub(super) fn wake(&mut self) {
        let now = self.now;
        for (term, asked, effect) in std::mem::take(&mut self.held) {
            let uid = match &effect {
                Effect::Probe { uid, .. } | Effect::Command { uid, .. } | Effect::Dial { uid, .. } => {
                    uid.clone()
                }
                _ => continue,
            };
            if self.is_deaf(&uid) || self.nodes.iter().any(|node| node.uid == uid && node.up && node.frozen) {
                self.held.push((term, asked, effect));
                continue;
            }
            let before = self.queue.len();
            match effect {
                Effect::Probe { uid, link } => {
                    if self.links.get(&uid).is_some_and(|(open, _)| *open == link)
                        && let Some(info) = self.info(&uid)
                    {
                        let outcome = ProbeOutcome::Answered(Box::new(info));
                        self.answer(Event::Probed { uid, link, asked_at: asked, outcome });
                    }
                }
                other => self.carry_out(other),
            }
            if term != self.term {
                self.queue.truncate(before);
            }
        }
        // A promoted node that lost its lease and gets it back counts from now.
        for index in 0..self.nodes.len() {
            let good = self.good_replicas(&self.nodes[index]);
            let node = &mut self.nodes[index];
            if node.role == Role::Master && good >= usize::try_from(node.quorum).unwrap() {
                node.acknowledged = now;
            }
        }
    }

    /// The rules of a role change, at the moment at which a server obeys.
    pub(super) fn judge(&mut self, index: usize, command: &RoleCommand) {
        let record = self.record();
        let node = self.nodes[index].clone();
        match command {
            RoleCommand::Promote { .. } if node.role == Role::Replica => {
                let recorded = record.plan.as_ref().is_some_and(|plan| {
                    let switches = plan.kind == PlanKind::Switchover && plan.step == PlanStep::Recorded;
                    (switches || plan.step == PlanStep::Chosen)
                        && plan.to.as_ref().is_some_and(|to| to.uid == node.uid && to.run_id == node.run_id())
                });
                if !recorded {
                    self.broke(format!("{} was promoted without a record: {:?}", node.name, record.plan));
                }
                let count = self.promoted_in.entry(record.epoch).or_default();
                *count += 1;
                if *count > 1 {
                    self.broke(format!("two promotions in epoch {}", record.epoch));
                }
            }
            RoleCommand::Serve => {
                let recorded = record.master.as_ref().is_some_and(|master| master.run_id == node.run_id())
                    && record.lineage.last().is_some_and(|lineage| lineage.id == node.replid);
                if !recorded {
                    self.broke(format!("{} serves under an unrecorded id", node.name));
                }
            }
            RoleCommand::Follow { ip, .. } => {
                let source = self.nodes.iter().find(|node| node.ip == *ip);
                let recorded = source.is_some_and(|source| {
                    record.master.as_ref().is_some_and(|master| master.uid == source.uid)
                });
                if !recorded {
                    self.broke(format!("{} follows somebody who is not the recorded master", node.name));
                }
            }
            _ => {}
        }
    }

    pub(super) fn obey(&mut self, uid: &str, command: &RoleCommand) {
        let now = self.now;
        let index = self.nodes.iter().position(|node| node.uid == uid).unwrap();
        self.judge(index, command);
        let ip = self.nodes[index].ip;
        let node = &mut self.nodes[index];
        match command {
            RoleCommand::Detach | RoleCommand::Demote | RoleCommand::StepDown => {
                node.serving = false;
                node.role = Role::Replica;
                node.master = (PLACEHOLDER_HOST.to_owned(), 0);
                node.link_lost = None;
                node.link_up = false;
                if matches!(command, RoleCommand::Demote | RoleCommand::StepDown) {
                    node.positioned = true;
                }
            }
            RoleCommand::Promote { write_quorum } => {
                if node.role == Role::Replica {
                    node.promotions += 1;
                    node.replid2 = node.replid.clone();
                    node.second_offset = node.offset + 1;
                    node.replid = format!("id-{}-{}-{}", node.name, node.run, node.promotions);
                    node.backlog = node.positioned;
                }
                node.role = Role::Master;
                node.link_up = false;
                node.quorum = *write_quorum;
            }
            RoleCommand::Serve => node.serving = true,
            RoleCommand::Follow { ip: master, port, .. } => {
                node.serving = false;
                node.role = Role::Replica;
                node.quorum = 0;
                node.link_up = false;
                node.master = (master.to_string(), *port);
                self.drop_replicas_of(ip, now);
            }
            RoleCommand::SetWriteQuorum(quorum) => node.quorum = *quorum,
            RoleCommand::CutClients
            | RoleCommand::Pause { .. }
            | RoleCommand::Unpause
            | RoleCommand::KillScript => {}
        }
    }

    pub(super) fn drop_replicas_of(&mut self, ip: IpAddr, now: Mono) {
        for node in &mut self.nodes {
            if node.link_up && node.master.0 == ip.to_string() {
                node.link_up = false;
                node.link_lost = Some(now);
            }
        }
    }

    /// Replicas attach, sync and stream.
    pub(super) fn replicate(&mut self) {
        for index in 0..self.nodes.len() {
            let replica = &self.nodes[index];
            if !replica.up || replica.frozen || replica.role == Role::Master {
                continue;
            }
            let (host, name) = (replica.master.0.clone(), replica.name.clone());
            let Some(source) = self.nodes.iter().position(|node| {
                !self.is_cut(&node.name, &name)
                    && node.ip.to_string() == host
                    && node.up
                    && !node.frozen
                    && node.role == Role::Master
                    && node.serving
            }) else {
                let replica = &mut self.nodes[index];
                if replica.link_up && self.now > replica.fed + REPL_TIMEOUT {
                    replica.link_up = false;
                    replica.link_lost = Some(self.now);
                }
                continue;
            };
            if !self.nodes[source].backlog {
                let node = &mut self.nodes[source];
                node.backlog = true;
                node.replid = format!("{}-attached", node.replid);
                node.replid2 = "0".to_owned();
                node.offset += 1;
            }
            let source = self.nodes[source].clone();
            let replica = &mut self.nodes[index];
            if !replica.link_up {
                let partial = replica.positioned
                    && (replica.replid == source.replid
                        || (replica.replid == source.replid2 && replica.offset < source.second_offset));
                replica.full_syncs += u32::from(!partial);
                let lost: Vec<u64> = replica
                    .writes
                    .intersection(&self.confirmed)
                    .filter(|write| !source.writes.contains(write))
                    .copied()
                    .collect();
                if !lost.is_empty() {
                    let rule = format!("{} lost confirmed writes by following {}", replica.name, source.name);
                    self.broken.push(rule);
                }
            }
            let replica = &mut self.nodes[index];
            replica.fed = self.now;
            replica.link_up = true;
            replica.link_lost = None;
            replica.positioned = true;
            replica.replid.clone_from(&source.replid);
            replica.replid2.clone_from(&source.replid2);
            replica.second_offset = source.second_offset;
            replica.offset = source.offset;
            replica.keys = source.keys;
            if !Arc::ptr_eq(&replica.writes, &source.writes) {
                replica.writes = source.writes;
                self.confirmed.extend(replica.writes.iter());
            }
        }
    }

    pub(super) fn info(&self, uid: &str) -> Option<Info> {
        let node = self.nodes.iter().find(|node| node.uid == uid && node.answers())?;
        if self.links.get(uid).is_some_and(|(_, run)| *run != node.run) {
            return None;
        }
        let stranger = |number| AttachedReplica {
            ip: format!("10.8.8.{number}"),
            port: REDIS_PORT,
            state: "online".to_owned(),
            offset: node.offset,
            lag: 0,
        };
        let strangers = if node.role == Role::Master { self.strangers } else { 0 };
        let attached: Vec<AttachedReplica> = self
            .nodes
            .iter()
            .filter(|other| other.up && other.link_up && other.master.0 == node.ip.to_string())
            .map(|other| AttachedReplica {
                ip: other.ip.to_string(),
                port: REDIS_PORT,
                state: "online".to_owned(),
                offset: other.offset,
                lag: 0,
            })
            .chain((0..strangers).map(stranger))
            .collect();
        let replica = node.role == Role::Replica;
        Some(Info {
            run_id: node.run_id(),
            redis_version: "7.0.15".to_owned(),
            uptime_seconds: 1,
            role: node.role,
            master_host: replica.then(|| node.master.0.clone()),
            master_port: node.master.1,
            link_up: node.link_up,
            link_down_since: node
                .link_lost
                .map_or(Some(-1), |at| i64::try_from(self.now.saturating_sub(at).as_secs()).ok()),
            last_io: Some(if node.link_up {
                i64::try_from(self.now.saturating_sub(node.fed).as_secs()).unwrap()
            } else {
                -1
            }),
            sync_in_progress: false,
            replid: node.replid.clone(),
            replid2: node.replid2.clone(),
            second_offset: node.second_offset,
            master_offset: node.offset,
            replica_offset: replica.then_some(if node.positioned { node.offset } else { 1 }),
            good_replicas: (node.quorum > 0).then(|| u32::try_from(attached.len()).unwrap()),
            attached,
            loading: false,
            keys: node.keys,
            cannot_save: false,
            failover_running: false,
        })
    }
}
