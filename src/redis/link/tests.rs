//! Against real servers and bare sockets on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::redis::server::{Dialled, Server, ask, credentials, free_address};
use crate::supervisor::clock;

#[tokio::test]
async fn a_connection_is_bound_to_the_process_that_answered() {
    let server = Server::start().await;
    let operator = server.operator().await;
    assert!(info::major_minor(&operator.info.redis_version) >= (6, 2), "{}", operator.info.redis_version);
    assert!(operator.info.is_fenced());
    assert_eq!(operator.probe().await.run_id, operator.info.run_id);
}

#[tokio::test]
async fn what_the_version_needs_is_set_before_the_connection_is_reported() {
    let server = Server::start().await;
    let operator = server.operator().await;
    let mut app = server.app().await;
    if info::major_minor(&operator.info.redis_version) >= (7, 0) {
        let reply = ask(&mut app, &["CONFIG", "GET", "replica-ignore-disk-write-errors"]).await.unwrap();
        assert!(
            format!("{reply:?}").contains("yes") || format!("{reply:?}").contains("121, 101, 115"),
            "{reply:?}"
        );
    }
    for (since, sent) in [
        ((7, 0), &["CLIENT", "NO-EVICT", "on"][..]),
        ((7, 2), &["CLIENT", "NO-TOUCH", "on"]),
        ((7, 2), &["CLIENT", "SETINFO", "LIB-NAME", "shop"]),
    ] {
        if info::major_minor(&operator.info.redis_version) >= since {
            assert_eq!(ask(&mut app, sent).await, Ok(Value::Okay), "{sent:?}");
        }
    }
}

#[tokio::test]
async fn end_of_file_is_noticed_at_once_when_the_process_is_killed() {
    let mut took = Vec::new();
    for _ in 0..10 {
        let server = Server::start().await;
        let mut operator = server.operator().await;
        let killed = clock::mono();
        server.signal(Signal::SIGKILL);
        assert!(matches!(operator.dialled.report().await, Report::Lost));
        took.push(clock::mono().saturating_sub(killed));
        assert!(operator.link.clone().probe(operator.link.question().await.unwrap()).await.is_none());
    }
    took.sort();
    println!("end of file after SIGKILL: median {:?}, worst {:?} of {}", took[5], took[9], took.len());
    assert!(took[5] < Duration::from_millis(250), "{took:?}");
}

#[tokio::test]
async fn a_new_connection_cuts_the_operators_other_ones_and_nobody_else() {
    let server = Server::start().await;
    let mut paused = server.operator().await;
    let mut app = server.app().await;
    let standby = Dialled::open(server.address, credentials(), false).opened().await;
    assert!(paused.probe().await.is_fenced(), "a standby cuts nobody");
    let mut successor = server.operator().await;
    assert!(matches!(paused.dialled.report().await, Report::Lost));
    assert!(ask(&mut app, &["CLIENT", "ID"]).await.is_ok());
    assert!(successor.dialled.reports.try_recv().is_err(), "it does not cut itself");
    drop(standby);
}

#[tokio::test]
async fn a_late_answer_is_still_delivered_and_a_fourth_question_waits_its_turn() {
    let server = Server::start().await;
    let operator = server.operator().await;
    server.signal(Signal::SIGSTOP);
    let first = tokio::spawn(operator.link.clone().probe(operator.link.question().await.unwrap()));
    let second = tokio::spawn(operator.link.clone().probe(operator.link.question().await.unwrap()));
    let last_look = tokio::spawn(operator.link.clone().probe(operator.link.question().await.unwrap()));
    let link = operator.link.clone();
    let fourth = tokio::spawn(async move { link.clone().probe(link.question().await.unwrap()).await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!first.is_finished() && !second.is_finished() && !fourth.is_finished());
    server.signal(Signal::SIGCONT);
    for late in [first, second, last_look, fourth] {
        assert!(matches!(late.await.unwrap(), Some(ProbeOutcome::Answered(_))));
    }
}

#[tokio::test]
async fn a_closed_port_refuses_and_a_knock_says_so() {
    let address = free_address();
    assert_eq!(Dialled::open(address, credentials(), true).failed().await, DialOutcome::Refused);
    assert_eq!(Dialler::new(clock::mono).knock(address).await, Knock::Refused);
    let server = Server::start().await;
    assert_eq!(Dialler::new(clock::mono).knock(server.address).await, Knock::Accepted);
}

#[tokio::test]
async fn a_hung_server_is_silent_first_and_bound_when_it_wakes() {
    let server = Server::start().await;
    server.signal(Signal::SIGSTOP);
    let mut dialled = server.dial();
    let asked = clock::mono();
    assert_eq!(dialled.failed().await, DialOutcome::Silent);
    assert!(clock::mono().saturating_sub(asked) >= GREETING_DEADLINE);
    server.signal(Signal::SIGCONT);
    let (_link, info) = dialled.opened().await;
    assert!(info.is_fenced());
}

#[tokio::test]
async fn a_backlog_that_is_full_is_no_route() {
    // A listener that never accepts: when its queue is full, Linux drops further connection requests.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await
    {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue never fills");
    }
    assert_eq!(Dialled::open(address, credentials(), true).failed().await, DialOutcome::Unroutable);
    assert_eq!(Dialler::new(clock::mono).knock(address).await, Knock::Unroutable);
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_never_said_aloud() {
    let server = Server::start().await;
    let wrong = Credentials { operator_password: "guessed-in-vain".into(), ..credentials() };
    let outcome = Dialled::open(server.address, wrong, true).failed().await;
    let DialOutcome::Denied(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("WRONGPASS"), "{reason}");
    assert!(!reason.contains("guessed-in-vain"), "{reason}");
}

#[tokio::test]
async fn too_many_clients_is_denied() {
    let server = Server::start().await;
    let operator = server.operator().await;
    let mut connection = operator.link.connection.clone();
    ask(&mut connection, &["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
    let outcome = Dialled::open(server.address, credentials(), true).failed().await;
    // The server closes at once; whether its sentence arrives before the reset is up to the kernel.
    assert!(
        matches!(&outcome, DialOutcome::Denied(text) if text.contains("max number of clients"))
            || matches!(outcome, DialOutcome::Broken(_)),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_peer_that_closes_before_the_first_info_is_broken() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut dialled = Dialled::open(address, credentials(), true);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut hello = [0; 16];
    stream.read_exact(&mut hello).await.unwrap();
    assert!(hello.starts_with(b"*5\r\n$5\r\nHELLO"), "{hello:?}");
    drop(stream);
    assert!(matches!(dialled.failed().await, DialOutcome::Broken(_)));
}

#[tokio::test]
async fn a_silent_attempt_is_given_up_in_the_end() {
    let hung = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let asked = clock::mono();
    let mut dialled = Dialled::open(hung.local_addr().unwrap(), credentials(), true);
    assert_eq!(dialled.failed().await, DialOutcome::Silent);
    assert!(matches!(dialled.failed().await, DialOutcome::Broken(_)));
    assert!(clock::mono().saturating_sub(asked) >= ATTEMPT_DEADLINE);
}

#[tokio::test]
async fn silent_attempts_do_not_keep_others_from_being_made() {
    let server = Server::start().await;
    let hung = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let dialler = Dialler::new(clock::mono);
    let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    for link in 0..ATTEMPTS_AT_ONCE as u64 {
        let (sender, address) = (sender.clone(), hung.local_addr().unwrap());
        let target = Target { link, address, credentials: credentials(), cut_others: true };
        tasks.spawn(dialler.clone().run(target, move |report| sender.send(report).unwrap()));
    }
    for _ in 0..ATTEMPTS_AT_ONCE {
        assert!(matches!(reports.recv().await, Some(Report::Failed(DialOutcome::Silent))));
    }
    let target = Target { link: 99, address: server.address, credentials: credentials(), cut_others: true };
    tasks.spawn(dialler.run(target, move |report| sender.send(report).unwrap()));
    assert!(matches!(reports.recv().await, Some(Report::Opened { .. })));
}
