//! One connection to one server process: dial, bind, ask, notice its end. May touch the network.
//!
//! The connection is evidence, so it never reconnects by itself, has no response timeout and no TCP user
//! timeout: a late answer is still delivered, and end of file means that this one connection ended.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError, Value};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::commands::{self, default_user_additions};
use super::info::{self, Sections};
use crate::core::event::{CommandOutcome, DialOutcome, Knock, ProbeOutcome, RoleCommand};
use crate::core::facts::{Info, LinkId, Mono};
use crate::supervisor::Credentials;

/// A TCP connection that takes longer is "no route": a hung process still accepts, its kernel does that.
pub const CONNECT_DEADLINE: Duration = Duration::from_millis(300);
/// A server that has not answered a greeting by then is reported as silent; the attempt goes on.
pub const GREETING_DEADLINE: Duration = Duration::from_millis(300);
/// A silent attempt is given up after this; a new one then shows whether anything has changed.
pub const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);
/// Attempts under way at once over the whole process, so that a burst cannot exhaust descriptors.
pub const ATTEMPTS_AT_ONCE: usize = 64;
/// More unanswered questions than this would only delay a role command queued behind them. The core keeps to two
/// in its rhythm; the third is the last look at a silent master.
pub const UNANSWERED_AT_ONCE: usize = 3;
/// Name of our connections in CLIENT LIST.
const CLIENT_NAME: &str = "redis-ha-operator";

/// Makes connections for the whole process.
#[derive(Clone, Debug)]
pub struct Dialler {
    attempts: Arc<Semaphore>,
    clock: fn() -> Mono,
}

/// Where to, and how to get in.
#[derive(Clone, Debug)]
pub struct Target {
    /// Names this attempt, and the connection if there will be one.
    pub link: LinkId,
    pub address: SocketAddr,
    pub credentials: Credentials,
    /// Cut the operator's other connections to this server: a paused predecessor's late commands then end
    /// in a closed socket. Only for the holder of the lease, else a lapsed one would cut its successor.
    pub cut_others: bool,
}

/// What an attempt, and the connection that came of it, has to say. In this order: at most one
/// `Failed(Silent)`; then one `Opened` or `Failed`; after `Opened` one `Lost`.
#[derive(Debug)]
pub enum Report {
    /// Bound to the process that gave this INFO.
    Opened {
        link: Link,
        asked_at: Mono,
        info: Box<Info>,
    },
    Failed(DialOutcome),
    Lost,
}

impl Dialler {
    /// `clock` stamps when questions are asked.
    pub fn new(clock: fn() -> Mono) -> Self {
        Self { attempts: Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE)), clock }
    }

    /// Opens a connection and serves it until its end. Dropping this future closes the connection.
    pub async fn run(self, target: Target, report: impl Fn(Report)) {
        let permit = self.attempts.clone().acquire_owned().await.ok();
        let stream = match connect(target.address).await {
            Ok(stream) => stream,
            Err(error) => return report(Report::Failed(unreached(&error))),
        };
        if let Err(outcome) = self.greet_and_serve(stream, target, permit, &report).await {
            report(Report::Failed(outcome));
        }
    }

    /// A bare TCP connect, closed at once.
    pub async fn knock(self, address: SocketAddr) -> Knock {
        let _permit = self.attempts.acquire().await.ok();
        match connect(address).await {
            Ok(_) => Knock::Accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Knock::Refused,
            Err(_) => Knock::Unroutable,
        }
    }

    async fn greet_and_serve(
        &self,
        stream: TcpStream,
        target: Target,
        permit: Option<OwnedSemaphorePermit>,
        report: &impl Fn(Report),
    ) -> Result<(), DialOutcome> {
        let login = login(&target.credentials);
        let connect = async {
            let (connection, driver) = MultiplexedConnection::new_with_config(&login, stream, no_limits())
                .await
                .map_err(|error| not_let_in(&error))?;
            // The driver ends exactly when the connection does: end of file, reset, or garbage.
            let mut driver = Box::pin(driver);
            let bound = tokio::select! {
                biased;
                bound = self.bind(&target, connection) => bound?,
                () = &mut driver => return Err(DialOutcome::Broken("closed before the first INFO".into())),
            };
            Ok((driver, bound))
        };
        let mut connect = pin!(connect);
        let (driver, opened) = if let Ok(result) = timeout(GREETING_DEADLINE, &mut connect).await {
            result?
        } else {
            // A hung server must not keep others from being dialled.
            drop(permit);
            report(Report::Failed(DialOutcome::Silent));
            let rest = ATTEMPT_DEADLINE.saturating_sub(GREETING_DEADLINE);
            timeout(rest, connect).await.unwrap_or_else(|_| {
                Err(DialOutcome::Broken(format!("no answer within {} s", ATTEMPT_DEADLINE.as_secs())))
            })?
        };
        report(opened);
        driver.await;
        report(Report::Lost);
        Ok(())
    }

    /// One packet: cut a predecessor, name ourselves, INFO. Then what this version needs.
    async fn bind(
        &self,
        target: &Target,
        mut connection: MultiplexedConnection,
    ) -> Result<Report, DialOutcome> {
        let Credentials { operator_user, replication_user, .. } = &target.credentials;
        let mut greeting = Pipeline::new();
        if target.cut_others {
            greeting.add_command(commands::cut_user(operator_user));
        }
        greeting.cmd("CLIENT").arg(&["SETNAME", CLIENT_NAME]);
        greeting.add_command(Sections::Default.command());
        let asked_at = (self.clock)();
        let replies = ask_all(&mut connection, &greeting).await?;
        let info = match replies.last().map(read_info) {
            Some(Ok(info)) => info,
            Some(Err(refusal)) => return Err(DialOutcome::Denied(refusal)),
            None => return Err(DialOutcome::Broken("an empty reply to the greeting".into())),
        };
        if let Some(refusal) = replies.iter().find_map(refusal) {
            // Without the cut a predecessor could still act here: not let in is the honest word.
            return Err(DialOutcome::Denied(refusal));
        }

        let needs = needs(&info.redis_version);
        if !needs.is_empty() {
            for refusal in ask_all(&mut connection, &needs).await?.iter().filter_map(refusal) {
                tracing::warn!(
                    address = %target.address,
                    version = info.redis_version,
                    refusal,
                    "the server refused a setting that its version needs"
                );
            }
        }
        let link = Link {
            id: target.link,
            connection,
            sections: Sections::of(&info.redis_version),
            operator_user: operator_user.as_str().into(),
            replication_user: replication_user.as_str().into(),
            unanswered: Arc::new(Semaphore::new(UNANSWERED_AT_ONCE)),
        };
        Ok(Report::Opened { link, asked_at, info: Box::new(info) })
    }
}

/// An open connection, bound to one process. Clones share it.
#[derive(Clone)]
pub struct Link {
    id: LinkId,
    connection: MultiplexedConnection,
    sections: Sections,
    operator_user: Arc<str>,
    replication_user: Arc<str>,
    unanswered: Arc<Semaphore>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The right to ask one more INFO on a connection; given back with the answer.
#[derive(Debug)]
pub struct Question {
    _permit: OwnedSemaphorePermit,
}

impl Link {
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// For tests: the connection itself.
    #[cfg(test)]
    pub(super) fn raw(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// Waits while [`UNANSWERED_AT_ONCE`] questions wait for their answers. Who asked counts on an answer: a
    /// question is put off, never dropped.
    pub async fn question(&self) -> Option<Question> {
        self.unanswered.clone().acquire_owned().await.ok().map(|permit| Question { _permit: permit })
    }

    /// Asks INFO and waits for the answer, however long. `None`: the connection ended first.
    pub async fn probe(mut self, question: Question) -> Option<ProbeOutcome> {
        let reply = self.connection.send_packed_command(&self.sections.command()).await;
        drop(question);
        // An error reply is a value here; an error is the end of the connection, which reports itself.
        Some(match read_info(&reply.ok()?) {
            Ok(info) => ProbeOutcome::Answered(Box::new(info)),
            Err(refusal) => ProbeOutcome::Refused(refusal),
        })
    }

    /// Carries out one role command and waits for the answer, however long. `cut_others` first cuts the
    /// operator's other connections to this server.
    pub async fn command(mut self, command: RoleCommand, cut_others: bool) -> CommandOutcome {
        if cut_others {
            match self.connection.send_packed_command(&commands::cut_user(&self.operator_user)).await {
                Ok(reply) => {
                    if let Some(refusal) = refusal(&reply) {
                        return CommandOutcome::Refused(refusal);
                    }
                }
                Err(error) => return CommandOutcome::Lost(error.to_string()),
            }
        }
        commands::carry_out(&mut self.connection, &command, &self.replication_user, self.sections).await
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_DEADLINE, TcpStream::connect(address))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn unreached(error: &io::Error) -> DialOutcome {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut};
    match error.kind() {
        ConnectionRefused => DialOutcome::Refused,
        TimedOut | HostUnreachable | NetworkUnreachable | PermissionDenied => DialOutcome::Unroutable,
        // Also what is our own fault, like no free descriptor: never evidence against the server.
        _ => DialOutcome::Broken(format!("connect: {error}")),
    }
}

/// The error of a greeting: an answer means "denied", anything else that the connection broke.
fn not_let_in(error: &RedisError) -> DialOutcome {
    if error.is_io_error() || error.is_connection_dropped() {
        DialOutcome::Broken(error.to_string())
    } else {
        DialOutcome::Denied(error.to_string())
    }
}

fn login(credentials: &Credentials) -> RedisConnectionInfo {
    RedisConnectionInfo::default()
        .set_username(&credentials.operator_user)
        .set_password(&credentials.operator_password)
        .set_protocol(ProtocolVersion::RESP3)
        // CLIENT SETINFO is unknown before 7.2, and our user may not use it.
        .set_skip_set_lib_name()
}

fn no_limits() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None)
}

/// What the boot file could not say, because older servers would not boot with it.
fn needs(redis_version: &str) -> Pipeline {
    let mut needs = Pipeline::new();
    if info::major_minor(redis_version) >= (7, 0) {
        // Without it a replica whose disk is full kills itself.
        needs.cmd("CONFIG").arg(&["SET", "replica-ignore-disk-write-errors", "yes"]);
    }
    let additions = default_user_additions(redis_version);
    if !additions.is_empty() {
        needs.cmd("ACL").arg(&["SETUSER", "default"]).arg(additions);
    }
    needs
}

async fn ask_all(
    connection: &mut MultiplexedConnection,
    questions: &Pipeline,
) -> Result<Vec<Value>, DialOutcome> {
    connection
        .send_packed_commands(questions, 0, questions.len())
        .await
        .map_err(|error| DialOutcome::Broken(error.to_string()))
}

/// What the server said instead of doing it, in its own words: `NOPERM this user has no ...`.
pub(super) fn refusal(reply: &Value) -> Option<String> {
    match reply {
        Value::ServerError(error) => {
            Some(format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().to_owned())
        }
        _ => None,
    }
}

/// The INFO in a reply, or what the server said instead.
pub(super) fn read_info(reply: &Value) -> Result<Info, String> {
    let parsed = match reply {
        Value::VerbatimString { text, .. } => info::parse(text),
        Value::BulkString(bytes) => info::parse(&String::from_utf8_lossy(bytes)),
        other => return Err(refusal(other).unwrap_or_else(|| "the reply to INFO is no text".into())),
    };
    parsed.map_err(|error| error.to_string())
}

/// Address of the server in a pod.
pub fn address(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, crate::core::facts::REDIS_PORT)
}

#[cfg(test)]
mod tests;
