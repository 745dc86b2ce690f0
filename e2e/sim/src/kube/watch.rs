//! Watches: each operator hears of changes later, in order, and after an outage.

use redis_ha_operator::core::event::Event;
use redis_ha_operator::core::facts::{ControllerReport, Desired, PodFact, ReadsFact, RouteFact};

use crate::time::{MS, SECOND};
use crate::world::{Ev, World};

/// One change, as it was when it was made.
#[derive(Clone, Debug)]
pub enum News {
    Desired(Desired),
    Report(ControllerReport),
    Pods(Vec<PodFact>),
    Route(Option<(RouteFact, u64)>),
    Reads(Option<(ReadsFact, u64)>),
}

impl World {
    pub fn pods_changed(&mut self) {
        let facts = self.pod_facts();
        self.publish(&News::Pods(facts));
        self.report_changed();
    }

    pub fn route_changed(&mut self) {
        self.publish(&News::Route(self.api.route.clone()));
    }

    pub fn reads_changed(&mut self) {
        self.publish(&News::Reads(self.api.reads.clone()));
    }

    pub fn desired_changed(&mut self) {
        self.publish(&News::Desired(self.api.desired.clone()));
    }

    pub fn report_changed(&mut self) {
        self.publish(&News::Report(self.report()));
    }

    fn report(&self) -> ControllerReport {
        let pods = self.pods.iter().filter(|pod| pod.listed).count();
        ControllerReport {
            observed_generation: Some(1),
            replicas: i32::try_from(pods).unwrap_or(i32::MAX),
            selector: Some("redis-ha.dev/cluster=cache".to_owned()),
            recorded: self.api.record().is_some(),
            spec_invalid: None,
            progressing: None,
            paused: false,
        }
    }

    fn publish(&mut self, news: &News) {
        for op in 0..self.operators.len() {
            self.publish_to(op, news.clone());
        }
    }

    fn publish_to(&mut self, op: usize, news: News) {
        if !self.operators[op].up {
            return;
        }
        let stale = if self.api.stale_watch > 0 { self.rng.span(100 * MS, 8 * SECOND) } else { 0 };
        let at = self.now + self.rng.range(1, 20) * MS + stale;
        let operator = &mut self.operators[op];
        operator.watch_at = (operator.watch_at + 1).max(at);
        let (at, life) = (operator.watch_at, operator.life);
        self.queue.push(at, Ev::Watch { op, life, news: Box::new(news) });
    }

    /// A change reaches an operator, unless the way to it is cut: then it comes later.
    pub fn hear(&mut self, op: usize, life: u32, news: News) {
        if self.operators[op].life != life || !self.operators[op].up {
            return;
        }
        if !self.api_is_open(op) {
            let operator = &mut self.operators[op];
            operator.missed = true;
            return;
        }
        if self.operators[op].missed {
            return; // a new list is on its way, and says more
        }
        self.deliver(op, news);
    }

    fn deliver(&mut self, op: usize, news: News) {
        let event = match news {
            News::Desired(desired) => Event::Desired(desired),
            News::Report(report) => {
                if self.operators[op].report.as_ref() == Some(&report) {
                    return;
                }
                self.operators[op].report = Some(report.clone());
                Event::Reported(report)
            }
            News::Pods(pods) => Event::Pods(pods),
            News::Route(route) => {
                let version = route.as_ref().map(|(_, version)| *version);
                self.operators[op].route.seen(version);
                Event::RouteSeen(route.map(|(fact, _)| fact))
            }
            News::Reads(reads) => {
                let version = reads.as_ref().map(|(_, version)| *version);
                self.operators[op].reads.seen(version);
                Event::ReadsSeen(reads.map(|(fact, _)| fact))
            }
        };
        self.tell(op, event);
    }

    /// Reads everything anew: at a start, and after a watch was cut.
    pub fn list(&mut self, op: usize, life: u32) {
        if self.operators[op].life != life || !self.operators[op].up {
            return;
        }
        if !self.api_is_open(op) {
            self.later(SECOND, Ev::List { op, life });
            return;
        }
        self.operators[op].missed = false;
        let report = self.report();
        let facts = self.pod_facts();
        let all = [
            News::Desired(self.api.desired.clone()),
            News::Report(report),
            News::Pods(facts),
            News::Route(self.api.route.clone()),
            News::Reads(self.api.reads.clone()),
        ];
        for news in all {
            self.deliver(op, news);
        }
        self.later(SECOND, Ev::Relist { op, life });
    }

    /// Once a second: was anything missed?
    pub fn relist(&mut self, op: usize, life: u32) {
        if self.operators[op].life != life || !self.operators[op].up {
            return;
        }
        if self.operators[op].missed && self.api_is_open(op) {
            self.list(op, life);
        } else {
            self.later(SECOND, Ev::Relist { op, life });
        }
    }

    pub fn api_is_open(&self, op: usize) -> bool {
        self.api.down == 0 && self.net.is_open_both(self.operators[op].machine, self.setup.api)
    }
}
