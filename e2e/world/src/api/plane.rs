//! Faults of the control plane.

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{World, api_ready};
use crate::inside::control::{Act, ask};

const API: &str = "kube-apiserver";
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a slow API server goes on before it is frozen again: enough for a few requests.
const MOMENT: Duration = Duration::from_millis(30);

impl World {
    /// Kills the API server.
    pub async fn stop_api(&self) -> Result<()> {
        ask(Act::Stop, API).await
    }

    /// Starts the API server again and waits until it is ready.
    pub async fn start_api(&self) -> Result<()> {
        ask(Act::Start, API).await?;
        timeout(DEADLINE, api_ready(&self.client)).await.context("wait for the API server")
    }

    /// Freezes the API server: connections stay open and nothing answers.
    pub async fn freeze_api(&self) -> Result<()> {
        ask(Act::Freeze, API).await
    }

    pub async fn thaw_api(&self) -> Result<()> {
        ask(Act::Thaw, API).await
    }

    /// Makes the API server slow: it is frozen for `delay` again and again, with short moments in between. What is
    /// asked waits up to `delay` for each step that does not fit into one moment.
    pub fn slow_api(&self, delay: Duration) -> Result<SlowApi> {
        let (end, ended) = oneshot::channel();
        // A thread of its own with its own timer: it thaws the API server also when the test's runtime is gone.
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        let thread = std::thread::spawn(move || runtime.block_on(slow_down(delay, ended)));
        Ok(SlowApi { running: Some((end, thread)), _world: self.clone() })
    }

    /// Kills any component: `etcd`, `kube-controller-manager`, `kube-scheduler`,
    /// `kube-proxy-node-1`, `kube-proxy-outer`, `node-agent-node-1` and so on.
    pub async fn stop_component(&self, name: &str) -> Result<()> {
        ask(Act::Stop, name).await
    }

    pub async fn start_component(&self, name: &str) -> Result<()> {
        ask(Act::Start, name).await
    }

    pub async fn freeze_component(&self, name: &str) -> Result<()> {
        ask(Act::Freeze, name).await
    }

    pub async fn thaw_component(&self, name: &str) -> Result<()> {
        ask(Act::Thaw, name).await
    }
}

/// A slow API server; with the end of this value it is as fast as before.
#[must_use]
pub struct SlowApi {
    running: Option<(oneshot::Sender<()>, JoinHandle<Result<()>>)>,
    /// Nobody else enters before.
    _world: World,
}

impl SlowApi {
    /// Ends it, and tells if the API server could not be slowed down all the time.
    pub fn end(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        let Some((end, thread)) = self.running.take() else { return Ok(()) };
        drop(end);
        let Ok(done) = thread.join() else { bail!("the thread that slows the API server down panicked") };
        done.context("slow the API server down")
    }
}

impl Drop for SlowApi {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("world: {error:#}");
        }
    }
}

/// Freezes and thaws until the sender is gone; the last act is a thaw in any case.
async fn slow_down(delay: Duration, mut ended: oneshot::Receiver<()>) -> Result<()> {
    let freeze_again_and_again = async {
        loop {
            ask(Act::Freeze, API).await?;
            // Between the acts only: an act that was asked for is waited for, so that no freeze comes after the thaw.
            if timeout(delay, &mut ended).await.is_ok() {
                return Ok(());
            }
            ask(Act::Thaw, API).await?;
            sleep(MOMENT).await;
        }
    };
    let done: Result<()> = freeze_again_and_again.await;
    ask(Act::Thaw, API).await.and(done)
}
