//! min-replicas-to-write as a lease that the replicas' acknowledgements grant.

use std::time::Duration;

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{follow, is_in_sync};
use conformance::server::Server;
use conformance::wait::{shown, until};
use redis_ha_operator::core::event::RoleCommand::{Detach, Promote, Serve, SetWriteQuorum};
use tokio::time::{Instant, sleep};

pub static FACTS: &[Fact] = &[
    fact!(silence_ends_it, "a silent replica: writes are refused after (max-lag 3; we wait 5 s)"),
    fact!(detaching_ends_it_at_once, "a detached replica: writes are refused after"),
    fact!(it_holds_while_idle, "healthy and idle: writes refused in 4 s"),
    fact!(a_replica_in_its_full_sync_does_not_count, "a replica in its full sync does not count"),
    fact!(
        promotion_with_a_quorum_refuses_writes,
        "Promote with a quorum of 1: writes until a replica is there"
    ),
    fact!(a_client_cannot_hold_it, "PSYNC, SYNC, REPLCONF of an application, which would hold the lease"),
];

/// A master with a write quorum of one, and its replica.
async fn leased(build: &Build) -> Result<(Node, Node)> {
    let (master, mut replicas) = cluster(build, 1).await?;
    master.operator.done(SetWriteQuorum(1)).await?;
    master.operator.until("it counts", |info| info.good_replicas == Some(1)).await?;
    Ok((master, replicas.remove(0)))
}

async fn refused_after(master: &Node) -> Result<Duration> {
    let mut app = master.server.app().await?;
    let (code, took) = until("a write is refused", async || {
        let reply = app.ask(&["SET", "a", "1"]).await?;
        Ok(reply.starts_with('-').then_some(reply))
    })
    .await?;
    ensure!(code.contains("NOREPLICAS"), "{code}");
    Ok(took)
}

async fn silence_ends_it(build: Build) -> Result<String> {
    let (master, replica) = leased(&build).await?;
    replica.server.freeze()?;
    let took = refused_after(&master).await?;
    // 5 s is what the drain relies on; the rest is for the machine, whose delays the servers feel, too.
    ensure!(took > Duration::from_secs(1) && took < Duration::from_millis(6500), "{took:?}");
    Ok(shown(took))
}

async fn detaching_ends_it_at_once(build: Build) -> Result<String> {
    let (master, replica) = leased(&build).await?;
    replica.operator.done(Detach).await?;
    let took = refused_after(&master).await?;
    ensure!(took < Duration::from_secs(1), "{took:?}");
    Ok(shown(took))
}

async fn it_holds_while_idle(build: Build) -> Result<String> {
    let (master, _replica) = leased(&build).await?;
    let mut app = master.server.app().await?;
    let start = Instant::now();
    let (mut refused, mut all) = (0, 0);
    while start.elapsed() < Duration::from_secs(4) {
        refused += u32::from(app.ask(&["SET", "a", "1"]).await? != "OK");
        all += 1;
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(refused == 0 && all > 10, "{refused} of {all}");
    Ok("0".into())
}

async fn a_replica_in_its_full_sync_does_not_count(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 400).await?;
    master.server.operator_wire().await?.done(&["CONFIG", "SET", "rdb-key-save-delay", "8000"]).await?;
    let replica = Node::start(Server::of(&build)).await?;
    replica.operator.done(follow(&master.server)).await?;
    replica.operator.until("a sync in progress", |info| info.sync_in_progress).await?;
    let during = master.operator.done(SetWriteQuorum(1)).await?;
    ensure!(during.good_replicas == Some(0), "{during:?}");
    let code = master.server.app().await?.refused(&["SET", "a", "1"]).await?;
    replica.operator.until("in sync", is_in_sync).await?;
    master.operator.until("it counts", |info| info.good_replicas == Some(1)).await?;
    master.server.app().await?.done(&["SET", "a", "1"]).await?;
    seen(&code, "NOREPLICAS")
}

async fn promotion_with_a_quorum_refuses_writes(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 2).await?;
    for replica in &replicas {
        replica.operator.done(Detach).await?;
    }
    let target = &replicas[0];
    target.operator.done(Promote { write_quorum: 1 }).await?;
    let code = target.server.app().await?.refused(&["SET", "a", "1"]).await?;
    target.operator.done(Serve).await?;
    replicas[1].operator.done(follow(&target.server)).await?;
    let mut app = target.server.app().await?;
    until("a write is taken", async || Ok((app.ask(&["SET", "a", "1"]).await? == "OK").then_some(())))
        .await?;
    seen(&code, "NOREPLICAS")
}

async fn a_client_cannot_hold_it(build: Build) -> Result<String> {
    let (master, replica) = leased(&build).await?;
    let mut app = master.server.app().await?;
    for words in [&["PSYNC", "?", "-1"][..], &["SYNC"], &["REPLCONF", "ACK", "1"]] {
        seen(&app.refused(words).await?, "NOPERM")?;
    }
    replica.operator.done(Detach).await?;
    refused_after(&master).await?;
    Ok("NOPERM".into())
}
