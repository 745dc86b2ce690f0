//! How INFO is asked and what its fields mean.

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::server::Server;
use redis_ha_operator::redis::info::{Sections, parse};

pub static FACTS: &[Fact] = &[
    fact!(
        several_sections_in_one_question,
        "INFO server replication persistence keyspace",
        "the short form is asked from 7.0 on; before, INFO without arguments, which has all four sections"
    ),
    fact!(
        both_forms_say_the_same,
        "both forms of INFO that are asked read the same, and have a run id and a role"
    ),
    fact!(
        valkey_tells_a_redis_version,
        "redis_version in INFO",
        "a version is only used for what the server knows at it"
    ),
    fact!(replicas_are_told_by_their_own_port, "slaveN of a master: address and port of the replica"),
];

async fn several_sections_in_one_question(build: Build) -> Result<String> {
    let server = Server::of(&build).start().await?;
    let words = ["INFO", "server", "replication", "persistence", "keyspace"];
    let reply = server.operator_wire().await?.ask(&words).await?;
    let known = parse(&reply).is_ok();
    ensure!(known != build.is_redis_6(), "{reply}");
    Ok(if known { "answered" } else { "refused" }.into())
}

async fn both_forms_say_the_same(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    for node in [&master, &replicas[0]] {
        let version = node.operator.info.redis_version.clone();
        ensure!((Sections::of(&version) == Sections::Default) == build.is_redis_6(), "{version}");
        let asked = node.operator.probe().await?;
        let Ok(full) = parse(&node.server.operator_wire().await?.done(&["INFO"]).await?) else {
            anyhow::bail!("unreadable")
        };
        ensure!(
            (&asked.run_id, asked.role, &asked.replid, asked.keys, asked.loading, asked.cannot_save)
                == (&full.run_id, full.role, &full.replid, full.keys, full.loading, full.cannot_save),
            "{asked:?} {full:?}"
        );
        ensure!(
            asked.keys == 100 && !asked.loading && !asked.cannot_save && !asked.failover_running,
            "{asked:?}"
        );
    }
    Ok("yes".into())
}

async fn valkey_tells_a_redis_version(build: Build) -> Result<String> {
    let node = Node::start(Server::of(&build)).await?;
    let version = node.operator.info.redis_version.clone();
    ensure!(version.starts_with("7.2.") || !build.valkey, "{version}");
    Ok(version)
}

async fn replicas_are_told_by_their_own_port(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 2).await?;
    let info = master.operator.probe().await?;
    for replica in &replicas {
        let address = replica.server.address;
        let found = info.attached.iter().any(|seen| {
            seen.ip == address.ip().to_string() && seen.port == address.port() && seen.state == "online"
        });
        ensure!(found, "{address} is not in {:?}", info.attached);
    }
    seen(&info.attached.len().to_string(), "2")?;
    Ok("its own".into())
}
