//! What each of the three users may do.

use anyhow::{Result, ensure};
use conformance::build::Build;
use conformance::cluster::{Node, cluster};
use conformance::fact;
use conformance::fact::{Fact, seen};
use conformance::operator::PROMOTE;
use conformance::server::{Server, credentials};
use conformance::wire::code;
use redis_ha_operator::core::event::RoleCommand::{Demote, Serve};
use redis_ha_operator::core::facts::Role;
use redis_ha_operator::redis::commands::default_user_additions;

pub static FACTS: &[Fact] = &[
    fact!(
        applications_cannot_change_roles,
        "applications: 19 commands that change roles, users, configuration"
    ),
    fact!(
        applications_can_work,
        "applications: data, scripts, pub/sub, transactions, CLIENT LIST, CONFIG GET"
    ),
    fact!(
        additions_are_accepted,
        "rules that the application gets after connecting, by redis_version; all accepted",
        "they follow the version the server tells, Valkey's compatible one included"
    ),
    fact!(replication_can_only_replicate, "replication user: GET, SET, INFO, CONFIG, ACL"),
    fact!(switching_off_does_not_cut, "switching the replication user off does not end a running link"),
    fact!(the_operator_has_no_data, "operator user: GET, SET, FLUSHALL, KEYS, SHUTDOWN, FAILOVER, EVAL"),
    fact!(
        nobody_may_debug,
        "DEBUG of the application, of the operator",
        "refused by all: from 7.0 on by the server's own setting, before by the user's rights"
    ),
    fact!(demotion_cuts_clients_but_us, "Demote ends clients and subscribers, and not our own connection"),
    fact!(rights_end_running_commands, "an application's blocked reader is ended by Demote, too"),
];

async fn applications_cannot_change_roles(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 10).await?;
    let mut app = master.server.app().await?;
    let refused: &[&[&str]] = &[
        &["REPLICAOF", "NO", "ONE"],
        &["REPLICAOF", "127.0.0.1", "1"],
        &["SLAVEOF", "NO", "ONE"],
        &["FAILOVER"],
        &["SHUTDOWN", "NOSAVE"],
        &["PSYNC", "?", "-1"],
        &["SYNC"],
        &["REPLCONF", "ACK", "1"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["CONFIG", "REWRITE"],
        &["CONFIG", "RESETSTAT"],
        &["ACL", "SETUSER", "x", "on"],
        &["ACL", "LIST"],
        &["ACL", "LOAD"],
        &["CLIENT", "PAUSE", "1000"],
        &["CLIENT", "UNPAUSE"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["MODULE", "LIST"],
        &["CLUSTER", "RESET"],
    ];
    for words in refused {
        let reply = app.ask(words).await?;
        ensure!(reply.starts_with("-NOPERM"), "{}: {reply}", words.join(" "));
    }
    let script = app.ask(&["EVAL", "return redis.call('REPLICAOF', 'NO', 'ONE')", "0"]).await?;
    ensure!(script.starts_with('-'), "by way of a script: {script}");
    ensure!(master.operator.probe().await?.role == Role::Master, "no master any more");
    Ok(format!("NOPERM ({})", refused.len()))
}

async fn applications_can_work(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 10).await?;
    let mut app = master.server.app().await?;
    let allowed: &[&[&str]] = &[
        &["SET", "a", "1"],
        &["EVAL", "return redis.call('GET', 'a')", "0"],
        &["PUBLISH", "news", "1"],
        &["MULTI"],
        &["INCR", "n"],
        &["EXEC"],
        &["CLIENT", "ID"],
        &["CLIENT", "SETNAME", "shop"],
        &["CLIENT", "LIST"],
        &["CONFIG", "GET", "maxmemory"],
        &["ACL", "WHOAMI"],
        &["INFO"],
        &["WAIT", "0", "1"],
        &["BGSAVE"],
        &["SCAN", "0"],
        &["SUBSCRIBE", "news"],
    ];
    for words in allowed {
        app.done(words).await?;
    }
    Ok(format!("yes ({})", allowed.len()))
}

async fn additions_are_accepted(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 10).await?;
    let version = master.operator.info.redis_version.clone();
    let additions = default_user_additions(&version);
    if !additions.is_empty() {
        let mut words = vec!["ACL", "SETUSER", "default"];
        words.extend(additions);
        master.server.operator_wire().await?.done(&words).await?;
    }
    let mut app = master.server.app().await?;
    for (addition, words) in [
        ("+client|no-evict", &["CLIENT", "NO-EVICT", "off"][..]),
        ("+client|setinfo", &["CLIENT", "SETINFO", "LIB-NAME", "shop"]),
        ("+client|no-touch", &["CLIENT", "NO-TOUCH", "off"]),
    ] {
        let reply = app.ask(words).await?;
        let given = additions.contains(&addition);
        ensure!(given == (reply == "OK"), "{}: {reply}, given: {given}", words.join(" "));
        // What was not given is not known to the server either: nothing is withheld. 6.2 takes any word.
        if !given && !build.is_redis_6() {
            let known =
                master.server.operator_wire().await?.ask(&["ACL", "SETUSER", "default", addition]).await?;
            ensure!(known.starts_with('-'), "{addition} is known and was not given");
        }
    }
    Ok(format!("{} at {version}", additions.len()))
}

async fn replication_can_only_replicate(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 10).await?;
    let mut replication = master.server.replication_wire().await?;
    for words in [
        &["GET", "a"][..],
        &["SET", "a", "1"],
        &["INFO"],
        &["CONFIG", "GET", "*"],
        &["ACL", "WHOAMI"],
        &["REPLICAOF", "NO", "ONE"],
    ] {
        seen(&replication.refused(words).await?, "NOPERM")?;
    }
    replication.done(&["REPLCONF", "capa", "psync2"]).await?;
    Ok("NOPERM".into())
}

async fn switching_off_does_not_cut(build: Build) -> Result<String> {
    let (master, replicas) = cluster(&build, 1).await?;
    let user = credentials().replication_user;
    master.server.operator_wire().await?.done(&["ACL", "SETUSER", &user, "off"]).await?;
    master.fill(10).await?;
    replicas[0].operator.until("the writes are there", |info| info.link_up && info.keys == 110).await?;
    Ok("goes on".into())
}

async fn the_operator_has_no_data(build: Build) -> Result<String> {
    let master = Node::master(Server::of(&build), 10).await?;
    let mut operator = master.server.operator_wire().await?;
    for words in [
        &["GET", "a"][..],
        &["SET", "a", "1"],
        &["FLUSHALL"],
        &["KEYS", "*"],
        &["SHUTDOWN"],
        &["FAILOVER"],
        &["EVAL", "return 1", "0"],
    ] {
        seen(&operator.refused(words).await?, "NOPERM")?;
    }
    Ok("NOPERM".into())
}

async fn nobody_may_debug(build: Build) -> Result<String> {
    let server = Server::of(&build).start().await?;
    let words = ["DEBUG", "SLEEP", "0"];
    let application = server.app().await?.refused(&words).await?;
    let operator = server.operator_wire().await?.refused(&words).await?;
    let wanted = if build.is_redis_6() { "NOPERM, NOPERM" } else { "ERR, ERR" };
    seen(&format!("{application}, {operator}"), wanted)
}

async fn demotion_cuts_clients_but_us(build: Build) -> Result<String> {
    let (master, _replicas) = cluster(&build, 1).await?;
    let mut app = master.server.app().await?;
    let mut subscriber = master.server.app().await?;
    subscriber.done(&["SUBSCRIBE", "news"]).await?;
    master.operator.done(Demote).await?;
    ensure!(app.ask(&["CLIENT", "ID"]).await.is_err(), "the client is not cut");
    ensure!(subscriber.reply().await.is_err(), "the subscriber is not cut");
    ensure!(master.operator.probe().await?.is_fenced(), "not fenced");
    let code = master.server.app().await?.refused(&["SET", "a", "1"]).await?;
    seen(&code, "READONLY")?;
    Ok("yes".into())
}

async fn rights_end_running_commands(build: Build) -> Result<String> {
    let (master, _replicas) = cluster(&build, 1).await?;
    let mut blocked = master.server.app().await?;
    blocked.send(&["BLPOP", "list", "0"]).await?;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    master.operator.done(Demote).await?;
    let end = blocked.reply().await.map_or_else(|_| "cut".to_owned(), |reply| code(&reply));
    ensure!(["cut", "UNBLOCKED"].contains(&end.as_str()), "{end}");
    master.operator.done(PROMOTE).await?;
    master.operator.done(Serve).await?;
    Ok(end)
}
