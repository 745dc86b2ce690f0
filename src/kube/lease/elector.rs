//! The loop that gets and keeps the lease. Writes only the Lease, and each time against the version it
//! read or wrote last.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::evaluate::{Claim, DURATION, RENEW_DEADLINE, RETRY, Sighting, Verdict, evaluate};
use super::{Candidacy, Clock, Standing, ValidUntil, term_id};
use crate::core::event::WriteOutcome;
use crate::core::facts::Mono;
use crate::kube::{DEADLINE, answer};

/// How the loop and its [`super::Leadership`] meet.
pub(super) struct Doors {
    pub publish: watch::Sender<Standing>,
    pub valid_until: ValidUntil,
    pub stopping: watch::Receiver<bool>,
    /// Each change asks for the lease to be handed over once.
    pub handing_over: watch::Receiver<()>,
}

/// After a hand-over others have this long to take the lease before we ask for it again.
const STAND_BACK: Duration = RETRY.saturating_mul(3);

/// Runs the election of one process.
pub struct Elector {
    api: Api<Lease>,
    namespace: String,
    name: String,
    me: String,
    clock: Clock,
    doors: Doors,
    /// Metadata of the lease as stored; `None`: there is none.
    metadata: Option<ObjectMeta>,
    seen: Option<Sighting>,
    /// `metadata` and `seen` are the outcome of our own last write: no need to read before the next one.
    fresh: bool,
    claim: Option<Claim>,
    /// Start of our last acquisition, for people.
    acquired: Option<MicroTime>,
    /// Highest count of transitions seen: a lease that was deleted must not bring a term back.
    highest: i32,
}

impl Elector {
    pub(super) fn new(
        api: Api<Lease>,
        candidacy: &Candidacy,
        me: String,
        clock: Clock,
        doors: Doors,
    ) -> Self {
        Self {
            api,
            namespace: candidacy.namespace.clone(),
            name: candidacy.lease.clone(),
            me,
            clock,
            doors,
            metadata: None,
            seen: None,
            fresh: false,
            claim: None,
            acquired: None,
            highest: 0,
        }
    }

    /// Gets and keeps the lease until [`super::Leadership::release`]; then gives it back and ends.
    pub async fn run(mut self) {
        let mut stopping = self.doors.stopping.clone();
        let mut handing_over = self.doors.handing_over.clone();
        while !*stopping.borrow_and_update() {
            let mut pause = self.round().await;
            if handing_over.has_changed().unwrap_or(false) {
                handing_over.mark_unchanged();
                if self.claim.is_some() {
                    self.give_back().await;
                    self.fresh = false;
                    pause = STAND_BACK;
                }
            }
            tokio::select! {
                _ = stopping.changed() => {}
                Ok(()) = handing_over.changed() => handing_over.mark_changed(),
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.give_back().await;
        self.doors.publish.send_replace(Standing::Released);
    }

    /// One read, if needed, and at most one write. Returns the pause until the next round.
    async fn round(&mut self) -> Duration {
        self.end_overdue_term();
        if !self.fresh && !self.look().await {
            self.end_overdue_term();
            return self.pause(RETRY);
        }
        let now = self.now();
        match evaluate(self.seen.as_ref(), &self.me, self.claim, now) {
            Verdict::Renew => self.hold(self.claim).await,
            Verdict::Create | Verdict::Take => {
                if self.claim.is_some() {
                    self.end_term(Standing::Unsure);
                }
                self.hold(None).await;
            }
            Verdict::Wait { until } => {
                let holder = self.seen.as_ref().and_then(|seen| seen.holder.clone()).unwrap_or_default();
                self.end_term(Standing::Following { holder });
                self.fresh = false;
                return RETRY.min(until.saturating_sub(now));
            }
        }
        self.end_overdue_term();
        self.pause(RETRY)
    }

    /// Reads the lease. False when it could not be read.
    async fn look(&mut self) -> bool {
        let act = self.act("reading");
        let get = answer::read_opt(act, self.api.get(&self.name));
        let Some(read) = self.within_term(get).await else { return false };
        match read {
            Ok(Some(lease)) => self.learn(lease),
            Ok(None) => {
                self.metadata = None;
                self.seen = None;
            }
            Err(error) => {
                warn!(%error, "the lease could not be read");
                return false;
            }
        }
        true
    }

    /// Writes the lease as ours: `current` renews that claim, `None` starts a new term.
    async fn hold(&mut self, current: Option<Claim>) {
        let asked_at = self.now();
        let wall = MicroTime((self.clock)().wall);
        let seen = self.seen.as_ref().map_or(0, |seen| seen.transitions);
        let transitions = match current {
            Some(claim) => claim.transitions,
            None => seen.max(self.highest).saturating_add(1),
        };
        if current.is_none() {
            self.acquired = Some(wall.clone());
        }
        let lease = self.lease(Some(self.me.clone()), transitions, wall);
        self.highest = self.highest.max(transitions);
        // The answer counts from when it was asked for: what came late may be over.
        match self.put(lease).await {
            Some(Ok(stored)) => {
                self.learn(stored);
                self.fresh = true;
                let claim = Claim { transitions, valid_until: asked_at.saturating_add(RENEW_DEADLINE) };
                self.claim = Some(claim);
                self.doors.valid_until.set(claim.valid_until);
                if current.is_none() && self.now() < claim.valid_until {
                    let term = term_id(&self.me, transitions);
                    info!(%term, "this operator leads");
                    self.doors.publish.send_replace(Standing::Leading { term });
                }
            }
            Some(Err(WriteOutcome::Conflict | WriteOutcome::Gone)) => {
                debug!("somebody else wrote the lease; reading it again");
                self.fresh = false;
            }
            Some(Err(WriteOutcome::Unknown(why) | WriteOutcome::Denied(why))) => {
                warn!(%why, "the lease could not be written");
                self.fresh = false;
            }
            Some(Err(WriteOutcome::Written | WriteOutcome::NotSent)) | None => self.fresh = false,
        }
    }

    /// Creates the lease, or replaces the version that was read. `None`: our term ended before the answer.
    async fn put(&self, lease: Lease) -> Option<Result<Lease, WriteOutcome>> {
        let act = self.act("writing");
        let params = PostParams::default();
        if lease.metadata.resource_version.is_some() {
            self.within_term(answer::write(&act, self.api.replace(&self.name, &params, &lease))).await
        } else {
            self.within_term(answer::write(&act, self.api.create(&params, &lease))).await
        }
    }

    /// Holds nothing up past the end of our own term. `None`: it ended first.
    async fn within_term<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        match self.claim {
            None => Some(request.await),
            Some(claim) => {
                let left = claim.valid_until.saturating_sub(self.now());
                tokio::time::timeout(left, request).await.ok()
            }
        }
    }

    fn learn(&mut self, lease: Lease) {
        let sighting = Sighting::new(lease.spec.as_ref(), self.seen.as_ref(), self.now());
        self.highest = self.highest.max(sighting.transitions);
        self.seen = Some(sighting);
        self.metadata = Some(lease.metadata);
    }

    fn end_overdue_term(&mut self) {
        if self.claim.is_some_and(|claim| self.now() >= claim.valid_until) {
            self.fresh = false;
            self.end_term(Standing::Unsure);
        }
    }

    fn end_term(&mut self, standing: Standing) {
        if self.claim.take().is_some() {
            warn!(?standing, "this operator does not lead any more");
        }
        self.doors.publish.send_if_modified(|published| {
            let changed = *published != standing;
            *published = standing;
            changed
        });
    }

    /// Gives the lease back if it is ours. The next holder then need not wait for its end.
    async fn give_back(&mut self) {
        let held = self.claim.take();
        self.doors.publish.send_replace(Standing::Unsure);
        if held.is_some() && (self.fresh || self.look().await) {
            let ours = self.seen.as_ref().is_some_and(|seen| seen.holder.as_deref() == Some(&self.me));
            let transitions = self.seen.as_ref().map_or(0, |seen| seen.transitions);
            if ours {
                let lease = self.lease(None, transitions, MicroTime((self.clock)().wall));
                match self.put(lease).await {
                    Some(Ok(_)) => info!("the lease is given back"),
                    other => warn!(?other, "the lease could not be given back; it ends by itself"),
                }
            }
        }
    }

    fn lease(&self, holder: Option<String>, transitions: i32, wall: MicroTime) -> Lease {
        let metadata = self.metadata.clone().unwrap_or_else(|| ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        });
        Lease {
            // What others put on the object stays.
            metadata: ObjectMeta { managed_fields: None, ..metadata },
            spec: Some(LeaseSpec {
                holder_identity: holder,
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                lease_transitions: Some(transitions),
                acquire_time: self.acquired.clone(),
                renew_time: Some(wall),
                ..LeaseSpec::default()
            }),
        }
    }

    /// A holder comes back at the latest when its term ends.
    fn pause(&self, retry: Duration) -> Duration {
        match self.claim {
            Some(claim) => retry.min(claim.valid_until.saturating_sub(self.now())),
            None => retry,
        }
    }

    fn now(&self) -> Mono {
        (self.clock)().mono
    }

    fn act(&self, verb: &str) -> String {
        format!("{verb} Lease {}/{}", self.namespace, self.name)
    }
}

const _: () =
    assert!(DEADLINE.as_secs() < RENEW_DEADLINE.as_secs(), "a renewal must fail before its term ends");
