//! Scenarios of the election: a scripted API server that checks versions, and tokio's paused clock.

use std::sync::{Mutex, OnceLock};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::kube::scripted::{Answer, Asked, Server};

/// A clock that follows tokio's paused time, and can jump as after a suspended machine.
fn clock() -> Now {
    thread_local! {
        static START: OnceLock<Instant> = const { OnceLock::new() };
    }
    let since = START.with(|start| start.get_or_init(Instant::now).elapsed());
    let slept = SLEPT.with(|slept| Duration::from_secs(slept.load(Ordering::Relaxed)));
    let mono = Duration::from_secs(1_000) + since + slept;
    let micros = i64::try_from(mono.as_micros()).unwrap();
    Now { mono, wall: k8s_openapi::jiff::Timestamp::from_microsecond(micros).unwrap() }
}

thread_local! {
    static SLEPT: AtomicU64 = const { AtomicU64::new(0) };
}

fn suspend_machine(seconds: u64) {
    SLEPT.with(|slept| slept.fetch_add(seconds, Ordering::Relaxed));
}

/// The stored lease, shared by all candidates of one test.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
    away: bool,
    /// The next write is carried out, but its answer is lost.
    lose_answer: bool,
}

impl Store {
    fn server(&self) -> Server {
        let store = self.clone();
        Server::start(move |asked| store.answer(asked))
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let mut stored = self.0.lock().unwrap();
        if stored.away {
            return Answer::Silence;
        }
        let name = "redis-ha";
        if asked.line.starts_with("GET") {
            return stored
                .lease
                .clone()
                .map_or(Answer::missing("leases", name), |lease| Answer::Body(200, lease));
        }
        let known = asked.body["metadata"]["resourceVersion"].as_str();
        let current = stored.lease.as_ref().map(|_| stored.version.to_string());
        if asked.line.starts_with("POST") && current.is_some() {
            return Answer::refused(409, "AlreadyExists", "leases", name);
        }
        if asked.line.starts_with("PUT") && known != current.as_deref() {
            return Answer::conflict("leases", name);
        }
        stored.write(asked.body.clone());
        if std::mem::take(&mut stored.lose_answer) {
            return Answer::Silence;
        }
        Answer::Body(200, stored.lease.clone().unwrap())
    }

    fn set(&self, change: impl FnOnce(&mut Stored)) {
        change(&mut self.0.lock().unwrap());
    }

    fn holder(&self) -> Option<String> {
        let stored = self.0.lock().unwrap();
        stored.lease.as_ref()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }
}

impl Stored {
    fn write(&mut self, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease);
    }

    fn held_by(&mut self, holder: &str) {
        self.write(json!({"metadata": {"name": "redis-ha", "namespace": "ops"},
            "spec": {"holderIdentity": holder, "leaseTransitions": 7, "leaseDurationSeconds": 8}}));
    }
}

/// A candidate whose election runs.
fn candidate(server: &Server, pod: &str) -> Leadership {
    let candidacy = Candidacy { namespace: "ops".into(), lease: "redis-ha".into(), pod: pod.into() };
    let (leadership, elector) = Leadership::new(&server.client, &candidacy, clock).unwrap();
    tokio::spawn(elector.run());
    leadership
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// A moment in which everything that can run has run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_exist_is_made_and_kept() {
    let store = Store::default();
    let server = store.server();
    let leader = candidate(&server, "operator-a");
    settle().await;
    let term = leader.term().unwrap();
    assert_eq!(term, format!("{}.1", leader.identity()));
    assert!(leader.held_live().await.unwrap());
    seconds(30).await;
    assert_eq!(leader.term().unwrap(), term);
    assert_eq!(store.holder().unwrap(), leader.identity());
    // After the first look each round is one write.
    let lines = server.lines();
    assert!(lines[2..].iter().filter(|line| line.starts_with("GET")).count() <= 1, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_candidates_one_leads_and_the_other_follows_a_clean_release_within_a_second() {
    let store = Store::default();
    let (server_a, server_b) = (store.server(), store.server());
    let first = candidate(&server_a, "operator-a");
    settle().await;
    let second = candidate(&server_b, "operator-b");
    seconds(20).await;
    assert!(first.is_leader() && !second.is_leader());
    assert_eq!(second.standing(), Standing::Following { holder: first.identity().into() });
    first.release().await;
    assert!(!first.is_leader());
    assert_eq!(first.standing(), Standing::Released);
    seconds(1).await;
    settle().await;
    assert!(second.is_leader());
    assert!(!first.held_live().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_handed_over_goes_to_another_candidate_and_comes_back_only_when_there_is_none() {
    let store = Store::default();
    let server = store.server();
    let first = candidate(&server, "a");
    settle().await;
    assert!(first.is_leader());
    first.hand_over();
    settle().await;
    assert!(!first.is_leader());
    seconds(5).await;
    assert!(first.is_leader(), "nobody else was there");
    let second = candidate(&server, "b");
    seconds(2).await;
    first.hand_over();
    seconds(5).await;
    assert!(second.is_leader() && !first.is_leader());
    seconds(30).await;
    assert!(second.is_leader() && !first.is_leader(), "once is once");
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_replaced_after_its_duration_and_not_before() {
    let store = Store::default();
    store.set(|stored| stored.held_by("operator-dead_1"));
    let server = store.server();
    let second = candidate(&server, "operator-b");
    tokio::time::sleep(Duration::from_millis(7_990)).await;
    assert!(!second.is_leader());
    assert!(server.lines().iter().all(|line| line.starts_with("GET")));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(second.term().unwrap(), format!("{}.8", second.identity()));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_ends_the_term_after_the_renew_deadline() {
    let store = Store::default();
    let server = store.server();
    let mut leader = candidate(&server, "operator-a");
    settle().await;
    let term = leader.term().unwrap();
    leader.changed().await;
    store.set(|stored| stored.away = true);
    // The last renewal was at most a second ago.
    seconds(3).await;
    assert!(leader.is_leader());
    let from = Instant::now();
    leader.changed().await;
    assert!(from.elapsed() <= Duration::from_secs(2));
    assert_eq!((leader.standing(), leader.term()), (Standing::Unsure, None));
    // The answers come again: a new term, never the old one.
    store.set(|stored| stored.away = false);
    seconds(4).await;
    assert_ne!(leader.term().unwrap(), term);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_machine_wakes_without_its_term() {
    let store = Store::default();
    let server = store.server();
    let leader = candidate(&server, "operator-a");
    settle().await;
    let term = leader.term().unwrap();
    suspend_machine(60);
    // Before any task has run.
    assert_eq!(leader.term(), None);
    seconds(2).await;
    assert_ne!(leader.term().unwrap(), term);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_renewal_is_cleared_up_by_reading() {
    let store = Store::default();
    let server = store.server();
    let leader = candidate(&server, "operator-a");
    settle().await;
    let term = leader.term().unwrap();
    store.set(|stored| stored.lose_answer = true);
    seconds(10).await;
    assert_eq!(leader.term().unwrap(), term);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_an_acquisition_never_makes_a_leader_of_that_term() {
    let store = Store::default();
    store.set(|stored| stored.lose_answer = true);
    let server = store.server();
    let leader = candidate(&server, "operator-a");
    seconds(5).await;
    assert_eq!(leader.term().unwrap(), format!("{}.2", leader.identity()));
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_another_holder_steps_down_at_once() {
    let store = Store::default();
    let server = store.server();
    let leader = candidate(&server, "operator-a");
    settle().await;
    assert!(leader.is_leader());
    store.set(|stored| stored.held_by("operator-b_2"));
    assert!(!leader.held_live().await.unwrap());
    seconds(2).await;
    assert_eq!(leader.standing(), Standing::Following { holder: "operator-b_2".into() });
    assert_eq!(leader.term(), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_by_hand_brings_no_term_back() {
    let store = Store::default();
    let server = store.server();
    let leader = candidate(&server, "operator-a");
    settle().await;
    let term = leader.term().unwrap();
    store.set(|stored| stored.lease = None);
    seconds(3).await;
    let next = leader.term().unwrap();
    assert_ne!(next, term);
    assert_eq!(next, format!("{}.2", leader.identity()));
}

#[tokio::test(start_paused = true)]
async fn two_candidates_that_take_it_at_once_never_lead_both() {
    let store = Store::default();
    store.set(|stored| stored.held_by("operator-dead_1"));
    let (server_a, server_b) = (store.server(), store.server());
    let (a, b) = (candidate(&server_a, "operator-a"), candidate(&server_b, "operator-b"));
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!(a.is_leader() && b.is_leader()));
    }
    assert!(a.is_leader() || b.is_leader());
}

#[test]
fn each_process_has_an_identity_of_its_own() {
    let (one, two) = (unique().unwrap(), unique().unwrap());
    assert_ne!(one, two);
    assert_eq!(one.len(), 36);
    assert_eq!(one.as_bytes()[14], b'4', "{one} is a UUID of version 4");
}
