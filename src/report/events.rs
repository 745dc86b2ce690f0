//! Kubernetes Events. They are created, never changed, and nothing depends on them.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use sha2::{Digest, Sha256};

use crate::api::RedisCluster;
use crate::api::names::MANAGER;
use crate::core::event::{Notice, WriteOutcome};
use crate::kube::answer;
use crate::supervisor::ClusterKey;

/// Longest note the API server takes, in bytes (core `NoteLengthLimit`).
const LONGEST_NOTE: usize = 1024;
/// Longest name of the reporting instance (core `ReportingInstanceLengthLimit`).
const LONGEST_INSTANCE: usize = 128;

/// What a person asked for is answered each time, not once an epoch.
const ANSWERS: [&str; 3] = ["SwitchoverRefused", "SwitchoverNotNeeded", "SwitchoverGivenUp"];

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

    /// Creates the Event of a notice. The name is made of cluster, epoch and reason, so that what was said,
    /// by this operator or another, is not said again: that counts as written. (kube's Recorder would merge
    /// a second failover within six minutes into the first one and drop its text.)
    pub async fn tell(
        &self,
        cluster: &ClusterKey,
        cluster_uid: &str,
        notice: &Notice,
        at: Timestamp,
    ) -> WriteOutcome {
        let regarding = ObjectReference {
            api_version: Some(RedisCluster::api_version(&()).into()),
            kind: Some(RedisCluster::kind(&()).into()),
            name: Some(cluster.name.clone()),
            namespace: Some(cluster.namespace.clone()),
            uid: Some(cluster_uid.into()),
            ..ObjectReference::default()
        };
        let Notice { warning, reason, message, epoch } = notice;
        let mut name = format!("{}.{epoch}.{}", cluster.name, reason.to_lowercase());
        if ANSWERS.contains(reason) {
            name = format!("{name}.{:x}", at.as_millisecond());
        }
        self.create(name, regarding, *warning, reason, message, at).await
    }

    /// Creates a warning that belongs to no epoch. Its name is made of what it says, so that it is said again
    /// only when the Event has expired.
    pub async fn warn(
        &self,
        regarding: ObjectReference,
        reason: &'static str,
        message: &str,
        at: Timestamp,
    ) -> WriteOutcome {
        let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(message.as_bytes()).into();
        let mark = u32::from_be_bytes([a, b, c, d]);
        let cluster = regarding.name.as_deref().unwrap_or_default();
        let name = format!("{cluster}.{}.{mark:08x}", reason.to_lowercase());
        self.create(name, regarding, true, reason, message, at).await
    }

    async fn create(
        &self,
        name: String,
        regarding: ObjectReference,
        warning: bool,
        reason: &'static str,
        message: &str,
        at: Timestamp,
    ) -> WriteOutcome {
        let namespace = regarding.namespace.clone().unwrap_or_default();
        let act = format!("creating the Event {namespace}/{name}");
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(at)),
            type_: Some(if warning { "Warning" } else { "Normal" }.into()),
            reason: Some(reason.into()),
            // The API server wants one; the reason says it all.
            action: Some("Supervise".into()),
            note: Some(shortened(message, LONGEST_NOTE).into()),
            reporting_controller: Some(format!("{MANAGER}/operator")),
            reporting_instance: Some(self.instance.clone()),
            regarding: Some(regarding),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        match answer::write(&act, api.create(&PostParams::default(), &event)).await {
            Ok(_) | Err(WriteOutcome::Conflict) => WriteOutcome::Written,
            Err(outcome) => outcome,
        }
    }
}

/// The longest beginning that fits into so many bytes and ends at a character.
fn shortened(text: &str, bytes: usize) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=bytes.min(text.len())).rev().find(fits).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::scripted::{Answer, Server};

    fn notice() -> Notice {
        Notice { warning: true, reason: "MasterDied", message: "cache-0 died".into(), epoch: 7 }
    }

    async fn tell(server: &Server, notice: &Notice) -> WriteOutcome {
        let cluster = ClusterKey { namespace: "shop".into(), name: "cache".into() };
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        Teller::new(server.client.clone(), "operator-a").tell(&cluster, "cluster-uid", notice, at).await
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
    async fn each_request_is_answered_although_the_epoch_is_the_same() {
        let server = Server::start(|asked| Answer::Body(201, asked.body.clone()));
        let teller = Teller::new(server.client.clone(), "operator-a");
        let cluster = ClusterKey { namespace: "shop".into(), name: "cache".into() };
        for second in [1, 2] {
            let at = Timestamp::from_second(second).unwrap();
            let notice = Notice { reason: "SwitchoverRefused", ..notice() };
            teller.tell(&cluster, "cluster-uid", &notice, at).await;
        }
        let names: Vec<_> =
            server.requests().iter().map(|asked| asked.body["metadata"]["name"].clone()).collect();
        assert_eq!(names, ["cache.7.switchoverrefused.3e8", "cache.7.switchoverrefused.7d0"]);
    }

    #[tokio::test]
    async fn what_was_said_already_is_not_tried_again() {
        let server = Server::start(|_| Answer::refused(409, "AlreadyExists", "events", "cache.7.masterdied"));
        assert_eq!(tell(&server, &notice()).await, WriteOutcome::Written);
        assert_eq!(server.requests().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_away_holds_nobody_up_for_long() {
        let server = Server::start(|_| Answer::Silence);
        let from = tokio::time::Instant::now();
        assert!(matches!(tell(&server, &notice()).await, WriteOutcome::Unknown(_)));
        assert!(from.elapsed() <= crate::kube::DEADLINE + std::time::Duration::from_millis(10));
    }

    #[tokio::test]
    async fn a_warning_of_no_epoch_is_named_by_what_it_says() {
        let server = Server::start(|asked| Answer::Body(201, asked.body.clone()));
        let teller = Teller::new(server.client.clone(), "operator-a");
        let cluster = || ObjectReference {
            name: Some("cache".into()),
            namespace: Some("shop".into()),
            ..ObjectReference::default()
        };
        for message in ["the Service is foreign", "the Secret is foreign", "the Service is foreign"] {
            teller.warn(cluster(), "ForeignObject", message, Timestamp::UNIX_EPOCH).await;
        }
        let names: Vec<_> =
            server.requests().iter().map(|asked| asked.body["metadata"]["name"].to_string()).collect();
        assert!(names[0].starts_with("\"cache.foreignobject."), "{names:?}");
        assert!(names[0] == names[2] && names[0] != names[1], "{names:?}");
    }

    #[tokio::test]
    async fn a_long_message_is_cut_at_a_character() {
        let server = Server::start(|asked| Answer::Body(201, asked.body.clone()));
        tell(&server, &Notice { message: "é".repeat(800) + "x", ..notice() }).await;
        let note = server.requests()[0].body["note"].as_str().unwrap().to_owned();
        assert_eq!(note, "é".repeat(512));
    }
}
