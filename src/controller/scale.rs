//! How many pods the StatefulSet is to have now. A step that would remove the recorded master, or the last copy of
//! its data, waits.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;

use super::Room;
use super::apply::{self, Error};
use crate::api::status::MemberStatus;
use crate::api::{RedisCluster, RedisClusterStatus};
use crate::core::valid::ValidCluster;

/// The size for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    pub replicas: u32,
    /// Why that is not what the spec says: (reason, sentence).
    pub held: Option<(&'static str, String)>,
}

/// Asks the API server only when pods are to go: the cached status may be older than the last failover.
pub async fn size(
    room: &Room,
    cluster: &ValidCluster,
    cached: Option<&RedisClusterStatus>,
    live: Option<&StatefulSet>,
) -> Result<Size, Error> {
    let wanted = cluster.replicas;
    let running = running(live).unwrap_or(wanted);
    if running <= wanted {
        return Ok(Size { replicas: wanted, held: None });
    }
    let mut held = hold(cached, wanted);
    if held.is_none() {
        let api: Api<RedisCluster> = Api::namespaced(room.ctx.client.clone(), &cluster.namespace);
        let object = apply::get_opt(&api, &cluster.name).await?;
        held = hold(object.and_then(|object| object.status).as_ref(), wanted);
    }
    Ok(Size { replicas: if held.is_some() { running } else { wanted }, held })
}

/// Pods that a StatefulSet asks for.
pub fn running(live: Option<&StatefulSet>) -> Option<u32> {
    live?.spec.as_ref()?.replicas.and_then(|replicas| u32::try_from(replicas).ok())
}

/// Why pods with an ordinal of `replicas` or more must stay. Without a record, or without a master that answers, any of
/// them may hold the only data.
fn hold(status: Option<&RedisClusterStatus>, replicas: u32) -> Option<(&'static str, String)> {
    let recorded = status.and_then(|status| {
        let record = status.supervision.as_ref()?;
        Some((status, record, record.master.as_ref()?))
    });
    let Some((status, record, master)) = recorded else {
        return Some((
            "MasterNotRecorded",
            format!("scaling in to {replicas} waits until a master is recorded"),
        ));
    };
    let goes = |pod: &str| ordinal(pod).is_none_or(|ordinal| ordinal >= replicas);
    let plan = record.plan.iter().flat_map(|plan| plan.from.iter().chain(plan.to.iter()));
    let masters = std::iter::once(master).chain(plan);
    if let Some(pod) = masters.map(|process| process.pod.as_str()).find(|pod| goes(pod)) {
        return Some((
            "MasterWouldBeRemoved",
            format!(
                "scaling in to {replicas} would remove {pod}, the master: it waits until another pod is the master"
            ),
        ));
    }
    let is = |member: &MemberStatus, state: &str| member.state == state;
    if !status.members.iter().any(|member| member.pod == master.pod && is(member, "Master")) {
        return Some((
            "MasterNotAnswering",
            format!("scaling in to {replicas} waits until {}, the master, answers", master.pod),
        ));
    }
    let mut copies = status.members.iter().filter(|member| is(member, "InSync"));
    let some_stay = replicas > 1;
    let lost = some_stay && copies.clone().next().is_some() && copies.all(|member| goes(&member.pod));
    lost.then(|| {
        (
            "LastCopyWouldBeRemoved",
            format!("scaling in to {replicas} would remove every replica in sync: it waits until one that stays is in sync"),
        )
    })
}

fn ordinal(pod: &str) -> Option<u32> {
    pod.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::status::{Plan, PlanKind, PlanStep, ProcessRef, Supervision};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn process(pod: &str) -> ProcessRef {
        ProcessRef { pod: pod.to_owned(), uid: format!("uid-{pod}"), run_id: format!("run-{pod}") }
    }

    fn status(master: &str, to: Option<&str>) -> RedisClusterStatus {
        RedisClusterStatus {
            supervision: Some(Supervision {
                master: Some(process(master)),
                plan: to.map(|to| Plan {
                    id: "p".to_owned(),
                    kind: PlanKind::Failover,
                    step: PlanStep::Chosen,
                    reason: "ProcessEnded".to_owned(),
                    from: Some(process(master)),
                    to: Some(process(to)),
                    holder: "h".to_owned(),
                    overwrites: Vec::new(),
                    w_before: 1,
                    started_at: Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH),
                }),
                ..Supervision::default()
            }),
            members: ["cache-0", "cache-1", "cache-2"]
                .map(|pod| member(pod, if pod == master { "Master" } else { "InSync" }))
                .to_vec(),
            ..RedisClusterStatus::default()
        }
    }

    fn member(pod: &str, state: &str) -> MemberStatus {
        MemberStatus { pod: pod.to_owned(), role: String::new(), state: state.to_owned() }
    }

    fn reason(status: &RedisClusterStatus, replicas: u32) -> Option<&'static str> {
        hold(Some(status), replicas).map(|held| held.0)
    }

    #[test]
    fn pods_that_are_or_may_become_master_stay() {
        assert_eq!(reason(&status("cache-0", None), 1), None);
        assert_eq!(reason(&status("cache-1", None), 2), None);
        assert_eq!(reason(&status("cache-1", None), 1), Some("MasterWouldBeRemoved"));
        assert_eq!(reason(&status("cache-0", Some("cache-2")), 2), Some("MasterWouldBeRemoved"));
        assert_eq!(reason(&status("cache-0", Some("cache-1")), 2), None);
        assert_eq!(reason(&RedisClusterStatus::default(), 2), Some("MasterNotRecorded"));
        assert_eq!(hold(None, 2).map(|held| held.0), Some("MasterNotRecorded"));
    }

    #[test]
    fn nothing_goes_while_the_master_does_not_answer() {
        let mut dead = status("cache-0", None);
        dead.members[0] = member("cache-0", "Unreachable");
        assert_eq!(reason(&dead, 2), Some("MasterNotAnswering"));
        assert_eq!(reason(&dead, 1), Some("MasterNotAnswering"));
    }

    #[test]
    fn the_last_replica_in_sync_does_not_go() {
        let mut behind = status("cache-0", None);
        behind.members[1] = member("cache-1", "Syncing");
        assert_eq!(reason(&behind, 2), Some("LastCopyWouldBeRemoved"));
        assert_eq!(reason(&behind, 1), None, "no replica was asked for");
        behind.members[2] = member("cache-2", "Syncing");
        assert_eq!(reason(&behind, 2), None, "none of those that go is a copy");
    }
}
