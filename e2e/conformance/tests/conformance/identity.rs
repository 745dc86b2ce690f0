//! Replication id and offset: which servers' data are versions of the same, and which is the newest.

use std::time::Duration;

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{PROMOTE, follow, position};
use conformance::server::Server;
use nix::sys::signal::Signal;
use redis_ha_operator::core::event::RoleCommand::{Detach, Serve, StepDown};
use tokio::time::sleep;

pub static FACTS: &[Fact] = &[
    fact!(
        no_position_reads_one,
        "a server that never synced: slave_repl_offset, master_link_down_since_seconds"
    ),
    fact!(detach_keeps_id_and_offset, "Detach keeps data, id and offset"),
    fact!(
        promotion_continues_the_old_id,
        "Promote of a detached replica: replid2 = old id, second_repl_offset"
    ),
    fact!(survivors_resync_in_part, "the others follow the promoted one by a partial resync"),
    fact!(first_attach_changes_the_id, "id of a first master when its first replica attaches"),
    fact!(cold_aof_changes_the_id, "the same after a cold start from an AOF"),
    fact!(cold_rdb_changes_the_id, "the same after a cold start from an RDB"),
    fact!(promoted_replica_keeps_its_id, "id of a promoted replica when its first replica attaches"),
    fact!(
        a_lonely_master_keeps_its_id,
        "repl-backlog-ttl 0: a master alone keeps its id (with 1 it changes)"
    ),
    fact!(promoting_again_changes_nothing, "Promote of a master: its id"),
    fact!(only_one_older_id_is_known, "a replica two promotions behind: resync"),
    fact!(flushall_keeps_the_lineage, "FLUSHALL keeps the id, and the offset grows"),
    fact!(
        a_replica_ahead_is_wiped,
        "a replica ahead of the promoted one loses its extra writes by a full sync"
    ),
];

async fn no_position_reads_one(build: Build) -> Result<String> {
    let node = Node::start(Server::of(&build)).await?;
    let info = node.operator.probe().await?;
    seen(&format!("{:?}, {:?}", info.replica_offset, info.link_down_since), "Some(1), Some(-1)")?;
    Ok("1, -1".into())
}

async fn detach_keeps_id_and_offset(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 1).await?;
    let operator = &replicas[0].operator;
    let before = operator.probe().await?;
    let after = operator.done(Detach).await?;
    ensure!(after.is_fenced() && !after.link_up && after.keys == 100, "{after:?}");
    ensure!(after.replid == before.replid && position(&after) >= position(&before), "{before:?} {after:?}");
    sleep(Duration::from_millis(1200)).await;
    let later = operator.probe().await?;
    ensure!(later.replica_offset == after.replica_offset && later.replid == after.replid, "{later:?}");
    Ok("yes".into())
}

async fn promotion_continues_the_old_id(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 1).await?;
    let operator = &replicas[0].operator;
    let judged = operator.done(Detach).await?;
    let promoted = operator.done(PROMOTE).await?;
    ensure!(promoted.run_id == judged.run_id && promoted.replid != judged.replid, "{promoted:?}");
    ensure!(promoted.replid2 == judged.replid, "{promoted:?}");
    seen(&format!("offset + {}", promoted.second_offset - position(&judged)), "offset + 1")
}

async fn survivors_resync_in_part(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 3).await?;
    for replica in &replicas {
        replica.operator.done(Detach).await?;
    }
    let mut places = Vec::new();
    for replica in &replicas {
        places.push(position(&replica.operator.probe().await?));
    }
    let best = (0..3).max_by_key(|number| places[*number]).unwrap_or(0);
    let target = &replicas[best];
    target.operator.done(PROMOTE).await?;
    target.operator.done(Serve).await?;
    let others = || replicas.iter().enumerate().filter(|(number, _)| *number != best).map(|(_, node)| node);
    for other in others() {
        other.operator.done(follow(&target.server)).await?;
    }
    for other in others() {
        other.operator.in_sync().await?;
    }
    let full = target.server.number("sync_full").await?;
    let partial = target.server.number("sync_partial_ok").await?;
    seen(&format!("{partial} of 2, {full} full"), "2 of 2, 0 full")
}

/// Whether the id of this master changes when the first replica attaches.
async fn id_at_first_attach(master: &Node, build: &Build) -> Result<String> {
    let alone = master.operator.probe().await?;
    let replica = Node::start(Server::of(build)).await?;
    replica.operator.done(follow(&master.server)).await?;
    replica.operator.in_sync().await?;
    let now = master.operator.probe().await?;
    ensure!(now.run_id == alone.run_id, "another process");
    ensure!(
        replica.operator.probe().await?.replid == now.replid,
        "the replica has another id than its master"
    );
    Ok(if now.replid == alone.replid {
        "kept"
    } else if now.replid2 == alone.replid {
        "new, old one is replid2"
    } else {
        "new, old one forgotten"
    }
    .into())
}

async fn first_attach_changes_the_id(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 100).await?;
    seen(&id_at_first_attach(&master, &build).await?, "new, old one forgotten")
}

async fn cold(build: &Build, persistence: &'static str) -> Result<String> {
    let (master, replicas) =
        conformance::cluster::cluster_of(1, || Server::of(build).persistence(persistence)).await?;
    drop(replicas);
    let master = master.restart(Signal::SIGTERM).await?;
    ensure!(master.operator.probe().await?.keys == 100, "the data is not there");
    master.operator.done(PROMOTE).await?;
    master.operator.done(Serve).await?;
    id_at_first_attach(&master, build).await
}

async fn cold_aof_changes_the_id(build: Build) -> Result<String> {
    seen(&cold(&build, "AOF").await?, "new, old one forgotten")
}

async fn cold_rdb_changes_the_id(build: Build) -> Result<String> {
    seen(&cold(&build, "RDB").await?, "new, old one forgotten")
}

async fn promoted_replica_keeps_its_id(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 1).await?;
    replicas[0].operator.done(Detach).await?;
    replicas[0].operator.done(PROMOTE).await?;
    replicas[0].operator.done(Serve).await?;
    seen(&id_at_first_attach(&replicas[0], &build).await?, "kept")
}

async fn a_lonely_master_keeps_its_id(build: Build) -> Result<String> {
    let ours = cluster(&build, 1);
    let other = conformance::cluster::cluster_of(1, || Server::of(&build).line("repl-backlog-ttl 1"));
    let ((ours, our_replicas), (other, other_replicas)) = futures::try_join!(ours, other)?;
    let before = ours.operator.probe().await?.replid;
    let with_ttl = other.operator.probe().await?.replid;
    drop((our_replicas, other_replicas));
    other.operator.until("the other's id changes", |info| info.replid != with_ttl).await?;
    sleep(Duration::from_secs(1)).await;
    seen(if ours.operator.probe().await?.replid == before { "kept" } else { "new" }, "kept")
}

async fn promoting_again_changes_nothing(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 1).await?;
    let operator = &replicas[0].operator;
    operator.done(Detach).await?;
    let (first, again) = (operator.done(PROMOTE).await?, operator.done(PROMOTE).await?);
    ensure!(
        first.replid2 == again.replid2 && first.second_offset == again.second_offset,
        "{first:?} {again:?}"
    );
    seen(if first.replid == again.replid { "kept" } else { "new" }, "kept")
}

async fn only_one_older_id_is_known(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 2).await?;
    for replica in &replicas {
        replica.operator.done(Detach).await?;
    }
    let mut syncs = Vec::new();
    for replica in &replicas {
        // As an undone switch does it; the first replica is then one id behind, the second two.
        master.operator.done(StepDown).await?;
        master.operator.done(PROMOTE).await?;
        master.operator.done(Serve).await?;
        let (full, partial) =
            (master.server.number("sync_full").await?, master.server.number("sync_partial_ok").await?);
        replica.operator.done(follow(&master.server)).await?;
        replica.operator.in_sync().await?;
        let full = master.server.number("sync_full").await? - full;
        let partial = master.server.number("sync_partial_ok").await? - partial;
        syncs.push(match (full, partial) {
            (0, 1) => "partial",
            (1, 0) => "full",
            _ => anyhow::bail!("{full} full, {partial} partial"),
        });
        // It would come back after the next promotion, too.
        replica.operator.done(Detach).await?;
    }
    ensure!(syncs[0] == "partial", "one behind: {}", syncs[0]);
    seen(syncs[1], "full")
}

async fn flushall_keeps_the_lineage(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    let before = master.operator.probe().await?;
    master.server.app().await?.done(&["FLUSHALL"]).await?;
    replicas[0].caught_up_with(&master).await?;
    let (after, replica) = (master.operator.probe().await?, replicas[0].operator.probe().await?);
    ensure!(after.replid == before.replid && replica.replid == before.replid, "another id");
    ensure!(after.master_offset > before.master_offset && after.keys == 0 && replica.keys == 0, "{after:?}");
    Ok("yes".into())
}

async fn a_replica_ahead_is_wiped(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 2).await?;
    let behind = replicas[0].operator.done(Detach).await?;
    master.fill(10).await?;
    replicas[1].caught_up_with(&master).await?;
    let ahead = replicas[1].operator.done(Detach).await?;
    ensure!(ahead.replid == behind.replid && position(&ahead) > position(&behind), "not ahead");
    let target = &replicas[0];
    target.operator.done(PROMOTE).await?;
    target.operator.done(Serve).await?;
    replicas[1].operator.done(follow(&target.server)).await?;
    replicas[1].operator.until("in sync, without them", |info| info.link_up && info.keys == 100).await?;
    seen(&format!("{} full", target.server.number("sync_full").await?), "1 full")
}
