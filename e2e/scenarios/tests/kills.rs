//! The master's process is killed under load, a few times: what must hold whatever the machine does.
//! The figures are the bench's.

use std::time::Duration;

use anyhow::{Result, ensure};
use scenarios::bench::{QUIET, Stage, kills};
use scenarios::operator::BINARY;
use world::World;

/// A failover that takes longer was not triggered by what it should have been.
const LONGEST: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn each_kill_of_the_master_is_one_clean_failover() -> Result<()> {
    let world = World::enter().await?;
    let stage = Stage::set(&world, BINARY, false, None, &[]).await?;
    let kills = kills::run(&stage, 5, QUIET).await;
    if kills.as_ref().is_err() {
        eprintln!("{}", stage.operators.logs()?);
    }
    let kills = kills?;
    kills.check()?;
    for kill in &kills.kills {
        ensure!(kill.direct < LONGEST && kill.service < LONGEST, "the outage was too long: {kill:?}");
    }
    stage.strike().await
}
