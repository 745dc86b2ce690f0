//! `sim run`: search. `sim seed N`: one world, told as a story.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use sim::counts::Counts;
use sim::matrix::SCENARIOS;
use sim::run::{Options, Outcome, run};
use sim::setup::Build;
use sim::shrink::shrink;
use sim::story::Detail;
use sim::time::{SECOND, clock};

#[derive(Parser)]
#[command(version, about = "The supervisor in a seeded, simulated world")]
struct Cli {
    #[command(flatten)]
    world: WorldArgs,
    #[command(subcommand)]
    what: What,
}

#[derive(Args)]
struct WorldArgs {
    /// Faults in a simulated hour
    #[arg(long, global = true, default_value_t = 60)]
    faults: u64,
    /// Minutes that faults strike in one world
    #[arg(long, global = true, default_value_t = 20)]
    minutes: u64,
    /// Live through quiet time instead of jumping over it
    #[arg(long, global = true)]
    no_jump: bool,
}

#[derive(Subcommand)]
enum What {
    /// Many seeds, until time or seeds are used up
    Run {
        /// How long: 90s, 10m, 2h
        #[arg(long, value_parser = duration)]
        duration: Option<Duration>,
        #[arg(long)]
        seeds: Option<u64>,
        /// First seed
        #[arg(long, default_value_t = 1)]
        from: u64,
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Go on after this many violations
        #[arg(long, default_value_t = 5)]
        violations: usize,
        /// Do not make failing schedules smaller
        #[arg(long)]
        no_shrink: bool,
    },
    /// One seed, with its story
    Seed {
        seed: u64,
        /// Leave out faults that are not needed for the failure
        #[arg(long)]
        shrink: bool,
        /// Each event of the supervisors as well
        #[arg(long)]
        all: bool,
    },
    /// Crash the operator at each of its changes, and lose the answer to each of its writes, in each scenario
    Matrix {
        /// Only this scenario
        #[arg(long)]
        only: Option<String>,
        /// Tell the first failing way of each scenario as a story
        #[arg(long)]
        story: bool,
    },
    /// Switch off each mechanism that safety rests on: some seed has to notice
    #[cfg(feature = "mutants")]
    Mutants {
        /// Seeds for each mechanism
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Only this one
        #[arg(long)]
        only: Option<String>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let options = Options {
        faults: cli.world.faults,
        length: cli.world.minutes * 60 * SECOND,
        jump: !cli.world.no_jump,
    };
    // A panic in a world is a finding, told with its seed.
    match cli.what {
        What::Seed { seed, shrink, all } => one(seed, &options, shrink, all),
        What::Matrix { only, story } => matrix(only.as_deref(), story),
        #[cfg(feature = "mutants")]
        What::Mutants { seeds, jobs, only } => mutants(seeds, jobs, only.as_deref(), &options),
        What::Run { duration, seeds, from, jobs, violations, no_shrink } => {
            let search = Search { duration, seeds, from, jobs, violations, no_shrink };
            search.run(&options)
        }
    }
}

fn one(seed: u64, options: &Options, small: bool, all: bool) -> ExitCode {
    let detail = if all { Detail::Everything } else { Detail::Story };
    let mut outcome = run(seed, options, detail);
    if small && outcome.violation.is_some() {
        outcome = shrink(&outcome, options, detail);
    }
    for line in &outcome.story {
        println!("{line}");
    }
    println!("{}\nhash {:016x}", outcome.counts, outcome.hash);
    verdict(&outcome)
}

fn verdict(outcome: &Outcome) -> ExitCode {
    match &outcome.violation {
        Some(broken) => {
            println!("seed {}: {} at {}: {}", outcome.seed, broken.rule, clock(broken.at), broken.text);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn matrix(only: Option<&str>, story: bool) -> ExitCode {
    let mut broken = 0;
    for (name, scenario) in SCENARIOS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        for build in [Build::Redis62, Build::Redis70] {
            let (ways, failed) = sim::matrix::all(scenario, build);
            println!("{name}, {}: {ways} ways, {} broken", build.version(), failed.len());
            broken += failed.len();
            for way in &failed {
                let violation = way.violation.as_ref().map(|it| format!("{}: {}", it.rule, it.text));
                println!("  {:?}: {}", way.point, violation.unwrap_or_default());
            }
            if let Some(way) = failed.first().filter(|_| story) {
                for line in sim::matrix::go(scenario, build, way.point, Detail::Story).story {
                    println!("    {line}");
                }
            }
        }
    }
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "mutants")]
fn mutants(seeds: u64, jobs: usize, only: Option<&str>, options: &Options) -> ExitCode {
    use redis_ha_operator::core::mechanism::Mechanism;
    let all: Vec<Mechanism> = Mechanism::ALL
        .iter()
        .filter(|mechanism| only.is_none_or(|only| only == format!("{mechanism:?}")))
        .copied()
        .collect();
    let (next, missed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(mechanism) =
                    usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().and_then(|it| all.get(it))
                {
                    let noticed = sim::mutants::try_without(*mechanism, 1..seeds + 1, options);
                    if let Some((seed, it)) = noticed.by {
                        println!("{mechanism:?}: {} by seed {seed}: {}", it.rule, it.text);
                    } else {
                        missed.fetch_add(1, Ordering::Relaxed);
                        println!("{mechanism:?}: NOT NOTICED in {} seeds", noticed.tried);
                    }
                }
            });
        }
    });
    if missed.into_inner() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Search {
    duration: Option<Duration>,
    seeds: Option<u64>,
    from: u64,
    jobs: usize,
    violations: usize,
    no_shrink: bool,
}

impl Search {
    #[expect(clippy::disallowed_methods, reason = "how long people wait is measured on a real clock")]
    fn run(&self, options: &Options) -> ExitCode {
        let started = std::time::Instant::now();
        let (next, stop) = (AtomicU64::new(self.from), AtomicBool::new(false));
        let found: Mutex<(Counts, Vec<Outcome>)> = Mutex::default();
        let seeds = self.seeds.unwrap_or(if self.duration.is_some() { u64::MAX } else { 100 });
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        let over = self.duration.is_some_and(|limit| started.elapsed() >= limit);
                        if over || seed - self.from >= seeds || stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let outcome = run(seed, options, Detail::Nothing);
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.0.add(&outcome.counts);
                        if outcome.violation.is_some() {
                            verdict(&outcome);
                            found.1.push(outcome);
                            stop.store(found.1.len() >= self.violations, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let (counts, failed) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        for outcome in failed.iter().take(if self.no_shrink { 0 } else { 3 }) {
            let small = shrink(outcome, options, Detail::Story);
            println!(
                "\nseed {} with {} of {} faults:",
                small.seed,
                small.strikes.len(),
                outcome.strikes.len()
            );
            for line in &small.story {
                println!("{line}");
            }
            verdict(&small);
        }
        let spent = started.elapsed().as_secs_f64();
        println!("\n{counts}");
        let hours = f64::from(u32::try_from(counts.time / SECOND).unwrap_or(u32::MAX)) / 3600.0;
        println!("{spent:.0} s, {:.0} cluster-hours a minute", hours / spent * 60.0);
        if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("write for example 90s, 10m or 2h".to_owned()),
    };
    number.parse::<u64>().map(|it| Duration::from_secs(it * scale)).map_err(|error| error.to_string())
}
