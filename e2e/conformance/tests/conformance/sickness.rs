//! Servers that answer something else than what was asked.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{Attempt, PROMOTE};
use conformance::server::{Server, credentials};
use conformance::wait::until;
use conformance::wire::{Wire, code};
use nix::sys::signal::Signal;
use redis_ha_operator::core::event::{CommandOutcome, DialOutcome, ProbeOutcome, RoleCommand};
use redis_ha_operator::supervisor::Credentials;
use tokio::time::sleep;

pub static FACTS: &[Fact] = &[
    fact!(a_script_keeps_it_silent, "a script before its time is up: INFO is not answered"),
    fact!(a_script_makes_it_busy, "a script after its time: answer to INFO, to a role command (not applied)"),
    fact!(a_busy_master_sends_no_word, "a script for 3 s: link of the replicas, last_io_seconds_ago above 1"),
    fact!(
        a_busy_server_lets_nobody_in,
        "a script after its time: the greeting of a new connection is refused; SCRIPT KILL on one"
    ),
    fact!(a_script_on_a_cut_off_replica_stays, "SCRIPT KILL on a replica whose link is down"),
    fact!(the_operator_ends_a_script, "SCRIPT KILL of the operator ends a script that has not written"),
    fact!(a_script_that_wrote_stays, "SCRIPT KILL of a script that has written is refused with"),
    fact!(
        failing_snapshots_are_told,
        "a failing snapshot: writes, answer to PING; INFO says so, roles can change"
    ),
    fact!(loading_is_told, "loading: INFO is answered and says so, and that it is fenced"),
    fact!(loading_refuses_role_commands, "loading: a role command is refused as a whole with"),
    fact!(
        a_full_server_turns_away,
        "maxclients reached: a new connection is turned away, the open one works"
    ),
    fact!(a_wrong_password_is_told, "a wrong password, a user that is off, no password"),
];

/// A master with a script that runs until it is ended, after it has run this long.
async fn scripted(build: &Build, script: &str, limit: &str) -> Result<(Node, Wire)> {
    let master = Node::master(Server::of(build), 10).await?;
    // Its old name, which all know.
    master.server.operator_wire().await?.done(&["CONFIG", "SET", "lua-time-limit", limit]).await?;
    let mut app = master.server.app().await?;
    app.send(&["EVAL", script, "0"]).await?;
    sleep(Duration::from_millis(100)).await;
    Ok((master, app))
}

const ENDLESS: &str = "while true do end";
const ENDLESS_WRITER: &str = "redis.call('SET', 'a', '1') while true do end";

/// Asks INFO until the server says that it is busy.
async fn busy(node: &Node) -> Result<String> {
    let (reason, _) = until("busy", async || match node.operator.question().await? {
        Some(ProbeOutcome::Refused(reason)) => Ok(Some(reason)),
        Some(ProbeOutcome::Answered(_)) => Ok(None),
        None => bail!("the connection ended"),
    })
    .await?;
    Ok(code(&reason))
}

async fn a_script_keeps_it_silent(build: Build) -> Result<String> {
    let (master, _app) = scripted(&build, ENDLESS, "20000").await?;
    let question = master.operator.question();
    sleep(Duration::from_secs(1)).await;
    ensure!(!question.is_finished(), "INFO was answered");
    Ok("yes".into())
}

async fn a_script_makes_it_busy(build: Build) -> Result<String> {
    let (master, _app) = scripted(&build, ENDLESS, "50").await?;
    let info = busy(&master).await?;
    let role = master.operator.refused(RoleCommand::Demote).await?;
    ensure!(master.operator.command(RoleCommand::KillScript).await? != CommandOutcome::NotSent, "not sent");
    let (info_after, _) = until("INFO again", async || match master.operator.question().await? {
        Some(ProbeOutcome::Answered(info)) => Ok(Some(info)),
        _ => Ok(None),
    })
    .await?;
    ensure!(!info_after.is_fenced(), "the refused demotion was applied");
    seen(&format!("{info}, {}", code(&role)), "BUSY, BUSY")
}

async fn a_busy_master_sends_no_word(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    master.server.operator_wire().await?.done(&["CONFIG", "SET", "lua-time-limit", "50"]).await?;
    let mut app = master.server.app().await?;
    app.send(&["EVAL", ENDLESS, "0"]).await?;
    sleep(Duration::from_secs(3)).await;
    let info = replicas[0].operator.probe().await?;
    ensure!(info.last_io.is_some_and(|seconds| seconds > 1), "{info:?}");
    seen(if info.link_up { "up" } else { "down" }, "up")
}

async fn a_busy_server_lets_nobody_in(build: Build) -> Result<String> {
    let (master, _app) = scripted(&build, ENDLESS, "50").await?;
    busy(&master).await?;
    let denied = match Attempt::new(master.server.address, credentials(), false).failed().await? {
        DialOutcome::Denied(reason) => code(&reason),
        other => bail!("{other:?}"),
    };
    // The login is none of what is refused.
    let killed = master.server.operator_wire().await?.done(&["SCRIPT", "KILL"]).await?;
    seen(&format!("{denied}, {killed}"), "BUSY, OK")
}

async fn a_script_on_a_cut_off_replica_stays(build: Build) -> Result<String> {
    let (mut master, mut replicas) = cluster(&build, 1).await?;
    let replica = replicas.remove(0);
    replica.server.operator_wire().await?.done(&["CONFIG", "SET", "lua-time-limit", "50"]).await?;
    let mut app = replica.server.app().await?;
    let mut killer = replica.server.operator_wire().await?;
    app.send(&["EVAL", ENDLESS, "0"]).await?;
    busy(&replica).await?;
    master.server.end(Signal::SIGKILL).await?;
    sleep(Duration::from_millis(1500)).await;
    let reply = killer.ask(&["SCRIPT", "KILL"]).await?;
    seen(&code(&reply), "MASTERDOWN")
}

async fn the_operator_ends_a_script(build: Build) -> Result<String> {
    let (master, mut app) = scripted(&build, ENDLESS, "50").await?;
    busy(&master).await?;
    let outcome = master.operator.command(RoleCommand::KillScript).await?;
    ensure!(matches!(outcome, CommandOutcome::Lost(_)), "only what is read afterwards tells: {outcome:?}");
    let reply = app.reply().await?;
    ensure!(reply.starts_with('-') && reply.to_lowercase().contains("kill"), "{reply}");
    app.done(&["SET", "a", "1"]).await?;
    Ok("yes".into())
}

async fn a_script_that_wrote_stays(build: Build) -> Result<String> {
    let (master, _app) = scripted(&build, ENDLESS_WRITER, "50").await?;
    busy(&master).await?;
    let reason = master.operator.refused(RoleCommand::KillScript).await?;
    seen(&code(&reason), "UNKILLABLE")
}

async fn failing_snapshots_are_told(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build).persistence("RDB"), 10).await?;
    ensure!(!master.operator.probe().await?.cannot_save, "it says so before");
    // A snapshot cannot take the place of a directory.
    std::fs::create_dir(master.server.file("dump.rdb"))?;
    let mut app = master.server.app().await?;
    app.done(&["BGSAVE"]).await?;
    master.operator.until("it says so", |info| info.cannot_save).await?;
    ensure!(app.field("rdb_last_bgsave_status").await? == "err", "not in INFO");
    let write = app.refused(&["SET", "a", "1"]).await?;
    let ping = code(&app.ask(&["PING"]).await?);
    ensure!(master.operator.done(RoleCommand::Demote).await?.is_fenced(), "no role command");
    seen(&format!("{write}, {ping}"), "MISCONF, MISCONF")
}

/// A server that takes seconds to load what its disk holds.
async fn loading(build: &Build) -> Result<Node> {
    // It looks at its clients after each two megabytes.
    let plan = Server::of(build).persistence("RDB").line("rdbcompression no").line("key-load-delay 3000");
    let master = Node::master(plan, 0).await?;
    let script = "for i = 1, 2000 do redis.call('SET', i, string.rep('x', 16384)) end";
    master.server.app().await?.done(&["EVAL", script, "0"]).await?;
    let Node { server, operator } = master;
    drop(operator);
    let server = server.restart(Signal::SIGTERM).await?;
    let operator = server.operator().await?;
    ensure!(operator.info.loading, "it is not loading: {:?}", operator.info);
    Ok(Node { server, operator })
}

async fn loading_is_told(build: Build) -> Result<String> {
    let node = loading(&build).await?;
    let info = node.operator.probe().await?;
    ensure!(info.loading && info.is_fenced(), "{info:?}");
    let (info, _) = node.operator.until("loaded", |info| !info.loading).await?;
    ensure!(info.keys == 2000 && info.is_fenced(), "{info:?}");
    Ok("yes".into())
}

async fn loading_refuses_role_commands(build: Build) -> Result<String> {
    let node = loading(&build).await?;
    let mut codes = Vec::new();
    for command in [RoleCommand::Demote, PROMOTE] {
        codes.push(code(&node.operator.refused(command).await?));
    }
    ensure!(node.operator.probe().await?.loading, "it has loaded meanwhile: nothing was shown");
    let (info, _) = node.operator.until("loaded", |info| !info.loading).await?;
    ensure!(info.is_fenced(), "applied in part: {info:?}");
    // The user would be on, had Promote's neighbours been carried out.
    ensure!(node.server.replication_wire().await.is_err(), "the replication user is on");
    ensure!(codes[0] == codes[1], "{codes:?}");
    seen(&codes[0], "LOADING")
}

async fn a_full_server_turns_away(build: Build) -> Result<String> {
    let node = Node::start(Server::of(&build)).await?;
    let mut open = node.server.operator_wire().await?;
    open.done(&["CONFIG", "SET", "maxclients", "1"]).await?;
    let outcome = Attempt::new(node.server.address, credentials(), true).failed().await?;
    // Whether its sentence arrives before the end of the connection is up to the kernel.
    let told = match &outcome {
        DialOutcome::Denied(text) if text.contains("max number of clients") => "told",
        DialOutcome::Broken(_) => "broken",
        _ => bail!("{outcome:?}"),
    };
    ensure!(node.operator.probe().await?.is_fenced(), "the open connection does not work");
    node.operator.done(PROMOTE).await?;
    Ok(told.into())
}

async fn a_wrong_password_is_told(build: Build) -> Result<String> {
    let server = Server::of(&build).start().await?;
    let wrong = Credentials { operator_password: "guessed".into(), ..credentials() };
    let DialOutcome::Denied(reason) = Attempt::new(server.address, wrong, true).failed().await? else {
        bail!("not denied")
    };
    ensure!(reason.contains("WRONGPASS"), "{reason}");
    let mut stranger = Wire::open(server.address).await?;
    let Credentials { operator_user, replication_user, .. } = credentials();
    let wrong = stranger.refused(&["AUTH", &operator_user, "guessed"]).await?;
    let off = stranger.refused(&["AUTH", &replication_user, &"1e".repeat(32)]).await?;
    let none = stranger.refused(&["INFO"]).await?;
    seen(&format!("{wrong}, {off}, {none}"), "WRONGPASS, WRONGPASS, NOAUTH")
}
