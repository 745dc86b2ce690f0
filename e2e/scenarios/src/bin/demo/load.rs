//! The load: two writers, each with one write at a time and a pause, and a few writes that are confirmed.

use std::time::Duration;

use anyhow::Result;
use scenarios::cluster::Cluster;
use scenarios::writer::{Load, Tally, Target, Writer};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::screen;

/// Pause of a writer after each acknowledged write.
const PAUSE: Duration = Duration::from_millis(2);
/// Deadline of one write.
const DEADLINE: Duration = Duration::from_millis(100);
/// Writes before each fault that `WAIT` confirms.
const CONFIRMED: u32 = 200;
/// Replicas that confirm them.
const REPLICAS: u32 = 2;

/// Both writers, and what was confirmed.
pub struct Writers {
    pods: watch::Sender<Vec<String>>,
    /// A client that knows all pods, such as one that speaks to Sentinel.
    pub direct: Writer,
    /// A client that knows the Service.
    pub service: Writer,
    confirmed: Vec<String>,
    rounds: u32,
}

/// What one writer did, and which of its acknowledged keys are gone.
pub struct Writes {
    pub tally: Tally,
    /// When each lost write was acknowledged.
    pub lost: Vec<Instant>,
}

/// What became of all writes.
pub struct Outcome {
    pub direct: Writes,
    pub service: Writes,
    pub confirmed: usize,
    pub confirmed_lost: usize,
}

impl Writers {
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let (pods, known) = watch::channel(addresses(cluster).await?);
        let load = Load {
            prefix: "direct".into(),
            password: cluster.password().await?,
            pause: PAUSE,
            deadline: DEADLINE,
        };
        let service = Load { prefix: "service".into(), ..load.clone() };
        screen::say(&format!(
            "\nTwo writers begin, each with one SET at a time and {} ms of pause: one speaks to the pods\n\
             directly, one to the Service. Before each fault {CONFIRMED} more keys are written and confirmed by WAIT {REPLICAS}.",
            PAUSE.as_millis()
        ));
        Ok(Self {
            direct: Writer::start(Target::AnyOf(known), load),
            service: Writer::start(Target::Service(cluster.service_ip().await?), service),
            pods,
            confirmed: Vec::new(),
            rounds: 0,
        })
    }

    /// Writes that must survive whatever comes.
    pub async fn confirm(&mut self, cluster: &Cluster) -> Result<()> {
        self.rounds += 1;
        let prefix = format!("confirmed-{}", self.rounds);
        self.confirmed.extend(cluster.write_confirmed(&prefix, CONFIRMED, REPLICAS).await?);
        Ok(())
    }

    /// Tells the direct writer the pods' addresses of now.
    pub async fn follow(&self, cluster: &Cluster) -> Result<()> {
        self.pods.send_replace(addresses(cluster).await?);
        Ok(())
    }

    /// Ends both, and looks for every acknowledged key on the master.
    pub async fn stop(self, cluster: &Cluster) -> Result<Outcome> {
        let master = cluster.master().await?.ip;
        let direct = Writes::of(self.direct, cluster, &master).await?;
        let service = Writes::of(self.service, cluster, &master).await?;
        let confirmed_lost = cluster.missing(&master, &self.confirmed).await?.len();
        Ok(Outcome { direct, service, confirmed: self.confirmed.len(), confirmed_lost })
    }
}

impl Writes {
    async fn of(writer: Writer, cluster: &Cluster, master: &str) -> Result<Self> {
        let (tally, keys) = writer.stop();
        let missing: std::collections::HashSet<_> =
            cluster.missing(master, &keys).await?.into_iter().collect();
        let acknowledged = tally.acknowledged.iter().zip(&keys);
        let lost = acknowledged.filter(|(_, key)| missing.contains(*key)).map(|((_, at), _)| *at).collect();
        Ok(Self { tally, lost })
    }

    fn print(&self, name: &str) {
        let tally = &self.tally;
        println!(
            "{name:<22}{:>14}{:>10}{:>8}{:>14}{:>8}",
            screen::count(tally.acknowledged.len() as u64),
            screen::count(tally.refused),
            screen::count(tally.open),
            screen::count(tally.unconnected),
            screen::count(self.lost.len() as u64),
        );
    }
}

impl Outcome {
    pub fn print(&self) {
        println!(
            "{:<22}{:>14}{:>10}{:>8}{:>14}{:>8}",
            "writes", "acknowledged", "refused", "open", "unconnected", "lost"
        );
        self.direct.print("directly");
        self.service.print("through the Service");
        println!(
            "{:<22}{:>14}{:>10}{:>8}{:>14}{:>8}",
            "confirmed by WAIT", self.confirmed, "-", "-", "-", self.confirmed_lost
        );
        println!(
            "\nrefused: the server said no. open: no answer, it may have been done. unconnected: no server\n\
             to ask. lost: acknowledged, and gone; Redis replicates after it has answered, so a master can\n\
             take the writes of its last moment with it. A write that WAIT confirmed is on replicas already."
        );
    }
}

async fn addresses(cluster: &Cluster) -> Result<Vec<String>> {
    Ok(cluster.pods().await?.into_iter().map(|pod| pod.ip).collect())
}
