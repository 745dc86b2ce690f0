//! How the demo looks: quiet, aligned, the same on every terminal.

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// kubectl remembers an API server in the home directory; a world leaves nothing behind.
pub const KUBECTL_CACHE: (&str, &str) = ("KUBECACHEDIR", "/run/world/kube-cache");

pub fn title(text: &str) {
    println!("\n{text}\n{}\n", "-".repeat(text.chars().count()));
}

pub fn say(text: &str) {
    println!("{text}");
}

pub fn command(text: &str) {
    println!("$ {text}");
}

/// Text of a file.
pub fn quote(text: &str) {
    for line in text.lines() {
        println!("  {line}");
    }
}

/// Runs kubectl as a user would, and shows what it prints.
pub async fn kubectl(args: &[&str]) -> Result<()> {
    command(&format!("kubectl {}", args.join(" ")));
    let kubectl = Command::new("kubectl").args(args).env(KUBECTL_CACHE.0, KUBECTL_CACHE.1).output().await;
    let output = kubectl.context("run kubectl")?;
    ensure!(output.status.success(), "kubectl: {}", String::from_utf8_lossy(&output.stderr).trim());
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// What a reader needs to judge the figures.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or("?".to_owned(), |cores| cores.to_string());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{cores} cores, load {}", load.split(' ').next().unwrap_or("?"))
}

/// A number with its thousands set apart.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }
}
