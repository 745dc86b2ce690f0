//! Pods and their containers: the StatefulSet makes pods, kubelets start, stop and restart what runs in them.

use std::net::IpAddr;

use redis_ha_operator::core::facts::{NodeState, PodFact};

use crate::redis::life::Disk;
use crate::setup::{Build, Machine, Persistence};
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// A node that does not report is taken for lost after this.
const NODE_GRACE: Time = 40 * SECOND;
/// A stopping master waits so long for its replicas: `shutdown-timeout`.
const SHUTDOWN: Time = 10 * SECOND;

/// One pod.
#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub uid: String,
    pub ordinal: u32,
    pub machine: Machine,
    pub ip: Option<IpAddr>,
    /// The API server has the object.
    pub listed: bool,
    pub terminating: bool,
    pub label: Option<String>,
    pub pid: Option<usize>,
    /// Disk of the pod itself, without a volume.
    disk: Disk,
    node_lost: bool,
    /// When a stopping server is killed.
    kill_at: Time,
}

impl World {
    pub fn create_pod(&mut self, ordinal: u32) {
        let exists = self.pods.iter().any(|pod| pod.listed && pod.ordinal == ordinal);
        if exists || ordinal >= self.api.size {
            return;
        }
        if self.setup.volumes && self.lives_on(ordinal) {
            self.later(SECOND, Ev::CreatePod { ordinal }); // the volume is still in use
            return;
        }
        let number = self.pods.len();
        self.pods.push(Pod {
            name: format!("cache-{ordinal}"),
            uid: format!("uid{number}-{ordinal}"),
            ordinal,
            machine: self.setup.node_of(ordinal),
            ip: None,
            listed: true,
            terminating: false,
            label: None,
            pid: None,
            disk: Disk::default(),
            node_lost: false,
            kill_at: 0,
        });
        let start = self.rng.span(200 * MS, 3 * SECOND);
        self.later(start, Ev::Start { pod: number });
        self.pods_changed();
    }

    /// A process of this ordinal outlives its pod.
    fn lives_on(&self, ordinal: u32) -> bool {
        self.processes.iter().any(|process| process.alive && self.pods[process.pod].ordinal == ordinal)
    }

    pub fn start_container(&mut self, number: usize) {
        let pod = &self.pods[number];
        if !pod.listed || pod.terminating || pod.pid.is_some_and(|pid| self.processes[pid].alive) {
            return;
        }
        if self.net.is_down(pod.machine) || !self.net.is_open_both(pod.machine, self.setup.api) {
            self.later(SECOND, Ev::Start { pod: number });
            return;
        }
        let octet = |value: usize| u8::try_from(value % 250 + 1).unwrap_or(1);
        let address = IpAddr::from([10, 1, octet(number / 250), octet(number)]);
        let ip = pod.ip.unwrap_or(address);
        let (machine, ordinal) = (pod.machine, pod.ordinal as usize);
        let disk = if self.setup.volumes { self.volumes[ordinal] } else { pod.disk };
        let pid = self.boot(number, machine, ip, disk);
        self.pods[number].pid = Some(pid);
        self.pods[number].ip = Some(ip);
        self.say(|world| format!("{} starts as {}", world.name_of(pid), world.processes[pid].run));
        self.pods_changed();
    }

    /// The process of a pod ends. The kubelet starts it again, unless the pod is going.
    pub fn end_process(&mut self, pid: usize, power_lost: bool) {
        if !self.processes[pid].alive {
            return;
        }
        let disk = self.disk_of(pid, power_lost);
        let number = self.processes[pid].pod;
        let ordinal = self.pods[number].ordinal as usize;
        if self.setup.volumes {
            self.volumes[ordinal] = disk;
        } else {
            self.pods[number].disk = disk;
        }
        self.note_end(pid);
        self.die(pid, power_lost);
        self.say(|world| format!("{} ends", world.name_of(pid)));
    }

    pub fn restart_later(&mut self, pid: usize, after: Time) {
        let pod = self.processes[pid].pod;
        self.later(after, Ev::Start { pod });
    }

    /// `kubectl delete pod`
    pub fn delete_pod(&mut self, number: usize) {
        let pod = &mut self.pods[number];
        if pod.terminating || !pod.listed {
            return;
        }
        pod.terminating = true;
        pod.kill_at = Time::MAX;
        let after = self.rng.span(20 * MS, 500 * MS);
        self.later(after, Ev::Stop { pod: number });
        self.pods_changed();
    }

    /// SIGTERM, then patience, then SIGKILL.
    pub fn stop_container(&mut self, number: usize) {
        let pod = &self.pods[number];
        if !pod.listed || !pod.terminating {
            return;
        }
        if !self.net.is_open_both(pod.machine, self.setup.api) {
            self.later(SECOND, Ev::Stop { pod: number });
            return;
        }
        let Some(pid) = pod.pid.filter(|pid| self.processes[*pid].alive) else {
            let after = self.rng.span(30 * MS, 400 * MS);
            self.later(after, Ev::PodGone { pod: number });
            return;
        };
        let now = self.now;
        if self.pods[number].kill_at == Time::MAX {
            self.pods[number].kill_at = now + self.rng.range(10, 45) * SECOND;
        }
        let kill_at = self.pods[number].kill_at;
        let process = &mut self.processes[pid];
        let mut may_end = now >= kill_at;
        if process.runs() {
            process.ending = true;
            let waits = self.setup.build != Build::Redis62
                && process.role == redis_ha_operator::core::facts::Role::Master
                && process.downstream.iter().any(|replica| replica.online && replica.ack < process.offset);
            may_end |= !waits || now + 45 * SECOND >= kill_at + SHUTDOWN + 35 * SECOND;
            if may_end && self.setup.persistence == Persistence::Rdb {
                self.save(pid, 0);
            }
        }
        if may_end {
            self.end_process(pid, false);
        }
        self.later(50 * MS, Ev::Stop { pod: number });
    }

    /// The object is removed; the StatefulSet makes another pod.
    pub fn remove_pod(&mut self, number: usize) {
        let pod = &mut self.pods[number];
        if !pod.listed {
            return;
        }
        pod.listed = false;
        let ordinal = pod.ordinal;
        let after = self.rng.span(50 * MS, SECOND);
        self.later(after, Ev::CreatePod { ordinal });
        self.pods_changed();
    }

    /// A node's word is heard again, or has not been heard for long.
    pub fn check_node(&mut self, machine: Machine) {
        let well = self.net.is_open_both(machine, self.setup.api);
        let gone = self.now.saturating_sub(NODE_GRACE);
        let lost = !well && !self.net.changed_since(machine, self.setup.api, gone);
        let mut changed = false;
        for pod in self.pods.iter_mut().filter(|pod| pod.machine == machine) {
            let next = if well { false } else { pod.node_lost || lost };
            changed |= pod.listed && pod.node_lost != next;
            pod.node_lost = next;
        }
        if changed {
            self.pods_changed();
        }
    }

    /// After a cut or its end the node's state is looked at when it may have changed.
    pub fn watch_node(&mut self, machine: Machine) {
        if machine < self.setup.nodes {
            self.later(NODE_GRACE + SECOND, Ev::CheckNode { machine });
            self.later(3 * SECOND, Ev::CheckNode { machine });
        }
    }

    pub fn pod_facts(&self) -> Vec<PodFact> {
        let listed = self.pods.iter().filter(|pod| pod.listed);
        let mut facts: Vec<PodFact> = listed
            .map(|pod| PodFact {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                ordinal: pod.ordinal,
                ip: pod.ip,
                node: Some(format!("node-{}", pod.machine)),
                node_state: if pod.node_lost { NodeState::Lost } else { NodeState::Fit },
                terminating: pod.terminating,
                role_label: pod.label.clone(),
            })
            .collect();
        facts.sort_by_key(|fact| fact.ordinal);
        facts
    }
}
