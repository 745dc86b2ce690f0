//! The operator's own connection to one server: its dialler, its probes, its role commands.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis_ha_operator::core::event::{CommandOutcome, DialOutcome, ProbeOutcome, RoleCommand};
use redis_ha_operator::core::facts::Info;
use redis_ha_operator::redis::link::{Dialler, Link, Report, Target};
use redis_ha_operator::supervisor::{Credentials, clock};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::server::{Server, credentials};
use crate::wait::{LONGEST, until};

/// An attempt to connect and what it reports. Dropped: the connection is closed.
pub struct Attempt {
    reports: mpsc::UnboundedReceiver<Report>,
    task: JoinHandle<()>,
}

impl Attempt {
    pub fn new(address: SocketAddr, credentials: Credentials, cut_others: bool) -> Self {
        let (sender, reports) = mpsc::unbounded_channel();
        let target = Target { link: 1, address, credentials, cut_others };
        let task = tokio::spawn(Dialler::new(clock::mono).run(target, move |report| {
            let _ = sender.send(report);
        }));
        Self { reports, task }
    }

    pub async fn report(&mut self) -> Result<Report> {
        timeout(LONGEST, self.reports.recv()).await.context("no report")?.context("the attempt broke off")
    }

    /// How it failed, which it must.
    pub async fn failed(&mut self) -> Result<DialOutcome> {
        match self.report().await? {
            Report::Failed(outcome) => Ok(outcome),
            other => bail!("expected a failure, got {other:?}"),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connected and bound to a process.
pub struct Operator {
    pub attempt: Attempt,
    pub link: Link,
    /// As of when it was bound.
    pub info: Info,
}

impl Operator {
    pub async fn open(address: SocketAddr, cut_others: bool) -> Result<Self> {
        let mut attempt = Attempt::new(address, credentials(), cut_others);
        loop {
            match attempt.report().await? {
                Report::Opened { link, info, .. } => return Ok(Self { attempt, link, info: *info }),
                Report::Failed(DialOutcome::Silent) => {} // a busy machine: it goes on
                other => bail!("expected an open connection, got {other:?}"),
            }
        }
    }

    /// Sends the command now; the outcome comes when it comes.
    pub fn send(&self, command: RoleCommand) -> JoinHandle<CommandOutcome> {
        tokio::spawn(self.link.clone().command(command, false))
    }

    /// Asks INFO now; the answer comes when it comes. `None`: the connection ended.
    pub fn question(&self) -> JoinHandle<Option<ProbeOutcome>> {
        let link = self.link.clone();
        tokio::spawn(async move {
            let question = link.question().await?;
            link.probe(question).await
        })
    }

    pub async fn command(&self, command: RoleCommand) -> Result<CommandOutcome> {
        Ok(timeout(LONGEST, self.send(command)).await.context("no outcome")??)
    }

    /// The command, which must be done.
    pub async fn done(&self, command: RoleCommand) -> Result<Info> {
        match self.command(command.clone()).await? {
            CommandOutcome::Done(info) => Ok(*info),
            other => bail!("{command:?}: {other:?}"),
        }
    }

    /// Why the command was refused, which it must be.
    pub async fn refused(&self, command: RoleCommand) -> Result<String> {
        match self.command(command.clone()).await? {
            CommandOutcome::Refused(reason) => Ok(reason),
            other => bail!("{command:?}: {other:?}"),
        }
    }

    pub async fn probe(&self) -> Result<Info> {
        match timeout(LONGEST, self.question()).await.context("no answer to INFO")?? {
            Some(ProbeOutcome::Answered(info)) => Ok(*info),
            other => bail!("expected INFO, got {other:?}"),
        }
    }

    /// Probes until it is so; gives the INFO and the time it took.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Info) -> bool) -> Result<(Info, Duration)> {
        let mut last = None;
        let result = until(what, async || {
            let info = self.probe().await?;
            let found = wanted(&info).then(|| info.clone());
            last = Some(info);
            Ok(found)
        })
        .await;
        result.with_context(|| format!("{last:?}"))
    }

    /// The INFO of a replica whose link is up and that has a position.
    pub async fn in_sync(&self) -> Result<Info> {
        Ok(self.until("in sync", is_in_sync).await?.0)
    }
}

pub fn is_in_sync(info: &Info) -> bool {
    info.link_up && position(info) > 1
}

/// A replica's position; 1 and less is none.
pub fn position(info: &Info) -> i64 {
    info.replica_offset.unwrap_or(0)
}

/// Master here, without any write quorum; nobody may sync yet.
pub const PROMOTE: RoleCommand = RoleCommand::Promote { write_quorum: 0 };

/// Follow this server, and let the clients be.
pub fn follow(master: &Server) -> RoleCommand {
    RoleCommand::Follow { ip: master.address.ip(), port: master.address.port(), cut_clients: false }
}
