//! What a server does that was started from our boot file and told nothing yet.

use std::time::Duration;

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{PROMOTE, follow, position};
use conformance::server::Server;
use nix::sys::signal::Signal;
use redis_ha_operator::core::event::RoleCommand::{Demote, Detach, Serve, SetWriteQuorum};
use redis_ha_operator::core::facts::Role;
use tokio::time::sleep;

pub static FACTS: &[Fact] = &[
    fact!(writes_are_refused, "SET, FLUSHALL and a writing script are refused"),
    fact!(reads_are_refused, "GET is refused"),
    fact!(
        ping_is_answered,
        "answer to PING",
        "the operator never asks PING alone, and the pods' probe takes any reply"
    ),
    fact!(the_operator_can_work, "INFO, CONFIG SET, ACL SETUSER, CLIENT KILL and REPLICAOF work"),
    fact!(the_placeholder_costs_nothing, "lines printed in 2 s by the search for nobody"),
    fact!(nowhere_again_is_no_error, "REPLICAOF to the same place is answered with OK..."),
    fact!(
        callers_keep_data_and_position,
        "replicas that call back a master restarted fenced keep data and position, and print few lines in 2 s"
    ),
    fact!(
        callers_without_our_barrier,
        "the same with the replication user on",
        "this is what the user is off for: 6.2 throws its position away, all before Valkey 9 call without a pause. \
         With the user off it is the same on all"
    ),
    fact!(nobody_syncs_from_it, "nobody syncs while the replication user is off, also from a master"),
];

async fn writes_are_refused(build: Build) -> Result<String> {
    let server = Server::of(&build).start().await?;
    let mut app = server.app().await?;
    for words in [&["SET", "a", "1"][..], &["FLUSHALL"]] {
        seen(&app.refused(words).await?, "READONLY")?;
    }
    // Refused before it runs, or where it writes.
    let script = app.ask(&["EVAL", "return redis.call('SET', KEYS[1], '1')", "1", "a"]).await?;
    ensure!(script.contains("READONLY") || script.contains("MASTERDOWN"), "{script}");
    Ok("READONLY".into())
}

async fn reads_are_refused(build: Build) -> Result<String> {
    let server = Server::of(&build).start().await?;
    seen(&server.app().await?.refused(&["GET", "a"]).await?, "MASTERDOWN")
}

async fn ping_is_answered(build: Build) -> Result<String> {
    let server = Server::of(&build).start().await?;
    let reply = server.app().await?.ask(&["PING"]).await?;
    let word = conformance::wire::code(&reply);
    seen(&word, if build.is_redis_6() { "PONG" } else { "MASTERDOWN" })
}

async fn the_operator_can_work(build: Build) -> Result<String> {
    let node = Node::start(Server::of(&build)).await?;
    let operator = &node.operator;
    ensure!(operator.info.is_fenced() && !operator.info.link_up, "{:?}", operator.info);
    operator.done(SetWriteQuorum(0)).await?;
    operator.done(Demote).await?;
    operator.done(Serve).await?;
    operator.done(Detach).await?;
    seen(if operator.done(PROMOTE).await?.role == Role::Master { "yes" } else { "no" }, "yes")
}

async fn the_placeholder_costs_nothing(build: Build) -> Result<String> {
    let server = Server::of(&build).start().await?;
    let lines = lines_in_two_seconds(&server).await?;
    ensure!(lines < 60, "{lines} lines");
    Ok(lines.to_string())
}

async fn nowhere_again_is_no_error(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    let server = Server::of(&build).start().await?;
    let same = server.operator_wire().await?.done(&["REPLICAOF", "127.0.0.1", "0"]).await?;
    ensure!(same.starts_with("OK"), "{same}");
    let replica = &replicas[0];
    let port = master.server.address.port().to_string();
    let syncs = master.server.number("sync_full").await?;
    let said = replica.server.operator_wire().await?.done(&["REPLICAOF", "127.0.0.1", &port]).await?;
    ensure!(said.starts_with("OK"), "{said}");
    ensure!(master.server.number("sync_full").await? == syncs, "it synced again");
    Ok("yes".into())
}

/// A master that died and came back fenced, its replica still calling.
async fn called_back(build: &Build, user_on: bool) -> Result<(Node, Node, i64, usize)> {
    let (master, mut replicas) = cluster(build, 1).await?;
    let replica = replicas.remove(0);
    let before = position(&replica.operator.probe().await?);
    let Node { mut server, operator } = master;
    drop(operator);
    server.end(Signal::SIGKILL).await?;
    replica.operator.until("cut", |info| !info.link_up).await?;
    let server = server.start_again().await?;
    let operator = server.operator().await?;
    if user_on {
        operator.done(Serve).await?;
    }
    let lines = lines_in_two_seconds(&replica.server).await?;
    Ok((Node { server, operator }, replica, before, lines))
}

async fn callers_keep_data_and_position(build: Build) -> Result<String> {
    let (_master, replica, before, lines) = called_back(&build, false).await?;
    let info = replica.operator.probe().await?;
    ensure!(!info.link_up && info.keys == 100, "{info:?}");
    ensure!(position(&info) >= before, "was at {before}, is at {}", position(&info));
    ensure!(lines < 60, "{lines} lines in 2 s");
    Ok(format!("kept, {lines} lines"))
}

async fn callers_without_our_barrier(build: Build) -> Result<String> {
    let (_master, replica, before, lines) = called_back(&build, true).await?;
    let info = replica.operator.probe().await?;
    ensure!(!info.link_up && info.keys == 100, "the data must stay in any case: {info:?}");
    let kept = position(&info) >= before;
    ensure!(kept != build.is_redis_6(), "kept its position: {kept}");
    let loops = lines > 200;
    ensure!(loops != (build.valkey && build.version >= (9, 0)), "{lines} lines");
    Ok(format!("{}, {lines} lines", if kept { "kept" } else { "position lost" }))
}

async fn nobody_syncs_from_it(build: Build) -> Result<String> {
    let master = Node::start(Server::of(&build)).await?;
    master.operator.done(PROMOTE).await?;
    master.fill(100).await?;
    let replica = Node::start(Server::of(&build)).await?;
    replica.operator.done(follow(&master.server)).await?;
    sleep(Duration::from_millis(1500)).await;
    let info = replica.operator.probe().await?;
    ensure!(!info.link_up && !info.sync_in_progress && info.keys == 0, "{info:?}");
    ensure!(master.server.number("sync_full").await? == 0, "it was synced from");
    master.operator.done(Serve).await?;
    replica.operator.in_sync().await?;
    seen(if replica.operator.probe().await?.keys == 100 { "yes" } else { "no" }, "yes")
}

async fn lines_in_two_seconds(server: &Server) -> Result<usize> {
    let before = server.log()?.len();
    sleep(Duration::from_secs(2)).await;
    Ok(server.log()?.len() - before)
}
