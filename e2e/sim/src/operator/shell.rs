//! The shell: events into the supervisor, its effects out to the world; nothing is decided here.

use k8s_openapi::jiff::Timestamp;
use redis_ha_operator::core::event::{CommandOutcome, Effect, Event, WriteOutcome};
use redis_ha_operator::core::facts::{Mono, Now};
use redis_ha_operator::core::mechanism::{Mechanism, on};

use crate::kube::calls::{Call, DEADLINE};
use crate::operator::{Known, Operator};
use crate::time::{MS, SECOND, Time, duration, micros};
use crate::world::{Ev, World};

/// Labels give way to what matters.
const LATER: Time = 250 * MS;
/// When each operator's clock began.
const BOOTED: Time = 1000 * SECOND;

/// Whether an operator may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Leading { term: String },
    Unsure,
    Following,
}

impl World {
    /// This operator's clock.
    pub fn mono(&self, op: usize) -> Mono {
        let operator = &self.operators[op];
        let run = self.now + self.jumped - operator.stopped;
        let drift = i64::try_from(run).unwrap_or(i64::MAX).saturating_mul(operator.drift) / 1_000_000;
        duration(BOOTED + run.saturating_add_signed(drift))
    }

    /// When that clock shows this time, or a little later.
    fn world_time(&self, op: usize, mono: Mono) -> Time {
        let left = micros(mono.saturating_sub(self.mono(op)));
        let slow = self.operators[op].drift.min(0).unsigned_abs();
        // A clock that runs too slow takes longer.
        if left == 0 { self.now } else { self.now + left + left * slow / (1_000_000 - slow) + 1 }
    }

    fn clock_now(&self, op: usize) -> Now {
        let mono = self.mono(op);
        Now { mono, wall: Timestamp::UNIX_EPOCH + mono }
    }

    pub fn standing(&self, op: usize) -> Standing {
        self.operators[op].elector.standing(self.mono(op))
    }

    pub fn term(&self, op: usize) -> Option<String> {
        match self.standing(op) {
            Standing::Leading { term } => Some(term),
            _ => None,
        }
    }

    /// Something happened to this operator.
    pub fn tell(&mut self, op: usize, event: Event) {
        self.turn(op, Some(event));
    }

    /// Only its standing may be new.
    pub fn poke(&mut self, op: usize) {
        self.turn(op, None);
    }

    fn turn(&mut self, op: usize, event: Option<Event>) {
        if let Some(standing) = self.new_standing(op) {
            self.handle(op, standing);
        }
        if let Some(event) = event {
            self.handle(op, event);
        }
        self.arm(op);
    }

    fn new_standing(&mut self, op: usize) -> Option<Event> {
        let standing = self.standing(op);
        let now = self.now;
        let operator = &mut self.operators[op];
        let led = matches!(operator.told, Some(Standing::Leading { .. } | Standing::Unsure));
        let standing = if standing == Standing::Unsure && !led { Standing::Following } else { standing };
        if operator.told.as_ref() == Some(&standing) {
            return None;
        }
        operator.told = Some(standing.clone());
        operator.leading_since = matches!(standing, Standing::Leading { .. }).then_some(now);
        Some(match standing {
            Standing::Leading { term } => Event::Leading { term },
            Standing::Unsure => Event::Lapsed,
            Standing::Following => Event::Standby,
        })
    }

    fn handle(&mut self, op: usize, event: Event) {
        let now = self.clock_now(op);
        self.counts.handled += 1;
        if self.story.is_detailed() {
            self.story_event(op, &event);
        }
        let mut effects = self.operators[op].core.handle(now, event).into_iter();
        while let Some(effect) = effects.next() {
            self.check_effect(op, &effect);
            if effect.is_change() {
                self.note_effect(op, &effect);
                let pause = self.operators[op].pause_next.take();
                let crash = self.crash_here();
                if crash == Some(false) {
                    return self.crash_for_a_while(op);
                }
                if let Some((time, clock_stops)) = pause {
                    self.operators[op].hand = std::iter::once(effect).chain(effects).collect();
                    return self.pause_operator(op, time, clock_stops);
                }
                self.perform(op, effect, false);
                if crash == Some(true) {
                    return self.crash_for_a_while(op);
                }
                continue;
            }
            self.perform(op, effect, false);
        }
    }

    /// The next wake-up.
    pub fn arm(&mut self, op: usize) {
        let operator = &self.operators[op];
        if !operator.up || operator.paused.is_some() {
            return;
        }
        let Some(due) = operator.core.wake_at() else { return };
        let at = self.world_time(op, due).max(operator.last_tick + MS);
        if operator.wake_at.is_none_or(|armed| at < armed) {
            let life = operator.life;
            self.operators[op].wake_at = Some(at);
            self.queue.push(at, Ev::Wake { op, life });
        }
    }

    pub fn wake(&mut self, op: usize, life: u32) {
        let operator = &mut self.operators[op];
        if operator.life != life || !operator.up || operator.wake_at != Some(self.now) {
            return; // another appointment was made since
        }
        operator.wake_at = None;
        let due = operator.core.wake_at().is_some_and(|due| self.mono(op) >= due);
        if due {
            self.operators[op].last_tick = self.now;
            self.tell(op, Event::Tick);
        } else {
            self.arm(op);
        }
    }

    /// `checked`: it was found to lead before it was paused.
    pub fn perform(&mut self, op: usize, effect: Effect, checked: bool) {
        let may = checked
            || matches!(self.standing(op), Standing::Leading { .. })
            || !on(Mechanism::LeadershipAtEffect);
        match effect {
            Effect::Dial { uid, ip } => self.dial(op, uid, ip),
            Effect::Knock { uid, ip } => self.knock(op, uid, ip),
            Effect::HangUp { uid } => self.hang_up(op, &uid),
            Effect::Probe { uid, link } => self.probe(op, &uid, link),
            Effect::Command { ticket, uid, link, command } => {
                if may {
                    self.command(op, ticket, &uid, link, command);
                } else {
                    self.soon(op, Event::Replied { ticket, outcome: CommandOutcome::NotSent });
                }
            }
            Effect::WriteStatus { ticket, expect, status } => {
                if may {
                    self.call(op, Call::Status { ticket, expect, status }, DEADLINE);
                } else {
                    self.soon(op, Event::StatusWritten { ticket, outcome: WriteOutcome::NotSent });
                }
            }
            Effect::Route { ticket, endpoint, epoch } => {
                let known = self.operators[op].route;
                if may {
                    self.call(op, Call::Route { ticket, endpoint, epoch, known }, DEADLINE);
                } else {
                    self.soon(op, Event::RouteWritten { ticket, outcome: WriteOutcome::NotSent });
                }
            }
            Effect::RouteReads { ticket, endpoints, epoch } => {
                let known = self.operators[op].reads;
                if may {
                    self.call(op, Call::Reads { ticket, endpoints, epoch, known }, DEADLINE);
                } else {
                    self.soon(op, Event::ReadsWritten { ticket, outcome: WriteOutcome::NotSent });
                }
            }
            Effect::ReadObject => {
                let operator = &mut self.operators[op];
                operator.reading += 1;
                let number = operator.reading;
                self.call(op, Call::Read { number }, DEADLINE);
            }
            Effect::CheckLease { ticket } => {
                let term = self.term(op);
                self.call(op, Call::CheckLease { ticket, term }, DEADLINE);
            }
            Effect::ConfirmPod { ticket, uid, .. } => self.call(op, Call::Confirm { ticket, uid }, DEADLINE),
            Effect::Label { uid, role, .. } => {
                let life = self.operators[op].life;
                self.later(LATER, Ev::Label { op, life, uid, role });
            }
            Effect::DeletePod { uid, .. } if may => self.call(op, Call::Delete { uid }, DEADLINE),
            Effect::ClearSwitchover { value } if may => {
                self.call(op, Call::ClearSwitchover { value }, DEADLINE);
            }
            Effect::YieldLease if may => {
                let life = self.operators[op].life;
                self.later(1, Ev::Yield { op, life });
            }
            Effect::DeletePod { .. } | Effect::ClearSwitchover { .. } | Effect::YieldLease => {}
            Effect::Tell(notice) => self.note_notice(op, &notice),
            Effect::Measure(measure) => self.note_measure(op, &measure),
        }
    }

    /// An event that does not come from outside.
    pub fn soon(&mut self, op: usize, event: Event) {
        let life = self.operators[op].life;
        self.later(50, Ev::Feed { op, life, event: Box::new(event) });
    }

    // Its own life.

    /// At a crash point.
    fn crash_for_a_while(&mut self, op: usize) {
        self.crash_operator(op);
        self.mend_later(SECOND, crate::faults::Mend::StartOperator(op));
    }

    pub fn crash_operator(&mut self, op: usize) {
        if !self.operators[op].up {
            return;
        }
        self.say(|world| format!("{} dies", world.operators[op].name));
        let slots = std::mem::take(&mut self.operators[op].slots);
        for slot in slots.values() {
            if let Some(conn) = slot.conn {
                self.close(conn, false);
            }
        }
        let operator = &mut self.operators[op];
        operator.up = false;
        operator.life += 1;
        operator.paused = None;
        operator.pause_next = None;
        operator.hand.clear();
        operator.inbox.clear();
        operator.told = None;
        operator.leading_since = None;
        operator.wake_at = None;
    }

    pub fn start_operator(&mut self, op: usize) {
        if self.operators[op].up || self.net.is_down(self.operators[op].machine) {
            return;
        }
        let operator = &mut self.operators[op];
        operator.life += 1;
        operator.up = true;
        operator.core =
            redis_ha_operator::core::supervisor::Supervisor::new(crate::kube::api::CLUSTER_UID.to_owned());
        operator.elector =
            crate::operator::elector::Elector::new(format!("{}_{}", operator.name, operator.life));
        (operator.route, operator.reads, operator.report) = (Known::Nothing, Known::Nothing, None);
        operator.missed = false;
        operator.watch_at = 0;
        let life = operator.life;
        self.say(|world| format!("{} starts", world.operators[op].name));
        self.poke(op);
        let list = self.rng.span(20 * MS, 500 * MS);
        self.later(list, Ev::List { op, life });
        let elect = self.rng.span(10 * MS, SECOND);
        self.later(elect, Ev::Elect { op, life, round: 0 });
    }

    pub fn pause_operator(&mut self, op: usize, time: Time, clock_stops: bool) {
        let now = self.now;
        let operator = &mut self.operators[op];
        if !operator.up || operator.paused.is_some() {
            return;
        }
        operator.paused = Some(crate::operator::Paused { since: now, clock_stops });
        operator.wake_at = None;
        let life = operator.life;
        self.say(|world| {
            let Operator { name, hand, .. } = &world.operators[op];
            format!("{name} is paused, about to do {:?}", hand.first())
        });
        self.later(time, Ev::Resume { op, life });
    }

    pub fn resume_operator(&mut self, op: usize, life: u32) {
        if self.operators[op].life != life {
            return;
        }
        let Some(paused) = self.operators[op].paused.take() else { return };
        if paused.clock_stops {
            self.operators[op].stopped += self.now - paused.since;
        }
        self.say(|world| format!("{} goes on", world.operators[op].name));
        let hand = std::mem::take(&mut self.operators[op].hand);
        for (position, effect) in hand.into_iter().enumerate() {
            self.perform(op, effect, position == 0);
        }
        // A long sleep is noticed before what came meanwhile is believed.
        self.operators[op].last_tick = self.now;
        let due = self.operators[op].core.wake_at().is_some_and(|due| self.mono(op) >= due);
        self.turn(op, due.then_some(Event::Tick));
        for ev in std::mem::take(&mut self.operators[op].inbox) {
            self.happen(ev);
        }
        self.arm(op);
    }
}
