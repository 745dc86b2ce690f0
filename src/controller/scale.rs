//! How many pods the StatefulSet is to have now. A step that would remove the recorded master waits.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;

use super::Room;
use super::apply::{self, Error};
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

/// Why pods with an ordinal of `replicas` or more must stay. Without a record any of them may hold the only data.
fn hold(status: Option<&RedisClusterStatus>, replicas: u32) -> Option<(&'static str, String)> {
    let record = status.and_then(|status| status.supervision.as_ref());
    let master = record.and_then(|record| record.master.as_ref());
    let Some((record, master)) = record.zip(master) else {
        return Some((
            "MasterNotRecorded",
            format!("scaling in to {replicas} waits until a master is recorded"),
        ));
    };
    let plan = record.plan.iter().flat_map(|plan| plan.from.iter().chain(plan.to.iter()));
    std::iter::once(master)
        .chain(plan)
        .map(|process| process.pod.as_str())
        .find(|pod| ordinal(pod).is_none_or(|ordinal| ordinal >= replicas))
        .map(|pod| {
            (
                "MasterWouldBeRemoved",
                format!("scaling in to {replicas} would remove {pod}, the master: it waits until another pod is the master"),
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
            ..RedisClusterStatus::default()
        }
    }

    #[test]
    fn pods_that_are_or_may_become_master_stay() {
        let reason = |status: &RedisClusterStatus, replicas| hold(Some(status), replicas).map(|held| held.0);
        assert_eq!(reason(&status("cache-0", None), 1), None);
        assert_eq!(reason(&status("cache-1", None), 2), None);
        assert_eq!(reason(&status("cache-1", None), 1), Some("MasterWouldBeRemoved"));
        assert_eq!(reason(&status("cache-0", Some("cache-2")), 2), Some("MasterWouldBeRemoved"));
        assert_eq!(reason(&status("cache-0", Some("cache-1")), 2), None);
        assert_eq!(reason(&RedisClusterStatus::default(), 2), Some("MasterNotRecorded"));
        assert_eq!(hold(None, 2).map(|held| held.0), Some("MasterNotRecorded"));
    }
}
