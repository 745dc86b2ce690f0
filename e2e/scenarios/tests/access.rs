//! Who may do what on the servers of a running cluster.

use std::time::Duration;

use anyhow::{Context, Result};
use redis_ha_operator::api::{RedisClusterSpec, names};
use scenarios::access::{FOR_APPLICATIONS, NOT_FOR_APPLICATIONS, all_refused, all_work, ask};
use scenarios::cluster::{Cluster, connect};
use scenarios::scene::{SETTLE, Scene};
use tokio::time::{sleep, timeout};
use world::{Signal, World, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn the_application_cannot_touch_roles_configuration_or_users() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "access").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let master = cluster.master().await?;
    let before = (cluster.promotions()?, cluster.run_ids().await?);
    let mut app = cluster.app(&master.ip).await?;
    all_refused("default", &mut app, NOT_FOR_APPLICATIONS).await?;
    all_work("default", &mut app, FOR_APPLICATIONS).await?;
    cluster.settled(SETTLE).await?;
    assert_eq!((cluster.promotions()?, cluster.run_ids().await?), before, "nothing was harmed by trying");
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replication_user_can_replicate_and_nothing_else_and_only_from_the_master() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "repl").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let user = names::replication_user(&cluster.uid().await?);
    let password = cluster.secret("cache-server", "replication-password").await?;
    let master = cluster.master().await?;
    let mut link = connect(&master.ip, &user, &password).await?;
    all_refused(
        "replication",
        &mut link,
        &[
            &["GET", "key"],
            &["SET", "key", "value"],
            &["DEL", "key"],
            &["KEYS", "*"],
            &["SCAN", "0"],
            &["INFO"],
            &["CONFIG", "GET", "requirepass"],
            &["CONFIG", "SET", "maxmemory", "0"],
            &["ACL", "WHOAMI"],
            &["ACL", "SETUSER", "default", "+@all"],
            &["CLIENT", "LIST"],
            &["CLIENT", "KILL", "TYPE", "normal"],
            &["EVAL", "return 1", "0"],
            &["REPLICAOF", "NO", "ONE"],
            &["SHUTDOWN"],
            &["FLUSHALL"],
            &["PUBLISH", "news", "hello"],
            &["SUBSCRIBE", "news"],
            &["SYNC"],
            &["MULTI"],
        ],
    )
    .await?;
    all_work("replication", &mut link, &[&["PING"], &["REPLCONF", "capa", "psync2"]]).await?;
    for pod in cluster.pods().await?.into_iter().filter(|pod| pod.name != master.name) {
        let refused = connect(&pod.ip, &user, &password).await.err().context("it is on at a replica")?;
        let refused = format!("{refused:#}");
        println!("on the replica {}: {refused}", pod.name);
        assert!(refused.contains("AuthenticationFailed"), "{refused}");
    }
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_without_a_password() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "anonymous").await?;
    let cluster =
        scene.cluster("cache", RedisClusterSpec { replicas: 1, ..RedisClusterSpec::default() }).await?;
    let ip = cluster.master().await?.ip;
    let client = redis::Client::open(format!("redis://{ip}:6379"))?;
    let mut stranger = timeout(Duration::from_secs(2), client.get_multiplexed_async_connection()).await??;
    for words in
        [&["PING"][..], &["GET", "key"], &["INFO"], &["REPLICAOF", "NO", "ONE"], &["PSYNC", "?", "-1"]]
    {
        let error = ask(&mut stranger, words).await.err().context("a stranger got in")?;
        println!("a stranger, {}: {error}", words.join(" "));
        assert!(error.contains("NOAUTH") || error.contains("Authentication required"), "{error}");
    }
    for (user, password) in [("default", ""), ("default", "guess"), ("nobody", "guess")] {
        let error = connect(&ip, user, password).await.err().context("a guess got in")?;
        println!("{user} with a wrong password: {error:#}");
    }
    scene.close().await
}

/// Points a server somewhere, with the operator's own user.
async fn point(cluster: &Cluster, ip: &str, to: &str) -> Result<()> {
    let mut operator = cluster.operator(ip).await?;
    redis::cmd("REPLICAOF").arg(to).arg(6379).query_async::<()>(&mut operator).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_cannot_sync_from_a_pod_that_is_not_the_recorded_master() -> Result<()> {
    let mut scene = Scene::with_operator(World::enter().await?, "source").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    let master = cluster.master().await?;
    let full_syncs = cluster.info(&master.ip, "sync_full").await?;
    scene.kill_operators().await?; // it would repair what is done here
    let pods = cluster.pods().await?;
    let mut replicas = pods.iter().filter(|pod| pod.name != master.name);
    let (one, other) = (replicas.next().context("a replica")?, replicas.next().context("a replica")?);

    point(&cluster, &one.ip, &other.ip).await?;
    sleep(Duration::from_secs(4)).await;
    let info = cluster.all_info(&one.ip).await?;
    assert_eq!(info["master_host"], other.ip);
    assert_eq!(info["master_link_status"], "down", "a replica fed another one");
    assert_eq!(cluster.info(&other.ip, "connected_slaves").await?, "0");
    let log = cluster.world.pod(&one.namespace, &one.name).await?.log()?;
    let said = log.lines().rev().find(|line| line.contains("AUTH")).unwrap_or("(nothing)");
    println!("{} pointed at {}: link down after 4 s; its log: {said}", one.name, other.name);

    scene.start_operator().await?;
    scene.operators.leader(SETTLE).await?;
    cluster.settled(SETTLE).await?;
    let healed = cluster.one_master(SETTLE).await?;
    assert_eq!(healed.name, master.name);
    assert_eq!(cluster.missing(&one.ip, &[]).await?, [] as [String; 0]);
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);
    assert_eq!(cluster.info(&master.ip, "sync_full").await?, full_syncs, "it kept its position");
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_boots_fenced_and_stays_so_until_it_is_placed() -> Result<()> {
    let mut scene = Scene::with_operator(World::enter().await?, "fenced").await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    scene.kill_operators().await?;
    let master = cluster.master().await?;
    let run_id = cluster.info(&master.ip, "run_id").await?;
    master.kill(Signal::SIGKILL)?;
    wait_for("the master's process is back", SETTLE, async || {
        Ok((cluster.info(&master.ip, "run_id").await? != run_id).then_some(()))
    })
    .await?;
    let mut app = cluster.app(&master.ip).await?;
    let write =
        ask(&mut app, &["SET", "key", "value"]).await.err().context("a fenced server took a write")?;
    let read = ask(&mut app, &["GET", "key"]).await.err().context("a fenced server answered a read")?;
    println!("fenced: a write gets {write:?}, a read gets {read:?}");
    assert!(write.contains("READONLY") || write.contains("read only"), "{write}");
    assert!(read.contains("MASTERDOWN") || read.contains("Link with MASTER is down"), "{read}");

    // Its replicas call it back again and again: none gets the empty data set.
    sleep(Duration::from_secs(4)).await;
    assert_eq!(cluster.info(&master.ip, "connected_slaves").await?, "0");
    let pods = cluster.pods().await?;
    for pod in pods.iter().filter(|pod| pod.name != master.name) {
        let info = cluster.all_info(&pod.ip).await?;
        let (keys, offset) = (&info["db0"], &info["slave_repl_offset"]);
        println!("{}: link {}, {keys}, offset {offset}", pod.name, info["master_link_status"]);
        assert!(offset.parse::<i64>()? > 1, "{} lost its position", pod.name);
    }
    scene.start_operator().await?;
    scene.operators.leader(SETTLE).await?;
    cluster.settled(SETTLE).await?;
    let new = cluster.one_master(SETTLE).await?;
    assert_ne!(new.name, master.name);
    assert_eq!(cluster.missing(&new.ip, &keys).await?, [] as [String; 0]);
    scene.close().await
}
