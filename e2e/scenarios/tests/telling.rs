//! What people see of a failover: status, Events, logs, metrics.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis_ha_operator::api::RedisClusterSpec;
use scenarios::scene::{SETTLE, Scene};
use tokio::process::Command;
use tokio::time::sleep;
use world::{Signal, World};

/// The steps of a failover after a certain death, as they are told.
const STORY: [&str; 6] = [
    "MasterSuspected",
    "FailoverStarted",
    "ReplicaSelected",
    "MasterPromoted",
    "Rerouted",
    "FailoverCompleted",
];

async fn kubectl(args: &[&str]) -> Result<String> {
    let output = Command::new("kubectl").args(args).output().await.context("run kubectl")?;
    ensure!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Each of these comes after the one before it.
fn in_order(what: &str, said: &[String], expected: &[&str]) -> Result<()> {
    let mut rest = said.iter();
    for reason in expected {
        let found = rest.any(|line| line.contains(reason));
        ensure!(found, "{what}: {reason} is missing, or told too early: {said:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_is_told_as_a_story() -> Result<()> {
    let mut scene = Scene::open(World::enter().await?, "story").await?;
    let mut options = scene.options();
    options.args = vec!["--log-format=json".into()];
    scene.operators.start_pair(&options).await?;
    let cluster = scene.cluster("cache", RedisClusterSpec::default()).await?;
    cluster.write_confirmed("story", 100, 2).await?;
    sleep(Duration::from_secs(2)).await;
    cluster.master().await?.kill(Signal::SIGKILL)?;
    cluster.is_told("FailoverCompleted", SETTLE).await?;
    cluster.settled(SETTLE).await?;
    let namespace = scene.namespace.as_str();

    println!("$ kubectl get rdc\n{}", kubectl(&["get", "rdc", "-n", namespace]).await?);
    let described = kubectl(&["describe", "rdc", "cache", "-n", namespace]).await?;
    println!("$ kubectl describe rdc cache\n{described}");
    in_order("kubectl describe", std::slice::from_ref(&described), &["FailoverCompleted"])?;

    let told = cluster.told().await?;
    let reasons: Vec<String> = told.iter().map(|told| told.reason.clone()).collect();
    println!("Events: {}", reasons.join(" "));
    // Rerouting and promoting are written side by side.
    in_order("Events", &reasons, &["BootstrapStarted", "BootstrapCompleted"])?;
    in_order("Events", &reasons, &STORY[..4])?;
    in_order("Events", &reasons, &["ReplicaSelected", "Rerouted", "FailoverCompleted"])?;
    let completed = told.iter().find(|told| told.reason == "FailoverCompleted").context("completed")?;
    for stage in ["confirmed", "recorded", "chosen", "promoted", "routed", "healed"] {
        let duration =
            completed.note.split(&format!(" {stage} ")).nth(1).and_then(|rest| rest.split(' ').next());
        let duration = duration.with_context(|| format!("no duration of {stage}: {}", completed.note))?;
        duration.parse::<u64>().with_context(|| format!("{stage}: {}", completed.note))?;
    }

    let log = scene.operators.logs()?;
    let mut story = Vec::new();
    for line in log.lines().filter(|line| line.starts_with('{')) {
        let line: serde_json::Value = serde_json::from_str(line).context("a JSON log line")?;
        if let Some(reason) = line["reason"].as_str() {
            story.push(format!("{reason}: {}", line["message"].as_str().unwrap_or_default()));
        }
    }
    println!("the log:\n    {}", story.join("\n    "));
    in_order("the log", &story, &STORY[..4])?;
    in_order("the log", &story, &["ReplicaSelected", "Rerouted", "FailoverCompleted"])?;

    let leader = scene.operators.leader(SETTLE).await?;
    for (index, operator) in scene.operators.all().iter().enumerate() {
        for page in ["/healthz", "/readyz"] {
            let answer = operator.http(page).await?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "{page} of {}: {answer}", operator.pod_name);
        }
        let metrics = operator.http("/metrics").await?;
        let leads = format!("redis_ha_is_leader {}", u8::from(index == leader));
        ensure!(metrics.contains(&leads), "{} does not say {leads}", operator.pod_name);
        if index == leader {
            println!("$ curl /metrics\n{metrics}");
            for line in [
                r#"redis_ha_failovers_total{kind="failover",reason="MasterProcessEnded"} 1"#.to_owned(),
                format!(r#"redis_ha_cluster_has_master{{cluster="cache",namespace="{namespace}"}} 1"#),
                format!(r#"redis_ha_cluster_failover_ready{{cluster="cache",namespace="{namespace}"}} 1"#),
                // The bootstrap has stages, too.
                r#"redis_ha_failover_stage_seconds_count{stage="promoted"} 2"#.to_owned(),
            ] {
                ensure!(metrics.contains(&line), "metrics have no {line}");
            }
        }
    }
    for secret in [cluster.password().await?, cluster.secret("cache-server", "operator-password").await?] {
        ensure!(!log.contains(&secret) && !described.contains(&secret), "a password was told");
    }
    scene.close().await
}
