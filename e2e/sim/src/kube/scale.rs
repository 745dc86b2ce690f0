//! The controller's part in scaling: a step that would remove the master, or the last copy of its data, waits.

use redis_ha_operator::api::status::MemberStatus;

use crate::kube::api::desired;
use crate::world::{Ev, World};

impl World {
    /// The StatefulSet is made as large as is safe now.
    pub fn control(&mut self) {
        let (wanted, size) = (self.api.wanted, self.api.size);
        let waits = wanted < size && self.must_wait(wanted);
        // The supervisor is told why it should move the master.
        let scale_in_to = waits.then_some(wanted);
        if self.api.desired.scale_in_to != scale_in_to {
            self.api.desired.scale_in_to = scale_in_to;
            self.desired_changed();
        }
        if wanted == size || waits {
            return;
        }
        self.api.size = wanted;
        self.say(|_| format!("the StatefulSet has {wanted} pods now"));
        let switchover = self.api.desired.switchover.clone();
        self.api.desired = desired(wanted, self.setup.profile);
        self.api.desired.switchover = switchover;
        self.desired_changed();
        for ordinal in 0..wanted {
            self.later(0, Ev::CreatePod { ordinal });
        }
        for number in 0..self.pods.len() {
            if self.pods[number].listed && self.pods[number].ordinal >= wanted {
                self.delete_pod(number);
            }
        }
    }

    fn must_wait(&self, wanted: u32) -> bool {
        let Some((status, record)) = self.api.status.as_ref().zip(self.api.record()) else { return true };
        let Some(master) = &record.master else { return true };
        let goes = |pod: &str| {
            pod.rsplit_once('-')
                .and_then(|(_, number)| number.parse::<u32>().ok())
                .is_none_or(|it| it >= wanted)
        };
        let plan = record.plan.iter().flat_map(|plan| plan.from.iter().chain(plan.to.iter()));
        if std::iter::once(master).chain(plan).any(|process| goes(&process.pod)) {
            return true;
        }
        let is = |member: &MemberStatus, state: &str| member.state == state;
        if !status.members.iter().any(|member| member.pod == master.pod && is(member, "Master")) {
            return true;
        }
        let mut copies = status.members.iter().filter(|member| is(member, "InSync"));
        wanted > 1 && copies.clone().next().is_some() && copies.all(|member| goes(&member.pod))
    }
}
