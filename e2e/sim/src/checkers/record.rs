//! The record: I1 (the route leads to a master on record), EF (one epoch for each role change), the quorum on record is
//! in force, and whether a plan was opened although the master is well (I8, "alive by witness").

use redis_ha_operator::api::status::{Plan, PlanKind, PlanStep, Supervision};
use redis_ha_operator::core::event::Endpoint;
use redis_ha_operator::core::facts::{Profile, Role};

use crate::time::{SECOND, Time};
use crate::world::World;

/// What a supervisor had no time to see yet is not held against it.
const NOTICE: Time = 2 * SECOND;
/// Reasons that claim certainty about the end of a process.
const CERTAIN: [&str; 2] = ["MasterProcessEnded", "MasterRestarted"];

impl World {
    /// The status was replaced.
    pub fn status_stored(&mut self, before: &Supervision, op: usize) {
        let Some(after) = self.api.record().cloned() else { return };
        if after.epoch < before.epoch {
            self.broke("EF", |_| format!("the epoch went back from {} to {}", before.epoch, after.epoch));
        }
        if after.master != before.master {
            if let Some(master) = &after.master {
                self.checks.masters.insert(master.run_id.clone());
            }
            if after.epoch <= self.checks.master_epoch {
                self.broke("EF", |_| {
                    format!("the master on record changed twice in epoch {}: {:?}", after.epoch, after.master)
                });
            }
            self.checks.master_epoch = after.epoch;
        }
        self.checks.lineage.extend(after.lineage.iter().map(|lineage| lineage.id.clone()));
        let same_plan = |one: &Plan, other: &Plan| one.id == other.id;
        let opened =
            after.plan.as_ref().filter(|plan| before.plan.as_ref().is_none_or(|old| !same_plan(old, plan)));
        if let Some(plan) = opened {
            self.plan_opened(plan, op);
        }
        if let (Some(old), Some(new)) = (&before.plan, &after.plan)
            && same_plan(old, new)
            && old.to.is_some()
            && old.to != new.to
            && after.epoch <= before.epoch
        {
            self.broke("EF", |_| format!("another successor within epoch {}", after.epoch));
        }
        let chosen = after.plan.as_ref().filter(|plan| {
            let known = before.plan.as_ref().filter(|old| same_plan(old, plan));
            let kept = known.is_some_and(|old| old.to == plan.to && old.kind == plan.kind);
            plan.to.is_some() && !kept
        });
        if let Some(plan) = chosen {
            self.judge_choice(plan, op);
        }
        self.check_quorum();
    }

    fn plan_opened(&mut self, plan: &Plan, op: usize) {
        let Some(from) = plan.from.as_ref() else { return };
        if plan.kind == PlanKind::Switchover {
            return;
        }
        let process = self.process_of(&from.run_id).filter(|pid| self.processes[*pid].alive);
        if plan.w_before == 0 || self.setup.profile == Profile::Cache {
            self.checks.unfenced.insert(from.run_id.clone(), "replaced while its write quorum was 0");
        }
        let Some(pid) = process else { return };
        let reset = self.reset_at.is_some_and(|until| self.now < until + 10 * SECOND);
        if CERTAIN.contains(&plan.reason.as_str()) && !reset {
            self.broke("Definitive", |world| {
                format!("{} is called certainly dead ({}), but lives", world.name_of(pid), plan.reason)
            });
        }
        if plan.kind == PlanKind::Failover
            && let Some(witness) = self.living_witness(pid, op)
        {
            self.broke("AliveByWitness", |world| {
                format!(
                    "a failover from {} ({}) while {} is being fed by it",
                    world.name_of(pid),
                    plan.reason,
                    world.name_of(witness)
                )
            });
        }
    }

    /// A replica that this operator reaches and that has been fed by the master all the time.
    fn living_witness(&self, master: usize, op: usize) -> Option<usize> {
        let since = self.now.checked_sub(NOTICE)?;
        let (process, operator) = (&self.processes[master], &self.operators[op]);
        let well = |pid: usize| {
            let process = &self.processes[pid];
            process.runs() && process.thawed <= since && process.born <= since && !process.loading
        };
        let led = operator.leading_since.is_some_and(|led| led <= since) && operator.last_tick <= self.now;
        if !led || !well(master) || process.role != Role::Master {
            return None;
        }
        process.downstream.iter().map(|replica| replica.pid).find(|pid| {
            let replica = &self.processes[*pid];
            well(*pid)
                && replica.link_is_up()
                && replica.upstream.is_some_and(|upstream| upstream.since <= since)
                && replica.last_io + SECOND + SECOND / 2 > self.now
                && self.net.is_open_since(operator.machine, replica.machine, since)
                && self.net.is_open_since(process.machine, replica.machine, since)
        })
    }

    /// What the record says of the write quorum is in force at least.
    pub fn check_quorum(&mut self) {
        let Some(record) = self.api.record() else { return };
        let effective = record.write_quorum.effective;
        let quiet = record.plan.as_ref().is_none_or(|plan| plan.step == PlanStep::Promoted);
        let Some(pid) = self.recorded_master().filter(|_| quiet) else { return };
        let process = &self.processes[pid];
        if process.role == Role::Master && process.quorum < effective {
            self.broke("W", |world| {
                let quorum = world.processes[pid].quorum;
                format!(
                    "{} enforces a write quorum of {quorum}, {effective} is on record",
                    world.name_of(pid)
                )
            });
        }
    }

    /// I1: an unrecorded pod is never behind the master Service.
    pub fn check_route(&mut self, endpoint: Option<&Endpoint>) {
        let Some(endpoint) = endpoint else { return };
        let master = |run: &String| {
            self.process_of(run).is_some_and(|pid| self.pods[self.processes[pid].pod].uid == endpoint.uid)
        };
        if !self.checks.masters.iter().any(master) {
            self.broke("I1", |_| {
                format!("the Service leads to {}, which was never the master", endpoint.pod)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checkers::settled::tests::settled;
    use redis_ha_operator::core::event::Endpoint;

    #[test]
    fn a_route_to_a_pod_that_never_was_the_master_is_found() {
        let mut world = settled();
        let pod = world.pods.iter().find(|pod| pod.ordinal == 2).unwrap();
        let endpoint =
            Endpoint { pod: pod.name.clone(), uid: pod.uid.clone(), ip: pod.ip.unwrap(), node: None };
        world.check_route(Some(&endpoint));
        assert_eq!(world.checks.broken[0].rule, "I1");
    }

    #[test]
    fn a_quorum_on_record_that_is_not_in_force_is_found() {
        let mut world = settled();
        let master = world.recorded_master().unwrap();
        world.check_quorum();
        assert!(world.checks.broken.is_empty());
        world.processes[master].quorum = 0;
        world.check_quorum();
        assert_eq!(world.checks.broken[0].rule, "W");
    }

    #[test]
    fn a_second_master_in_one_epoch_and_an_epoch_that_goes_back_are_found() {
        let mut world = settled();
        let before = world.api.record().unwrap().clone();
        let record = world.api.status.as_mut().unwrap().supervision.as_mut().unwrap();
        record.master.as_mut().unwrap().run_id = "run0".to_owned();
        record.epoch = world.checks.master_epoch;
        let mut other = before.clone();
        other.epoch = record.epoch;
        other.master.as_mut().unwrap().run_id = "another".to_owned();
        world.status_stored(&other, 0);
        assert_eq!(world.checks.broken[0].rule, "EF");
        let mut world = settled();
        let mut before = world.api.record().unwrap().clone();
        before.epoch += 1;
        world.status_stored(&before, 0);
        assert_eq!(world.checks.broken[0].rule, "EF");
    }

    #[test]
    fn a_certain_death_of_a_living_process_and_a_fed_witness_are_found() {
        for (reason, rule) in [("MasterProcessEnded", "Definitive"), ("MasterUnreachable", "AliveByWitness")]
        {
            let mut world = settled();
            let before = world.api.record().unwrap().clone();
            let mut after = before.clone();
            after.epoch += 1;
            after.plan = Some(super::super::settled::tests::plan(&before, reason, None));
            world.api.status.as_mut().unwrap().supervision = Some(after);
            let leader = world.operators.iter().position(|op| op.leading_since.is_some()).unwrap();
            world.status_stored(&before, leader);
            assert_eq!(world.checks.broken[0].rule, rule);
        }
    }
}
