//! A master without persistence comes back empty before, while and after it is replaced: nothing is lost.

use anyhow::Result;
use scenarios::bench::{Stage, restarts};
use scenarios::operator::BINARY;
use world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_comes_back_empty_takes_no_confirmed_key_with_it() -> Result<()> {
    let world = World::enter().await?;
    let stage = Stage::set(&world, BINARY, false, None, &[]).await?;
    let restarts = restarts::run(&stage, 3).await;
    if restarts.is_err() {
        eprintln!("{}", stage.operators.logs()?);
    }
    restarts?.check()?;
    stage.strike().await
}
