//! How a replica gets its master's data, and what can be seen of it meanwhile.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{PROMOTE, follow, is_in_sync, position};
use conformance::server::Server;
use conformance::wait::{shown, until};
use conformance::wire::code;
use nix::sys::signal::Signal;
use redis_ha_operator::core::event::{CommandOutcome, RoleCommand};
use redis_ha_operator::core::facts::Info;
use tokio::time::sleep;

pub static FACTS: &[Fact] = &[
    fact!(link_is_up_before_the_data_counts, "after link up, the acknowledged offset stays 0 for"),
    fact!(acknowledged_means_loaded, "online and an acknowledged offset above 0: the data is there"),
    fact!(
        a_sync_is_told,
        "during a full sync: replica's master_sync_in_progress, master's word for it",
        "only the word online counts"
    ),
    fact!(a_full_sync_overwrites, "a full sync overwrites what the replica had"),
    fact!(a_partial_resync_does_not, "a partial resync overwrites nothing and fills the gap"),
    fact!(
        a_broken_full_sync_mixes_nothing,
        "the master of a full sync is killed while it sends: replica's data, position",
        "id and position always belong to the data that is there, and 1 and less is none. The process that sends \
         outlives its master: until it ends the replica says that it syncs, and with Redis 8 the sync may still come \
         to its good end"
    ),
    fact!(
        detach_breaks_off_a_full_sync,
        "Detach in the middle of a full sync: data, position",
        "6.2 gives up its position when a full sync begins; it is then no candidate while another has one"
    ),
    fact!(
        what_was_delivered_is_applied,
        "writes in a replica's socket when the master dies, lost: detached when its link is down; detached at once"
    ),
    fact!(
        loading_a_sync_is_told,
        "loading what a sync brought: INFO is answered, says loading; Detach is refused with"
    ),
    fact!(several_can_sync_together, "two new replicas at once both get the data"),
];

/// A full sync of so many keys takes four seconds, by the master's own delay for each.
const SLOW: &[&str] = &["CONFIG", "SET", "rdb-key-save-delay", "10000"];
const SLOW_KEYS: u32 = 400;

async fn link_is_up_before_the_data_counts(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 1000).await?;
    let replica = Node::start(Server::of(&build)).await?;
    replica.operator.done(follow(&master.server)).await?;
    replica.operator.until("the link is up", |info| info.link_up).await?;
    let acknowledged = |info: &Info| info.attached.iter().any(|replica| replica.offset > 0);
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
            .until("online and acknowledged", |info| {
                info.attached.iter().any(|replica| replica.state == "online" && replica.offset > 0)
            })
            .await?;
        ensure!(info.attached.len() == 1, "{:?}", info.attached);
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
    let attached = master.operator.probe().await?.attached;
    let port = replica.server.address.port();
    ensure!(attached.iter().all(|line| line.port == port), "not its own port {port}: {attached:?}");
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
    let (master, replicas) = cluster(&build, 1).await?;
    let replica = &replicas[0];
    replica.operator.done(RoleCommand::Detach).await?;
    master.fill(50).await?;
    ensure!(replica.operator.probe().await?.keys == 100, "the gap is not there");
    let (full, partial) =
        (master.server.number("sync_full").await?, master.server.number("sync_partial_ok").await?);
    replica.operator.done(follow(&master.server)).await?;
    let (_, _) = replica.operator.until("filled", |info| info.link_up && info.keys == 150).await?;
    ensure!(master.server.number("sync_full").await? == full, "a full sync");
    seen(&format!("{} partial", master.server.number("sync_partial_ok").await? - partial), "1 partial")
}

/// A replica with data, in the middle of a full sync from a master with other data that replicated before.
async fn in_the_middle_of_a_sync(build: &Build) -> Result<(Node, Info, Node, Info)> {
    let ((_first, mut replicas), (old, mut others)) =
        futures::try_join!(cluster(build, 1), cluster(build, 1))?;
    let (replica, other) = (replicas.remove(0), others.remove(0));
    drop(old);
    other.operator.done(RoleCommand::Detach).await?;
    other.operator.done(PROMOTE).await?;
    other.operator.done(RoleCommand::Serve).await?;
    other.fill(SLOW_KEYS - 100).await?;
    other.server.operator_wire().await?.done(SLOW).await?;
    let before = replica.operator.probe().await?;
    let source = other.operator.done(RoleCommand::Serve).await?;
    replica.operator.done(follow(&other.server)).await?;
    replica.operator.until("a sync in progress", |info| info.sync_in_progress).await?;
    Ok((replica, before, other, source))
}

/// What the replica has after it: each data with its own place, or with none.
fn what_is_left(before: &Info, source: &Info, after: &Info) -> Result<&'static str> {
    ensure!(!after.link_up, "{after:?}");
    Ok(match after.keys {
        100 if position(after) <= 1 => "old data, none",
        100 if after.replid == before.replid && position(after) >= position(before) => "old data, its own",
        // The pings since then are no data.
        400 if after.replid == source.replid
            && (source.master_offset..source.master_offset + 1000).contains(&position(after)) =>
        {
            "new data, its own"
        }
        _ => bail!("a position that is not that of its data: {before:?} {source:?} {after:?}"),
    })
}

async fn a_broken_full_sync_mixes_nothing(build: Build) -> Result<String> {
    let (replica, before, mut other, source) = in_the_middle_of_a_sync(&build).await?;
    // By now the process is there that Redis 8 sends it by.
    sleep(Duration::from_millis(300)).await;
    other.server.end(Signal::SIGKILL).await?;
    let (info, took) =
        replica.operator.until("it ended", |info| !info.sync_in_progress && !info.link_up).await?;
    let left = what_is_left(&before, &source, &info)?;
    let may_finish = !build.valkey && build.version >= (8, 0);
    if !may_finish || left != "new data, its own" {
        seen(left, if build.is_redis_6() { "old data, none" } else { "old data, its own" })?;
    }
    Ok(format!("{left}, after {}", shown(took)))
}

async fn detach_breaks_off_a_full_sync(build: Build) -> Result<String> {
    let (replica, before, _other, source) = in_the_middle_of_a_sync(&build).await?;
    let after = replica.operator.done(RoleCommand::Detach).await?;
    ensure!(!after.sync_in_progress && after.is_fenced(), "{after:?}");
    sleep(Duration::from_secs(2)).await;
    let later = replica.operator.probe().await?;
    ensure!(later.keys == after.keys && later.replica_offset == after.replica_offset, "{after:?} {later:?}");
    let left = what_is_left(&before, &source, &later)?;
    seen(left, if build.is_redis_6() { "old data, none" } else { "old data, its own" })
}

async fn what_was_delivered_is_applied(build: Build) -> Result<String> {
    let (waited, cut) = futures::try_join!(delivered(&build, true), delivered(&build, false))?;
    ensure!(waited == 0, "{waited} of {DELIVERED} lost though its link was down");
    Ok(format!("0 of {DELIVERED}; {cut}"))
}

/// About 40 KB: no more than the socket of a replica that does not read takes. What is behind it, in the dead master's
/// kernel, is lost when the replica's next acknowledgement meets a socket without a process.
const DELIVERED: u64 = 1000;

/// Writes lost by a replica that is detached after its master's death: when its link is down, or at once.
async fn delivered(build: &Build, wait: bool) -> Result<u64> {
    let (mut master, mut replicas) = cluster(build, 1).await?;
    let replica = replicas.remove(0);
    replica.server.freeze()?;
    let mut app = master.server.app().await?;
    for number in 0..DELIVERED {
        app.send(&["SET", &format!("more:{number}"), "1"]).await?;
    }
    for _ in 0..DELIVERED {
        ensure!(app.reply().await? == "OK", "a write failed");
    }
    // Out of the master's memory, and in the replica's socket.
    sleep(Duration::from_millis(300)).await;
    master.server.end(Signal::SIGKILL).await?;
    let detach = if wait {
        replica.server.wake()?;
        replica.operator.until("the link is down", |info| !info.link_up).await?;
        replica.operator.send(RoleCommand::Detach)
    } else {
        let detach = replica.operator.send(RoleCommand::Detach);
        sleep(Duration::from_millis(100)).await;
        replica.server.wake()?;
        detach
    };
    let outcome = detach.await?;
    let CommandOutcome::Done(info) = outcome else { bail!("{outcome:?}") };
    Ok((100 + DELIVERED).saturating_sub(info.keys))
}

async fn loading_a_sync_is_told(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build).line("rdbcompression no"), 0).await?;
    let script = "for i = 1, 1500 do redis.call('SET', i, string.rep('x', 16384)) end";
    master.server.app().await?.done(&["EVAL", script, "0"]).await?;
    let replica = Node::start(Server::of(&build).line("key-load-delay 2000")).await?;
    replica.operator.done(follow(&master.server)).await?;
    let (info, _) = replica.operator.until("it loads", |info| info.loading).await?;
    ensure!(!info.link_up, "{info:?}");
    let reason = replica.operator.refused(RoleCommand::Detach).await?;
    replica.operator.until("all keys", |info| is_in_sync(info) && info.keys == 1500).await?;
    seen(&code(&reason), "LOADING")
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
