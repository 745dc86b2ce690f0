//! Who may do what: asked of a server, one command after the other, and printed as a table.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

/// What the application's user must not do on any server.
pub const NOT_FOR_APPLICATIONS: &[&[&str]] = &[
    &["REPLICAOF", "NO", "ONE"],
    &["REPLICAOF", "127.0.0.1", "6379"],
    &["SLAVEOF", "NO", "ONE"],
    &["FAILOVER"],
    &["FAILOVER", "ABORT"],
    &["SHUTDOWN", "NOSAVE"],
    &["DEBUG", "SLEEP", "0"],
    &["PSYNC", "?", "-1"],
    &["SYNC"],
    &["REPLCONF", "ACK", "1"],
    &["CLIENT", "PAUSE", "1"],
    &["CLIENT", "UNPAUSE"],
    &["CLIENT", "KILL", "TYPE", "replica"],
    &["CONFIG", "SET", "maxmemory", "0"],
    &["CONFIG", "REWRITE"],
    &["CONFIG", "RESETSTAT"],
    &["ACL", "SETUSER", "default", "+@all"],
    &["ACL", "LIST"],
    &["ACL", "GETUSER", "default"],
    &["ACL", "LOAD"],
    &["MODULE", "LOAD", "/tmp/x.so"],
    &["MODULE", "LIST"],
    &["CLUSTER", "RESET"],
    &["CLUSTER", "MEET", "127.0.0.1", "6379"],
    &["EVAL", "return redis.call('REPLICAOF', 'NO', 'ONE')", "0"],
    &["EVAL", "return redis.call('CONFIG', 'SET', 'maxmemory', '0')", "0"],
    &["EVAL", "return redis.call('ACL', 'LIST')", "0"],
];

/// What it can do on any server.
pub const FOR_APPLICATIONS: &[&[&str]] = &[
    &["PING"],
    &["SET", "key", "value"],
    &["GET", "key"],
    &["INCR", "number"],
    &["HSET", "hash", "field", "value"],
    &["EXPIRE", "key", "100"],
    &["SCAN", "0"],
    &["DBSIZE"],
    &["EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "scripted"],
    &["PUBLISH", "news", "hello"],
    &["WAIT", "1", "1000"],
    &["INFO", "replication"],
    &["CONFIG", "GET", "maxmemory"],
    &["CLIENT", "SETNAME", "shop"],
    &["CLIENT", "ID"],
    &["CLIENT", "LIST"],
    &["ACL", "WHOAMI"],
    &["MEMORY", "USAGE", "key"],
    &["OBJECT", "ENCODING", "key"],
    &["FLUSHDB"],
];

/// What a server answers; an error as its text.
pub async fn ask(connection: &mut MultiplexedConnection, words: &[&str]) -> Result<String, String> {
    let (name, rest) = words.split_first().unwrap_or((&"PING", &[]));
    let mut command = redis::cmd(name);
    for word in rest {
        command.arg(*word);
    }
    match timeout(Duration::from_secs(2), command.query_async::<redis::Value>(connection)).await {
        Ok(Ok(value)) => Ok(format!("{value:?}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer within 2 s".to_owned()),
    }
}

/// All of these are refused because of the user's rights; prints them as a table.
pub async fn all_refused(
    who: &str,
    connection: &mut MultiplexedConnection,
    commands: &[&[&str]],
) -> Result<()> {
    println!("{who} may not:");
    for words in commands {
        let said = ask(connection, words).await;
        let line = words.join(" ").replace('\n', " ");
        println!("    {line:<58} {}", said.clone().unwrap_or_else(|error| error));
        let error = said.err().with_context(|| format!("{who} may {line}"))?;
        let by_rights =
            error.contains("NOPERM") || error.contains("permissions") || error.contains("not allowed");
        ensure!(by_rights, "{who}, {line}: refused for another reason: {error}");
    }
    Ok(())
}

/// All of these are done; prints them as a table.
pub async fn all_work(who: &str, connection: &mut MultiplexedConnection, commands: &[&[&str]]) -> Result<()> {
    println!("{who} may:");
    for words in commands {
        let line = words.join(" ");
        let said = ask(connection, words).await;
        let answer = said.map_err(|error| anyhow::anyhow!("{who} may not {line}: {error}"))?;
        println!("    {line:<58} {}", answer.chars().take(40).collect::<String>().replace('\n', " "));
    }
    Ok(())
}
