//! Kubernetes Events and the log line beside each. Events are created, never changed, and nothing waits
//! for them: one that fails is only logged.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use tracing::{debug, info, warn};

use crate::api::RedisCluster;
use crate::api::names::MANAGER;
use crate::core::event::{Notice, WriteOutcome};
use crate::kube::answer;
use crate::supervisor::ClusterKey;

/// Longest note the API server takes, in bytes (core `NoteLengthLimit`).
const LONGEST_NOTE: usize = 1024;
/// Longest name of the reporting instance (core `ReportingInstanceLengthLimit`).
const LONGEST_INSTANCE: usize = 128;

/// Says things about clusters, in the name of one operator.
#[derive(Clone)]
pub struct Teller {
    client: Client,
    instance: String,
}

impl Teller {
    /// `instance`: name of this operator's pod. `client`: the impatient one.
    pub fn new(client: Client, instance: &str) -> Self {
        Self { client, instance: shortened(instance, LONGEST_INSTANCE).into() }
    }

    /// Logs the notice and creates its Event. The name is made of cluster, epoch and reason, so that what
    /// was said, by this operator or another, is not said again. (kube's Recorder would merge a second
    /// failover within six minutes into the first one and drop its text.)
    pub async fn tell(&self, cluster: &ClusterKey, cluster_uid: &str, notice: &Notice, at: Timestamp) {
        let Notice { warning, reason, message, epoch } = notice;
        let (namespace, name) = (&cluster.namespace, &cluster.name);
        if *warning {
            warn!(%namespace, cluster = %name, epoch, reason, "{message}");
        } else {
            info!(%namespace, cluster = %name, epoch, reason, "{message}");
        }
        let event = self.event(cluster, cluster_uid, notice, at);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let act = format!("creating the Event {reason} of RedisCluster {namespace}/{name}");
        match answer::write(&act, api.create(&PostParams::default(), &event)).await {
            Ok(_) => {}
            Err(WriteOutcome::Conflict) => debug!(%namespace, cluster = %name, epoch, reason, "already said"),
            Err(outcome) => warn!(?outcome, "an Event could not be created"),
        }
    }

    fn event(&self, cluster: &ClusterKey, cluster_uid: &str, notice: &Notice, at: Timestamp) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{}.{}", cluster.name, notice.epoch, notice.reason.to_lowercase())),
                namespace: Some(cluster.namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(at)),
            type_: Some(if notice.warning { "Warning" } else { "Normal" }.into()),
            reason: Some(notice.reason.into()),
            // The API server wants one; the reason says it all.
            action: Some("Supervise".into()),
            note: Some(shortened(&notice.message, LONGEST_NOTE).into()),
            reporting_controller: Some(format!("{MANAGER}/operator")),
            reporting_instance: Some(self.instance.clone()),
            regarding: Some(ObjectReference {
                api_version: Some(RedisCluster::api_version(&()).into()),
                kind: Some(RedisCluster::kind(&()).into()),
                name: Some(cluster.name.clone()),
                namespace: Some(cluster.namespace.clone()),
                uid: Some(cluster_uid.into()),
                ..ObjectReference::default()
            }),
            ..Event::default()
        }
    }
}

/// The longest beginning that fits into so many bytes and ends at a character.
fn shortened(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::scripted::{Answer, Server};

    fn notice() -> Notice {
        Notice { warning: true, reason: "MasterDied", message: "cache-0 died".into(), epoch: 7 }
    }

    async fn tell(server: &Server, notice: &Notice) {
        let cluster = ClusterKey { namespace: "shop".into(), name: "cache".into() };
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        Teller::new(server.client.clone(), "operator-a").tell(&cluster, "cluster-uid", notice, at).await;
    }

    #[tokio::test]
    async fn an_event_is_named_by_cluster_epoch_and_reason() {
        let server = Server::start(|asked| Answer::Body(201, asked.body.clone()));
        tell(&server, &notice()).await;
        let requests = server.requests();
        assert_eq!(requests[0].line, "POST /apis/events.k8s.io/v1/namespaces/shop/events");
        assert_eq!(
            requests[0].body,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "type": "Warning",
                "metadata": {"name": "cache.7.masterdied", "namespace": "shop"},
                "reason": "MasterDied", "action": "Supervise", "note": "cache-0 died",
                "eventTime": "2023-11-14T22:13:20.000000Z",
                "reportingController": "redis-ha.dev/operator", "reportingInstance": "operator-a",
                "regarding": {"apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster",
                    "name": "cache", "namespace": "shop", "uid": "cluster-uid"}})
        );
    }

    #[tokio::test]
    async fn what_was_said_already_is_not_tried_again() {
        let server = Server::start(|_| Answer::refused(409, "AlreadyExists", "events", "cache.7.masterdied"));
        tell(&server, &notice()).await;
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_away_holds_nobody_up_for_long() {
        let server = Server::start(|_| Answer::Silence);
        let from = tokio::time::Instant::now();
        tell(&server, &notice()).await;
        assert!(from.elapsed() <= crate::kube::DEADLINE + std::time::Duration::from_millis(10));
    }

    #[tokio::test]
    async fn a_long_message_is_cut_at_a_character() {
        let server = Server::start(|asked| Answer::Body(201, asked.body.clone()));
        tell(&server, &Notice { message: "é".repeat(800) + "x", ..notice() }).await;
        let note = server.requests()[0].body["note"].as_str().unwrap().to_owned();
        assert_eq!(note, "é".repeat(512));
    }
}
