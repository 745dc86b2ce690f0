//! CLIENT PAUSE WRITE, by which a planned switch keeps its gap short.

use std::time::Duration;

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{PROMOTE, follow, position};
use conformance::wire::{Wire, code};
use redis_ha_operator::core::event::RoleCommand::{Detach, Pause, StepDown, Unpause};
use tokio::time::sleep;

pub static FACTS: &[Fact] = &[
    fact!(only_pings_move_the_offset, "paused for 2.5 s, 200 keys expiring: bytes by which the offset moved"),
    fact!(reads_and_info_are_answered, "paused: GET and INFO are answered, a write waits"),
    fact!(
        waiting_writes_are_refused,
        "SET, script, EXEC, BLPOP that wait across the demotion end with; none applied"
    ),
    fact!(
        unpausing_first_keeps_the_position,
        "Detach (UNPAUSE awaited, then away) of a paused replica keeps its position"
    ),
    fact!(
        detaching_paused_loses_it,
        "a paused replica sent away without UNPAUSE: its position",
        "Detach always unpauses first and waits for the reply"
    ),
    fact!(promotion_ends_a_pause, "Promote ends a pause"),
    fact!(following_ends_a_pause, "Follow ends a pause: the stream is applied"),
];

async fn only_pings_move_the_offset(build: Build) -> Result<String> {
    const PING: i64 = 14;
    let (master, replicas) = cluster(&build, 1).await?;
    let mut app = master.server.app().await?;
    let script = "for i = 1, 200 do redis.call('SET', 'soon:' .. i, '1', 'PX', 700) end";
    app.done(&["EVAL", script, "0"]).await?;
    replicas[0].caught_up_with(&master).await?;
    let before = master.operator.done(Pause { millis: 20_000 }).await?.master_offset;
    sleep(Duration::from_millis(1500)).await;
    for _ in 0..200 {
        app.done(&["GET", "soon:1"]).await?;
        app.done(&["RANDOMKEY"]).await?;
    }
    sleep(Duration::from_secs(1)).await;
    let moved = master.operator.probe().await?.master_offset - before;
    ensure!(moved % PING == 0 && moved > 0 && moved / PING <= 12, "{moved} bytes");
    master.operator.done(Unpause).await?;
    // They do expire, and it is told to the replicas, once it may be.
    master.operator.until("the offset moves", |info| info.master_offset - before > moved + 200 * 10).await?;
    Ok(format!("{} x PING", moved / PING))
}

async fn reads_and_info_are_answered(build: Build) -> Result<String> {
    let (master, _replicas) = cluster(&build, 1).await?;
    let mut waiting = master.server.app().await?;
    let mut app = master.server.app().await?;
    master.operator.done(Pause { millis: 20_000 }).await?;
    waiting.send(&["SET", "waiting", "1"]).await?;
    ensure!(app.done(&["GET", "key:1"]).await? == "1", "no value");
    ensure!(app.done(&["GET", "waiting"]).await? == "nil", "it did not wait");
    master.operator.probe().await?;
    master.operator.done(Unpause).await?;
    seen(&waiting.reply().await?, "OK")
}

async fn waiting_writes_are_refused(build: Build) -> Result<String> {
    let (master, _replicas) = cluster(&build, 1).await?;
    let mut wires: Vec<Wire> = Vec::new();
    for _ in 0..4 {
        wires.push(master.server.app().await?);
    }
    let [set, script, exec, blocked] = &mut wires[..] else { unreachable!() };
    blocked.send(&["BLPOP", "list", "0"]).await?;
    exec.done(&["MULTI"]).await?;
    exec.done(&["SET", "a", "1"]).await?;
    exec.done(&["SET", "b", "1"]).await?;
    sleep(Duration::from_millis(50)).await;
    master.operator.done(Pause { millis: 20_000 }).await?;
    set.send(&["SET", "c", "1"]).await?;
    script
        .send(&["EVAL", "redis.call('SET', KEYS[1], '1') redis.call('SET', KEYS[2], '1')", "2", "d", "e"])
        .await?;
    exec.send(&["EXEC"]).await?;
    sleep(Duration::from_millis(100)).await;
    let stepped = master.operator.done(StepDown).await?;
    let end = position(&stepped);
    ensure!(stepped.is_fenced() && stepped.keys == 100, "{stepped:?}");
    master.operator.done(Unpause).await?;
    let mut codes = Vec::new();
    for wire in &mut wires {
        let reply = wire.reply().await?;
        ensure!(reply.starts_with('-'), "it was applied: {reply}");
        codes.push(code(&reply));
    }
    sleep(Duration::from_millis(200)).await;
    let after = master.operator.probe().await?;
    ensure!(after.keys == 100 && position(&after) == end, "{stepped:?} {after:?}");
    let codes = codes.join(", ");
    for word in codes.split(", ") {
        ensure!(["READONLY", "UNBLOCKED", "EXECABORT", "MASTERDOWN", "ERR"].contains(&word), "{codes}");
    }
    Ok(codes)
}

/// A paused replica whose master has written on.
async fn paused_replica(build: &Build) -> Result<(Node, Node, i64)> {
    let (master, mut replicas) = cluster(build, 1).await?;
    let replica = replicas.remove(0);
    let before = position(&replica.operator.done(Pause { millis: 60_000 }).await?);
    master.fill(20).await?;
    sleep(Duration::from_millis(1500)).await;
    Ok((master, replica, before))
}

async fn unpausing_first_keeps_the_position(build: Build) -> Result<String> {
    let (_master, replica, before) = paused_replica(&build).await?;
    let after = replica.operator.done(Detach).await?;
    ensure!(position(&after) >= before && after.keys >= 100, "was at {before}: {after:?}");
    Ok("kept".into())
}

async fn detaching_paused_loses_it(build: Build) -> Result<String> {
    let (_master, replica, before) = paused_replica(&build).await?;
    replica.server.operator_wire().await?.done(&["REPLICAOF", "127.0.0.1", "0"]).await?;
    let place = replica.server.number("slave_repl_offset").await?;
    ensure!(place == 1 || place >= before, "neither kept nor none: {place}, was {before}");
    seen(if place == 1 { "lost" } else { "kept" }, "lost")
}

async fn promotion_ends_a_pause(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 1).await?;
    let replica = &replicas[0];
    replica.operator.done(Detach).await?;
    replica.operator.done(Pause { millis: 60_000 }).await?;
    replica.operator.done(PROMOTE).await?;
    seen(&replica.server.app().await?.ask(&["SET", "a", "1"]).await?, "OK")
}

async fn following_ends_a_pause(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    let replica = &replicas[0];
    replica.operator.done(Detach).await?;
    replica.operator.done(Pause { millis: 60_000 }).await?;
    replica.operator.done(follow(&master.server)).await?;
    master.fill(20).await?;
    replica.operator.until("the writes are there", |info| info.link_up && info.keys == 120).await?;
    Ok("yes".into())
}
