//! What happened, for people: virtual time, who, what, why. Kept only when somebody wants to read it.

use redis_ha_operator::core::event::{Effect, Event, Notice};

use crate::time::{Time, clock};
use crate::world::World;

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    #[default]
    Nothing,
    /// Decisions, role changes, faults.
    Story,
    /// Each event of the supervisors as well.
    Everything,
}

/// The lines so far.
#[derive(Clone, Debug, Default)]
pub struct Story {
    detail: Detail,
    lines: Vec<(Time, String)>,
}

impl Story {
    pub fn new(detail: Detail) -> Self {
        Self { detail, lines: Vec::new() }
    }

    pub fn is_kept(&self) -> bool {
        self.detail >= Detail::Story
    }

    pub fn is_detailed(&self) -> bool {
        self.detail == Detail::Everything
    }

    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.lines.iter().map(|(at, line)| format!("{} {line}", clock(*at)))
    }
}

impl World {
    pub fn say(&mut self, line: impl FnOnce(&World) -> String) {
        if self.story.is_kept() {
            let line = line(self);
            let at = self.now + self.skipped;
            self.story.lines.push((at, line));
        }
    }

    /// The living servers and the record as they are now.
    pub fn say_state(&mut self) {
        for pid in 0..self.processes.len() {
            if self.processes[pid].alive {
                self.say(|world| {
                    let it = &world.processes[pid];
                    format!(
                        "STATE {} at {} on {}: {:?} of {:?}, link {:?}, id{}/id{} up to {}, offset {}{}, keys {}, serves {}, \
                         quorum {}, good {}, replicas {:?}, runs {}, loading {}, listed {}",
                        world.name_of(pid),
                        it.ip,
                        it.machine,
                        it.role,
                        it.source,
                        it.upstream.map(|upstream| upstream.state),
                        it.replid,
                        it.replid2,
                        it.second_offset,
                        it.offset,
                        if it.positioned { "" } else { " (no position)" },
                        world.history.keys(it.head),
                        it.serves,
                        it.quorum,
                        it.good,
                        it.downstream.iter().map(|it| (it.pid, it.online, it.ack)).collect::<Vec<_>>(),
                        it.runs(),
                        it.loading,
                        world.pods[it.pod].listed,
                    )
                });
            }
        }
        self.say(|world| format!("STATE record {:?}", world.api.record()));
    }

    /// `cache-1 (run4)`
    pub fn name_of(&self, pid: usize) -> String {
        let process = &self.processes[pid];
        format!("{} ({})", self.pods[process.pod].name, process.run)
    }

    pub fn story_event(&mut self, op: usize, event: &Event) {
        if !matches!(event, Event::Tick) {
            self.say(|world| format!("    {} hears {event:?}", world.operators[op].name));
        }
    }

    pub fn note_effect(&mut self, op: usize, effect: &Effect) {
        self.say(|world| {
            let operator = &world.operators[op];
            let what = match effect {
                Effect::Command { uid, command, .. } => format!("sends {command:?} to {uid}"),
                Effect::WriteStatus { expect, status, .. } => {
                    let record = status.supervision.clone().unwrap_or_default();
                    let plan = record.plan.map_or_else(
                        || "no plan".to_owned(),
                        |plan| {
                            let run = |it: Option<redis_ha_operator::api::status::ProcessRef>| {
                                it.map_or_else(|| "?".to_owned(), |it| it.run_id)
                            };
                            format!("{:?} {:?} {} -> {}", plan.kind, plan.step, run(plan.from), run(plan.to))
                        },
                    );
                    let master = record.master.map(|master| master.run_id).unwrap_or_default();
                    let quorum = record.write_quorum.effective;
                    format!(
                        "writes epoch {}, master {master}, W {quorum}, {plan}, if {expect:?}",
                        record.epoch
                    )
                }
                other => format!("does {other:?}"),
            };
            format!("  {} [{}] {what}", operator.name, operator.core.rule())
        });
    }

    pub fn note_notice(&mut self, op: usize, notice: &Notice) {
        self.say(|world| format!("  {}: {}: {}", world.operators[op].name, notice.reason, notice.message));
        if notice.reason == "FalseAlarm" {
            self.counts.false_alarms += 1;
        }
    }
}
