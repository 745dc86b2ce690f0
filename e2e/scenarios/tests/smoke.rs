//! The main job, once: apply, write, kill the master, keep writing.

use std::time::Duration;

use anyhow::Result;
use redis_ha_operator::api::RedisClusterSpec;
use scenarios::cluster::Cluster;
use scenarios::operator::{Operators, Options};
use world::{Signal, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_master_is_replaced() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("smoke").await?;
    let mut operators = Operators::install(&world, &namespace).await?;
    operators
        .start_pair(&Options { namespace: Some(namespace.clone()), args: vec!["--log-filter=debug".into()] })
        .await?;
    let cluster = Cluster::create(&world, &namespace, "cache", RedisClusterSpec::default()).await?;
    let settled = cluster.settled(Duration::from_secs(40)).await;
    if settled.is_err() {
        eprintln!("{}", operators.logs()?);
    }
    settled?;
    let keys = cluster.write_confirmed("before", 100, 2).await?;
    let old = cluster.master().await?;
    old.kill(Signal::SIGKILL)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let settled = cluster.settled(Duration::from_secs(20)).await;
    if settled.is_err() {
        eprintln!("{}", operators.logs()?);
    }
    settled?;
    let new = cluster.master().await?;
    assert_ne!(old.name, new.name);
    assert_eq!(cluster.missing(&new.ip, &keys).await?, [] as [String; 0]);
    println!("{}", serde_json::to_string_pretty(&cluster.status().await?)?);
    Ok(())
}
