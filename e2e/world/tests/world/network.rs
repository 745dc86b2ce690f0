//! Cut links and nodes that are off.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use world::addresses::{API_SERVICE, OUTER};
use world::{Host, PodHandle, Process, World, wait_for};

use crate::support::{LONG, ping, redis, wait_status};

const SHORT: Duration = Duration::from_millis(700);

async fn reaches(from: &PodHandle, to: &PodHandle) -> bool {
    from.exec(&["timeout", "0.7", "redis-cli", "-h", &to.ip, "ping"])
        .await
        .is_ok_and(|it| it.trim() == "PONG")
}

#[tokio::test]
async fn a_cut_drops_just_that_link_until_it_heals() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("cut").await?;
    world.apply(&namespace, &redis(3)).await?;
    let mut pods = Vec::new();
    for ordinal in 0..3 {
        pods.push(world.ready_pod(&namespace, &format!("redis-{ordinal}"), LONG).await?);
    }
    let (a, b, c) = (&pods[0], &pods[1], &pods[2]);
    world.cut(&a.ip, &b.ip).await?;
    assert!(!reaches(a, b).await && !reaches(b, a).await);
    assert!(reaches(a, c).await && reaches(c, b).await);
    ping(&a.ip, SHORT).await?;
    world.heal(&a.ip, &b.ip).await?;
    assert!(reaches(a, b).await && reaches(b, a).await);

    world.cut(OUTER, &a.ip).await?;
    assert!(ping(&a.ip, SHORT).await.is_err());
    ping(&b.ip, SHORT).await?;
    assert!(reaches(b, a).await);
    // A cut that covers another one, as of a whole node.
    world.cut(&world.pod_range(&a.node)?, &world.pod_range(&b.node)?).await?;
    world.cut(&a.ip, &b.ip).await?;
    world.heal(&a.ip, &b.ip).await?;
    assert!(!reaches(a, b).await);
    world.heal(&world.pod_range(&b.node)?, &world.pod_range(&a.node)?).await?;
    world.heal(OUTER, &a.ip).await?;
    assert!(reaches(a, b).await);
    ping(&a.ip, SHORT).await?;
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_one_way_cut_loses_only_that_direction() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("oneway").await?;
    world.apply(&namespace, &redis(2)).await?;
    let a = world.ready_pod(&namespace, "redis-0", LONG).await?;
    let b = world.ready_pod(&namespace, "redis-1", LONG).await?;
    // UDP needs no answer, so it shows the directions apart.
    let listen = "timeout 5 perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(LocalPort => 9000, Proto => q(udp)); \
                  $s->recv(my $m, 100); print $m'";
    let send = |to: &str| {
        format!(
            "for i in 1 2 3 4 5 6 7 8 9 10; do perl -MIO::Socket::INET -e 'IO::Socket::INET->new(\
                 PeerAddr => q({to}), PeerPort => 9000, Proto => q(udp))->send(q(hello))'; sleep 0.1; done"
        )
    };
    world.cut_one_way(&a.ip, &b.ip).await?;
    let sh = async |pod: &PodHandle, script: &str| pod.exec(&["sh", "-c", script]).await;
    let (to_a, to_b) = (send(&a.ip), send(&b.ip));
    let (heard_a, heard_b, sent_by_b, sent_by_a) =
        tokio::join!(sh(&a, listen), sh(&b, listen), sh(&b, &to_a), sh(&a, &to_b));
    sent_by_a?;
    sent_by_b?;
    assert_eq!(heard_a?, "hello");
    assert!(heard_b.is_err(), "heard {heard_b:?}");
    world.heal(&a.ip, &b.ip).await?;
    assert!(reaches(&a, &b).await);
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn programs_on_two_hosts_can_be_cut_apart() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("hosts").await?;
    world.apply(&namespace, &redis(1)).await?;
    let pod = world.ready_pod(&namespace, "redis-0", LONG).await?;
    let (one, two) = (world.host().await?, world.host().await?);
    let asks = async |host: &Host, server: &str| {
        let args = ["1", "redis-cli", "-h", server, "ping"];
        let mut process = Process::spawn_on(host, "client", "timeout", args, [("A", "B")])?;
        process.wait(LONG).await?;
        process.log()
    };
    world.cut(&one.address, &pod.ip).await?;
    assert_ne!(asks(&one, &pod.ip).await?, "PONG\n");
    assert_eq!(asks(&two, &pod.ip).await?, "PONG\n");
    world.heal(&one.address, &pod.ip).await?;
    assert_eq!(asks(&one, &pod.ip).await?, "PONG\n");
    // The API server answers a Redis command with an end, and not with silence.
    for address in [format!("{OUTER} -p 6443"), format!("{API_SERVICE} -p 443")] {
        let words: Vec<_> =
            ["5", "redis-cli", "-h"].into_iter().chain(address.split(' ')).chain(["ping"]).collect();
        let mut process = Process::spawn_on(&one, "client", "timeout", words, [("A", "B")])?;
        assert_ne!(process.wait(LONG).await?, 124, "no answer from {address}");
    }
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn two_pods_of_one_node_can_be_cut_too() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("same").await?;
    let yaml = redis(2).replace("      containers:", "      nodeName: node-1\n      containers:");
    world.apply(&namespace, &yaml).await?;
    let a = world.ready_pod(&namespace, "redis-0", LONG).await?;
    let b = world.ready_pod(&namespace, "redis-1", LONG).await?;
    assert_eq!((a.node.as_str(), b.node.as_str()), ("node-1", "node-1"));
    assert!(reaches(&a, &b).await);
    world.cut(&a.ip, &b.ip).await?;
    assert!(!reaches(&a, &b).await);
    world.heal(&a.ip, &b.ip).await?;
    assert!(reaches(&a, &b).await);
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_node_that_is_off_is_found_lost_and_comes_back() -> Result<()> {
    let world = World::enter_alone().await?;
    let namespace = world.create_namespace("off").await?;
    world.apply(&namespace, &redis(3)).await?;
    let pod = world.ready_pod(&namespace, "redis-0", LONG).await?;
    let pid = pod.pid()?;
    let ready = async |wanted: &str| {
        let nodes = Api::<Node>::all(world.client());
        wait_for(&format!("{} to be Ready={wanted}", pod.node), LONG, async || {
            let status = nodes.get(&pod.node).await?.status.unwrap_or_default();
            let mut conditions = status.conditions.into_iter().flatten();
            Ok(conditions.any(|it| it.type_ == "Ready" && it.status == wanted).then_some(()))
        })
        .await
    };
    world.node_off(&pod.node).await?;
    assert!(ping(&pod.ip, SHORT).await.is_err());
    ready("Unknown").await?;
    let pods = Api::<Pod>::namespaced(world.client(), &namespace);
    wait_for("the pod to be taken out", LONG, async || {
        Ok((!world::is_ready(&pods.get(&pod.name).await?)).then_some(()))
    })
    .await?;
    world.node_on(&pod.node).await?;
    ready("True").await?;
    let back = world.ready_pod(&namespace, &pod.name, LONG).await?;
    assert_eq!((back.uid, pod.pid()?), (pod.uid.clone(), pid), "it ran on");
    ping(&pod.ip, SHORT).await?;
    world.delete_namespace(&namespace).await
}

#[tokio::test]
async fn a_crashed_node_loses_its_processes_and_starts_them_again() -> Result<()> {
    let world = World::enter_alone().await?;
    let namespace = world.create_namespace("crash").await?;
    world.apply(&namespace, &redis(3)).await?;
    let pod = world.ready_pod(&namespace, "redis-0", LONG).await?;
    let agent = format!("node-agent-{}", pod.node);
    world.stop_component(&agent).await?;
    wait_for("the server to be gone", LONG, async || Ok(ping(&pod.ip, SHORT).await.is_err().then_some(())))
        .await?;
    world.start_component(&agent).await?;
    let status = wait_status(&world, &namespace, "redis-0", "back", |status| {
        status.restart_count == 1 && status.ready
    })
    .await?;
    assert_eq!(status.last_state.and_then(|state| state.terminated).map(|ended| ended.exit_code), Some(255));
    let back = world.ready_pod(&namespace, "redis-0", LONG).await?;
    assert_eq!(back.uid, pod.uid);
    ping(&back.ip, SHORT).await?;
    world.delete_namespace(&namespace).await
}
