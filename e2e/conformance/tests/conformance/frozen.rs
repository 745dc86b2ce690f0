//! What a master that was stopped does first when it wakes.

use std::time::Duration;

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::server::Server;
use conformance::wait::{shown, until};
use conformance::wire::Wire;
use redis_ha_operator::core::event::{CommandOutcome, ProbeOutcome, RoleCommand};
use redis_ha_operator::core::facts::Role;
use tokio::time::sleep;

pub static FACTS: &[Fact] = &[
    fact!(
        queued_writes_are_taken,
        "its replica detached meanwhile, quorum 1: writes that waited and were taken"
    ),
    fact!(then_it_refuses, "and later writes are refused after"),
    fact!(a_queued_demotion_is_first, "a demotion behind our unanswered INFO runs before writes that waited"),
    fact!(the_answer_before_it_says_master, "that INFO still says master, and the demotion follows"),
    fact!(
        a_demotion_cannot_be_withdrawn,
        "a demotion on its way is carried out though we closed the connection"
    ),
    fact!(
        a_killed_predecessor_is_late,
        "a command on a connection that CLIENT KILL USER cut is not carried out"
    ),
];

const WRITES: usize = 20;

/// Connections with one write each, which nobody reads yet.
async fn queue_writes(writers: &mut [Wire]) -> Result<()> {
    for (number, writer) in writers.iter_mut().enumerate() {
        writer.send(&["SET", &format!("queued:{number}"), "1"]).await?;
    }
    Ok(())
}

async fn writers(server: &Server) -> Result<Vec<Wire>> {
    let mut writers = Vec::new();
    for _ in 0..WRITES {
        writers.push(server.app().await?);
    }
    Ok(writers)
}

/// How many of the waiting writes were taken; an ended connection is a refusal.
async fn taken(writers: &mut [Wire]) -> usize {
    let mut taken = 0;
    for writer in writers {
        taken += usize::from(writer.reply().await.is_ok_and(|reply| reply == "OK"));
    }
    taken
}

/// A frozen master under a quorum, its replica detached, with waiting writes.
async fn frozen_with_writes(build: &Build) -> Result<(Node, Vec<Wire>)> {
    let (master, replicas) = cluster(build, 1).await?;
    master.operator.done(RoleCommand::SetWriteQuorum(1)).await?;
    let mut writers = writers(&master.server).await?;
    master.server.freeze()?;
    queue_writes(&mut writers).await?;
    replicas[0].operator.done(RoleCommand::Detach).await?;
    Ok((master, writers))
}

async fn queued_writes_are_taken(build: Build) -> Result<String> {
    let (master, mut writers) = frozen_with_writes(&build).await?;
    master.server.wake()?;
    let taken = taken(&mut writers).await;
    // Whether it sees the end of its replica's connection before is chance: what matters is that it may not.
    ensure!(taken > 0, "all refused: then a frozen master would be no danger");
    Ok(format!("{taken} of {WRITES}"))
}

async fn then_it_refuses(build: Build) -> Result<String> {
    let (master, _writers) = frozen_with_writes(&build).await?;
    master.server.wake()?;
    let mut app = master.server.app().await?;
    let (code, took) = until("a write is refused", async || {
        let reply = app.ask(&["SET", "later", "1"]).await?;
        Ok(reply.starts_with('-').then_some(reply))
    })
    .await?;
    ensure!(code.contains("NOREPLICAS") && took < Duration::from_secs(2), "{code} after {took:?}");
    Ok(shown(took))
}

/// A frozen master with our INFO and our demotion in its socket, and then the writes of clients.
async fn frozen_and_demoted(build: &Build) -> Result<(Option<ProbeOutcome>, CommandOutcome, usize)> {
    let (master, _replicas) = cluster(build, 1).await?;
    let mut writers = writers(&master.server).await?;
    master.server.freeze()?;
    let question = master.operator.question();
    sleep(Duration::from_millis(100)).await;
    let demotion = master.operator.send(RoleCommand::Demote);
    sleep(Duration::from_millis(100)).await;
    queue_writes(&mut writers).await?;
    master.server.wake()?;
    let taken = taken(&mut writers).await;
    Ok((question.await?, demotion.await?, taken))
}

async fn a_queued_demotion_is_first(build: Build) -> Result<String> {
    let (_, demotion, taken) = frozen_and_demoted(&build).await?;
    ensure!(matches!(&demotion, CommandOutcome::Done(info) if info.is_fenced()), "{demotion:?}");
    seen(&format!("{taken} of {WRITES} taken"), "0 of 20 taken")
}

async fn the_answer_before_it_says_master(build: Build) -> Result<String> {
    let (answer, demotion, _) = frozen_and_demoted(&build).await?;
    ensure!(matches!(&answer, Some(ProbeOutcome::Answered(info)) if info.role == Role::Master), "{answer:?}");
    ensure!(matches!(&demotion, CommandOutcome::Done(info) if info.is_fenced()), "{demotion:?}");
    Ok("yes".into())
}

async fn a_demotion_cannot_be_withdrawn(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 10).await?;
    let Node { server, operator } = master;
    server.freeze()?;
    let demotion = operator.send(RoleCommand::Demote);
    sleep(Duration::from_millis(200)).await;
    // The connection ends with its task.
    drop(operator);
    let outcome = demotion.await?;
    ensure!(matches!(outcome, CommandOutcome::Lost(_)), "{outcome:?}");
    server.wake()?;
    let operator = server.operator().await?;
    ensure!(operator.probe().await?.is_fenced(), "the demotion was not carried out");
    Ok("yes".into())
}

async fn a_killed_predecessor_is_late(build: Build) -> Result<String> {
    let Node { server, operator: predecessor } = Node::master(Server::of(&build), 10).await?;
    let mut bystander = server.app().await?;
    let mut paused = server.operator_wire().await?;
    let successor = server.operator().await?;
    let outcome = predecessor.command(RoleCommand::Demote).await?;
    ensure!(matches!(outcome, CommandOutcome::Lost(_)), "{outcome:?}");
    ensure!(paused.ask(&["REPLICAOF", "127.0.0.1", "0"]).await.is_err(), "a late command was answered");
    bystander.done(&["SET", "a", "1"]).await?;
    seen(if successor.probe().await?.role == Role::Master { "yes" } else { "no" }, "yes")
}
