//! How the fake world answers effects.

use std::time::Duration;

use crate::api::status::RedisClusterStatus;
use crate::core::event::{
    CommandOutcome, DialOutcome, Effect, Event, Expect, Knock, ProbeOutcome, Stored, WriteOutcome,
};
use crate::core::facts::{ReadsFact, RouteFact};

use super::{Due, MS, Stage};
use crate::redis::link::UNANSWERED_AT_ONCE;

impl Stage {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        let now = self.now;
        match effect {
            Effect::Dial { uid, ip } => {
                let Some(node) = self.nodes.iter().find(|node| node.ip == ip) else {
                    return self.later(
                        300 * MS,
                        Due::Event(Event::Dialed { uid, outcome: DialOutcome::Unroutable }),
                    );
                };
                if node.cut_off {
                    self.links.remove(&uid);
                    return self.later(
                        300 * MS,
                        Due::Event(Event::Dialed { uid, outcome: DialOutcome::Unroutable }),
                    );
                }
                let outcome = if !node.up && node.proxied {
                    DialOutcome::Broken("closed before the first INFO".to_owned())
                } else if !node.up {
                    DialOutcome::Refused
                } else if node.denies {
                    DialOutcome::Denied("WRONGPASS".to_owned())
                } else if node.frozen {
                    self.held.push((self.term, now, Effect::Dial { uid: uid.clone(), ip }));
                    DialOutcome::Silent
                } else {
                    let run = node.run;
                    self.next_link += 1;
                    let link = self.next_link;
                    self.links.insert(uid.clone(), (link, run));
                    let info = Box::new(self.info(&uid).unwrap());
                    DialOutcome::Connected { link, asked_at: now, info }
                };
                self.answer(Event::Dialed { uid, outcome });
            }
            Effect::Knock { uid, ip } => {
                let outcome = match self.nodes.iter().find(|node| node.ip == ip) {
                    Some(node) if node.cut_off => Knock::Unroutable,
                    Some(node) if node.up => Knock::Accepted,
                    Some(_) => Knock::Refused,
                    None => Knock::Unroutable,
                };
                self.answer(Event::Knocked { uid, outcome });
            }
            Effect::HangUp { uid } => {
                self.links.remove(&uid);
            }
            Effect::Probe { ref uid, .. } | Effect::Command { ref uid, .. } if self.is_deaf(uid) => {
                // As many unanswered questions as a connection takes; another one is not even asked.
                let waiting = self
                    .held
                    .iter()
                    .filter(|(_, _, held)| matches!(held, Effect::Probe { uid: of, .. } if of == uid));
                if !matches!(effect, Effect::Probe { .. }) || waiting.count() < UNANSWERED_AT_ONCE {
                    self.held.push((self.term, now, effect));
                }
            }
            Effect::Probe { uid, link } => {
                if self.links.get(&uid).is_some_and(|(open, _)| *open == link)
                    && let Some(info) = self.info(&uid)
                {
                    let outcome = ProbeOutcome::Answered(Box::new(info));
                    self.answer(Event::Probed { uid, link, asked_at: now.saturating_sub(MS / 4), outcome });
                }
            }
            Effect::Command { ticket, uid, link, command } => {
                let alive =
                    self.links.get(&uid).is_some_and(|(open, _)| *open == link) && self.info(&uid).is_some();
                let outcome = if alive {
                    let name = self.nodes.iter().find(|node| node.uid == uid).unwrap().name.clone();
                    self.commands.push((name, command.clone()));
                    self.obey(&uid, &command);
                    if std::mem::take(&mut self.lose_reply) {
                        self.links.remove(&uid);
                        self.answer(Event::LinkLost { uid, link });
                        return;
                    }
                    CommandOutcome::Done(Box::new(self.info(&uid).unwrap()))
                } else {
                    CommandOutcome::Lost("connection closed".to_owned())
                };
                self.answer(Event::Replied { ticket, outcome });
            }
            Effect::WriteStatus { ticket, expect, status } => {
                if std::mem::take(&mut self.keep_write) {
                    self.late_write = Some((expect, status));
                    let outcome = WriteOutcome::Unknown("timed out".to_owned());
                    return self.answer(Event::StatusWritten { ticket, outcome });
                }
                let outcome = self.write_status(&expect, *status);
                self.answer(Event::StatusWritten { ticket, outcome });
            }
            Effect::ReadObject => {
                self.reads += 1;
                if self.api_up {
                    let stored = Stored {
                        uid: "cluster-uid".to_owned(),
                        resource_version: self.resource_version.to_string(),
                        status: self.status.clone(),
                    };
                    self.answer(Event::Stored(Box::new(stored)));
                } else {
                    self.later(Duration::from_secs(1), Due::Effect(Effect::ReadObject));
                }
            }
            Effect::CheckLease { ticket } => {
                self.later(MS, Due::Event(Event::LeaseChecked { ticket, held: self.api_up }));
            }
            Effect::ConfirmPod { .. } if self.failing_confirmations > 0 => self.failing_confirmations -= 1,
            Effect::ConfirmPod { ticket, uid, .. } => {
                let ip = self.nodes.iter().find(|node| node.uid == uid && node.listed).map(|node| node.ip);
                self.answer(Event::PodConfirmed { ticket, ip });
            }
            Effect::Route { ticket, endpoint, epoch } => {
                let newer = self.slice.as_ref().is_some_and(|slice| slice.epoch > epoch);
                let outcome = if newer {
                    WriteOutcome::Conflict
                } else if self.api_up {
                    self.route_writes += 1;
                    self.slice = Some(RouteFact {
                        ip: endpoint.as_ref().map(|endpoint| endpoint.ip.to_string()),
                        uid: endpoint.map(|endpoint| endpoint.uid),
                        epoch,
                    });
                    WriteOutcome::Written
                } else {
                    WriteOutcome::Unknown("timed out".to_owned())
                };
                if self.watch_is_fast {
                    self.answer(Event::RouteSeen(self.slice.clone()));
                }
                self.answer(Event::RouteWritten { ticket, outcome });
            }
            Effect::RouteReads { ticket, endpoints, epoch } => {
                let outcome = if self.api_up {
                    self.reads_writes += 1;
                    let endpoints = endpoints
                        .into_iter()
                        .map(|endpoint| (endpoint.ip.to_string(), endpoint.uid))
                        .collect();
                    self.reads_slice = Some(ReadsFact { endpoints, epoch });
                    WriteOutcome::Written
                } else {
                    WriteOutcome::Unknown("timed out".to_owned())
                };
                self.answer(Event::ReadsWritten { ticket, outcome });
            }
            Effect::Label { uid, role, .. } => {
                self.label_writes += 1;
                if let Some(node) = self.nodes.iter_mut().find(|node| node.uid == uid) {
                    node.label = role.map(str::to_owned);
                }
                self.list_pods();
            }
            Effect::DeletePod { pod, uid } => {
                self.deleted.push(pod.clone());
                if self.nodes.iter().any(|node| node.uid == uid) {
                    self.replace_pod(&pod);
                }
            }
            Effect::ClearSwitchover { value } => {
                if self.desired.switchover == Some(value) {
                    self.ask_for_switch(None);
                }
            }
            Effect::YieldLease => self.yields += 1,
            Effect::Tell(notice) => self.told.push(notice),
            Effect::Measure(_) => {}
        }
    }

    /// The kept write is carried out after all.
    pub fn land_late_write(&mut self) {
        if let Some((expect, status)) = self.late_write.take() {
            self.write_status(&expect, *status);
        }
    }

    pub(super) fn write_status(&mut self, expect: &Expect, status: RedisClusterStatus) -> WriteOutcome {
        if !self.api_up {
            return WriteOutcome::Unknown("timed out".to_owned());
        }
        let record = self.record();
        let holds = match expect {
            Expect::First { resource_version, .. } => *resource_version == self.resource_version.to_string(),
            Expect::At { epoch, plan, .. } => {
                record.epoch == *epoch && record.plan.as_ref().map(|plan| plan.id.clone()) == *plan
            }
        };
        if !holds {
            return WriteOutcome::Conflict;
        }
        self.status_writes += 1;
        self.resource_version += 1;
        self.status = Some(status);
        WriteOutcome::Written
    }
}
