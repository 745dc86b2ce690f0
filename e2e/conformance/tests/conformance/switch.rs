//! The planned switch as the operator does it, under writers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::{PROMOTE, follow, is_in_sync, position};
use conformance::server::Server;
use redis_ha_operator::core::event::RoleCommand::{Detach, Follow, Pause, Serve, StepDown, Unpause};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

pub static FACTS: &[Fact] = &[
    fact!(
        nothing_acknowledged_is_lost,
        "switch under 8 writers: acknowledged writes lost; partial resyncs",
        "6.2 cuts its replicas when it steps down; when a ping was under way the switch is undone and tried again"
    ),
    fact!(
        a_late_operator_loses_nothing_either,
        "the same, the operator so late that the pause was over: lost; how it ended",
        "the target is promoted at the final offset only: where it is not reached, as may be on 6.2, the switch is undone"
    ),
    fact!(
        a_demoted_master_feeds_on,
        "StepDown with bytes on their way to a stopped replica: it gets them",
        "Redis 6.2 cuts its replicas at the demotion. The switch promotes only at the final offset, else undoes"
    ),
    fact!(
        the_final_offset_is_its_own,
        "position that StepDown gives: of a paused master; of one that never had a replica, with data",
        "without a replica there is nobody to switch to; 0 is no position, as 1 is none without a link"
    ),
    fact!(
        its_replicas_stay_attached,
        "link of the replicas of a master that stepped down",
        "an up link is good news only when it leads to the recorded master, and that one says master"
    ),
    fact!(undo_makes_it_master_again, "undo: the old master takes writes again, and replicas follow"),
];

const WRITERS: usize = 8;

/// Clients that write to where they are led, as fast as they are answered, and remember what was acknowledged.
struct Writers {
    stop: Arc<AtomicBool>,
    led_to: watch::Sender<SocketAddr>,
    tasks: JoinSet<Result<Vec<String>>>,
}

impl Writers {
    fn start(master: &Node) -> Self {
        let (led_to, place) = watch::channel(master.server.address);
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for number in 0..WRITERS {
            tasks.spawn(write(number, place.clone(), stop.clone()));
        }
        Self { stop, led_to, tasks }
    }

    /// The keys that were acknowledged.
    async fn stop(mut self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut keys = Vec::new();
        while let Some(written) = self.tasks.join_next().await {
            keys.extend(written??);
        }
        Ok(keys)
    }
}

async fn write(
    number: usize,
    place: watch::Receiver<SocketAddr>,
    stop: Arc<AtomicBool>,
) -> Result<Vec<String>> {
    let mut acknowledged = Vec::new();
    let mut count = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let address = *place.borrow();
        let Ok(mut app) = conformance::server::app_at(address).await else { continue };
        while !stop.load(Ordering::Relaxed) && *place.borrow() == address {
            count += 1;
            let key = format!("w{number}:{count}");
            // A client that is refused or cut comes back where it is led then.
            let Ok(Ok(reply)) = timeout(Duration::from_secs(5), app.ask(&["SET", &key, "1"])).await else {
                break;
            };
            if reply == "OK" {
                acknowledged.push(key);
            } else {
                sleep(Duration::from_millis(2)).await;
            }
        }
    }
    Ok(acknowledged)
}

/// Waits, as long as a switch would, until the replica has this position.
async fn reaches(replica: &Node, offset: i64) -> Result<bool> {
    let start = Instant::now();
    loop {
        if position(&replica.operator.probe().await?) >= offset {
            return Ok(true);
        }
        if start.elapsed() > Duration::from_secs(2) {
            return Ok(false);
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// The steps up to the demotion: whether the target has all that the old master ever acknowledged. `late` comes
/// between the last look at the target and the demotion.
async fn hand_over(old: &Node, target: &Node, late: Duration) -> Result<bool> {
    let paused = old.operator.done(Pause { millis: 300 }).await?;
    if !reaches(target, paused.master_offset).await? {
        old.operator.done(Unpause).await?;
        return Ok(false);
    }
    sleep(late).await;
    let stepped = old.operator.done(StepDown).await?;
    ensure!(stepped.is_fenced() && position(&stepped) >= paused.master_offset, "{paused:?} {stepped:?}");
    if reaches(target, position(&stepped)).await? {
        return Ok(true);
    }
    undo(old).await?;
    Ok(false)
}

async fn undo(old: &Node) -> Result<()> {
    old.operator.done(PROMOTE).await?;
    old.operator.done(Serve).await?;
    Ok(())
}

async fn nothing_acknowledged_is_lost(build: Build) -> Result<String> {
    let (old, replicas) = cluster(&build, 2).await?;
    let (target, other) = (&replicas[0], &replicas[1]);
    let writers = Writers::start(&old);
    let mut tries = 0;
    loop {
        sleep(Duration::from_millis(300)).await;
        tries += 1;
        if hand_over(&old, target, Duration::ZERO).await? {
            break;
        }
        ensure!(tries < 10, "the target never reached the final offset");
        for replica in &replicas {
            replica.operator.done(follow(&old.server)).await?;
            replica.operator.in_sync().await?;
        }
    }
    target.operator.done(PROMOTE).await?;
    target.operator.done(Serve).await?;
    writers.led_to.send(target.server.address).context("no writers")?;
    let (ip, port) = (target.server.address.ip(), target.server.address.port());
    old.operator.done(Follow { ip, port, cut_clients: true }).await?;
    other.operator.done(follow(&target.server)).await?;
    for node in [&old, other] {
        node.operator.until("in sync", is_in_sync).await?;
    }
    sleep(Duration::from_millis(300)).await;
    let keys = writers.stop().await?;
    for node in [&old, other] {
        node.caught_up_with(target).await?;
    }
    for (name, node) in [("new master", target), ("old master", &old), ("other", other)] {
        let lost = lost(node, &keys).await?;
        ensure!(lost == 0, "of {} acknowledged, {lost} lost on the {name}", keys.len());
    }
    let full = target.server.number("sync_full").await?;
    let partial = target.server.number("sync_partial_ok").await?;
    ensure!(keys.len() > 50, "only {} were acknowledged", keys.len());
    ensure!(full == 0 && partial == 2, "{full} full, {partial} partial resyncs");
    let tries = if tries == 1 { String::new() } else { format!(", at try {tries}") };
    Ok(format!("0 of {}; {partial}{tries}", keys.len()))
}

/// How many of these keys a server does not have.
async fn lost(node: &Node, keys: &[String]) -> Result<usize> {
    let mut app = node.server.app().await?;
    let mut lost = 0;
    for part in keys.chunks(500) {
        let mut words = vec!["EXISTS"];
        words.extend(part.iter().map(String::as_str));
        lost += part.len() - app.done(&words).await?.parse::<usize>()?;
    }
    Ok(lost)
}

async fn a_late_operator_loses_nothing_either(build: Build) -> Result<String> {
    let (old, replicas) = cluster(&build, 1).await?;
    let target = &replicas[0];
    let writers = Writers::start(&old);
    sleep(Duration::from_millis(200)).await;
    let handed_over = hand_over(&old, target, Duration::from_millis(600)).await?;
    let master = if handed_over {
        target.operator.done(PROMOTE).await?;
        target
    } else {
        &old
    };
    writers.led_to.send(master.server.address).context("no writers")?;
    let (ip, port) = (master.server.address.ip(), master.server.address.port());
    if handed_over {
        old.operator.done(Follow { ip, port, cut_clients: true }).await?;
    }
    sleep(Duration::from_millis(200)).await;
    let keys = writers.stop().await?;
    let lost = lost(master, &keys).await?;
    ensure!(lost == 0, "{lost} of {} acknowledged", keys.len());
    ensure!(handed_over || build.is_redis_6(), "the target never reached the final offset");
    Ok(format!("0 of {}; {}", keys.len(), if handed_over { "promoted" } else { "undone" }))
}

async fn a_demoted_master_feeds_on(build: Build) -> Result<String> {
    let (old, replicas) = cluster(&build, 1).await?;
    let replica = &replicas[0];
    replica.server.freeze()?;
    // More than sockets hold, so that it is in the master's own memory.
    let mut app = old.server.app().await?;
    let piece = "x".repeat(1 << 20);
    for number in 0..24 {
        app.done(&["SET", &format!("big:{number}"), &piece]).await?;
    }
    let stepped = old.operator.done(StepDown).await?;
    ensure!(stepped.is_fenced() && stepped.keys == 124, "{stepped:?}");
    replica.server.wake()?;
    let fed = reaches(replica, position(&stepped)).await?;
    let keys = replica.operator.probe().await?.keys;
    ensure!(fed == (keys == 124), "at the offset: {fed}, keys: {keys}");
    ensure!(fed != build.is_redis_6(), "{keys} of 124 keys");
    Ok(if fed { "all 24 MB".into() } else { "no, cut".into() })
}

async fn the_final_offset_is_its_own(build: Build) -> Result<String> {
    const PING: i64 = 14;
    let (old, _replicas) = cluster(&build, 1).await?;
    let paused = old.operator.done(Pause { millis: 20_000 }).await?;
    let stepped = old.operator.done(StepDown).await?;
    let more = position(&stepped) - paused.master_offset;
    ensure!(stepped.replid == paused.replid && paused.master_offset > 1, "{paused:?} {stepped:?}");
    ensure!(more >= 0 && more % PING == 0 && more / PING < 60, "{more} bytes more");
    let alone = Node::master(Server::of(&build), 100).await?;
    let alone = alone.operator.done(StepDown).await?;
    ensure!(alone.keys == 100, "{alone:?}");
    seen(&format!("its offset; {}", position(&alone)), "its offset; 0")
}

async fn its_replicas_stay_attached(build: Build) -> Result<String> {
    let (old, replicas) = cluster(&build, 1).await?;
    let before = replicas[0].operator.probe().await?;
    old.operator.done(StepDown).await?;
    sleep(Duration::from_millis(500)).await;
    let info = replicas[0].operator.probe().await?;
    ensure!(position(&info) >= position(&before), "{info:?}");
    ensure!(info.link_up != build.is_redis_6(), "{info:?}");
    Ok(if info.link_up { "up" } else { "down" }.into())
}

async fn undo_makes_it_master_again(build: Build) -> Result<String> {
    let (old, replicas) = cluster(&build, 2).await?;
    old.operator.done(StepDown).await?;
    let before = old.operator.probe().await?;
    undo(&old).await?;
    let after = old.operator.probe().await?;
    ensure!(after.replid != before.replid && after.replid2 == before.replid, "{after:?}");
    for replica in &replicas {
        replica.operator.done(Detach).await?;
        replica.operator.done(follow(&old.server)).await?;
    }
    old.server.app().await?.done(&["SET", "a", "1"]).await?;
    for replica in &replicas {
        replica.operator.until("the write is there", |info| info.link_up && info.keys == 101).await?;
    }
    let full = old.server.number("sync_full").await?;
    if full != 2 {
        bail!("{full} full syncs, two of them the first ones");
    }
    Ok("yes, all partial".into())
}
