//! For tests: a real redis-server on loopback with the boot file and users of a cluster, fenced.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, Value};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use super::link::{Dialler, Link, Report, Target};
use crate::core::event::{CommandOutcome, DialOutcome, ProbeOutcome, RoleCommand};
use crate::core::facts::Info;
use crate::supervisor::{Credentials, clock};

pub const APP_PASSWORD: &str = "app-secret";
const REPLICATION_PASSWORD: &str = "replication-secret";

pub fn credentials() -> Credentials {
    Credentials {
        operator_user: "rha-op-0a1b2c3d".into(),
        operator_password: "operator-secret".into(),
        replication_user: "rha-repl-0a1b2c3d".into(),
    }
}

/// Servers started so far.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Stopped and removed when dropped.
pub struct Server {
    child: Child,
    dir: PathBuf,
    pub address: SocketAddr,
}

impl Server {
    /// Boots fenced, without persistence, with the users of a cluster, on a free port.
    pub async fn start() -> Self {
        Self::start_at(free_address()).await
    }

    /// As [`Self::start`], at this loopback address.
    pub async fn start_at(address: SocketAddr) -> Self {
        assert!(address.ip().is_loopback());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("rha-shell-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let Credentials { operator_user, operator_password, replication_user } = credentials();
        let mut conf = String::new();
        write!(
            conf,
            "bind {ip}\nport {port}\ndir {dir}\nsave \"\"\nreplicaof 127.0.0.1 0\n\
             replica-serve-stale-data no\nrepl-backlog-ttl 0\nrdb-del-sync-files yes\n\
             repl-diskless-sync-delay 0\nrepl-ping-replica-period 1\nmin-replicas-max-lag 3\n\
             masteruser {replication_user}\nmasterauth {REPLICATION_PASSWORD}\n\
             user {operator_user} on >{operator_password} -@all +auth +hello +ping +info +replicaof +multi +exec \
             +discard +config|get +config|set +client|setname +client|id +client|list +client|kill +client|pause \
             +client|unpause +acl|setuser +acl|whoami +failover\n\
             user {replication_user} off >{REPLICATION_PASSWORD} -@all +ping +psync +replconf +role\n\
             user default on >{APP_PASSWORD} ~* &* +@all -replicaof -slaveof -failover -shutdown -debug -psync \
             -sync -replconf -acl +acl|whoami -module -cluster -config +config|get -client +client|id \
             +client|setname +client|getname +client|list +client|info +client|reply +client|tracking \
             +client|caching +client|trackinginfo +client|getredir +client|unblock\n",
            ip = address.ip(),
            port = address.port(),
            dir = dir.display(),
        )
        .unwrap();
        std::fs::File::create(dir.join("redis.conf")).unwrap().write_all(conf.as_bytes()).unwrap();
        let child = Command::new("redis-server")
            .arg(dir.join("redis.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is needed on the PATH");
        let server = Self { child, dir, address };
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(address).await.is_ok() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("redis-server on {address} did not come up");
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// A connection of the application's user.
    pub async fn app(&self) -> MultiplexedConnection {
        let url = format!("redis://:{APP_PASSWORD}@{}", self.address);
        Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    pub fn dial(&self) -> Dialled {
        Dialled::open(self.address, credentials(), true)
    }

    /// A bound connection of the operator's user, which must come about.
    pub async fn operator(&self) -> Operator {
        let mut dialled = self.dial();
        let (link, info) = dialled.opened().await;
        Operator { dialled, link, info }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A loopback address that nobody listens on.
pub fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// An attempt and its reports.
pub struct Dialled {
    pub reports: mpsc::UnboundedReceiver<Report>,
    task: tokio::task::JoinHandle<()>,
}

impl Dialled {
    pub fn open(address: SocketAddr, credentials: Credentials, cut_others: bool) -> Self {
        let (sender, reports) = mpsc::unbounded_channel();
        let target = Target { link: 1, address, credentials, cut_others };
        let dialler = Dialler::new(clock::mono);
        let task = tokio::spawn(dialler.run(target, move |report| {
            let _ = sender.send(report);
        }));
        Self { reports, task }
    }

    pub async fn report(&mut self) -> Report {
        tokio::time::timeout(Duration::from_secs(20), self.reports.recv()).await.unwrap().unwrap()
    }

    pub async fn opened(&mut self) -> (Link, Info) {
        match self.report().await {
            Report::Opened { link, info, .. } => (link, *info),
            other => panic!("expected an open connection, got {other:?}"),
        }
    }

    pub async fn failed(&mut self) -> DialOutcome {
        match self.report().await {
            Report::Failed(outcome) => outcome,
            other => panic!("expected a failure, got {other:?}"),
        }
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The operator's connection to one server.
pub struct Operator {
    pub dialled: Dialled,
    pub link: Link,
    pub info: Info,
}

impl Operator {
    pub async fn command(&self, command: RoleCommand) -> CommandOutcome {
        self.link.clone().command(command, false).await
    }

    /// The command, which must be done.
    pub async fn done(&self, command: RoleCommand) -> Info {
        match self.command(command.clone()).await {
            CommandOutcome::Done(info) => *info,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    pub async fn probe(&self) -> Info {
        match self.link.clone().probe(self.link.question().await.unwrap()).await {
            Some(ProbeOutcome::Answered(info)) => *info,
            other => panic!("expected INFO, got {other:?}"),
        }
    }

    /// Probes until `wanted`, at most 10 s.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Info) -> bool) -> Info {
        for _ in 0..1000 {
            let info = self.probe().await;
            if wanted(&info) {
                return info;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never {what}: {:?}", self.probe().await);
    }
}

/// Sends one command and gives the raw reply; `Err` when the connection has ended.
pub async fn ask(connection: &mut MultiplexedConnection, words: &[&str]) -> Result<Value, String> {
    let (name, arguments) = words.split_first().unwrap();
    connection.send_packed_command(::redis::cmd(name).arg(arguments)).await.map_err(|error| error.to_string())
}
