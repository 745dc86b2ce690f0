//! A master and its replicas, made by the operator's commands.

use anyhow::Result;
use redis_ha_operator::core::event::RoleCommand::Serve;
use redis_ha_operator::core::facts::Info;

use crate::build::Build;
use crate::operator::{Operator, PROMOTE, follow, position};
use crate::server::{Plan, Server};
use crate::wait::until;

/// A server and the operator's connection to it.
pub struct Node {
    pub server: Server,
    pub operator: Operator,
}

impl Node {
    pub async fn start(plan: Plan) -> Result<Self> {
        let server = plan.start().await?;
        let operator = server.operator().await?;
        Ok(Self { server, operator })
    }

    /// A master that serves, with so many keys.
    pub async fn master(plan: Plan, keys: u32) -> Result<Self> {
        let node = Self::start(plan).await?;
        node.operator.done(PROMOTE).await?;
        node.operator.done(Serve).await?;
        node.fill(keys).await?;
        Ok(node)
    }

    /// So many keys more.
    pub async fn fill(&self, keys: u32) -> Result<()> {
        let mut app = self.server.app().await?;
        let script =
            "local n = redis.call('DBSIZE') for i = 1, ARGV[1] do redis.call('SET', 'key:' .. n + i, i) end";
        app.done(&["EVAL", script, "0", &keys.to_string()]).await?;
        Ok(())
    }

    /// Waits until this replica has all that the master has written by now.
    pub async fn caught_up_with(&self, master: &Node) -> Result<()> {
        let offset = master.operator.probe().await?.master_offset;
        self.operator.until("caught up", |info| info.link_up && position(info) >= offset).await?;
        Ok(())
    }

    /// Waits until its first AOF after a sync is written: before, it does not end when it is asked to.
    pub async fn aof_is_written(&self) -> Result<()> {
        let mut app = self.server.app().await?;
        until("the AOF is written", async || {
            let busy =
                app.number("aof_rewrite_in_progress").await? + app.number("aof_rewrite_scheduled").await?;
            Ok((busy == 0).then_some(()))
        })
        .await?;
        Ok(())
    }

    /// Another process on the same files.
    pub async fn restart(self, signal: nix::sys::signal::Signal) -> Result<Self> {
        let Self { server, operator } = self;
        drop(operator);
        let server = server.restart(signal).await?;
        let operator = server.operator().await?;
        // Clients are served before all is read.
        operator.until("loaded", |info| !info.loading).await?;
        Ok(Self { server, operator })
    }
}

/// A master with 100 keys, and replicas that have them.
pub async fn cluster(build: &Build, replicas: usize) -> Result<(Node, Vec<Node>)> {
    cluster_of(replicas, || Server::of(build)).await
}

/// As [`cluster`], each server started so.
pub async fn cluster_of(replicas: usize, plan: impl Fn() -> Plan) -> Result<(Node, Vec<Node>)> {
    let master = Node::master(plan(), 100).await?;
    let mut nodes = Vec::new();
    for _ in 0..replicas {
        let node = Node::start(plan()).await?;
        node.operator.done(follow(&master.server)).await?;
        nodes.push(node);
    }
    for node in &nodes {
        node.operator.in_sync().await?;
        node.caught_up_with(&master).await?;
    }
    // A replica may know before its master that it has all.
    let online =
        |info: &Info| info.attached.iter().filter(|replica| replica.state == "online").count() == replicas;
    master.operator.until("all are online", online).await?;
    Ok((master, nodes))
}
