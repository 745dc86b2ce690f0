//! Runs a helper program to its end, with a deadline and its words in the error.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// `ip` and `nft` answer in milliseconds; a busy machine gets generous room.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs `program` with `args`, feeds it `input`, returns what it printed.
pub async fn run<S: AsRef<OsStr>>(program: &str, args: &[S], input: &str) -> Result<String> {
    run_within(DEADLINE, program, args, input).await
}

/// As [`run`], with another deadline.
pub async fn run_within<S: AsRef<OsStr>>(
    deadline: Duration,
    program: &str,
    args: &[S],
    input: &str,
) -> Result<String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let mut stdin = child.stdin.take().context("a pipe was asked for")?;
    let talk = async {
        // A program that ends early closes the pipe; its exit code tells more.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(deadline, talk)
        .await
        .with_context(|| format!("{program} did not end in {deadline:?}"))?
        .with_context(|| format!("wait for {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} {}: {} {}",
            args.iter().map(|a| a.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a batch of `ip` commands, one a line, in the current network namespace.
pub async fn ip(batch: &str) -> Result<()> {
    run("ip", &["-batch", "-"], batch).await.map(drop)
}
