//! Faults strike, and are mended.

use crate::schedule::{Fault, Place, Which, Who};
use crate::setup::Machine;
use crate::time::{MS, SECOND, Time};
use crate::world::{Ev, World};

/// How to undo what was done.
#[derive(Clone, Debug)]
pub enum Mend {
    Thaw(usize),
    EndScript(usize),
    CanSave(usize),
    Ways { ways: Vec<(Machine, Machine)>, reset: bool },
    MachineUp(Machine),
    ApiUp,
    ApiFast,
    FreshWatch,
    StartOperator(usize),
    EndProcess(usize),
}

impl World {
    pub fn strike(&mut self, fault: Fault) {
        self.counts.faults += 1;
        self.say(|_| format!("FAULT {fault:?}"));
        match fault {
            Fault::Kill { who, back } => {
                for pid in self.targets(who) {
                    self.end_process(pid, false);
                    self.restart_later(pid, back);
                }
            }
            Fault::Delete { who } => {
                for pid in self.targets(who) {
                    self.delete_pod(self.processes[pid].pod);
                }
            }
            Fault::ForceDelete { who, lingers } => {
                for pid in self.targets(who) {
                    self.mend_later(lingers, Mend::EndProcess(pid));
                    self.remove_pod(self.processes[pid].pod);
                }
            }
            Fault::Freeze { who, time } => {
                for pid in self.targets(who) {
                    self.freeze(pid);
                    self.mend_later(time, Mend::Thaw(pid));
                }
            }
            Fault::Script { who, time } => {
                for pid in self.targets(who) {
                    self.begin_script(pid);
                    self.mend_later(time, Mend::EndScript(pid));
                }
            }
            Fault::CannotSave { who, time } => {
                for pid in self.targets(who) {
                    self.processes[pid].cannot_save = true;
                    self.mend_later(time, Mend::CanSave(pid));
                }
            }
            Fault::Cut { from, to, both, reset, time } => self.strike_ways(from, to, both, reset, time),
            Fault::Isolate { place, time } => self.isolate(place, time),
            Fault::PowerLoss { who, time } => self.power_loss(who, time),
            Fault::ApiOutage { time } => {
                self.api.down += 1;
                self.mend_later(time, Mend::ApiUp);
            }
            Fault::ApiSlow { time } => {
                self.api.slow += 1;
                self.mend_later(time, Mend::ApiFast);
            }
            Fault::StaleWatch { time } => {
                self.api.stale_watch += 1;
                self.mend_later(time, Mend::FreshWatch);
            }
            Fault::LoseRequests { count } => self.api.lose_requests += count,
            Fault::LoseReplies { count } => self.api.lose_replies += count,
            Fault::LateRequests { count } => self.api.late += count,
            Fault::Conflicts { count } => self.api.conflicts += count,
            Fault::OperatorCrash { which, back } => {
                let op = self.operator(which);
                self.crash_operator(op);
                self.mend_later(back, Mend::StartOperator(op));
            }
            Fault::OperatorPause { which, time, in_hand, clock_stops } => {
                let op = self.operator(which);
                if in_hand {
                    self.operators[op].pause_next = Some((time, clock_stops));
                } else {
                    self.pause_operator(op, time, clock_stops);
                }
            }
            Fault::Scale { to } => {
                self.api.wanted = to;
                self.control();
            }
            Fault::Flush => {
                for pid in self.targets(Who::Master) {
                    self.flush_all(pid);
                }
            }
            Fault::Switchover { to } => {
                let value = to.map_or_else(|| "any".to_owned(), |ordinal| format!("cache-{ordinal}"));
                self.api.desired.switchover = Some(value);
                self.desired_changed();
            }
            Fault::ByHand { who } => {
                for pid in self.targets(who) {
                    if self.processes[pid].runs() && !self.processes[pid].loading {
                        self.by_hand.push(self.processes[pid].run.clone());
                        self.follow(pid, None);
                    }
                }
            }
        }
    }

    /// The living processes that are meant.
    pub fn targets(&self, who: Who) -> Vec<usize> {
        let alive = |uid: &str, run: &str| {
            self.processes
                .iter()
                .position(|process| process.alive && process.run == run && self.pods[process.pod].uid == uid)
        };
        let record = self.api.record();
        let master = record
            .and_then(|record| record.master.as_ref())
            .and_then(|master| alive(&master.uid, &master.run_id));
        let all: Vec<usize> = (0..self.processes.len()).filter(|pid| self.processes[*pid].alive).collect();
        match who {
            Who::Master => master.into_iter().collect(),
            Who::Target => {
                let target = record
                    .and_then(|record| record.plan.as_ref())
                    .and_then(|plan| plan.to.as_ref())
                    .and_then(|to| alive(&to.uid, &to.run_id));
                target.or(master).into_iter().collect()
            }
            Who::All => all,
            Who::Other(number) => {
                let others: Vec<usize> = all.into_iter().filter(|pid| Some(*pid) != master).collect();
                if others.is_empty() { Vec::new() } else { vec![others[number as usize % others.len()]] }
            }
        }
    }

    fn operator(&self, which: Which) -> usize {
        let leader = self.operators.iter().position(|operator| operator.leading_since.is_some()).unwrap_or(0);
        match which {
            Which::Leader => leader,
            Which::Standby => 1 - leader,
        }
    }

    fn machines(&self, place: Place) -> Vec<Machine> {
        match place {
            Place::Server(who) => {
                self.targets(who).into_iter().map(|pid| self.processes[pid].machine).collect()
            }
            Place::Operator(which) => vec![self.operators[self.operator(which)].machine],
            Place::Api => vec![self.setup.api],
            Place::Client(client) => vec![self.setup.clients[client % 2]],
        }
    }

    fn strike_ways(&mut self, from: Place, to: Place, both: bool, reset: bool, time: Time) {
        let (from, to) = (self.machines(from), self.machines(to));
        let mut ways = Vec::new();
        for one in &from {
            for other in to.iter().filter(|other| *other != one) {
                ways.push((*one, *other));
                if both {
                    ways.push((*other, *one));
                }
            }
        }
        self.cut_all(ways, reset, time);
    }

    fn isolate(&mut self, place: Place, time: Time) {
        let inside = self.machines(place);
        let mut ways = Vec::new();
        for one in &inside {
            for other in (0..self.setup.machines).filter(|other| !inside.contains(other)) {
                ways.extend([(*one, other), (other, *one)]);
            }
        }
        self.cut_all(ways, false, time);
    }

    fn cut_all(&mut self, ways: Vec<(Machine, Machine)>, reset: bool, time: Time) {
        for (from, to) in &ways {
            self.cut(*from, *to, reset);
        }
        if reset {
            self.reset_at = Some(self.now + time);
        }
        self.watch_nodes(&ways);
        self.mend_later(time, Mend::Ways { ways, reset });
    }

    fn watch_nodes(&mut self, ways: &[(Machine, Machine)]) {
        let api = self.setup.api;
        for (from, to) in ways {
            if *from == api {
                self.watch_node(*to);
            } else if *to == api {
                self.watch_node(*from);
            }
        }
    }

    fn power_loss(&mut self, who: Who, time: Time) {
        let mut machines: Vec<Machine> =
            self.targets(who).into_iter().map(|pid| self.processes[pid].machine).collect();
        machines.sort_unstable();
        machines.dedup();
        for machine in machines {
            for pid in 0..self.processes.len() {
                if self.processes[pid].alive && self.processes[pid].machine == machine {
                    self.end_process(pid, true);
                    let back = time + self.rng.span(500 * MS, 5 * SECOND);
                    self.restart_later(pid, back);
                }
            }
            for op in 0..self.operators.len() {
                if self.operators[op].machine == machine && self.operators[op].up {
                    self.crash_operator(op);
                    self.mend_later(time + SECOND, Mend::StartOperator(op));
                }
            }
            self.machine_down(machine);
            self.watch_node(machine);
            self.mend_later(time, Mend::MachineUp(machine));
        }
    }

    pub fn mend_later(&mut self, after: Time, mend: Mend) {
        self.broken_things += 1;
        self.later(after, Ev::Mend(Box::new(mend)));
    }

    pub fn mended(&mut self, mend: Mend) {
        self.broken_things -= 1;
        self.mended_at = self.now;
        self.say(|_| format!("MENDED {mend:?}"));
        match mend {
            Mend::Thaw(pid) => self.thaw(pid),
            Mend::EndScript(pid) => self.end_script(pid),
            Mend::CanSave(pid) => self.processes[pid].cannot_save = false,
            Mend::Ways { ways, reset } => {
                for (from, to) in &ways {
                    self.mend(*from, *to, reset);
                }
                self.watch_nodes(&ways);
            }
            Mend::MachineUp(machine) => {
                self.machine_up(machine);
                self.watch_node(machine);
            }
            Mend::ApiUp => {
                self.api.down = self.api.down.saturating_sub(1);
                for operator in &mut self.operators {
                    operator.missed = true;
                }
            }
            Mend::ApiFast => self.api.slow = self.api.slow.saturating_sub(1),
            Mend::FreshWatch => self.api.stale_watch = self.api.stale_watch.saturating_sub(1),
            Mend::StartOperator(op) => self.start_operator(op),
            Mend::EndProcess(pid) => self.end_process(pid, false),
        }
    }
}
