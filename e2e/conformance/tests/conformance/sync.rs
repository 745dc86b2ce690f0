//! How a replica gets its master's data, and what can be seen of it meanwhile.

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::Node;
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{follow, is_in_sync, position};
use conformance::server::Server;
use conformance::wait::{shown, until};
use nix::sys::signal::Signal;

pub static FACTS: &[Fact] = &[
    fact!(link_is_up_before_the_data_counts, "after link up, the acknowledged offset stays 0 for"),
    fact!(acknowledged_means_loaded, "an acknowledged offset above 0 means that the data is there"),
    fact!(a_sync_is_told, "during a full sync: replica's master_sync_in_progress, master's word for it"),
    fact!(a_full_sync_overwrites, "a full sync overwrites what the replica had"),
    fact!(a_partial_resync_does_not, "a partial resync overwrites nothing and fills the gap"),
    fact!(a_broken_full_sync_leaves_the_data, "a full sync that breaks off while it is sent leaves the data; position"),
    fact!(several_can_sync_together, "two new replicas at once both get the data"),
];

/// Milliseconds that a full sync of these keys takes at least, by the master's own delay for each.
const SLOW: &[&str] = &["CONFIG", "SET", "rdb-key-save-delay", "4000"];
const SLOW_KEYS: u32 = 400;

async fn link_is_up_before_the_data_counts(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 1000).await?;
    let replica = Node::start(Server::of(&build)).await?;
    replica.operator.done(follow(&master.server)).await?;
    replica.operator.until("the link is up", |info| info.link_up).await?;
    let acknowledged = |info: &redis_ha_operator::core::facts::Info| {
        info.attached.iter().any(|replica| replica.offset > 0)
    };
    let (_, took) = master.operator.until("acknowledged", acknowledged).await?;
    Ok(shown(took))
}

async fn acknowledged_means_loaded(build: Build) -> Result<String> {
    for _ in 0..3 {
        let master = Node::master(Server::of(&build), 1000).await?;
        let replica = Node::start(Server::of(&build)).await?;
        replica.operator.done(follow(&master.server)).await?;
        let (info, _) = master
            .operator
            .until("acknowledged", |info| info.attached.iter().any(|replica| replica.offset > 0))
            .await?;
        ensure!(info.attached[0].state == "online", "{:?}", info.attached);
        let keys = replica.operator.probe().await?.keys;
        ensure!(keys == 1000, "acknowledged with {keys} of 1000 keys");
    }
    Ok("3 of 3".into())
}

/// A master whose full syncs are slow, and a replica that has begun one.
async fn slow_sync(build: &Build, replica: &Node) -> Result<Node> {
    let master = Node::master(Server::of(build), SLOW_KEYS).await?;
    master.server.operator_wire().await?.done(SLOW).await?;
    replica.operator.done(follow(&master.server)).await?;
    Ok(master)
}

async fn a_sync_is_told(build: Build) -> Result<String> {
    let replica = Node::start(Server::of(&build)).await?;
    let master = slow_sync(&build, &replica).await?;
    let (info, _) = replica.operator.until("a sync in progress", |info| info.sync_in_progress).await?;
    ensure!(!info.link_up && position(&info) <= 1, "{info:?}");
    let (state, _) = until("the master tells of it", async || {
        let info = master.operator.probe().await?;
        Ok(info.attached.first().map(|replica| replica.state.clone()))
    })
    .await?;
    ensure!(state != "online", "it is {state}");
    replica.operator.until("the sync ends", |info| is_in_sync(info) && !info.sync_in_progress).await?;
    Ok(format!("1, {state}"))
}

async fn a_full_sync_overwrites(build: Build) -> Result<String> {
    let own = Node::master(Server::of(&build), 10).await?;
    let master = Node::master(Server::of(&build), 0).await?;
    own.operator.done(follow(&master.server)).await?;
    own.operator.in_sync().await?;
    seen(&format!("{} of 10 keys left", own.operator.probe().await?.keys), "0 of 10 keys left")
}

async fn a_partial_resync_does_not(build: Build) -> Result<String> {
    let (master, replicas) = conformance::cluster::cluster(&build, 1).await?;
    let replica = &replicas[0];
    replica.operator.done(redis_ha_operator::core::event::RoleCommand::Detach).await?;
    master.fill(50).await?;
    ensure!(replica.operator.probe().await?.keys == 100, "the gap is not there");
    let (full, partial) =
        (master.server.number("sync_full").await?, master.server.number("sync_partial_ok").await?);
    replica.operator.done(follow(&master.server)).await?;
    let (_, _) = replica.operator.until("filled", |info| info.link_up && info.keys == 150).await?;
    ensure!(master.server.number("sync_full").await? == full, "a full sync");
    seen(&format!("{} partial", master.server.number("sync_partial_ok").await? - partial), "1 partial")
}

async fn a_broken_full_sync_leaves_the_data(build: Build) -> Result<String> {
    let (_first, mut replicas) = conformance::cluster::cluster(&build, 1).await?;
    let replica = replicas.remove(0);
    let before = replica.operator.probe().await?;
    let mut other = slow_sync(&build, &replica).await?;
    replica.operator.until("a sync in progress", |info| info.sync_in_progress).await?;
    other.server.end(Signal::SIGKILL).await?;
    let (info, _) = replica.operator.until("it broke off", |info| !info.sync_in_progress).await?;
    ensure!(info.keys == 100 && !info.link_up, "{info:?}");
    let place = if position(&info) == 1 {
        "none"
    } else if info.replid == before.replid && position(&info) >= position(&before) {
        "kept"
    } else {
        anyhow::bail!("a position that is none of its data: {before:?} {info:?}")
    };
    Ok(format!("kept; {place}"))
}

async fn several_can_sync_together(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 100).await?;
    let (one, two) = futures::try_join!(Node::start(Server::of(&build)), Node::start(Server::of(&build)))?;
    for replica in [&one, &two] {
        replica.operator.done(follow(&master.server)).await?;
    }
    for replica in [&one, &two] {
        replica.operator.until("all keys", |info| is_in_sync(info) && info.keys == 100).await?;
    }
    Ok("yes".into())
}
