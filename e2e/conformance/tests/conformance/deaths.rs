//! What a dying, a hanging and a living master look like, from us and from its replicas.

use std::time::Duration;

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::Attempt;
use conformance::server::{Server, credentials};
use conformance::wait::shown;
use nix::sys::signal::Signal;
use redis_ha_operator::core::event::{DialOutcome, Knock, RoleCommand};
use redis_ha_operator::redis::link::{Dialler, Report};
use redis_ha_operator::supervisor::clock;
use tokio::time::{Instant, sleep};

pub static FACTS: &[Fact] = &[
    fact!(end_of_file_is_seen_at_once, "end of file on our connection after SIGKILL"),
    fact!(a_dead_server_refuses, "then new connections are refused"),
    fact!(
        a_child_hides_the_end,
        "killed alone while its child writes a snapshot for 4 s: end of file on our connection, on its replica's",
        "in a container the server is the first process, whose end is its children's end at once. Elsewhere this is \
         seen late, as a master that hangs and refuses new connections; never too early"
    ),
    fact!(
        a_replica_sees_the_death,
        "link of a replica down after its master's SIGKILL; down_since is 0 or more"
    ),
    fact!(a_frozen_server_is_silent, "frozen: TCP connects, neither INFO nor a greeting is answered"),
    fact!(
        a_frozen_master_leaves_the_link_up,
        "frozen for 3 s: link of its replica, last_io_seconds_ago above 1"
    ),
    fact!(a_frozen_master_ends_in_time, "frozen: link of its replica down after repl-timeout (10 s)"),
    fact!(word_is_fresh_while_idle, "idle link: largest last_io_seconds_ago in 4 s"),
    fact!(a_server_that_was_ended_waits, "SIGTERM: all that was acknowledged is on the replica"),
];

async fn end_of_file_is_seen_at_once(build: Build) -> Result<String> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let mut node = Node::start(Server::of(&build)).await?;
        let start = Instant::now();
        node.server.signal(Signal::SIGKILL)?;
        ensure!(matches!(node.operator.attempt.report().await?, Report::Lost), "not lost");
        times.push(start.elapsed());
    }
    times.sort();
    ensure!(times[1] < Duration::from_secs(1), "{times:?}");
    Ok(shown(times[1]))
}

async fn a_child_hides_the_end(build: Build) -> Result<String> {
    let (mut master, replicas) = cluster(&build, 1).await?;
    master.fill(300).await?;
    replicas[0].caught_up_with(&master).await?;
    master.server.operator_wire().await?.done(&["CONFIG", "SET", "rdb-key-save-delay", "10000"]).await?;
    master.server.app().await?.done(&["BGSAVE"]).await?;
    sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    master.server.signal(Signal::SIGKILL)?;
    let ours = async {
        ensure!(matches!(master.operator.attempt.report().await?, Report::Lost), "not lost");
        Ok(start.elapsed())
    };
    let its = replicas[0].operator.until("the link is down", |info| !info.link_up);
    let (ours, (_, its)) = futures::try_join!(ours, its)?;
    let knock = Dialler::new(clock::mono).knock(master.server.address).await;
    ensure!(knock == Knock::Refused, "{knock:?}");
    Ok(format!("{}, {}", shown(ours), shown(its)))
}

async fn a_dead_server_refuses(build: Build) -> Result<String> {
    let mut server = Server::of(&build).start().await?;
    server.end(Signal::SIGKILL).await?;
    for _ in 0..2 {
        let knock = Dialler::new(clock::mono).knock(server.address).await;
        ensure!(knock == Knock::Refused, "{knock:?}");
        sleep(Duration::from_millis(5)).await;
    }
    let outcome = Attempt::new(server.address, credentials(), true).failed().await?;
    ensure!(outcome == DialOutcome::Refused, "{outcome:?}");
    Ok("yes".into())
}

async fn a_replica_sees_the_death(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    master.server.signal(Signal::SIGKILL)?;
    let (info, took) = replicas[0].operator.until("the link is down", |info| !info.link_up).await?;
    ensure!(info.link_down_since.is_some_and(|since| since >= 0), "{info:?}");
    ensure!(took < Duration::from_secs(1), "{took:?}");
    Ok(shown(took))
}

async fn a_frozen_server_is_silent(build: Build) -> Result<String> {
    let node = Node::start(Server::of(&build)).await?;
    node.server.freeze()?;
    let question = node.operator.question();
    let knock = Dialler::new(clock::mono).knock(node.server.address).await;
    ensure!(knock == Knock::Accepted, "{knock:?}");
    let mut attempt = Attempt::new(node.server.address, credentials(), false);
    let outcome = attempt.failed().await?;
    ensure!(outcome == DialOutcome::Silent, "{outcome:?}");
    ensure!(!question.is_finished(), "INFO was answered");
    node.server.wake()?;
    ensure!(question.await?.is_some(), "the late answer was not delivered");
    Ok("yes".into())
}

async fn a_frozen_master_leaves_the_link_up(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    master.server.freeze()?;
    sleep(Duration::from_secs(3)).await;
    let info = replicas[0].operator.probe().await?;
    ensure!(info.last_io.is_some_and(|seconds| seconds > 1), "{info:?}");
    seen(if info.link_up { "up" } else { "down" }, "up")
}

async fn a_frozen_master_ends_in_time(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    master.server.freeze()?;
    let (info, took) = replicas[0].operator.until("the link is down", |info| !info.link_up).await?;
    ensure!(took > Duration::from_secs(8) && took < Duration::from_secs(16), "{took:?}");
    ensure!(info.link_down_since.is_some_and(|since| since >= 0), "{info:?}");
    Ok(shown(took))
}

async fn word_is_fresh_while_idle(build: Build) -> Result<String> {
    let (_master, replicas) = cluster(&build, 1).await?;
    let (start, mut largest) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(4) {
        let info = replicas[0].operator.probe().await?;
        ensure!(info.link_up, "{info:?}");
        largest = largest.max(info.last_io.unwrap_or(0));
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(largest <= 2, "{largest} s");
    Ok(format!("{largest} s"))
}

async fn a_server_that_was_ended_waits(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    let writing = tokio::spawn(async move {
        let mut app = master.server.app().await?;
        let ended = async {
            sleep(Duration::from_millis(300)).await;
            master.server.signal(Signal::SIGTERM)
        };
        let writes = async {
            let mut written = 0_u64;
            while app.ask(&["SET", &format!("more:{written}"), "1"]).await.is_ok_and(|said| said == "OK") {
                written += 1;
            }
            written
        };
        let (written, ended) = futures::join!(writes, ended);
        ended?;
        anyhow::Ok((written, master))
    });
    let (written, _master) = writing.await??;
    ensure!(written > 0, "nothing was written");
    let replica = &replicas[0].operator;
    replica.until("the link is down", |info| !info.link_up).await?;
    let info = replica.done(RoleCommand::Detach).await?;
    let lost = (100 + written).saturating_sub(info.keys);
    seen(&format!("{lost} lost"), "0 lost")
}
