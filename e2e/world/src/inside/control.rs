//! The control socket: one JSON request and one JSON answer a line.
//!
//! Network faults, restart delays and signals to pods need no request: a test
//! does them itself, or writes a file that the pod runner reads.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::processes::Processes;
use crate::paths;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Kill it and wait for its end.
    Stop,
    Start,
    /// SIGSTOP: connections stay open and nothing answers.
    Freeze,
    Thaw,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    pub act: Act,
    pub component: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    pub error: Option<String>,
}

/// Answers requests until the world ends.
pub async fn serve(listener: UnixListener, processes: Processes) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let processes = processes.clone();
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, &processes).await {
                        eprintln!("world: control: {error:#}");
                    }
                });
            }
            Err(error) => {
                eprintln!("world: control: {error}");
                // Too many open files is the likely cause, and it passes.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, processes: &Processes) -> Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading).lines();
    while let Some(line) = lines.next_line().await.context("read a request")? {
        let done = match serde_json::from_str(&line) {
            Ok(request) => perform(&request, processes).await,
            Err(error) => Err(error).context("understand the request"),
        };
        let answer = Answer { error: done.err().map(|error| format!("{error:#}")) };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        writing.write_all(&line).await.context("write an answer")?;
    }
    Ok(())
}

async fn perform(request: &Request, processes: &Processes) -> Result<()> {
    let name = &request.component;
    match request.act {
        Act::Stop => processes.stop(name).await,
        Act::Start => processes.start(name),
        Act::Freeze => processes.signal(name, Signal::SIGSTOP),
        Act::Thaw => processes.signal(name, Signal::SIGCONT),
    }
}

/// Asks the supervisor for one act.
pub async fn ask(act: Act, component: &str) -> Result<()> {
    let asking = async {
        let path = paths::control_socket();
        let stream =
            UnixStream::connect(&path).await.with_context(|| format!("connect to {}", path.display()))?;
        let (reading, mut writing) = stream.into_split();
        let mut line = serde_json::to_vec(&Request { act, component: component.into() })?;
        line.push(b'\n');
        writing.write_all(&line).await.context("write the request")?;
        let answer = BufReader::new(reading).lines().next_line().await.context("read the answer")?;
        let answer: Answer = serde_json::from_str(&answer.context("no answer came")?)?;
        answer.error.map_or(Ok(()), |error| Err(anyhow::anyhow!(error)))
    };
    tokio::time::timeout(Duration::from_secs(20), asking)
        .await
        .context("no answer in 20 s")
        .and_then(|done| done)
        .with_context(|| format!("ask the world to {act:?} {component}"))
}
