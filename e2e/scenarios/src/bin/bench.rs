//! Measures the operator in a world of its own: `world run -- bench all`. Prints the tables of
//! `docs/benchmarks.md` to standard output, and one line for each fault to standard error.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use scenarios::bench::{QUIET, Stage, kills, restarts, switches};
use scenarios::operator::RELEASE_BINARY;
use world::World;

#[derive(Parser)]
#[command(
    version,
    about = "Faults many times over, with figures; run it inside a world: world run -- bench all"
)]
struct Cli {
    /// More arguments for the operators, such as --log-filter=debug; the figures are then not the default ones
    #[arg(long = "operator-arg", global = true, allow_hyphen_values = true)]
    operator_args: Vec<String>,
    /// Image of the pods instead of redis:7.0; the world has to know it: e2e/servers/fetch.sh
    #[arg(long, global = true)]
    image: Option<String>,
    /// Print what the operators logged, to standard error
    #[arg(long, global = true)]
    logs: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The master's process is killed under load
    Kills {
        #[arg(long, default_value_t = 50)]
        count: usize,
        /// Milliseconds of quiet before each kill: idle connections are closed after 90 seconds
        #[arg(long, value_name = "MS", default_value_t = 1200, value_parser = clap::value_parser!(u64).range(1200..))]
        quiet: u64,
    },
    /// A master without persistence is killed and comes back empty, this often after each of four times
    Restarts {
        #[arg(long, default_value_t = 25)]
        count: usize,
    },
    /// The master is moved on request, under load
    Switches {
        #[arg(long, default_value_t = 100)]
        count: usize,
        /// Clients that are connected to all pods; one more uses the Service
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
        writers: u8,
    },
    /// All of it, with the default counts
    All,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    let world = World::enter_alone().await?;
    let stage = Stage::set(&world, RELEASE_BINARY, true, cli.image.as_deref(), &cli.operator_args).await?;
    let done = measure(&stage, &cli.what).await;
    if cli.logs || done.is_err() {
        eprintln!("{}", stage.operators.logs()?);
    }
    done?;
    stage.strike().await
}

/// Prints each table before it says whether what must hold has held.
async fn measure(stage: &Stage, what: &What) -> Result<()> {
    match what {
        What::Kills { count, quiet } => kill(stage, *count, Duration::from_millis(*quiet)).await,
        What::Restarts { count } => restart(stage, *count).await,
        What::Switches { count, writers } => switch(stage, *count, (*writers).into()).await,
        What::All => {
            kill(stage, 50, QUIET).await?;
            switch(stage, 100, 1).await?;
            switch(stage, 100, 16).await?;
            restart(stage, 25).await
        }
    }
}

async fn kill(stage: &Stage, count: usize, quiet: Duration) -> Result<()> {
    let kills = kills::run(stage, count, quiet).await?;
    println!("{}", kills.report());
    kills.check()
}

async fn switch(stage: &Stage, count: usize, writers: usize) -> Result<()> {
    let switches = switches::run(stage, count, writers, QUIET).await?;
    println!("{}", switches.report());
    switches.check()
}

async fn restart(stage: &Stage, count: usize) -> Result<()> {
    let restarts = restarts::run(stage, count).await?;
    println!("{}", restarts.report());
    restarts.check()
}
