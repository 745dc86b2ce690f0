//! What else the machine did while something was measured.

use std::fs;
use std::thread::available_parallelism;

use anyhow::{Context, Result};

/// The processors' time since their start, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        Self::of(&text).context("/proc/stat has no line of all processors")
    }

    /// `cpu user nice system idle iowait irq softirq steal ...`
    fn of(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|tick| tick.parse().ok()).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Some(Self { busy: all - idle, all })
    }

    /// The machine and its load since then, as half a sentence.
    pub fn report(self) -> Result<String> {
        let now = Self::now()?;
        let busy = (now.busy - self.busy) * 100 / (now.all - self.all).max(1);
        let load = fs::read_to_string("/proc/loadavg").context("read /proc/loadavg")?;
        let load: Vec<&str> = load.split(' ').take(3).collect();
        let processors = available_parallelism().context("count the processors")?;
        Ok(format!(
            "{processors} processors, {busy} % busy during the run; load average at its end {}",
            load.join(" ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_is_not_being_busy() {
        let ticks = Ticks::of("cpu  10 1 4 80 5 0 2 3 7 7\ncpu0 1 2 3\n").unwrap();
        assert_eq!((ticks.busy, ticks.all), (20, 105));
    }
}
