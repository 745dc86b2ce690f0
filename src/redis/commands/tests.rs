//! Against real servers with the users of a cluster.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::core::event::RoleCommand::{Demote, Detach, Follow, Promote, Serve, SetWriteQuorum};
use crate::core::facts::{Info, Role};
use crate::redis::server::{Operator, Server, ask};

fn follow(master: &Server, cut_clients: bool) -> RoleCommand {
    let IpAddr::V4(Ipv4Addr::LOCALHOST) = master.address.ip() else { panic!("loopback only") };
    Follow { ip: master.address.ip(), port: master.address.port(), cut_clients }
}

fn in_sync(info: &Info) -> bool {
    info.link_up && info.replica_offset.is_some_and(|offset| offset > 1)
}

/// A serving master with replicas in sync, one key on all of them.
async fn cluster(replicas: usize) -> (Server, Operator, Vec<(Server, Operator)>) {
    let master = Server::start().await;
    let operator = master.operator().await;
    operator.done(Promote { write_quorum: 0 }).await;
    operator.done(Serve).await;
    let mut followers = Vec::new();
    for _ in 0..replicas {
        let server = Server::start().await;
        let replica = server.operator().await;
        replica.done(follow(&master, false)).await;
        followers.push((server, replica));
    }
    for (_, replica) in &followers {
        replica.until("in sync", in_sync).await;
    }
    let set = ask(&mut master.app().await, &["SET", "fruit", "pear"]).await;
    assert_eq!(set, Ok(Value::Okay));
    let offset = operator.probe().await.master_offset;
    for (_, replica) in &followers {
        replica.until("caught up", |info| info.replica_offset >= Some(offset)).await;
    }
    (master, operator, followers)
}

async fn count(operator: &Operator, field: &str) -> u64 {
    // The operator's own INFO has no stats section, so it is asked here in full.
    let mut connection = operator.link.raw();
    let reply = ask(&mut connection, &["INFO", "stats"]).await.unwrap();
    let Value::VerbatimString { text, .. } = reply else { panic!("{reply:?}") };
    let value = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    value.trim_start_matches(':').trim().parse().unwrap()
}

#[tokio::test]
async fn a_fenced_server_takes_no_writes_until_it_is_promoted() {
    let server = Server::start().await;
    let operator = server.operator().await;
    let mut app = server.app().await;
    assert!(matches!(ask(&mut app, &["SET", "a", "1"]).await, Ok(Value::ServerError(_))));
    let info = operator.done(Promote { write_quorum: 0 }).await;
    assert_eq!((info.role, &info.run_id), (Role::Master, &operator.info.run_id));
    assert_eq!(ask(&mut app, &["SET", "a", "1"]).await, Ok(Value::Okay));
}

#[tokio::test]
async fn detach_keeps_data_and_position_also_of_a_paused_replica() {
    let (_master, _, replicas) = cluster(2).await;
    for (number, (_, replica)) in replicas.iter().enumerate() {
        let before = replica.probe().await;
        if number == 1 {
            ask(&mut replica.link.raw(), &["CLIENT", "PAUSE", "60000", "WRITE"]).await.unwrap();
        }
        let after = replica.done(Detach).await;
        assert!(after.is_fenced() && !after.link_up);
        assert_eq!(after.replid, before.replid);
        assert!(after.replica_offset >= before.replica_offset, "{after:?}");
        assert_eq!(after.keys, 1);
    }
}

#[tokio::test]
async fn promote_makes_a_new_id_that_continues_the_old_one() {
    let (_master, _, replicas) = cluster(1).await;
    let (_server, replica) = &replicas[0];
    let judged = replica.done(Detach).await;
    let promoted = replica.done(Promote { write_quorum: 0 }).await;
    assert_eq!(promoted.role, Role::Master);
    assert_eq!(promoted.run_id, judged.run_id);
    assert_ne!(promoted.replid, judged.replid);
    assert_eq!(promoted.replid2, judged.replid);
    assert_eq!(Some(promoted.second_offset), judged.replica_offset.map(|offset| offset + 1));
}

#[tokio::test]
async fn a_survivor_follows_the_new_master_by_a_partial_resync() {
    let (_master, _, replicas) = cluster(2).await;
    for (_, replica) in &replicas {
        replica.done(Detach).await;
    }
    let (target, survivor) = (&replicas[0], &replicas[1]);
    target.1.done(Promote { write_quorum: 0 }).await;
    target.1.done(Serve).await;
    let full_before = count(&target.1, "sync_full").await;
    survivor.1.done(follow(&target.0, false)).await;
    survivor.1.until("in sync", in_sync).await;
    assert_eq!(count(&target.1, "sync_full").await, full_before);
    assert_eq!(count(&target.1, "sync_partial_ok").await, 1);
}

#[tokio::test]
async fn nobody_can_sync_while_the_replication_user_is_off() {
    let (master, operator, replicas) = cluster(1).await;
    let (_server, replica) = &replicas[0];
    let before = replica.done(Detach).await;
    // As after a promotion whose record is not yet written.
    operator.done(Demote).await;
    operator.done(Promote { write_quorum: 0 }).await;
    replica.done(follow(&master, false)).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let refused = replica.probe().await;
    assert!(!refused.link_up);
    assert_eq!((refused.replica_offset, refused.keys), (before.replica_offset, 1), "data and position stay");
    operator.done(Serve).await;
    replica.until("in sync", in_sync).await;
}

#[tokio::test]
async fn demote_fences_and_cuts_normal_and_pubsub_clients_but_not_us() {
    let (master, operator, _replicas) = cluster(1).await;
    let mut app = master.app().await;
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let url = format!("redis://:{}@{}/?protocol=resp3", crate::redis::server::APP_PASSWORD, master.address);
    let config = ::redis::AsyncConnectionConfig::new().set_push_sender(sender);
    let mut subscriber = ::redis::Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    subscriber.subscribe("news").await.unwrap();
    let info = operator.done(Demote).await;
    assert!(info.is_fenced());
    assert!(ask(&mut app, &["SET", "a", "1"]).await.is_err(), "the writer is cut");
    let cut = async {
        while pushes.recv().await.is_some_and(|push| push.kind != ::redis::PushKind::Disconnection) {}
    };
    tokio::time::timeout(Duration::from_secs(5), cut).await.expect("the subscriber is cut");
    assert!(operator.probe().await.is_fenced(), "our own connection stays");
    let again = ask(&mut master.app().await, &["SET", "a", "1"]).await;
    assert!(matches!(again, Ok(Value::ServerError(_))), "{again:?}");
}

#[tokio::test]
async fn follow_cuts_clients_only_when_told() {
    let (master, _, replicas) = cluster(1).await;
    let (server, replica) = &replicas[0];
    let mut reader = server.app().await;
    replica.done(follow(&master, false)).await;
    assert!(ask(&mut reader, &["CLIENT", "ID"]).await.is_ok());
    replica.done(follow(&master, true)).await;
    assert!(ask(&mut reader, &["CLIENT", "ID"]).await.is_err());
}

#[tokio::test]
async fn the_write_quorum_stops_a_master_without_enough_replicas() {
    let (master, operator, _replicas) = cluster(1).await;
    let mut app = master.app().await;
    assert_eq!(operator.done(SetWriteQuorum(1)).await.good_replicas, Some(1));
    assert_eq!(ask(&mut app, &["SET", "a", "1"]).await, Ok(Value::Okay));
    operator.done(SetWriteQuorum(2)).await;
    assert!(matches!(ask(&mut app, &["SET", "a", "2"]).await, Ok(Value::ServerError(_))));
    assert_eq!(operator.done(SetWriteQuorum(0)).await.good_replicas, None);
    assert_eq!(ask(&mut app, &["SET", "a", "3"]).await, Ok(Value::Okay));
}

#[tokio::test]
async fn the_default_user_is_refused_what_changes_roles() {
    let (master, operator, _replicas) = cluster(1).await;
    let mut app = master.app().await;
    for words in [
        &["REPLICAOF", "NO", "ONE"][..],
        &["SLAVEOF", "NO", "ONE"],
        &["FAILOVER"],
        &["SHUTDOWN"],
        &["PSYNC", "?", "-1"],
        &["SYNC"],
        &["REPLCONF", "ACK", "1"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["CONFIG", "REWRITE"],
        &["CLIENT", "PAUSE", "1000"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["ACL", "SETUSER", "x"],
        &["DEBUG", "SLEEP", "0"],
        &["EVAL", "return redis.call('REPLICAOF','NO','ONE')", "0"],
    ] {
        let reply = ask(&mut app, words).await;
        assert!(matches!(reply, Ok(Value::ServerError(_))), "{words:?}: {reply:?}");
    }
    assert_eq!(operator.probe().await.role, Role::Master);
}

#[tokio::test]
async fn a_refused_transaction_changes_nothing_and_says_why() {
    let server = Server::start().await;
    let operator = server.operator().await;
    // Without the right to REPLICAOF the queueing fails, as it does on a server that is loading.
    let forbid = ["ACL", "SETUSER", "rha-op-0a1b2c3d", "-replicaof"];
    ask(&mut operator.link.raw(), &forbid).await.unwrap();
    let CommandOutcome::Refused(reason) = operator.command(Promote { write_quorum: 0 }).await else {
        panic!("expected a refusal")
    };
    assert!(reason.contains("NOPERM"), "{reason}");
    assert!(operator.probe().await.is_fenced());
}

#[tokio::test]
async fn a_command_without_reply_is_lost() {
    let server = Server::start().await;
    let operator = server.operator().await;
    server.signal(nix::sys::signal::Signal::SIGSTOP);
    let waiting = tokio::spawn(operator.link.clone().command(Promote { write_quorum: 0 }, false));
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.signal(nix::sys::signal::Signal::SIGKILL);
    assert!(matches!(waiting.await.unwrap(), CommandOutcome::Lost(_)));
}

#[test]
fn an_error_inside_counts_by_the_decisive_command() {
    let info = Value::BulkString(include_bytes!("../samples/fenced.info").to_vec());
    let error = || ::redis::parse_redis_value(b"-ERR no\r\n").unwrap();
    let exec = |inside: Vec<Value>| vec![Value::Okay, Value::Array(inside)];
    let judge = |inside| outcome(&exec(inside), 1);
    assert!(matches!(judge(vec![Value::Okay, Value::Okay, info.clone()]), CommandOutcome::Done(_)));
    assert!(matches!(judge(vec![Value::Okay, error(), info.clone()]), CommandOutcome::Refused(_)));
    assert!(matches!(judge(vec![error(), Value::Okay, info]), CommandOutcome::Lost(_)));
    assert!(matches!(judge(vec![Value::Okay, Value::Okay, error()]), CommandOutcome::Lost(_)));
    assert!(matches!(outcome(&[Value::Okay, Value::Nil], 1), CommandOutcome::Lost(_)));
    assert!(matches!(outcome(&[Value::Okay, error(), error()], 1), CommandOutcome::Refused(_)));
}

#[test]
fn additions_to_the_default_user_follow_the_version() {
    assert!(default_user_additions("6.2.14").is_empty());
    assert_eq!(default_user_additions("7.0.15").len(), 2);
    assert_eq!(default_user_additions("8.2.3").len(), 4);
}
