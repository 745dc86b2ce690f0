//! What kind of cluster a seed is about, and on which machines its parts run.

use redis_ha_operator::core::facts::Profile;

use crate::rng::Rng;
use crate::time::{MS, Time};

/// A machine of the world: nodes, and whatever else has a place in the network.
pub type Machine = usize;

/// Server builds differ where it matters to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// Cuts its replicas when it is demoted, and they try again only once a second.
    Redis62,
    Redis70,
    /// Its `master_repl_offset` lies after a start from an append-only file.
    Redis82,
    Valkey91,
}

impl Build {
    pub fn version(self) -> &'static str {
        match self {
            Self::Redis62 => "6.2.14",
            Self::Redis70 => "7.0.15",
            Self::Redis82 => "8.2.3",
            Self::Valkey91 => "7.2.4",
        }
    }
}

/// What a server writes to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    None,
    Rdb,
    Aof,
}

/// One cluster and its surroundings.
#[derive(Clone, Debug)]
pub struct Setup {
    pub replicas: u32,
    pub profile: Profile,
    pub persistence: Persistence,
    /// Volumes outlive pods.
    pub volumes: bool,
    pub build: Build,
    /// Machines 0 to `nodes - 1` run the pods.
    pub nodes: usize,
    pub operators: [Machine; 2],
    pub api: Machine,
    pub clients: [Machine; 2],
    pub machines: usize,
    /// How fast each operator's clock runs, in millionths.
    pub drift: [i64; 2],
    /// Mean time between two writes of one client.
    pub write_every: Time,
}

impl Setup {
    /// Drawn from the seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 1);
        let replicas = rng.pick(&[1, 2, 2, 3, 3, 3, 3, 3, 4, 5]);
        let profile = rng.pick(&[
            Profile::Balanced,
            Profile::Balanced,
            Profile::Balanced,
            Profile::Balanced,
            Profile::Durable,
            Profile::Cache,
        ]);
        let persistence =
            rng.pick(&[Persistence::None, Persistence::Rdb, Persistence::Aof, Persistence::Aof]);
        let volumes = persistence != Persistence::None && rng.percent(70);
        let build = rng.pick(&[Build::Redis62, Build::Redis70, Build::Redis82, Build::Valkey91]);
        let nodes = usize::try_from(u64::from(replicas).max(2) + rng.below(2)).unwrap_or(3);
        Self {
            replicas,
            profile,
            persistence,
            volumes,
            build,
            nodes,
            // On nodes of their own, or beside the pods: then they may die together with the master.
            operators: if rng.percent(50) { [nodes, nodes + 1] } else { [0, 1] },
            api: nodes + 2,
            clients: [nodes + 3, nodes + 4],
            machines: nodes + 5,
            drift: [drift(&mut rng), drift(&mut rng)],
            write_every: rng.range(100, 600) * MS,
        }
    }

    /// Three pods, Balanced, append-only files on volumes: what `spec: {}` with storage asks for.
    pub fn usual() -> Self {
        Self {
            replicas: 3,
            profile: Profile::Balanced,
            persistence: Persistence::Aof,
            volumes: true,
            build: Build::Redis70,
            nodes: 3,
            operators: [3, 4],
            api: 5,
            clients: [6, 7],
            machines: 8,
            drift: [0, 0],
            write_every: 200 * MS,
        }
    }

    pub fn node_of(&self, ordinal: u32) -> Machine {
        ordinal as usize % self.nodes
    }
}

/// Clocks of computers are off by less than a thousandth; ten times that shows what the margins are worth.
fn drift(rng: &mut Rng) -> i64 {
    i64::try_from(rng.below(20_001)).unwrap_or(0) - 10_000
}
