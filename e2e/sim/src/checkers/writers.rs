//! I2: no two servers accept writes at once.
//!
//! Documented exceptions: without a write quorum nothing stops a master that is only out of reach (profile Cache, or
//! effective 0 with Kubernetes' word that its pod is gone); and a master that was stopped and cut off accepts for up to
//! a second after it wakes, because its own timer, which counts ticks, has to run once.

use crate::time::{MS, SECOND};
use crate::world::World;
use redis_ha_operator::core::facts::{Profile, Role};

/// A second of the timer, and a little for the way to it.
const WAKING: u64 = SECOND + 100 * MS;

impl World {
    pub fn check_writers(&mut self) {
        let mut first = None;
        let newest = self.processes.len().saturating_sub(64);
        for pid in newest..self.processes.len() {
            let process = &self.processes[pid];
            if !process.alive || process.role != Role::Master || !process.accepts(self.now) {
                continue;
            }
            let Some(other) = first.replace(pid) else { continue };
            if self.excuse_for_writer(pid).is_none() && self.excuse_for_writer(other).is_none() {
                self.broke("I2", |world| {
                    let name = |pid: usize| {
                        let process = &world.processes[pid];
                        format!("{} (quorum {}, good {})", world.name_of(pid), process.quorum, process.good)
                    };
                    format!("two servers accept writes: {} and {}", name(other), name(pid))
                });
            }
        }
    }

    /// Why this server may accept writes although another one does, or will.
    pub fn excuse_for_writer(&self, pid: usize) -> Option<&'static str> {
        let process = &self.processes[pid];
        if self.setup.profile == Profile::Cache && !self.is_recorded(pid) {
            return Some("profile Cache: no write quorum");
        }
        if process.thawed > 0 && self.now <= process.thawed + WAKING && self.is_superseded(pid) {
            return Some("a stalled master woke");
        }
        self.checks.unfenced.get(&process.run).copied()
    }

    /// It is not on record as the master, or about to be replaced.
    fn is_superseded(&self, pid: usize) -> bool {
        let plan = self.api.record().and_then(|record| record.plan.as_ref());
        let leaves = plan
            .and_then(|plan| plan.from.as_ref())
            .is_some_and(|from| from.run_id == self.processes[pid].run);
        leaves || !self.is_recorded(pid)
    }

    pub fn is_recorded(&self, pid: usize) -> bool {
        let master = self.api.record().and_then(|record| record.master.as_ref());
        master.is_some_and(|master| master.run_id == self.processes[pid].run)
    }
}

#[cfg(test)]
mod tests {
    use crate::checkers::settled::tests::settled;
    use crate::time::SECOND;
    use redis_ha_operator::core::facts::Role;

    #[test]
    fn two_writers_are_found() {
        let mut world = settled();
        let replica = world.processes.iter().position(|it| it.role == Role::Replica).unwrap();
        world.check_writers();
        assert!(world.checks.broken.is_empty());
        world.processes[replica].role = Role::Master;
        world.check_writers();
        assert_eq!(world.checks.broken[0].rule, "I2");
    }

    #[test]
    fn a_master_that_just_woke_is_excused_for_a_second() {
        let mut world = settled();
        let replica = world.processes.iter().position(|it| it.role == Role::Replica).unwrap();
        world.processes[replica].role = Role::Master;
        world.processes[replica].thawed = world.now;
        world.check_writers();
        assert!(world.checks.broken.is_empty());
        world.now += 2 * SECOND;
        world.check_writers();
        assert_eq!(world.checks.broken.len(), 1);
    }
}
