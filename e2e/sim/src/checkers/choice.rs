//! I4: who is chosen dominates every member of the lineage that could be reached; and what the choice loses.

use redis_ha_operator::api::status::{LastFailover, Plan, PlanKind, PlanStep};
use redis_ha_operator::core::facts::Role;

use crate::history::Head;
use crate::redis::info::id_text;
use crate::time::{SECOND, Time};
use crate::world::World;

/// A member that was within reach for this long should have been compared.
const WITHIN_REACH: Time = 3 * SECOND;

impl World {
    /// A successor is on record for the first time.
    pub fn judge_choice(&mut self, plan: &Plan, op: usize) {
        let Some(to) = plan.to.as_ref().and_then(|to| self.process_of(&to.run_id)) else { return };
        if plan.kind == PlanKind::Switchover {
            return; // judged when it is promoted: until then the old master goes on
        }
        let head = self.processes[to].head;
        let compared: Vec<usize> =
            (0..self.processes.len()).filter(|pid| *pid != to && self.is_comparable(*pid, op)).collect();
        if plan.kind == PlanKind::Failover
            && let Some(better) = compared.iter().copied().find(|pid| {
                let other = self.processes[*pid].head;
                other != head && self.history.holds(other, head)
            })
        {
            self.broke("I4", |world| {
                let at = |pid: usize| format!("{} at {}", world.name_of(pid), world.processes[pid].offset);
                format!("{} is chosen, but {} is within reach and holds more", at(to), at(better))
            });
        }
        let heads: Vec<Head> = compared.iter().map(|pid| self.processes[*pid].head).collect();
        self.excuse_losses(head, &heads);
    }

    /// What the chosen one lacks may be lost, unless somebody had it who should have been asked.
    fn excuse_losses(&mut self, head: Head, heads: &[Head]) {
        for index in 0..self.writes.len() {
            let Some(write) = self.writes[index].head.filter(|_| self.writes[index].excuse.is_none()) else {
                continue;
            };
            if self.history.holds(head, write) {
                continue;
            }
            if !heads.iter().any(|other| self.history.holds(*other, write)) {
                self.writes[index].excuse = Some(if self.writes[index].confirmed {
                    "confirmed, and no holder within reach at the choice"
                } else {
                    "not replicated when the master was lost"
                });
            }
        }
    }

    /// Could and should this process be compared with others now?
    fn is_comparable(&self, pid: usize, op: usize) -> bool {
        let process = &self.processes[pid];
        let pod = &self.pods[process.pod];
        let Some(since) = self.now.checked_sub(WITHIN_REACH) else { return false };
        let operator = &self.operators[op];
        let id = id_text(process.replid);
        let in_lineage = self.api.record().is_some_and(|record| {
            record.lineage.iter().any(|lineage| {
                lineage.id == id && lineage.valid_up_to.is_none_or(|end| process.offset <= end)
            })
        });
        process.runs()
            && process.role == Role::Replica
            && process.positioned
            && !process.loading
            && process.born <= since
            && process.thawed <= since
            && pod.listed
            && !pod.terminating
            && in_lineage
            && operator.leading_since.is_some_and(|led| led <= since)
            && self.net.is_open_since(operator.machine, process.machine, since)
    }

    /// A process is being promoted.
    pub fn note_promotion(&mut self, pid: usize) {
        let run = self.processes[pid].run.clone();
        let record = self.api.record().cloned().unwrap_or_default();
        // A switch has its successor on record from the start.
        let plan = record
            .plan
            .as_ref()
            .filter(|plan| plan.step == PlanStep::Chosen || plan.kind == PlanKind::Switchover);
        let planned = plan.is_some_and(|plan| plan.to.as_ref().is_some_and(|to| to.run_id == run));
        if !planned {
            self.broke("Intent", |world| {
                format!("{} is promoted, but that is not on record: {:?}", world.name_of(pid), record.plan)
            });
        }
        let count = self.checks.promotions.entry(record.epoch).or_default();
        *count += 1;
        if *count > 1 {
            self.broke("I4", |_| format!("two promotions in epoch {}", record.epoch));
        }
        let from = plan.filter(|plan| plan.kind == PlanKind::Switchover).and_then(|plan| plan.from.as_ref());
        if let Some(from) = from.and_then(|from| self.process_of(&from.run_id)) {
            let (old, new) = (self.processes[from].head, self.processes[pid].head);
            if self.processes[from].alive && !self.history.holds(new, old) {
                self.broke("Switchover", |world| {
                    format!("{} takes over without all of {}'s data", world.name_of(pid), world.name_of(from))
                });
            }
        }
    }

    /// What is said to be lost is a lower bound of what is.
    pub fn check_loss_told(&mut self, last: &LastFailover) {
        let Some(told) = last.lost_bytes_known.filter(|told| *told > 0) else { return };
        let lost = self.writes.iter().any(|write| write.excuse.is_some());
        // Between two writes only PINGs move the offset.
        if !lost && told > 14 * 30 {
            self.broke("I5", |_| format!("{told} bytes are said to be lost, but no write is"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checkers::settled::tests::{plan, settled};
    use redis_ha_operator::core::facts::Role;

    #[test]
    fn a_choice_that_is_not_the_newest_within_reach_is_found() {
        let mut world = settled();
        let replicas: Vec<usize> =
            (0..world.processes.len()).filter(|pid| world.processes[*pid].role == Role::Replica).collect();
        let more = world.history.write(world.processes[replicas[0]].head);
        world.processes[replicas[1]].head = more;
        let record = world.api.record().unwrap().clone();
        let leader = world.operators.iter().position(|op| op.leading_since.is_some()).unwrap();
        world.judge_choice(&plan(&record, "x", Some(world.processes[replicas[1]].run.clone())), leader);
        assert!(world.checks.broken.is_empty(), "the newest may be chosen");
        world.judge_choice(&plan(&record, "x", Some(world.processes[replicas[0]].run.clone())), leader);
        assert_eq!(world.checks.broken[0].rule, "I4");
    }

    #[test]
    fn a_promotion_without_a_record_is_found() {
        let mut world = settled();
        let replica = world.processes.iter().position(|it| it.role == Role::Replica).unwrap();
        world.note_promotion(replica);
        assert_eq!(world.checks.broken[0].rule, "Intent");
    }
}
