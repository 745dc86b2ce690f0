//! What is left of data, id and position after a restart in place.

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster_of};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{follow, position};
use conformance::server::{Plan, Server};
use conformance::wait::until;
use nix::sys::signal::Signal;

pub static FACTS: &[Fact] = &[
    fact!(aof_data_is_loaded_and_kept, "AOF: data of a killed master is there, fenced"),
    fact!(rdb_data_is_loaded_and_kept, "RDB: data of a master that was ended is there, fenced"),
    fact!(aof_loses_id_and_position, "AOF: a replica comes back with another id and slave_repl_offset 1"),
    fact!(rdb_keeps_id_and_position, "RDB: a replica that was ended comes back with its id and offset"),
    fact!(rdb_master_keeps_id_and_position, "RDB: a master that was ended comes back with its id and offset"),
    fact!(
        master_offset_after_aof,
        "AOF: master_repl_offset of a replica that came back",
        "it is no position: only slave_repl_offset is read of a replica, and that is 1 on all"
    ),
    fact!(
        sigterm_is_refused_while_an_aof_begins,
        "AOF: SIGTERM while a replica writes its first AOF after a sync; the next SIGTERM, after it"
    ),
    fact!(no_snapshot_is_left, "None: the snapshot of a sync is not on disk, and nothing comes back"),
    fact!(snapshot_would_be_left, "the same with rdb-del-sync-files no"),
    fact!(run_id_is_another, "the run id is another after a restart"),
];

async fn restarted_master(build: &Build, persistence: &'static str, signal: Signal) -> Result<String> {
    let master = Node::master(Server::of(build).persistence(persistence), 100).await?;
    let master = master.restart(signal).await?;
    let info = master.operator.probe().await?;
    ensure!(info.is_fenced(), "{info:?}");
    ensure!(master.server.app().await?.refused(&["SET", "a", "1"]).await? == "READONLY", "it takes writes");
    seen(&format!("{} of 100 keys", info.keys), "100 of 100 keys")
}

async fn aof_data_is_loaded_and_kept(build: Build) -> Result<String> {
    restarted_master(&build, "AOF", Signal::SIGKILL).await
}

async fn rdb_data_is_loaded_and_kept(build: Build) -> Result<String> {
    restarted_master(&build, "RDB", Signal::SIGTERM).await
}

async fn aof_loses_id_and_position(build: Build) -> Result<String> {
    let (_master, mut replicas) = cluster_of(1, || Server::of(&build).persistence("AOF")).await?;
    let replica = replicas.remove(0);
    replica.aof_is_written().await?;
    let before = replica.operator.probe().await?;
    let after = replica.restart(Signal::SIGTERM).await?.operator.probe().await?;
    ensure!(after.keys == 100 && after.is_fenced(), "{after:?}");
    ensure!(after.replid != before.replid && after.replid2 != before.replid, "{after:?}");
    seen(&format!("new id, {}", position(&after)), "new id, 1")
}

async fn rdb_keeps_id_and_position(build: Build) -> Result<String> {
    let (_master, mut replicas) = cluster_of(1, || Server::of(&build).persistence("RDB")).await?;
    let replica = replicas.remove(0);
    let before = replica.operator.probe().await?;
    let after = replica.restart(Signal::SIGTERM).await?.operator.probe().await?;
    ensure!(after.keys == 100 && after.is_fenced() && after.replid == before.replid, "{before:?} {after:?}");
    ensure!(position(&after) >= position(&before), "{before:?} {after:?}");
    Ok("id and offset".into())
}

async fn rdb_master_keeps_id_and_position(build: Build) -> Result<String> {
    let (master, _replicas) = cluster_of(1, || Server::of(&build).persistence("RDB")).await?;
    let before = master.operator.probe().await?;
    let after = master.restart(Signal::SIGTERM).await?.operator.probe().await?;
    ensure!(after.keys == 100 && after.is_fenced() && after.replid == before.replid, "{before:?} {after:?}");
    ensure!(position(&after) >= before.master_offset, "{before:?} {after:?}");
    Ok("id and offset".into())
}

async fn master_offset_after_aof(build: Build) -> Result<String> {
    let (_master, mut replicas) = cluster_of(1, || Server::of(&build).persistence("AOF")).await?;
    let replica = replicas.remove(0);
    replica.aof_is_written().await?;
    let replica = replica.restart(Signal::SIGTERM).await?;
    let info = replica.operator.probe().await?;
    ensure!(position(&info) == 1, "{info:?}");
    Ok(info.master_offset.to_string())
}

async fn sigterm_is_refused_while_an_aof_begins(build: Build) -> Result<String> {
    let slow = "rdb-key-save-delay 30000";
    let plan = || Server::of(&build).persistence("AOF");
    let master = Node::master(plan(), 100).await?;
    let mut replica = Node::start(plan().line(slow)).await?;
    replica.operator.done(follow(&master.server)).await?;
    replica.operator.in_sync().await?;
    let before = replica.server.log()?.len();
    replica.server.signal(Signal::SIGTERM)?;
    until("it answers the signal", async || {
        let log = replica.server.log()?;
        Ok(log[before..].iter().any(|line| line.contains("can't exit")).then_some(()))
    })
    .await?;
    ensure!(replica.server.runs()?, "it ended");
    replica.aof_is_written().await?;
    ensure!(replica.server.runs()?, "it ended once the AOF was written");
    replica.server.end(Signal::SIGTERM).await?;
    Ok("refused, ends".into())
}

/// A replica with data of its own, so that the next sync goes by way of the disk; restarted after it.
async fn synced_twice(plan: impl Fn() -> Plan) -> Result<(bool, u64)> {
    let (_first, mut replicas) = cluster_of(1, &plan).await?;
    let replica = replicas.remove(0);
    let second = Node::master(plan(), 50).await?;
    replica.operator.done(follow(&second.server)).await?;
    replica.operator.until("synced again", |info| info.link_up && info.keys == 50).await?;
    let snapshot = replica.server.file("dump.rdb");
    // It is removed in the background, soon after it was loaded.
    let left = async || {
        for _ in 0..100 {
            if !snapshot.exists() {
                return false;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        true
    };
    let left = left().await;
    let replica = replica.restart(Signal::SIGKILL).await?;
    Ok((left, replica.operator.probe().await?.keys))
}

async fn no_snapshot_is_left(build: Build) -> Result<String> {
    let (left, keys) = synced_twice(|| Server::of(&build)).await?;
    ensure!(!left, "dump.rdb is there");
    seen(&format!("{keys} keys"), "0 keys")
}

async fn snapshot_would_be_left(build: Build) -> Result<String> {
    let (left, keys) = synced_twice(|| Server::of(&build).line("rdb-del-sync-files no")).await?;
    ensure!(left, "there is no dump.rdb: then the fact above proves nothing");
    seen(&format!("{keys} keys"), "50 keys")
}

async fn run_id_is_another(build: Build) -> Result<String> {
    let node = Node::start(Server::of(&build)).await?;
    let before = node.operator.info.run_id.clone();
    let node = node.restart(Signal::SIGKILL).await?;
    seen(if node.operator.info.run_id == before { "the same" } else { "another" }, "another")
}
