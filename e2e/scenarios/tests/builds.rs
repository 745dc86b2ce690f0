//! The same on every server build: who may do what, and that nothing is lost when the master dies or comes
//! back empty.

use anyhow::{Result, ensure};
use scenarios::access::{FOR_APPLICATIONS, NOT_FOR_APPLICATIONS, all_refused, all_work};
use scenarios::bench::{QUIET, Stage, kills, restarts};
use scenarios::operator::BINARY;
use world::World;

/// What clients of 7.2 and later send after they have connected.
const SINCE_7_2: &[&[&str]] = &[
    &["CLIENT", "SETINFO", "LIB-NAME", "shop"],
    &["CLIENT", "NO-EVICT", "off"],
    &["CLIENT", "NO-TOUCH", "off"],
];

/// On a cluster of this image, whose servers must tell this version; `more` is what their clients send besides.
async fn it_holds(image: &str, version: &str, more: &[&[&str]]) -> Result<()> {
    let world = World::enter_alone().await?;
    let stage = Stage::set(&world, BINARY, false, Some(image), &[]).await?;
    let held = judge(&stage, version, more).await;
    if held.is_err() {
        eprintln!("{}", stage.operators.logs()?);
    }
    held?;
    stage.strike().await
}

async fn judge(stage: &Stage, version: &str, more: &[&[&str]]) -> Result<()> {
    let cluster = &stage.cluster;
    let server = cluster.server().await?;
    println!("{server}");
    ensure!(server.starts_with(version), "the pods run {server}, not {version}");

    let mut app = cluster.app(&cluster.master().await?.ip).await?;
    all_refused("default", &mut app, NOT_FOR_APPLICATIONS).await?;
    all_work("default", &mut app, FOR_APPLICATIONS).await?;
    all_work("default", &mut app, more).await?;

    kills::run(stage, kills::RESTART_DELAYS.len(), QUIET).await?.check()?;
    restarts::run(stage, 1).await?.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_holds_on_redis_7_0() -> Result<()> {
    it_holds("redis:7.0", "Redis 7.0.", &[&["CLIENT", "NO-EVICT", "off"]]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_holds_on_redis_8_2() -> Result<()> {
    it_holds("redis:8.2", "Redis 8.2.", SINCE_7_2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_holds_on_valkey_9_1() -> Result<()> {
    it_holds("valkey:9.1", "Valkey 9.1.", SINCE_7_2).await
}
