//! Nothing leaves a world.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::time::Instant;
use world::World;

use crate::support::{LONG, redis};

/// An address that is reserved for examples, in case this ever ran elsewhere.
const ELSEWHERE: &str = "192.0.2.1";

#[tokio::test]
async fn there_is_no_way_out() -> Result<()> {
    let world = World::enter().await?;
    let begun = Instant::now();
    let error = TcpStream::connect((ELSEWHERE, 80)).await.expect_err("no connection");
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    assert!(begun.elapsed() < Duration::from_secs(1));

    let namespace = world.create_namespace("inside").await?;
    world.apply(&namespace, &redis(1)).await?;
    let pod = world.ready_pod(&namespace, "redis-0", LONG).await?;
    let tried = pod.exec(&["sh", "-c", "redis-cli -h 192.0.2.1 ping 2>&1 || true"]).await?;
    // Its gateway says so, since the pod itself has a default route.
    assert!(tried.contains("unreachable"), "{tried}");
    world.delete_namespace(&namespace).await
}
