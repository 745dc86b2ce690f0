//! A pod's sandbox as the pod runner holds it: a process with the namespaces
//! and a routed link to the node.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::address_pool::AddressPool;
use crate::addresses::{GATEWAY, NodeNumber};
use crate::program::ip;

const DEADLINE: Duration = Duration::from_secs(20);

pub struct Sandbox {
    pub pid: i32,
    pub address: String,
    number: u8,
    pool: AddressPool,
    process: Child,
    /// Held open: its end would end the sandbox.
    _input: ChildStdin,
}

impl Sandbox {
    pub async fn make(hostname: &str, node: NodeNumber, pool: &AddressPool) -> Result<Self> {
        let number = pool.take().context("the node has no free pod address")?;
        let made = timeout(DEADLINE, make(hostname, node, number)).await;
        match made.context("no sandbox in time").and_then(|made| made) {
            Ok((pid, process, input)) => Ok(Self {
                pid,
                address: node.pod_address(number),
                number,
                pool: pool.clone(),
                process,
                _input: input,
            }),
            Err(error) => {
                pool.give_back(number);
                Err(error).context("make the pod's sandbox")
            }
        }
    }

    /// Ends the sandbox; the address is free afterwards.
    pub async fn end(mut self) {
        // The link goes with the namespace a moment later; a successor with the
        // same number must not find it.
        let _ = ip(&format!("link del p{}\n", self.number)).await;
        let _ = self.process.kill().await;
        self.pool.give_back(self.number);
    }
}

async fn make(hostname: &str, node: NodeNumber, number: u8) -> Result<(i32, Child, ChildStdin)> {
    let exe = std::env::current_exe().context("find the world program")?;
    let mut process = Command::new(exe)
        .arg("__sandbox")
        .arg(hostname)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("start the sandbox")?;
    let pid = process.id().and_then(|id| i32::try_from(id).ok()).context("a new process has a number")?;
    let mut input = process.stdin.take().context("a pipe was asked for")?;
    let mut words = BufReader::new(process.stdout.take().context("a pipe was asked for")?).lines();
    expect(&mut words, "ready").await?;

    let (address, node_address) = (node.pod_address(number), node.address());
    ip(&format!(
        "link add p{number} type veth peer name eth0 netns {pid}\n\
         addr add {GATEWAY}/32 dev p{number} scope link\n\
         link set p{number} up\n\
         route replace {address}/32 dev p{number} src {node_address}\n"
    ))
    .await?;
    let inner = format!(
        "link set lo up\n\
         addr add {address}/32 dev eth0\n\
         link set eth0 up\n\
         route add {GATEWAY} dev eth0\n\
         route add default via {GATEWAY} dev eth0\n\
         .\n"
    );
    input.write_all(inner.as_bytes()).await.context("tell the sandbox its network")?;
    expect(&mut words, "up").await?;
    Ok((pid, process, input))
}

async fn expect(words: &mut Lines<BufReader<ChildStdout>>, word: &str) -> Result<()> {
    let line = words.next_line().await.context("listen to the sandbox")?;
    match line.as_deref() {
        Some(line) if line == word => Ok(()),
        Some(line) => bail!("the sandbox said {line:?} and not {word:?}"),
        None => bail!("the sandbox ended before it said {word:?}"),
    }
}
