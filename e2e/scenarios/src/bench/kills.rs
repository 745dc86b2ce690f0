//! Kill -9 of the master under load, again and again.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use redis_ha_operator::api::status::Stages;
use tokio::sync::watch;
use tokio::time::Instant;
use world::Signal;

use super::Stage;
use super::figures::{self, HEAD};
use super::machine::Ticks;
use crate::judge::{Before, Verdict};
use crate::writer::{Load, Tally, Target, Writer};

/// How long the killed process stays away, in turn.
pub const RESTART_DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_secs(1)];
/// Longest outage that is waited for.
const OUTAGE: Duration = Duration::from_secs(30);
/// Pause of a writer between two writes.
const PAUSE: Duration = Duration::from_millis(2);

/// One kill and what came of it.
#[derive(Clone, Debug)]
pub struct Kill {
    pub restart_delay: Duration,
    /// From the kill to the first write acknowledged to a client connected to all pods.
    pub direct: Duration,
    /// The same for a client of the Service.
    pub service: Duration,
    pub verdict: Verdict,
    /// What the operator itself says, in the status.
    pub stages: Option<Stages>,
    /// Acknowledged writes that the new master does not have.
    pub lost: usize,
    /// Those of them that the other survivor has.
    pub lost_though_received: usize,
}

/// All kills of one run.
#[derive(Clone, Debug)]
pub struct Kills {
    pub kills: Vec<Kill>,
    pub direct: Tally,
    pub service: Tally,
    /// Acknowledged writes that the last master does not have.
    pub missing_at_the_end: usize,
    /// What one small write to the API server took, before each kill.
    pub api_writes: Vec<Duration>,
    /// Name and version of the servers.
    pub server: String,
    pub machine: String,
}

/// Kills the master this many times, each time after at least that much quiet.
pub async fn run(stage: &Stage, count: usize, quiet: Duration) -> Result<Kills> {
    let cluster = &stage.cluster;
    let addresses: Vec<String> = cluster.pods().await?.into_iter().map(|pod| pod.ip).collect();
    let (_keep, addresses) = watch::channel(addresses);
    let password = cluster.password().await?;
    let load = |prefix: &str| Load {
        prefix: prefix.into(),
        password: password.clone(),
        pause: PAUSE,
        deadline: Duration::from_millis(500),
    };
    let direct = Writer::start(Target::AnyOf(addresses), load("direct"));
    let service = Writer::start(Target::Service(cluster.service_ip().await?), load("service"));
    let ticks = Ticks::now()?;
    let (mut kills, mut api_writes) = (Vec::new(), Vec::new());
    for delay in RESTART_DELAYS.into_iter().cycle().take(count) {
        stage.quiet(quiet).await?;
        api_writes.push(stage.api_write().await?);
        let kill = kill(stage, &direct, &service, delay).await?;
        eprintln!(
            "kill {:>3}: restart after {:>4} ms, direct {}, Service {}, lost {}",
            kills.len() + 1,
            delay.as_millis(),
            figures::milliseconds(kill.direct),
            figures::milliseconds(kill.service),
            kill.lost
        );
        kills.push(kill);
    }
    let machine = ticks.report()?;
    let ((direct, mut keys), (service, more)) = (direct.stop(), service.stop());
    keys.extend(more);
    let missing_at_the_end = cluster.missing(&cluster.master().await?.ip, &keys).await?.len();
    let server = cluster.server().await?;
    Ok(Kills { kills, direct, service, missing_at_the_end, api_writes, server, machine })
}

async fn kill(stage: &Stage, direct: &Writer, service: &Writer, delay: Duration) -> Result<Kill> {
    let cluster = &stage.cluster;
    let old = cluster.master().await?;
    cluster.world.set_restart_delay(&cluster.namespace, &old.name, Some(delay))?;
    let before = Before::read(cluster).await?;
    let written = (direct.tally().acknowledged.len(), service.tally().acknowledged.len());

    let at = Instant::now();
    old.kill(Signal::SIGKILL)?;
    let (first_direct, first_service) =
        tokio::try_join!(direct.recovered_after(at, OUTAGE), service.recovered_after(at, OUTAGE))?;

    let status = cluster.settled(super::SETTLE).await?;
    let new = cluster.master().await?;
    ensure!(new.name != old.name, "{} was promoted again although two replicas survived", old.name);
    let verdict = before.judge(cluster, &old, &new).await?;
    // Also what was written since the last look: nothing else would show a loss between two kills.
    let mut keys = direct.keys(written.0.saturating_sub(1));
    keys.extend(service.keys(written.1.saturating_sub(1)));
    let lost = cluster.missing(&new.ip, &keys).await?;
    let mut received = 0;
    for survivor in cluster.pods().await?.iter().filter(|pod| pod.name != old.name && pod.name != new.name) {
        received += lost.len() - cluster.missing(&survivor.ip, &lost).await?.len();
    }
    Ok(Kill {
        restart_delay: delay,
        direct: first_direct - at,
        service: first_service - at,
        verdict,
        stages: status.last_failover.and_then(|last| last.stages),
        lost: lost.len(),
        lost_though_received: received,
    })
}

impl Kills {
    pub fn lost(&self) -> usize {
        self.kills.iter().map(|kill| kill.lost).sum()
    }

    /// What must hold whatever the machine does.
    pub fn check(&self) -> Result<()> {
        for (number, kill) in (1..).zip(&self.kills) {
            ensure!(kill.verdict.is_clean(), "kill {number} was no clean failover: {:?}", kill.verdict);
            ensure!(
                kill.lost_though_received == 0,
                "kill {number} lost {} acknowledged writes that a survivor had received",
                kill.lost_though_received
            );
        }
        let (lost, missing) = (self.lost(), self.missing_at_the_end);
        ensure!(
            missing <= lost,
            "{missing} acknowledged writes are missing, but only {lost} were lost by kills"
        );
        Ok(())
    }

    /// A section of `docs/benchmarks.md`.
    pub fn report(&self) -> String {
        let count = self.kills.len();
        let mut text = format!("## The master's process is killed, {count} times in one run\n\n");
        let _ = writeln!(text, "{}; {}.\n", self.server, self.machine);
        text.push_str(HEAD);
        let all = |of: fn(&Kill) -> Duration| self.kills.iter().map(of).collect::<Vec<_>>();
        text.push_str(&figures::row("kill to first write, direct", &all(|kill| kill.direct)));
        text.push_str(&figures::row("kill to first write, through the Service", &all(|kill| kill.service)));
        text.push_str(&figures::row("yardstick: one small write to the API server", &self.api_writes));
        for delay in RESTART_DELAYS {
            let kills = || self.kills.iter().filter(|kill| kill.restart_delay == delay);
            let after = format!("restart after {} ms", delay.as_millis());
            let direct: Vec<_> = kills().map(|kill| kill.direct).collect();
            let service: Vec<_> = kills().map(|kill| kill.service).collect();
            text.push_str(&figures::row(&format!("direct, {after}"), &direct));
            text.push_str(&figures::row(&format!("Service, {after}"), &service));
        }
        text.push_str("\nThe operator's own stages, from the first bad sign it saw:\n\n");
        text.push_str(HEAD);
        for (name, of) in STAGES {
            let reached: Vec<_> = self.kills.iter().filter_map(|kill| of(kill.stages.as_ref()?)).collect();
            let reached: Vec<_> = reached.into_iter().map(Duration::from_millis).collect();
            text.push_str(&figures::row(name, &reached));
        }
        text.push('\n');
        self.report_counts(&mut text);
        text
    }

    fn report_counts(&self, text: &mut String) {
        let sum = |of: fn(&Kill) -> usize| self.kills.iter().map(of).sum::<usize>();
        let both = |of: fn(&Tally) -> u64| format!("{} / {}", of(&self.direct), of(&self.service));
        let acknowledged =
            format!("{} / {}", self.direct.acknowledged.len(), self.service.acknowledged.len());
        let rows = [
            ("promotions, by the servers' logs", sum(|kill| kill.verdict.promotions).to_string()),
            ("full resyncs of a survivor", sum(|kill| kill.verdict.resynced.len()).to_string()),
            ("survivors that were ahead of the new master", sum(|kill| kill.verdict.ahead.len()).to_string()),
            ("writes acknowledged, direct / Service", acknowledged),
            ("refused by a server", both(|tally| tally.refused)),
            ("without an answer", both(|tally| tally.open)),
            ("without a connection", both(|tally| tally.unconnected)),
            ("acknowledged writes lost", self.lost().to_string()),
            ("of them received by a survivor", sum(|kill| kill.lost_though_received).to_string()),
        ];
        text.push_str("| | |\n| --- | ---: |\n");
        for (what, value) in rows {
            let _ = writeln!(text, "| {what} | {value} |");
        }
    }
}

type StageOf = fn(&Stages) -> Option<u64>;
const STAGES: [(&str, StageOf); 6] = [
    ("confirmed", |stages| stages.confirmed),
    ("recorded", |stages| stages.recorded),
    ("chosen", |stages| stages.chosen),
    ("promoted", |stages| stages.promoted),
    ("routed", |stages| stages.routed),
    ("healed", |stages| stages.healed),
];
