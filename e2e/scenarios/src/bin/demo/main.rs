//! The demo: a cluster of three pods loses its master twice under load, and keeps taking writes.
//!
//! Run it inside a world: `make demo`. It ends well only when what was promised has held.

mod faults;
mod load;
mod screen;
mod timeline;
mod verdict;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use scenarios::cluster::Cluster;
use scenarios::operator::{Operators, Options};
use tokio::time::Instant;
use world::World;

use crate::faults::Fault;
use crate::load::Writers;
use crate::verdict::Verdict;

const SAMPLE: &str = include_str!("../../../manifests/cache.yaml");
const NAMESPACE: &str = "default";
const CLUSTER: &str = "cache";

/// kube-proxy takes the first change after a quiet second at once, and makes a second one wait.
const QUIET: Duration = Duration::from_secs(2);

#[derive(Parser)]
#[command(version, about = "Kills a Redis master twice under load, inside a world, and prints what happened")]
struct Cli {
    /// Leave a shell in the world at the end, with everything running
    #[arg(long, env = "KEEP", value_parser = clap::builder::FalseyValueParser::new())]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything held.
async fn run(cli: &Cli) -> Result<bool> {
    let world = World::enter_alone().await?;
    screen::title("A Kubernetes with three nodes");
    let mut operators = Operators::install(&world, "redis-ha-operator").await?;
    operators.start_pair(&Options { args: vec!["--log-format=json".into()], ..Options::default() }).await?;
    screen::say("installed: the custom resource definition, the operator's rights, two operators");
    screen::say(&format!("this machine: {}", screen::machine()));

    let done = show(&world, &operators).await;
    if done.is_err() {
        eprint!("{}", timeline::readable(&operators.logs()?));
    }
    let held = done?;
    if cli.keep {
        keep(&mut operators).await?;
    }
    Ok(held)
}

async fn show(world: &World, operators: &Operators) -> Result<bool> {
    screen::title("Six lines of YAML");
    screen::command("kubectl apply -f cache.yaml");
    screen::quote(SAMPLE);
    let start = Instant::now();
    world.apply(NAMESPACE, SAMPLE).await?;
    let cluster =
        Cluster { world: world.clone(), namespace: NAMESPACE.into(), name: CLUSTER.into(), replicas: 3 };
    cluster.settled(Duration::from_secs(90)).await?;
    screen::say(&format!("\nready after {:.1} s:\n", start.elapsed().as_secs_f64()));
    screen::kubectl(&["get", "rdc"]).await?;

    let mut writers = Writers::start(&cluster).await?;
    let mut faults = Vec::new();
    for fault in [Fault::KillProcess, Fault::DeletePod] {
        tokio::time::sleep(QUIET).await;
        writers.confirm(&cluster).await?;
        screen::title(fault.title());
        let course = faults::inflict(fault, &cluster, &writers, operators).await?;
        course.print();
        writers.follow(&cluster).await?;
        screen::kubectl(&["get", "rdc"]).await?;
        faults.push(course);
    }
    tokio::time::sleep(QUIET).await;

    screen::title("Every acknowledged write is looked for");
    let outcome = writers.stop(&cluster).await?;
    outcome.print();
    let verdict = Verdict::of(&cluster, &faults, &outcome).await?;
    verdict.print();
    Ok(verdict.holds())
}

/// Everything ends with this shell.
async fn keep(operators: &mut Operators) -> Result<()> {
    screen::title("KEEP: a shell in this world, which ends with it");
    for line in [
        "kubectl get rdc,pods          what there is",
        "kubectl describe rdc cache    conditions and Events",
        "kubectl delete pod NAME       one more fault",
    ] {
        screen::say(line);
    }
    for operator in operators.all() {
        screen::say(&format!("less {}", operator.process.log_file().display()));
    }
    println!();
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut command = tokio::process::Command::new(&shell);
    if Path::new(&shell).ends_with("bash") {
        command.arg("--norc");
    }
    command.env("PS1", "(world) \\w \\$ ").env(screen::KUBECTL_CACHE.0, screen::KUBECTL_CACHE.1);
    command.status().await.context("open a shell")?;
    Ok(())
}
