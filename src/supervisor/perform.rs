//! Carries out effects: the one place where a supervisor touches the world. Nothing waits here: each outside
//! call is spawned, and its result comes back as an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::crash_points::CrashPoints;
use super::links::Links;
use super::outside::{Cluster, Leadership, Standing};
use super::{Credentials, clock};
use crate::core::event::{CommandOutcome, DialOutcome, Effect, Event, Notice, RoleCommand, WriteOutcome};
use crate::core::facts::LinkId;
use crate::redis::link::{Dialler, Report, Target, address};

/// An API server that has not answered by then is looked at again. The Kubernetes room's own deadline is
/// shorter; this one holds whatever that room does.
const API_DEADLINE: Duration = Duration::from_secs(3);
/// Pause before a failed read of the object is tried again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Labels and Events give way: beside a failover's own writes they would only slow these down.
const LATER: Duration = Duration::from_millis(250);
/// More changes than that are never under way.
const MOST_CHANGES: u32 = 1 << 20;

/// What all tasks of the process share.
#[derive(Clone, Debug)]
pub struct Shared {
    pub dialler: Dialler,
    pub crash_points: CrashPoints,
    /// Each change under way holds a permit.
    changes: Arc<Semaphore>,
    stopping: Arc<AtomicBool>,
}

impl Shared {
    pub fn new(crash_points: CrashPoints) -> Self {
        Self {
            dialler: Dialler::new(clock::mono),
            crash_points,
            changes: Arc::new(Semaphore::new(MOST_CHANGES as usize)),
            stopping: Arc::default(),
        }
    }

    /// From now on no change is started; returns when those under way have ended, or not `within` that time.
    pub async fn stop(&self, within: Duration) -> bool {
        self.stopping.store(true, Ordering::SeqCst);
        timeout(within, self.changes.acquire_many(MOST_CHANGES)).await.is_ok()
    }
}

/// Something came back.
#[derive(Debug)]
pub enum Happened {
    // Boxed: each task's queue has room for 32 of them from the start.
    Event(Box<Event>),
    Heard(Box<Heard>),
}

/// Word of an attempt or a connection.
#[derive(Debug)]
pub struct Heard {
    pub uid: String,
    pub link: LinkId,
    pub report: Report,
}

/// The hands of one cluster's task.
pub struct Performer {
    /// `<namespace>/<name>`
    pub name: Arc<str>,
    pub cluster: Arc<dyn Cluster>,
    pub leadership: Arc<dyn Leadership>,
    pub credentials: Option<Credentials>,
    pub links: Links,
    shared: Shared,
    inbox: UnboundedSender<Happened>,
    reading: Option<AbortHandle>,
}

impl Performer {
    pub fn new(
        name: Arc<str>,
        cluster: Arc<dyn Cluster>,
        leadership: Arc<dyn Leadership>,
        shared: Shared,
        inbox: UnboundedSender<Happened>,
    ) -> Self {
        let links = Links::default();
        Self { name, cluster, leadership, credentials: None, links, shared, inbox, reading: None }
    }

    /// Whether this operator may act; it may not once it is stopping.
    pub fn standing(&self) -> Standing {
        standing(&*self.leadership, &self.shared.stopping)
    }

    fn term(&self) -> Option<String> {
        match self.standing() {
            Standing::Leading { term } => Some(term),
            Standing::Unsure | Standing::Following => None,
        }
    }

    /// Carries out one effect, or starts it.
    pub fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Dial { uid, ip } => self.dial(uid, address(ip)),
            Effect::Knock { uid, ip } => {
                let knock = self.shared.dialler.clone().knock(address(ip));
                self.ask(async move { Some(Event::Knocked { uid, outcome: knock.await }) });
            }
            Effect::HangUp { uid } => self.links.hang_up(&uid),
            Effect::Probe { uid, link } => self.probe(uid, link),
            Effect::Command { ticket, uid, link, command } => {
                let connection = self.links.claim(&uid, link, self.term());
                let name = command_name(&command);
                let done = async move {
                    match connection {
                        Some((connection, first)) => connection.command(command, first).await,
                        None => CommandOutcome::Refused("not sent: that connection has ended".into()),
                    }
                };
                let idle = || CommandOutcome::NotSent;
                self.change(name, done, idle, move |outcome| Some(Event::Replied { ticket, outcome }));
            }
            Effect::WriteStatus { ticket, expect, status } => {
                let written = self.cluster.write_status(expect, status);
                self.write("WriteStatus", written, move |outcome| {
                    Some(Event::StatusWritten { ticket, outcome })
                });
            }
            Effect::Route { ticket, endpoint, epoch } => {
                let written = self.cluster.write_route(endpoint, epoch);
                self.write("Route", written, move |outcome| Some(Event::RouteWritten { ticket, outcome }));
            }
            Effect::RouteReads { ticket, endpoints, epoch } => {
                let written = self.cluster.write_reads(endpoints, epoch);
                self.write("RouteReads", written, move |outcome| {
                    Some(Event::ReadsWritten { ticket, outcome })
                });
            }
            Effect::Label { pod, uid, role } => {
                let (labelled, name) = (self.cluster.label_pod(pod, uid, role), self.name.clone());
                self.write("Label", later(labelled), move |outcome| {
                    not_important(&name, "the role label", &outcome)
                });
            }
            Effect::ReadObject => self.read_object(),
            Effect::CheckLease { ticket } => {
                let held = self.leadership.held_live();
                self.ask(async move {
                    // A lease that could not be read has not been seen as ours.
                    let held = timeout(API_DEADLINE, held).await.is_ok_and(|held| held.unwrap_or(false));
                    Some(Event::LeaseChecked { ticket, held })
                });
            }
            Effect::ConfirmPod { ticket, pod, uid } => {
                let (found, name) = (self.cluster.confirm_pod(pod, uid), self.name.clone());
                self.ask(async move {
                    match timeout(API_DEADLINE, found).await {
                        Ok(Ok(ip)) => Some(Event::PodConfirmed { ticket, ip }),
                        Ok(Err(error)) => {
                            tracing::warn!(cluster = %name, %error, "a pod could not be confirmed");
                            None
                        }
                        Err(_) => None,
                    }
                });
            }
            Effect::DeletePod { pod, uid } => {
                let (deleted, name) = (self.cluster.delete_pod(pod, uid), self.name.clone());
                self.write("DeletePod", deleted, move |outcome| {
                    not_important(&name, "the deletion of a hung pod", &outcome)
                });
            }
            Effect::ClearSwitchover { value } => {
                let (cleared, name) = (self.cluster.clear_switchover(value), self.name.clone());
                self.write("ClearSwitchover", later(cleared), move |outcome| {
                    not_important(&name, "the removal of the switchover annotation", &outcome)
                });
            }
            Effect::YieldLease => self.leadership.hand_over(),
            Effect::Tell(notice) => self.tell(notice),
            Effect::Measure(measure) => self.cluster.measure(&measure),
        }
    }

    fn dial(&mut self, uid: String, address: std::net::SocketAddr) {
        if self.links.is_dialling(&uid, address) {
            return;
        }
        let Some(credentials) = self.credentials.clone() else {
            let outcome =
                DialOutcome::Denied("the Secret with the operator's password does not exist yet".into());
            let _ = self.inbox.send(Happened::Event(Box::new(Event::Dialed { uid, outcome })));
            return;
        };
        let term = self.term();
        let cut_others = term.is_some();
        let link = self.links.next_id();
        let (inbox, pod) = (self.inbox.clone(), uid.clone());
        self.links.dial(
            uid,
            term,
            self.shared.dialler.clone(),
            Target { link, address, credentials, cut_others },
            move |report| {
                let _ = inbox.send(Happened::Heard(Box::new(Heard { uid: pod.clone(), link, report })));
            },
        );
    }

    fn probe(&self, uid: String, link: LinkId) {
        let Some(connection) = self.links.get(&uid, link).cloned() else { return };
        self.ask(async move {
            let question = connection.question().await?;
            let asked_at = clock::mono();
            let outcome = connection.probe(question).await?;
            Some(Event::Probed { uid, link, asked_at, outcome })
        });
    }

    /// Reads until it succeeds: the state machine can do nothing without the object. A newer read replaces an
    /// older one, whose answer would be older than what made the newer one necessary.
    fn read_object(&mut self) {
        let (cluster, name, inbox) = (self.cluster.clone(), self.name.clone(), self.inbox.clone());
        let reading = tokio::spawn(async move {
            loop {
                match timeout(API_DEADLINE, cluster.read_object()).await {
                    Ok(Ok(Some(stored))) => {
                        let stored = Box::new(Event::Stored(Box::new(stored)));
                        let _ = inbox.send(Happened::Event(stored));
                        return;
                    }
                    // It was deleted: the watch ends this task.
                    Ok(Ok(None)) => return,
                    Ok(Err(error)) => tracing::warn!(cluster = %name, %error, "reading the RedisCluster"),
                    Err(_) => tracing::warn!(cluster = %name, "reading the RedisCluster: no answer in time"),
                }
                tokio::time::sleep(READ_AGAIN).await;
            }
        });
        if let Some(older) = self.reading.replace(reading.abort_handle()) {
            older.abort();
        }
    }

    fn tell(&self, notice: Notice) {
        let Notice { warning, reason, message, epoch } = &notice;
        if *warning {
            tracing::warn!(cluster = %self.name, reason, epoch, "{message}");
        } else {
            tracing::info!(cluster = %self.name, reason, epoch, "{message}");
        }
        if self.term().is_some() {
            let (told, name) = (self.cluster.tell(notice), self.name.clone());
            self.ask(async move { not_important(&name, "the Event", &within(later(told)).await) });
        }
    }

    /// Starts what changes nothing.
    fn ask(&self, answer: impl Future<Output = Option<Event>> + Send + 'static) {
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            if let Some(event) = answer.await {
                let _ = inbox.send(Happened::Event(Box::new(event)));
            }
        });
    }

    /// Starts a write to the API server.
    fn write(
        &self,
        name: &'static str,
        written: impl Future<Output = WriteOutcome> + Send + 'static,
        event: impl FnOnce(WriteOutcome) -> Option<Event> + Send + 'static,
    ) {
        self.change(name, within(written), || WriteOutcome::NotSent, event);
    }

    /// Starts what changes something. Leadership is checked at the last moment, by the holder's own clock.
    fn change<T: Send + 'static>(
        &self,
        name: &'static str,
        done: impl Future<Output = T> + Send + 'static,
        idle: impl FnOnce() -> T + Send + 'static,
        event: impl FnOnce(T) -> Option<Event> + Send + 'static,
    ) {
        let Shared { changes, stopping, crash_points, .. } = self.shared.clone();
        let (leadership, inbox, cluster) = (self.leadership.clone(), self.inbox.clone(), self.name.clone());
        let under_way = changes.try_acquire_owned();
        tokio::spawn(async move {
            let point = crash_points.before(name, &cluster).await;
            let leading = matches!(standing(&*leadership, &stopping), Standing::Leading { .. });
            let outcome = if leading && under_way.is_ok() { done.await } else { idle() };
            point.after().await;
            if let Some(event) = event(outcome) {
                let _ = inbox.send(Happened::Event(Box::new(event)));
            }
        });
    }
}

impl Drop for Performer {
    /// Nobody is left to hear the answer, and it would be asked for until it comes.
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

fn standing(leadership: &dyn Leadership, stopping: &AtomicBool) -> Standing {
    match leadership.standing() {
        Standing::Leading { .. } if stopping.load(Ordering::SeqCst) => Standing::Unsure,
        standing => standing,
    }
}

async fn within(written: impl Future<Output = WriteOutcome>) -> WriteOutcome {
    timeout(API_DEADLINE, written).await.unwrap_or_else(|_| WriteOutcome::Unknown("no answer in time".into()))
}

async fn later<T>(done: impl Future<Output = T>) -> T {
    tokio::time::sleep(LATER).await;
    done.await
}

/// Nothing waits for these: a failure is only said, and what is still needed is asked for again.
fn not_important(cluster: &str, what: &str, outcome: &WriteOutcome) -> Option<Event> {
    match outcome {
        WriteOutcome::Written => {}
        WriteOutcome::Conflict | WriteOutcome::Gone | WriteOutcome::NotSent => {
            tracing::debug!(cluster, what, ?outcome, "not written");
        }
        WriteOutcome::Unknown(error) | WriteOutcome::Denied(error) => {
            tracing::warn!(cluster, what, error, "not written");
        }
    }
    None
}

fn command_name(command: &RoleCommand) -> &'static str {
    match command {
        RoleCommand::Detach => "Detach",
        RoleCommand::Demote => "Demote",
        RoleCommand::Promote { .. } => "Promote",
        RoleCommand::Serve => "Serve",
        RoleCommand::Follow { .. } => "Follow",
        RoleCommand::SetWriteQuorum(_) => "SetWriteQuorum",
        RoleCommand::CutClients => "CutClients",
        RoleCommand::Pause { .. } => "Pause",
        RoleCommand::Unpause => "Unpause",
        RoleCommand::StepDown => "StepDown",
        RoleCommand::KillScript => "KillScript",
    }
}
