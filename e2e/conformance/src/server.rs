//! A real server on 127.0.0.1, started from the boot file and the users file that pods get.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis_ha_operator::api::{RedisCluster, names};
use redis_ha_operator::core::objects::secrets::Passwords;
use redis_ha_operator::core::objects::{boot_file, users};
use redis_ha_operator::core::valid::validate;
use redis_ha_operator::supervisor::Credentials;
use serde_json::json;

use crate::build::Build;
use crate::operator::Operator;
use crate::wait::until;
use crate::wire::Wire;

const UID: &str = "0a1b2c3d-4e5f-6a7b";
const APPLICATION: &str = "password of the application";
const LOG: &str = "log";

/// The operator's credentials for every server.
pub fn credentials() -> Credentials {
    Credentials {
        operator_user: names::operator_user(UID),
        operator_password: passwords().operator,
        replication_user: names::replication_user(UID),
    }
}

fn passwords() -> Passwords {
    Passwords {
        operator: "0f".repeat(32),
        replication: "1e".repeat(32),
        application: APPLICATION.as_bytes().to_vec(),
    }
}

/// A connection of the application's user to the server at this address.
pub async fn app_at(address: SocketAddr) -> Result<Wire> {
    Wire::login(address, "default", APPLICATION).await
}

/// How a server is to be started.
pub struct Plan {
    build: Build,
    persistence: &'static str,
    more: String,
}

impl Plan {
    /// `AOF`, `RDB` or `None`.
    #[must_use]
    pub fn persistence(mut self, persistence: &'static str) -> Self {
        self.persistence = persistence;
        self
    }

    /// A line after our own boot file, for what a test needs to see more, sooner or without us.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        self.more.push_str(line);
        self.more.push('\n');
        self
    }

    /// Fenced, and it answers.
    pub async fn start(self) -> Result<Server> {
        // A port that was free may be taken when the server asks for it.
        for _ in 0..4 {
            if let Ok(server) = self.start_at(free_port()?).await {
                return Ok(server);
            }
        }
        self.start_at(free_port()?).await
    }

    async fn start_at(&self, port: u16) -> Result<Server> {
        let dir = new_dir()?;
        let object: RedisCluster = serde_json::from_value(json!({
            "apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster",
            "metadata": {"name": "cache", "namespace": "shop", "uid": UID},
            "spec": {"persistence": self.persistence},
        }))?;
        let cluster =
            validate(&object, "redis").map_err(|refusal| anyhow::anyhow!("{}", refusal.reason()))?;
        let place = dir.display().to_string();
        let ours = boot_file::render(&cluster)
            .replace(
                &format!("\nport {}\n", redis_ha_operator::core::facts::REDIS_PORT),
                &format!("\nport {port}\nbind {}\n", Ipv4Addr::LOCALHOST),
            )
            .replace(&format!("\ndir {}\n", boot_file::DATA_DIR), &format!("\ndir {place}\n"))
            .replace(boot_file::USERS_DIR, &place);
        ensure!(ours.contains(&format!("\nport {port}\n")), "the boot file names no port");
        fs::write(dir.join(boot_file::BOOT_FILE), ours + &self.more)?;
        fs::write(dir.join(users::USERS_FILE), users::render(UID, &passwords()))?;
        let process = spawn(&self.build, &dir)?;
        let server = Server {
            build: self.build.clone(),
            process,
            dir,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        };
        server.answers().await
    }
}

/// Killed, and its files removed, when dropped.
pub struct Server {
    pub build: Build,
    pub address: SocketAddr,
    process: Child,
    dir: PathBuf,
}

impl Server {
    /// From our boot file, without persistence.
    pub fn of(build: &Build) -> Plan {
        Plan { build: build.clone(), persistence: "None", more: String::new() }
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.process.id())?), signal)?)
    }

    /// Stops its threads where they are.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn wake(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Ends the process by this signal and waits for its end.
    pub async fn end(&mut self, signal: Signal) -> Result<()> {
        self.signal(signal)?;
        until("the process ends", async || Ok(self.process.try_wait()?)).await?;
        Ok(())
    }

    /// It has not ended.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_none())
    }

    /// Another process on the same files, at the same address.
    pub async fn start_again(mut self) -> Result<Self> {
        self.process = spawn(&self.build, &self.dir)?;
        self.answers().await
    }

    /// Ends the process by this signal; another one on the same files, at the same address.
    pub async fn restart(mut self, signal: Signal) -> Result<Self> {
        self.end(signal).await?;
        self.start_again().await
    }

    /// The operator's own connection, which cuts its others.
    pub async fn operator(&self) -> Result<Operator> {
        Operator::open(self.address, true).await
    }

    /// A connection of the application's user.
    pub async fn app(&self) -> Result<Wire> {
        app_at(self.address).await
    }

    /// A bare connection of the operator's user.
    pub async fn operator_wire(&self) -> Result<Wire> {
        let Credentials { operator_user, operator_password, .. } = credentials();
        Wire::login(self.address, &operator_user, &operator_password).await
    }

    /// A bare connection of the replication user.
    pub async fn replication_wire(&self) -> Result<Wire> {
        Wire::login(self.address, &credentials().replication_user, &passwords().replication).await
    }

    /// A number in INFO, whatever the operator reads of it.
    pub async fn number(&self, field: &str) -> Result<i64> {
        self.app().await?.number(field).await
    }

    /// Lines that it has printed so far.
    pub fn log(&self) -> Result<Vec<String>> {
        Ok(fs::read_to_string(self.dir.join(LOG))?.lines().map(str::to_owned).collect())
    }

    /// A file among its data.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    async fn answers(mut self) -> Result<Self> {
        let (address, dir) = (self.address, self.dir.clone());
        let process = &mut self.process;
        until("the server answers", async || {
            if let Some(status) = process.try_wait()? {
                let log = fs::read_to_string(dir.join(LOG))?;
                bail!("the server ended with {status}: {}", log.lines().last().unwrap_or_default());
            }
            Ok(Wire::open(address).await.ok())
        })
        .await?;
        Ok(self)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn spawn(build: &Build, dir: &Path) -> Result<Child> {
    let log = File::options().create(true).append(true).open(dir.join(LOG))?;
    Command::new(build.program.as_os_str())
        .arg(dir.join(boot_file::BOOT_FILE))
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| build.program.display().to_string())
}

fn new_dir() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("redis-ha-conformance-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Below the ports that outgoing connections take, so that one is still free after a restart.
fn free_port() -> Result<u16> {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = u16::try_from(std::process::id() % 97)? * 120;
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(offset) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port")
}
