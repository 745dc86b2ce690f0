//! The shell with a scripted state machine, a scripted API server and real Redis servers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::outside::Standing;
use super::scripted::{Stage, input, key, pod, pod_server};
use super::{WatchedRoute, clock};
use crate::api::RedisClusterStatus;
use crate::core::event::{
    CommandOutcome, DialOutcome, Effect, Event, Expect, Knock, Notice, ProbeOutcome, RoleCommand,
    WriteOutcome,
};
use crate::core::facts::{ControllerReport, Role, RouteFact};
use crate::redis::link::Report;
use crate::redis::server::{Dialled, credentials};

fn write_status(ticket: u64) -> Effect {
    let status = RedisClusterStatus { epoch: ticket, ..RedisClusterStatus::default() };
    let expect = Expect::First { uid: "uid-1".into(), resource_version: "1".into() };
    Effect::WriteStatus { ticket, expect, status: Box::new(status) }
}

fn route(resource_version: &str) -> WatchedRoute {
    let fact = RouteFact { ip: None, uid: None, epoch: 3 };
    WatchedRoute { resource_version: resource_version.into(), fact }
}

fn names(event: Event) -> Vec<String> {
    match event {
        Event::Pods(pods) => pods.into_iter().map(|pod| pod.name).collect(),
        other => panic!("expected pods, got {other:?}"),
    }
}

#[tokio::test]
async fn pods_and_slice_that_come_before_their_cluster_are_told_with_it() {
    let mut stage = Stage::new();
    stage.supervisors.pods(&key("cache"), vec![pod(1, "set-1"), pod(0, "set-1"), pod(2, "foreign")]);
    stage.supervisors.route(&key("cache"), Some(route("12")));
    stage.silence().await;
    stage.supervisors.set(&key("cache"), input("uid-1"));
    assert_eq!(stage.event().await, Event::Standby);
    assert_eq!(stage.event().await, Event::Reported(ControllerReport::default()));
    assert_eq!(names(stage.event().await), ["cache-0", "cache-1"]);
    assert_eq!(stage.event().await, Event::RouteSeen(Some(route("12").fact)));
    assert!(stage.world.asked().contains(&"route seen Some(\"12\")".into()));
}

#[tokio::test]
async fn what_is_not_new_is_not_told_again() {
    let mut stage = Stage::leading().await;
    stage.supervisors.pods(&key("cache"), vec![pod(0, "set-1")]);
    assert_eq!(names(stage.event().await), ["cache-0"]);
    stage.supervisors.pods(&key("cache"), vec![pod(0, "set-1")]);
    stage.supervisors.set(&key("cache"), input("uid-1"));
    stage.silence().await;
}

#[tokio::test]
async fn pods_are_judged_anew_when_the_stateful_set_is_another() {
    let mut stage = Stage::leading().await;
    stage.supervisors.pods(&key("cache"), vec![pod(0, "set-1"), pod(1, "set-2")]);
    assert_eq!(names(stage.event().await), ["cache-0"]);
    let other = super::ClusterInput { stateful_set_uid: Some("set-2".into()), ..input("uid-1") };
    stage.supervisors.set(&key("cache"), other);
    assert_eq!(names(stage.event().await), ["cache-1"]);
    let none = super::ClusterInput { stateful_set_uid: None, ..input("uid-1") };
    stage.supervisors.set(&key("cache"), none);
    assert!(names(stage.event().await).is_empty(), "nobody's pods are not ours");
}

#[tokio::test]
async fn an_object_made_again_under_the_same_name_gets_a_new_machine() {
    let mut stage = Stage::leading().await;
    stage.supervisors.set(&key("cache"), input("uid-2"));
    let (machine, event) = stage.named_event().await;
    assert_eq!((machine.as_str(), event), ("uid-2", Event::Leading { term: "t1".into() }));
}

#[tokio::test]
async fn a_lapsed_lease_is_told_before_anything_else_and_stops_changes() {
    let mut stage = Stage::leading().await;
    stage.world.overdue();
    stage.perform(write_status(5));
    // Nobody is woken when a renewal is overdue: the next turn, a tick at the latest, tells it.
    assert_eq!(stage.event().await, Event::Lapsed);
    assert_eq!(stage.event().await, Event::StatusWritten { ticket: 5, outcome: WriteOutcome::NotSent });
    assert!(!stage.world.asked().contains(&"status 5".into()));
    stage.world.stands(Standing::Following);
    assert_eq!(stage.event().await, Event::Standby);
}

#[tokio::test]
async fn nobody_is_told_lapsed_who_never_led() {
    let mut stage = Stage::new();
    stage.world.stands(Standing::Unsure);
    stage.supervisors.set(&key("cache"), input("uid-1"));
    assert_eq!(stage.event().await, Event::Standby);
}

#[tokio::test]
async fn each_write_comes_back_with_its_ticket() {
    let mut stage = Stage::leading().await;
    stage.perform(write_status(1));
    assert_eq!(stage.event().await, Event::StatusWritten { ticket: 1, outcome: WriteOutcome::Written });
    stage.perform(Effect::Route { ticket: 2, endpoint: None, epoch: 4 });
    assert_eq!(stage.event().await, Event::RouteWritten { ticket: 2, outcome: WriteOutcome::Written });
    stage.perform(Effect::CheckLease { ticket: 3 });
    assert_eq!(stage.event().await, Event::LeaseChecked { ticket: 3, held: true });
    stage.perform(Effect::ConfirmPod { ticket: 4, pod: "cache-0".into(), uid: "gone".into() });
    assert_eq!(stage.event().await, Event::PodConfirmed { ticket: 4, ip: None });
    stage.perform(Effect::ConfirmPod { ticket: 5, pod: "cache-0".into(), uid: "unreadable".into() });
    let notice = Notice { warning: true, reason: "Held", message: "waiting".into(), epoch: 4 };
    stage.perform(Effect::Tell(notice));
    stage.perform(Effect::Label { pod: "cache-0".into(), uid: "pod-0".into(), role: Some("master") });
    stage.silence().await;
    let early = stage.world.asked();
    let gives_way = |asked: &String| asked.starts_with("tell") || asked.starts_with("label");
    assert!(!early.iter().any(gives_way), "an Event or a label was in the way of what is urgent: {early:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = stage.world.asked();
    for wanted in ["status 1", "route None 4", "tell Held", "label cache-0 Some(\"master\")"] {
        assert!(asked.contains(&wanted.to_owned()), "{wanted}: {asked:?}");
    }
}

#[tokio::test]
async fn what_ends_a_pod_a_request_or_a_term_is_carried_out_without_an_answer() {
    let mut stage = Stage::leading().await;
    stage.perform(Effect::DeletePod { pod: "cache-0".into(), uid: "pod-0".into() });
    stage.perform(Effect::ClearSwitchover { value: "any".into() });
    stage.perform(Effect::YieldLease);
    stage.silence().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = stage.world.asked();
    for wanted in ["delete cache-0 pod-0", "clear switchover any", "hand over"] {
        assert!(asked.contains(&wanted.to_owned()), "{wanted}: {asked:?}");
    }
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_has_not_been_seen_as_ours() {
    let mut stage = Stage::leading().await;
    stage.world.stands(Standing::Following);
    assert_eq!(stage.event().await, Event::Standby);
    stage.perform(Effect::CheckLease { ticket: 1 });
    assert_eq!(stage.event().await, Event::LeaseChecked { ticket: 1, held: false });
}

#[tokio::test]
async fn the_object_is_read_until_it_can_be_read() {
    let mut stage = Stage::leading().await;
    stage.world.failing_reads.store(1, Ordering::SeqCst);
    stage.perform(Effect::ReadObject);
    let Event::Stored(stored) = stage.event().await else { panic!("expected the object") };
    assert_eq!(stored.resource_version, "7");
}

#[tokio::test]
async fn a_stop_waits_for_changes_under_way_and_starts_no_more() {
    let stage = Stage::leading().await;
    stage.world.let_writes_end.send_replace(false);
    stage.perform(write_status(1));
    while !stage.world.asked().contains(&"status 1".into()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!stage.supervisors.stop(Duration::from_millis(50)).await, "one is still under way");
    let mut stage = Stage::leading().await;
    stage.world.let_writes_end.send_replace(false);
    stage.perform(write_status(1));
    while !stage.world.asked().contains(&"status 1".into()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let world = stage.world.clone();
    let (stopped, ()) = tokio::join!(stage.supervisors.stop(Duration::from_secs(5)), async {
        stage.perform(write_status(2));
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.let_writes_end.send_replace(true);
    });
    assert!(stopped);
    assert!(!stage.world.asked().contains(&"status 2".into()));
    assert_eq!(stage.event().await, Event::Lapsed);
}

#[tokio::test]
async fn a_server_is_dialled_probed_commanded_and_its_death_is_told() {
    let (server, ip) = pod_server().await;
    let mut stage = Stage::leading().await;
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip });
    let Event::Dialed { uid, outcome: DialOutcome::Connected { link, asked_at, info } } = stage.event().await
    else {
        panic!("expected a connection")
    };
    assert!(uid == "pod-0" && info.is_fenced() && asked_at <= clock::mono());

    let asked = clock::mono();
    stage.perform(Effect::Probe { uid: "pod-0".into(), link });
    let Event::Probed { outcome: ProbeOutcome::Answered(probed), asked_at, .. } = stage.event().await else {
        panic!("expected an answer")
    };
    assert!(asked_at >= asked && probed.run_id == info.run_id);

    let promote = RoleCommand::Promote { write_quorum: 0 };
    stage.perform(Effect::Command {
        ticket: 9,
        uid: "pod-0".into(),
        link: link + 1,
        command: promote.clone(),
    });
    let Event::Replied { ticket: 9, outcome: CommandOutcome::Refused(_) } = stage.event().await else {
        panic!("a command for another connection must not be sent")
    };
    stage.perform(Effect::Command { ticket: 10, uid: "pod-0".into(), link, command: promote });
    let Event::Replied { ticket: 10, outcome: CommandOutcome::Done(done) } = stage.event().await else {
        panic!("expected it to be done")
    };
    assert_eq!((done.role, done.run_id), (Role::Master, info.run_id));

    stage.perform(Effect::Knock { uid: "pod-0".into(), ip });
    assert_eq!(stage.event().await, Event::Knocked { uid: "pod-0".into(), outcome: Knock::Accepted });
    server.signal(Signal::SIGKILL);
    assert_eq!(stage.event().await, Event::LinkLost { uid: "pod-0".into(), link });
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip });
    assert_eq!(stage.event().await, Event::Dialed { uid: "pod-0".into(), outcome: DialOutcome::Refused });
}

#[tokio::test]
async fn a_silent_attempt_goes_on_and_is_not_made_twice() {
    let (server, ip) = pod_server().await;
    let mut stage = Stage::leading().await;
    server.signal(Signal::SIGSTOP);
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip });
    assert_eq!(stage.event().await, Event::Dialed { uid: "pod-0".into(), outcome: DialOutcome::Silent });
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip });
    tokio::time::sleep(Duration::from_millis(400)).await;
    server.signal(Signal::SIGCONT);
    let Event::Dialed { outcome: DialOutcome::Connected { link: 1, .. }, .. } = stage.event().await else {
        panic!("expected the first attempt to succeed")
    };
    stage.silence().await;
}

#[tokio::test]
async fn hanging_up_closes_the_connection_without_a_word() {
    let (server, ip) = pod_server().await;
    let mut stage = Stage::leading().await;
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip });
    assert!(matches!(stage.event().await, Event::Dialed { outcome: DialOutcome::Connected { .. }, .. }));
    assert_eq!(operators(&server).await, 1);
    stage.perform(Effect::HangUp { uid: "pod-0".into() });
    stage.silence().await;
    assert_eq!(operators(&server).await, 0);
}

#[tokio::test]
async fn connections_outlive_the_lease_but_not_the_cluster() {
    let (server, ip) = pod_server().await;
    let mut stage = Stage::leading().await;
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip });
    assert!(matches!(stage.event().await, Event::Dialed { outcome: DialOutcome::Connected { .. }, .. }));
    stage.world.stands(Standing::Following);
    assert_eq!(stage.event().await, Event::Standby);
    stage.silence().await;
    assert_eq!(operators(&server).await, 1);
    stage.supervisors.remove(&key("cache"));
    stage.silence().await;
    assert_eq!(operators(&server).await, 0);
}

#[tokio::test]
async fn the_first_command_of_a_later_term_cuts_the_operators_other_connections() {
    let (server, ip) = pod_server().await;
    let mut stage = Stage::leading().await;
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip });
    let Event::Dialed { outcome: DialOutcome::Connected { link, .. }, .. } = stage.event().await else {
        panic!("expected a connection")
    };
    let detach = |ticket| Effect::Command { ticket, uid: "pod-0".into(), link, command: RoleCommand::Detach };
    let mut other = Dialled::open(server.address, credentials(), false);
    let _kept_open = other.opened().await;
    stage.perform(detach(1));
    assert!(matches!(stage.event().await, Event::Replied { ticket: 1, outcome: CommandOutcome::Done(_) }));
    assert_eq!(operators(&server).await, 2, "in the term of the dial the cut has been made");
    stage.world.stands(Standing::Leading { term: "t2".into() });
    assert_eq!(stage.event().await, Event::Leading { term: "t2".into() });
    stage.perform(detach(2));
    assert!(matches!(stage.event().await, Event::Replied { ticket: 2, outcome: CommandOutcome::Done(_) }));
    assert!(matches!(other.report().await, Report::Lost));
}

#[tokio::test]
async fn without_credentials_nobody_is_dialled() {
    let mut stage = Stage::leading().await;
    stage.supervisors.set(&key("cache"), super::ClusterInput { credentials: None, ..input("uid-1") });
    tokio::time::sleep(Duration::from_millis(20)).await;
    stage.perform(Effect::Dial { uid: "pod-0".into(), ip: IpAddr::V4(Ipv4Addr::LOCALHOST) });
    assert!(matches!(stage.event().await, Event::Dialed { outcome: DialOutcome::Denied(_), .. }));
}

#[tokio::test]
async fn a_thousand_idle_clusters_are_cheap() {
    let stage = Stage::with(super::crash_points::CrashPoints::default(), false);
    let before = resident_kib();
    for number in 0..1000 {
        let key = key(&format!("cache-{number}"));
        stage.supervisors.pods(&key, vec![pod(0, "set-1"), pod(1, "set-1"), pod(2, "set-1")]);
        stage.supervisors.set(&key, input(&format!("uid-{number}")));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let grown = resident_kib().saturating_sub(before);
    println!("1000 idle clusters without connections: {grown} KiB");
    assert!(grown < 16 * 1024, "{grown} KiB");
}

/// Connections of the operator, as the server sees them.
async fn operators(server: &crate::redis::server::Server) -> usize {
    let mut app = server.app().await;
    let list = crate::redis::server::ask(&mut app, &["CLIENT", "LIST"]).await.unwrap();
    match list {
        ::redis::Value::BulkString(text) => String::from_utf8_lossy(&text)
            .lines()
            .filter(|line| line.contains("name=redis-ha-operator"))
            .count(),
        other => panic!("{other:?}"),
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(feature = "crash-points")]
mod crash_points {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;
    use crate::supervisor::crash_points::CrashPoints;

    async fn asked(listener: &UnixListener) -> (String, UnixStream) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        (line, reader.into_inner())
    }

    #[tokio::test]
    async fn a_test_is_asked_before_and_after_each_change() {
        let socket = std::env::temp_dir().join(format!("rha-crash-{}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let mut stage = Stage::with(CrashPoints::at(socket.clone()), true);
        stage.world.stands(Standing::Leading { term: "t1".into() });
        stage.supervisors.set(&key("cache"), input("uid-1"));
        stage.event().await;
        stage.event().await;
        stage.perform(write_status(1));
        let (line, mut stream) = asked(&listener).await;
        assert_eq!(line, "before 0 WriteStatus shop/cache\n");
        assert!(!stage.world.asked().contains(&"status 1".into()));
        stream.write_all(b"go\n").await.unwrap();
        let (line, mut stream) = asked(&listener).await;
        assert_eq!(line, "after 0 WriteStatus shop/cache\n");
        assert!(stage.world.asked().contains(&"status 1".into()));
        stage.silence().await;
        stream.write_all(b"go\n").await.unwrap();
        assert_eq!(stage.event().await, Event::StatusWritten { ticket: 1, outcome: WriteOutcome::Written });
        std::fs::remove_file(socket).unwrap();
    }
}
