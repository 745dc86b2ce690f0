//! Stops a container: its hook, the polite signal, the end of patience.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container as Spec;
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep, timeout_at};

use super::container::Run;
use super::exec::exec;

/// Stops the run within `grace`; the hook counts towards it.
pub async fn stop(run: Run, spec: Option<Spec>, grace: Duration) {
    let deadline = Instant::now() + grace;
    let hook = spec.and_then(|spec| spec.lifecycle).and_then(|lifecycle| lifecycle.pre_stop);
    if !grace.is_zero() {
        if let (Some(hook), Some(pid)) = (hook, run.main()) {
            if let Some(command) = hook.exec.and_then(|action| action.command) {
                // As a kubelet: a hook that fails stops nobody.
                let _ = exec(pid, &run.plan, &command, grace).await;
            } else if let Some(pause) = hook.sleep {
                sleep(Duration::from_secs(u64::try_from(pause.seconds).unwrap_or(0)).min(grace)).await;
            }
        }
        run.signal(Signal::SIGTERM);
        // A frozen process would keep the signal for later; a kubelet does not thaw it.
        let _ = timeout_at(deadline, run.over()).await;
    }
    run.signal(Signal::SIGKILL);
    run.over().await;
}
