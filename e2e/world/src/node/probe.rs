//! Startup, readiness and liveness probes.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Container as Spec, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::container::Run;
use super::exec::exec;
use super::pod::{Mailbox, Message};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Startup,
    Readiness,
    Liveness,
}

/// A container that is not ready yet is looked at more often at first, so that
/// tests need not wait for a whole period. Only one failure a period counts.
const EAGER: Duration = Duration::from_millis(200);
const EAGER_FOR: Duration = Duration::from_secs(10);

/// A probe of one run of one container.
pub struct Prober {
    pub kind: Kind,
    pub probe: Probe,
    pub spec: Spec,
    pub address: String,
    pub run: Run,
    pub mailbox: Mailbox,
}

impl Prober {
    pub fn spawn(self) {
        tokio::spawn(async move {
            let run = self.run.clone();
            tokio::select! {
                () = run.over() => {}
                () = self.watch() => {}
            }
        });
    }

    async fn watch(self) {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
        };
        let period = seconds(self.probe.period_seconds, 10).max(Duration::from_secs(1));
        let patience = seconds(self.probe.timeout_seconds, 1).max(Duration::from_secs(1));
        let enough = self.probe.success_threshold.unwrap_or(1);
        let too_many = self.probe.failure_threshold.unwrap_or(3);
        sleep(seconds(self.probe.initial_delay_seconds, 0)).await;

        let begun = Instant::now();
        let (mut passed, mut failed) = (0, 0);
        let mut counted: Option<Instant> = None;
        let mut told = None;
        loop {
            if timeout(patience, self.once(patience)).await.is_ok_and(|result| result.is_ok()) {
                (passed, failed, counted) = (passed + 1, 0, None);
            } else if counted.is_none_or(|counted| counted.elapsed() >= period) {
                (passed, failed, counted) = (0, failed + 1, Some(Instant::now()));
            }
            let verdict = if passed >= enough { Some(true) } else { (failed >= too_many).then_some(false) };
            if verdict.is_some() && verdict != told {
                told = verdict;
                self.mailbox.tell(Message::Probed {
                    container: self.spec.name.clone(),
                    attempt: self.run.attempt,
                    kind: self.kind,
                    passed: verdict == Some(true),
                });
                if self.kind == Kind::Startup || (self.kind == Kind::Liveness && verdict == Some(false)) {
                    return;
                }
            }
            let eager = self.kind != Kind::Liveness && told != Some(true) && begun.elapsed() < EAGER_FOR;
            sleep(if eager { EAGER } else { period }).await;
        }
    }

    async fn once(&self, patience: Duration) -> Result<()> {
        if let Some(command) = self.probe.exec.as_ref().and_then(|action| action.command.as_ref()) {
            let pid = self.run.main().context("there is no process yet")?;
            return exec(pid, &self.run.plan, command, patience).await;
        }
        if let Some(action) = &self.probe.tcp_socket {
            TcpStream::connect((self.address.as_str(), self.port(&action.port)?)).await?;
            return Ok(());
        }
        if let Some(action) = &self.probe.http_get {
            return self.http(action).await;
        }
        bail!("this kind of probe is not supported by the pod runner")
    }

    async fn http(&self, action: &HTTPGetAction) -> Result<()> {
        let host = action.host.as_deref().unwrap_or(&self.address);
        let port = self.port(&action.port)?;
        let path = action.path.as_deref().unwrap_or("/");
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n");
        for header in action.http_headers.iter().flatten() {
            // Writing to a string cannot fail.
            let _ = write!(request, "{}: {}\r\n", header.name, header.value);
        }
        request.push_str("\r\n");
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.write_all(request.as_bytes()).await?;
        // "HTTP/1.1 200": the code is all that counts.
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        let head = String::from_utf8_lossy(&head);
        let code: u16 =
            head.rsplit(' ').next().unwrap_or_default().parse().context("read the answer's code")?;
        if !(200..400).contains(&code) {
            bail!("the answer was {code}");
        }
        Ok(())
    }

    fn port(&self, port: &IntOrString) -> Result<u16> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let named = self.spec.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
                named.with_context(|| format!("the container has no port {name}"))?.container_port
            }
        };
        u16::try_from(number).with_context(|| format!("{number} is no port"))
    }
}
