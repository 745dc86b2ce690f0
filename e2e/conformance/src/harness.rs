//! Asks every fact of every build, some at a time, and prints what came of it: a line a test, the table,
//! and the totals.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, timeout};

use crate::build::Build;
use crate::fact::Fact;

/// No fact needs nearly as long.
const LIMIT: Duration = Duration::from_secs(60);

/// Asks servers for the facts that the operator relies on. Without --image only the redis-server in PATH.
#[derive(Parser)]
struct Options {
    /// A build besides the redis-server in PATH, as e2e/servers/fetch.sh prints it.
    #[arg(long = "image", value_name = "NAME=DIRECTORY")]
    images: Vec<String>,
    /// Facts asked at the same time.
    #[arg(long, default_value_t = 18)]
    at_once: usize,
    /// Only facts with one of these words in their name.
    words: Vec<String>,
    /// As `cargo test` gives it; nothing is captured.
    #[arg(long, hide = true)]
    nocapture: bool,
}

type Key = (usize, usize);

/// The main of the test binary.
pub fn main(groups: &[(&'static str, &'static [Fact])]) -> ExitCode {
    let options = Options::parse();
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime")
        .and_then(|runtime| runtime.block_on(LocalSet::new().run_until(run(groups, &options))));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(groups: &[(&'static str, &'static [Fact])], options: &Options) -> Result<bool> {
    let builds = builds(options)?;
    let facts: Vec<&'static Fact> = groups
        .iter()
        .flat_map(|(_, facts)| facts.iter())
        .filter(|fact| options.words.is_empty() || options.words.iter().any(|word| fact.name.contains(word)))
        .collect();
    println!("\nrunning {} tests", facts.len() * builds.len());
    let start = Instant::now();
    let places = Arc::new(Semaphore::new(options.at_once.max(1)));
    let mut tasks = JoinSet::new();
    for (row, fact) in facts.iter().copied().enumerate() {
        for (column, build) in builds.iter().cloned().enumerate() {
            let places = places.clone();
            tasks.spawn_local(async move {
                let _place = places.acquire().await;
                ((row, column), ask(fact, build).await)
            });
        }
    }
    let mut cells = BTreeMap::<Key, Result<String>>::new();
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let ((row, column), result) = tokio::select! {
            finished = tasks.join_next() => match finished {
                Some(finished) => finished?,
                None => break,
            },
            // Dropping the tasks ends their servers.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminated.recv() => bail!("terminated"),
        };
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("test {} on {} ... {word}", short(facts[row]), builds[column].name());
        if let Err(error) = &result {
            println!("    {error:#}");
        }
        cells.insert((row, column), result);
    }
    print_table(groups, &facts, &builds, &cells);
    let failed = cells.values().filter(|cell| cell.is_err()).count();
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        if failed == 0 { "ok" } else { "FAILED" },
        cells.len() - failed,
        start.elapsed().as_secs_f64(),
    );
    Ok(failed == 0)
}

/// The one in PATH first, then the others, by family and version.
fn builds(options: &Options) -> Result<Vec<Build>> {
    let mut builds = vec![Build::at(PathBuf::from("redis-server"))?];
    for image in &options.images {
        let Some((_, directory)) = image.split_once('=') else { bail!("not NAME=DIRECTORY: {image}") };
        let build = Build::at(PathBuf::from(directory).join("bin/redis-server"))?;
        if !builds.iter().any(|other| other.name() == build.name()) {
            builds.push(build);
        }
    }
    builds.sort_by_key(|build| (build.valkey, build.version));
    Ok(builds)
}

async fn ask(fact: &'static Fact, build: Build) -> Result<String> {
    // A panic unwinds through the servers, which end with it.
    match timeout(LIMIT, AssertUnwindSafe((fact.ask)(build)).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => bail!("panicked"),
        Err(_) => bail!("not finished within {} s", LIMIT.as_secs()),
    }
}

/// Group and name.
fn short(fact: &Fact) -> &'static str {
    fact.name.split_once("::").map_or(fact.name, |(_, name)| name)
}

/// As it stands in the documentation.
fn print_table(
    groups: &[(&'static str, &'static [Fact])],
    facts: &[&'static Fact],
    builds: &[Build],
    cells: &BTreeMap<Key, Result<String>>,
) {
    for (title, group) in groups {
        let rows: Vec<_> = facts
            .iter()
            .enumerate()
            .filter(|(_, fact)| group.iter().any(|member| std::ptr::eq(member, **fact)))
            .collect();
        if rows.is_empty() {
            continue;
        }
        println!("\n### {title}\n");
        print!("| fact |");
        for build in builds {
            print!(" {} |", build.name());
        }
        println!("\n| --- |{}", " --- |".repeat(builds.len()));
        for (row, fact) in &rows {
            print!("| {} |", fact.says);
            for column in 0..builds.len() {
                match cells.get(&(*row, column)) {
                    Some(Ok(seen)) => print!(" {seen} |"),
                    Some(Err(_)) => print!(" **DOES NOT HOLD** |"),
                    None => print!(" |"),
                }
            }
            println!();
        }
        let mut notes = rows.iter().filter_map(|(_, fact)| Some((fact.says, fact.note?))).peekable();
        if notes.peek().is_some() {
            println!("\nNotes:\n");
        }
        for (says, why) in notes {
            println!("- *{says}*: {why}");
        }
    }
}
