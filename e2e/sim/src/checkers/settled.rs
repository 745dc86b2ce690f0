//! I11: when faults stop, the cluster comes to rest. And in rest nothing is written.

use redis_ha_operator::api::status::Supervision;
use redis_ha_operator::core::facts::Role;

use crate::redis::info::id_text;
use crate::world::World;

impl World {
    /// One routed, writable master on record, everybody follows it, nothing is under way. `Err`: what is missing.
    pub fn rest(&self) -> Result<(), String> {
        let Some(record) = self.api.record() else { return Err("nothing is on record".to_owned()) };
        let Some(master) = self.recorded_master() else {
            return Err(format!("the master on record does not live: {:?}", record.master));
        };
        self.rest_of(record, master)
    }

    fn rest_of(&self, record: &Supervision, master: usize) -> Result<(), String> {
        let process = &self.processes[master];
        if let Some(plan) = &record.plan {
            return Err(format!("a plan is open: {plan:?}"));
        }
        if !process.accepts(self.now) {
            let (role, quorum, good) = (process.role, process.quorum, process.good);
            return Err(format!(
                "{} takes no writes: {role:?}, quorum {quorum}, good {good}",
                self.name_of(master)
            ));
        }
        if self.pods[process.pod].terminating {
            return Err("the master's pod is going".to_owned());
        }
        let routed = self.api.route.as_ref().and_then(|(route, _)| route.uid.clone());
        if routed.as_ref() != Some(&self.pods[process.pod].uid) {
            return Err(format!("the Service leads to {routed:?}"));
        }
        let pods = self.pods.iter().filter(|pod| pod.listed).count();
        if pods != self.api.size as usize {
            return Err(format!("{pods} of {} pods exist", self.api.size));
        }
        for pod in self.pods.iter().filter(|pod| pod.listed) {
            let Some(pid) = pod.pid.filter(|pid| self.processes[*pid].alive) else {
                return Err(format!("{} does not run", pod.name));
            };
            let replica = &self.processes[pid];
            if pid == master {
                continue;
            }
            let follows = replica.role == Role::Replica
                && replica.link_is_up()
                && replica.source == Some(process.ip)
                && process.downstream.iter().any(|it| it.pid == pid && it.online && it.ack > 0);
            if !follows {
                return Err(format!(
                    "{} does not follow {}: {:?} of {:?}, link {:?}",
                    self.name_of(pid),
                    self.name_of(master),
                    replica.role,
                    replica.source,
                    replica.upstream.map(|upstream| upstream.state)
                ));
            }
        }
        if record.lineage.last().map(|lineage| lineage.id.as_str()) != Some(&id_text(process.replid)) {
            return Err("the master's replication id is not on record".to_owned());
        }
        let wanted = self.api.desired.write_quorum;
        if record.write_quorum.effective != wanted || process.quorum != wanted {
            return Err(format!("the write quorum is {}, {wanted} is wanted", record.write_quorum.effective));
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as WallTime;
    use k8s_openapi::jiff::Timestamp;
    use redis_ha_operator::api::status::{Plan, PlanKind, PlanStep, ProcessRef, Supervision};

    use crate::setup::Setup;
    use crate::story::Detail;
    use crate::time::SECOND;
    use crate::world::World;

    /// A cluster at rest, with data.
    pub fn settled() -> World {
        let mut world = World::new(1, Setup::usual(), Vec::new(), Detail::Nothing);
        world.run_until(60 * SECOND);
        assert_eq!(world.rest(), Ok(()));
        assert!(world.checks.broken.is_empty(), "{:?}", world.checks.broken);
        world
    }

    pub fn plan(record: &Supervision, reason: &str, to: Option<String>) -> Plan {
        Plan {
            id: "plan".to_owned(),
            kind: PlanKind::Failover,
            step: PlanStep::Recorded,
            reason: reason.to_owned(),
            from: record.master.clone(),
            to: to.map(|run_id| ProcessRef { pod: String::new(), uid: String::new(), run_id }),
            overwrites: Vec::new(),
            holder: String::new(),
            w_before: 1,
            started_at: WallTime(Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn a_cluster_at_rest_writes_nothing_and_spoiling_it_ends_the_rest() {
        let mut world = settled();
        let before = (world.counts.status_writes, world.counts.route_writes, world.counts.reads_writes);
        world.run_until(180 * SECOND);
        let after = (world.counts.status_writes, world.counts.route_writes, world.counts.reads_writes);
        assert_eq!(before, after);
        let master = world.recorded_master().unwrap();
        world.processes[master].quorum = 9;
        assert!(world.rest().is_err());
    }
}
