//! The event loop of one cluster: events into the pure state machine, its effects out to the world.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use super::outside::{Leadership, Standing};
use super::perform::{Happened, Heard, Performer};
use super::{ClusterInput, OwnedPod, WatchedReads, WatchedRoute, clock};
use crate::core::event::{Effect, Event};
use crate::core::facts::{Mono, Now};

/// The state machine: pure, so that a simulator can drive it as well.
pub trait Machine: Send + 'static {
    fn handle(&mut self, now: Now, event: Event) -> Vec<Effect>;
    /// When it wants a [`Event::Tick`] at the latest.
    fn wake_at(&self) -> Option<Mono>;
}

/// The latest word of the controller and of the watches. Later words replace earlier ones.
#[derive(Debug, Default)]
pub struct Watched {
    pub input: Option<ClusterInput>,
    /// `None`: not listed yet.
    pub pods: Option<Vec<OwnedPod>>,
    pub route: Seen<WatchedRoute>,
    pub reads: Seen<WatchedReads>,
}

/// A slice, as far as the watch has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Seen<T> {
    #[default]
    NotListed,
    Absent,
    Is(T),
}

impl<T> Seen<T> {
    fn is(&self) -> Option<&T> {
        match self {
            Seen::NotListed | Seen::Absent => None,
            Seen::Is(seen) => Some(seen),
        }
    }
}

/// A machine that always wants to be woken at once still lets others run.
const BETWEEN_TICKS: Duration = Duration::from_millis(1);

/// Runs until it is aborted, or the registry forgets the cluster.
pub async fn run(
    mut machine: Box<dyn Machine>,
    mut performer: Performer,
    mut leadership: Box<dyn Leadership>,
    mut watched: watch::Receiver<Watched>,
    mut inbox: UnboundedReceiver<Happened>,
) {
    let mut told = Told::default();
    let mut next_tick = Mono::ZERO;
    watched.mark_changed();
    loop {
        let mut events = Vec::new();
        tokio::select! {
            // A lost lease comes first; a tick before answers, so that a long sleep of ours is noticed before
            // what lay in the sockets meanwhile is believed.
            biased;
            () = leadership.changed() => {}
            alive = watched.changed() => {
                if alive.is_err() {
                    return;
                }
                told.watched(&watched.borrow_and_update(), &mut performer, &mut events);
            }
            () = until(machine.wake_at().map(|at| at.max(next_tick))) => {
                next_tick = clock::mono() + BETWEEN_TICKS;
                events.push(Event::Tick);
            }
            happened = inbox.recv() => match happened {
                Some(Happened::Event(event)) => events.push(*event),
                Some(Happened::Heard(heard)) => {
                    let Heard { uid, link, report } = *heard;
                    events.extend(performer.links.heard(uid, link, report));
                }
                None => return,
            },
        }
        // Asked on every turn: a renewal that is overdue wakes nobody.
        if let Some(event) = told.standing(performer.standing()) {
            events.insert(0, event);
        }
        for event in events {
            log_event(&performer.name, &event);
            for effect in machine.handle(clock::now(), event) {
                log_effect(&performer.name, &effect);
                performer.perform(effect);
            }
        }
    }
}

async fn until(wake_at: Option<Mono>) {
    let Some(at) = wake_at else { return std::future::pending().await };
    let wait = at.saturating_sub(clock::mono());
    // Overdue is now, not at the timer's next millisecond: answers that keep coming must not put it off.
    if wait > Duration::ZERO {
        tokio::time::sleep(wait).await;
    }
}

/// What the machine was told last, so that it is told only what is new.
#[derive(Default)]
struct Told {
    standing: Option<Standing>,
    input: Option<ClusterInput>,
    pods: Option<Vec<OwnedPod>>,
    route: Seen<WatchedRoute>,
    reads: Seen<WatchedReads>,
}

impl Told {
    fn standing(&mut self, standing: Standing) -> Option<Event> {
        // Who never led has no evidence to keep warm.
        let led = matches!(self.standing, Some(Standing::Leading { .. } | Standing::Unsure));
        let standing = if standing == Standing::Unsure && !led { Standing::Following } else { standing };
        if self.standing.as_ref() == Some(&standing) {
            return None;
        }
        self.standing = Some(standing.clone());
        Some(match standing {
            Standing::Leading { term } => Event::Leading { term },
            Standing::Unsure => Event::Lapsed,
            Standing::Following => Event::Standby,
        })
    }

    fn watched(&mut self, watched: &Watched, performer: &mut Performer, events: &mut Vec<Event>) {
        let Watched { input, pods, route, reads } = watched;
        let Some(input) = input else { return };
        let before = self.input.as_ref();
        let same_owner = before.is_some_and(|before| before.stateful_set_uid == input.stateful_set_uid);
        if before.is_none_or(|before| before.desired != input.desired) {
            events.extend(input.desired.clone().map(Event::Desired));
        }
        if before.is_none_or(|before| before.report != input.report) {
            events.push(Event::Reported(input.report.clone()));
        }
        if let Some(pods) = pods
            && (!same_owner || self.pods.as_ref() != Some(pods))
        {
            events.push(Event::Pods(owned(pods, input.stateful_set_uid.as_deref())));
            self.pods = Some(pods.clone());
        }
        if self.route != *route {
            let seen = route.is();
            performer.cluster.route_seen(seen.map(|seen| seen.resource_version.clone()));
            events.push(Event::RouteSeen(seen.map(|seen| seen.fact.clone())));
            self.route = route.clone();
        }
        if self.reads != *reads {
            let seen = reads.is();
            performer.cluster.reads_seen(seen.map(|seen| seen.resource_version.clone()));
            events.push(Event::ReadsSeen(seen.map(|seen| seen.fact.clone())));
            self.reads = reads.clone();
        }
        performer.credentials.clone_from(&input.credentials);
        self.input = Some(input.clone());
    }
}

/// An address is trusted only from a pod that our own `StatefulSet` made.
fn owned(pods: &[OwnedPod], stateful_set_uid: Option<&str>) -> Vec<crate::core::facts::PodFact> {
    let mut owned: Vec<_> = pods
        .iter()
        .filter(|pod| pod.owner_uid.is_some() && pod.owner_uid.as_deref() == stateful_set_uid)
        .map(|pod| pod.fact.clone())
        .collect();
    owned.sort_by_key(|pod| pod.ordinal);
    owned
}

fn log_event(cluster: &str, event: &Event) {
    match event {
        Event::Tick | Event::Probed { .. } => tracing::trace!(cluster, ?event),
        _ => tracing::debug!(cluster, ?event),
    }
}

fn log_effect(cluster: &str, effect: &Effect) {
    match effect {
        Effect::Probe { .. } | Effect::Measure(_) | Effect::Tell(_) => tracing::trace!(cluster, ?effect),
        _ => tracing::debug!(cluster, ?effect),
    }
}
