//! I3 and I6 (who may be a source of data), I7 (partial syncs continue the same data), I8 (late effects), I9 (a healthy
//! master is left alone).

use redis_ha_operator::api::status::PlanStep;
use redis_ha_operator::core::event::{Effect, RoleCommand};
use redis_ha_operator::core::facts::Role;

use crate::operator::shell::Standing;
use crate::redis::info::id_text;
use crate::world::World;

impl World {
    /// The supervisor wants this done.
    pub fn check_effect(&mut self, op: usize, effect: &Effect) {
        let leads = matches!(self.operators[op].told, Some(Standing::Leading { .. }));
        if effect.is_change() && !leads {
            self.broke("I8", |world| format!("{} does {effect:?} without leading", world.operators[op].name));
        }
    }

    /// Where a term stands among all terms.
    fn order_of(&mut self, term: &str) -> u64 {
        let next = self.checks.terms.len() as u64 + 1;
        *self.checks.terms.entry(term.to_owned()).or_insert(next)
    }

    /// A leader has cut the other operators' connections to this process.
    pub fn note_contact(&mut self, pid: usize, term: &str) {
        // A term counts from the lease's own order: the number at its end grows with each acquisition.
        let order = transitions(term);
        self.order_of(term);
        let newest = self.checks.contact.entry(pid).or_default();
        *newest = (*newest).max(order);
    }

    /// A server is about to carry out a command.
    pub fn check_command(&mut self, pid: usize, command: &RoleCommand, term: &str) {
        let newest = self.checks.contact.get(&pid).copied().unwrap_or_default();
        // Whoever claimed the record by compare-and-swap decides anew; everything else of an older term is late.
        let holder = self.api.record().and_then(|record| record.holder.as_deref());
        if transitions(term) < newest && holder != Some(term) {
            self.broke("I8", |world| {
                format!(
                    "{command:?} of term {term} changes {} after a newer term's contact",
                    world.name_of(pid)
                )
            });
        }
        let record = self.api.record().cloned().unwrap_or_default();
        let process = &self.processes[pid];
        let is_master = record.master.as_ref().is_some_and(|master| master.run_id == process.run);
        match command {
            RoleCommand::Serve => {
                let id = id_text(process.replid);
                let known = record.lineage.iter().any(|lineage| lineage.id == id);
                // One that serves already is told nothing new: the command lay in the socket of a stopped master.
                if !(process.serves || (is_master && known)) {
                    self.broke("I6", |world| {
                        format!("{} lets replicas in under {id}, which is not on record", world.name_of(pid))
                    });
                }
            }
            RoleCommand::Follow { ip, .. } => {
                let recorded = |run: &String| {
                    self.process_of(run).is_some_and(|master| self.processes[master].ip == *ip)
                };
                if !self.checks.masters.iter().any(recorded) {
                    self.broke("I6", |world| {
                        format!("{} is told to follow {ip}, which was never the master", world.name_of(pid))
                    });
                }
                self.check_stopped(pid, command, is_master);
            }
            RoleCommand::Demote | RoleCommand::StepDown | RoleCommand::Detach => {
                self.check_stopped(pid, command, is_master);
            }
            _ => {}
        }
    }

    /// I9: a master is stopped only by a plan.
    fn check_stopped(&mut self, pid: usize, command: &RoleCommand, is_master: bool) {
        let process = &self.processes[pid];
        let plan = self.api.record().and_then(|record| record.plan.as_ref());
        let named = plan
            .filter(|plan| plan.step < PlanStep::Promoted)
            .is_some_and(|plan| plan.from.iter().chain(plan.to.iter()).any(|it| it.run_id == process.run));
        if is_master && process.role == Role::Master && !named {
            self.broke("I9", |world| {
                format!("{command:?} stops {}, the master on record", world.name_of(pid))
            });
        }
    }

    /// A sync begins.
    pub fn check_source(&mut self, pid: usize, replica: usize) {
        if !self.checks.masters.contains(&self.processes[pid].run) {
            self.broke("I3", |world| {
                format!(
                    "{} syncs from {}, which was never the master",
                    world.name_of(replica),
                    world.name_of(pid)
                )
            });
        }
        // An id made by a promotion is on record before anybody may sync under it; one that Redis makes when the first
        // replica comes cannot be.
        let id = id_text(self.processes[pid].replid);
        if self.processes[pid].replid2 != 0 && !self.checks.lineage.contains(&id) {
            self.broke("I6", |world| {
                let (replica, source) = (world.name_of(replica), world.name_of(pid));
                format!("{replica} syncs from {source} under {id}, which is not on record")
            });
        }
    }

    /// A full sync replaces the replica's data.
    pub fn check_full(&mut self, pid: usize, replica: usize) {
        let (source, data) = (self.processes[pid].head, self.processes[replica].head);
        let empties = self.history.keys(source) == 0 && self.history.keys(data) > 0;
        if empties && !self.history.holds(source, data) {
            self.broke("I6", |world| {
                format!("{} is emptied by {}, which has no data", world.name_of(replica), world.name_of(pid))
            });
        }
    }

    /// A partial sync continues the same data.
    pub fn check_partial(&mut self, pid: usize, replica: usize, offset: i64) {
        let (source, data) = (self.processes[pid].head, self.processes[replica].head);
        if !self.history.holds(source, data) {
            self.broke("I7", |world| {
                format!(
                    "{} continues from {} at {offset} with data of another history",
                    world.name_of(replica),
                    world.name_of(pid)
                )
            });
        }
    }
}

/// The count of acquisitions in a term's name.
fn transitions(term: &str) -> u64 {
    term.rsplit_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::settled::tests::settled;

    fn master_and_replica(world: &World) -> (usize, usize) {
        let replica = world.processes.iter().position(|it| it.role == Role::Replica).unwrap();
        (world.recorded_master().unwrap(), replica)
    }

    fn rule(world: &World) -> Option<&'static str> {
        world.checks.broken.first().map(|broken| broken.rule)
    }

    #[test]
    fn late_commands_strange_sources_and_stopped_masters_are_found() {
        let mut world = settled();
        let (master, replica) = master_and_replica(&world);
        world.note_contact(replica, "operator-b_2.9");
        world.check_command(replica, &RoleCommand::Detach, "operator-a_1.8");
        assert_eq!(rule(&world), Some("I8"));

        let mut world = settled();
        world.check_source(replica, master);
        assert_eq!(rule(&world), Some("I3"));

        let mut world = settled();
        world.check_command(replica, &RoleCommand::Serve, "x.99");
        assert_eq!(rule(&world), Some("I6"));

        let mut world = settled();
        let ip = world.processes[replica].ip;
        let follow = RoleCommand::Follow { ip, port: 6379, cut_clients: false };
        world.check_command(master, &follow, "x.99");
        assert_eq!(rule(&world), Some("I6"));

        let mut world = settled();
        world.check_command(master, &RoleCommand::Demote, "x.99");
        assert_eq!(rule(&world), Some("I9"));
    }

    #[test]
    fn syncs_from_empty_or_other_data_are_found() {
        let mut world = settled();
        let (master, replica) = master_and_replica(&world);
        world.check_full(master, replica);
        world.check_partial(master, replica, 1);
        assert_eq!(rule(&world), None);
        world.processes[replica].head = world.history.write(0);
        world.check_partial(master, replica, 1);
        assert_eq!(rule(&world), Some("I7"));

        let mut world = settled();
        world.processes[master].head = 0;
        world.check_full(master, replica);
        assert_eq!(rule(&world), Some("I6"));
    }

    #[test]
    fn an_effect_without_leadership_is_found() {
        let mut world = settled();
        let standby = world.operators.iter().position(|op| op.leading_since.is_none()).unwrap();
        world.check_effect(standby, &Effect::YieldLease);
        assert_eq!(rule(&world), Some("I8"));
    }
}
