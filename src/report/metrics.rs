//! The metrics: one table, here. Labels come from closed sets; series of a deleted cluster go with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::Collector;
use prometheus::{
    Encoder, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::api::status::{LastFailover, PlanKind, Stages};
use crate::core::event::{Measure, StateGauges};
use crate::kube::count::{Call, End};
use crate::supervisor::ClusterKey;

const CLUSTER: [&str; 2] = ["namespace", "cluster"];

/// Everything that can be measured. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Table>);

struct Table {
    registry: Registry,
    is_leader: IntGauge,
    failovers: IntCounterVec,
    false_alarms: IntCounterVec,
    stages: HistogramVec,
    lost_bytes: IntCounterVec,
    api_requests: IntCounterVec,
    epoch: IntGaugeVec,
    has_master: IntGaugeVec,
    writes_accepted: IntGaugeVec,
    failover_ready: IntGaugeVec,
    in_sync: IntGaugeVec,
    members: IntGaugeVec,
    write_quorum: IntGaugeVec,
    held: GaugeVec,
    /// Reason under which each cluster is held: its series must go when the reason changes.
    held_reasons: Mutex<HashMap<ClusterKey, &'static str>>,
}

/// A metric that cannot be made: a mistake in the table, found by its first test.
#[derive(Debug, thiserror::Error)]
#[error("setting up the metrics: {0}")]
pub struct Error(#[from] prometheus::Error);

impl Metrics {
    /// Makes and registers all of them.
    pub fn new() -> Result<Self, Error> {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &CLUSTER);
        let counter =
            |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let table = Table {
            is_leader: IntGauge::new(
                "redis_ha_is_leader",
                "1 while this operator holds the lease and may act, else 0.",
            )?,
            failovers: counter(
                "redis_ha_failovers_total",
                "Finished changes of a master, by kind and reason.",
                &["kind", "reason"],
            )?,
            false_alarms: counter(
                "redis_ha_false_alarms_total",
                "Plans that were closed because the master turned out to be well, by kind.",
                &["kind"],
            )?,
            stages: HistogramVec::new(
                HistogramOpts::new(
                    "redis_ha_failover_stage_seconds",
                    "Time from the first bad sign to each stage of a change of the master, in seconds.",
                )
                .buckets(vec![
                    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.25, 2.5, 5.0, 10.0, 20.0,
                    60.0,
                ]),
                &["stage"],
            )?,
            lost_bytes: counter(
                "redis_ha_failover_lost_bytes_total",
                "Bytes of replication stream known to be lost by changes of a master: a lower bound.",
                &["kind"],
            )?,
            api_requests: counter(
                "redis_ha_api_requests_total",
                "Requests of this operator to the API server, by verb, resource and outcome.",
                &["verb", "resource", "outcome"],
            )?,
            epoch: gauge("redis_ha_cluster_epoch", "Counter of role decisions of the cluster; only grows.")?,
            has_master: gauge("redis_ha_cluster_has_master", "1 while the recorded master answers, else 0.")?,
            writes_accepted: gauge(
                "redis_ha_cluster_writes_accepted",
                "1 while the master takes writes, else 0.",
            )?,
            failover_ready: gauge(
                "redis_ha_cluster_failover_ready",
                "1 while a failover would be allowed, else 0.",
            )?,
            in_sync: gauge(
                "redis_ha_cluster_members_in_sync",
                "Pods that are placed: the master, and the replicas in sync with it.",
            )?,
            members: gauge("redis_ha_cluster_members", "Pods of the cluster that exist.")?,
            write_quorum: gauge(
                "redis_ha_cluster_write_quorum",
                "Replicas that must have acknowledged lately for the master to take writes.",
            )?,
            held: GaugeVec::new(
                Opts::new(
                    "redis_ha_cluster_held",
                    "1 while the supervisor deliberately does nothing, with the reason why.",
                ),
                &["namespace", "cluster", "reason"],
            )?,
            held_reasons: Mutex::default(),
            registry,
        };
        table.register()?;
        Ok(Self(Arc::new(table)))
    }

    /// Counts what the supervisor of this cluster found worth counting.
    pub fn measure(&self, cluster: &ClusterKey, measure: &Measure) {
        match measure {
            Measure::Finished(failover) => self.0.finished(failover),
            Measure::FalseAlarm { kind } => {
                self.0.false_alarms.with_label_values(&[kind_label(*kind)]).inc();
            }
            Measure::State(gauges) => self.0.state(cluster, gauges),
        }
    }

    /// Removes all series of a cluster that was deleted, or is supervised by somebody else now.
    pub fn forget(&self, cluster: &ClusterKey) {
        let labels = [cluster.namespace.as_str(), cluster.name.as_str()];
        for gauge in self.0.per_cluster() {
            // It fails for a series that never was: that is what is wanted.
            let _ = gauge.remove_label_values(&labels);
        }
        self.0.set_held(cluster, None);
    }

    /// Removes the series of all clusters: another operator looks after them, and tells of them.
    pub fn forget_all(&self) {
        for gauge in self.0.per_cluster() {
            gauge.reset();
        }
        self.0.held_reasons.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.0.held.reset();
    }

    /// Whether this operator leads.
    pub fn leads(&self, leads: bool) {
        self.0.is_leader.set(i64::from(leads));
    }

    /// Counts one request to the API server.
    pub fn api_request(&self, call: Call, end: End) {
        self.0.api_requests.with_label_values(&[call.verb, call.resource, end.as_str()]).inc();
    }

    /// All metrics in Prometheus' text format, with its content type.
    pub fn render(&self) -> Result<(String, Vec<u8>), Error> {
        let encoder = TextEncoder::new();
        let mut text = Vec::new();
        encoder.encode(&self.0.registry.gather(), &mut text)?;
        Ok((encoder.format_type().to_owned(), text))
    }
}

impl Table {
    fn register(&self) -> Result<(), prometheus::Error> {
        let collectors: [Box<dyn Collector>; 7] = [
            Box::new(self.is_leader.clone()),
            Box::new(self.failovers.clone()),
            Box::new(self.false_alarms.clone()),
            Box::new(self.stages.clone()),
            Box::new(self.lost_bytes.clone()),
            Box::new(self.api_requests.clone()),
            Box::new(self.held.clone()),
        ];
        for collector in collectors {
            self.registry.register(collector)?;
        }
        for gauge in self.per_cluster() {
            self.registry.register(Box::new(gauge.clone()))?;
        }
        self.registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
    }

    fn per_cluster(&self) -> [&IntGaugeVec; 7] {
        [
            &self.epoch,
            &self.has_master,
            &self.writes_accepted,
            &self.failover_ready,
            &self.in_sync,
            &self.members,
            &self.write_quorum,
        ]
    }

    fn finished(&self, failover: &LastFailover) {
        let kind = kind_label(failover.kind);
        self.failovers.with_label_values(&[kind, reason_label(&failover.reason)]).inc();
        let lost = failover.lost_bytes_known.and_then(|lost| u64::try_from(lost).ok()).unwrap_or(0);
        self.lost_bytes.with_label_values(&[kind]).inc_by(lost);
        let Some(Stages { confirmed, recorded, chosen, promoted, routed, healed }) = failover.stages else {
            return;
        };
        for (stage, millis) in [
            ("confirmed", confirmed),
            ("recorded", recorded),
            ("chosen", chosen),
            ("promoted", promoted),
            ("routed", routed),
            ("healed", healed),
        ] {
            if let Some(millis) = millis {
                let seconds = std::time::Duration::from_millis(millis).as_secs_f64();
                self.stages.with_label_values(&[stage]).observe(seconds);
            }
        }
    }

    fn state(&self, cluster: &ClusterKey, gauges: &StateGauges) {
        let StateGauges {
            epoch,
            has_master,
            writes_accepted,
            failover_ready,
            members_in_sync,
            members,
            write_quorum_effective,
            held,
        } = gauges;
        let labels = [cluster.namespace.as_str(), cluster.name.as_str()];
        self.epoch.with_label_values(&labels).set(i64::try_from(*epoch).unwrap_or(i64::MAX));
        for (gauge, value) in [
            (&self.has_master, u32::from(*has_master)),
            (&self.writes_accepted, u32::from(*writes_accepted)),
            (&self.failover_ready, u32::from(*failover_ready)),
            (&self.in_sync, *members_in_sync),
            (&self.members, *members),
            (&self.write_quorum, *write_quorum_effective),
        ] {
            gauge.with_label_values(&labels).set(i64::from(value));
        }
        self.set_held(cluster, *held);
    }

    fn set_held(&self, cluster: &ClusterKey, reason: Option<&'static str>) {
        let mut reasons = self.held_reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = |reason| [cluster.namespace.as_str(), cluster.name.as_str(), reason];
        let before = match reason {
            Some(reason) => reasons.insert(cluster.clone(), reason),
            None => reasons.remove(cluster),
        };
        if let Some(before) = before.filter(|before| Some(*before) != reason) {
            let _ = self.held.remove_label_values(&labels(before));
        }
        if let Some(reason) = reason {
            self.held.with_label_values(&labels(reason)).set(1.0);
        }
    }
}

fn kind_label(kind: PlanKind) -> &'static str {
    match kind {
        PlanKind::Bootstrap => "bootstrap",
        PlanKind::Switchover => "switchover",
        PlanKind::Failover => "failover",
        PlanKind::Recover => "recover",
    }
}

/// Reasons are single CamelCase words. One that is not was put into a status by hand and is no label.
fn reason_label(reason: &str) -> &str {
    let word =
        !reason.is_empty() && reason.len() <= 40 && reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if word { reason } else { "Other" }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn cluster(name: &str) -> ClusterKey {
        ClusterKey { namespace: "shop".into(), name: name.into() }
    }

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render().unwrap().1).unwrap()
    }

    fn failover() -> LastFailover {
        LastFailover {
            at: Time(Timestamp::from_second(1).unwrap()),
            kind: PlanKind::Failover,
            from: Some("cache-0".into()),
            to: "cache-1".into(),
            reason: "MasterDied".into(),
            took_ms: Some(18),
            lost_bytes_known: Some(700),
            stages: Some(Stages { confirmed: Some(7), promoted: Some(18), ..Stages::default() }),
        }
    }

    #[test]
    fn a_failover_is_counted_with_its_stages_and_what_it_lost() {
        let metrics = Metrics::new().unwrap();
        metrics.measure(&cluster("cache"), &Measure::Finished(Box::new(failover())));
        let edited = LastFailover {
            reason: "x\"} 1\n".into(),
            stages: None,
            lost_bytes_known: Some(-3),
            ..failover()
        };
        metrics.measure(&cluster("cache"), &Measure::Finished(Box::new(edited)));
        let text = text(&metrics);
        for line in [
            r#"redis_ha_failovers_total{kind="failover",reason="MasterDied"} 1"#,
            r#"redis_ha_failovers_total{kind="failover",reason="Other"} 1"#,
            r#"redis_ha_failover_lost_bytes_total{kind="failover"} 700"#,
            r#"redis_ha_failover_stage_seconds_bucket{stage="promoted",le="0.01"} 0"#,
            r#"redis_ha_failover_stage_seconds_bucket{stage="promoted",le="0.02"} 1"#,
            r#"redis_ha_failover_stage_seconds_count{stage="confirmed"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains(r#"stage="healed""#));
    }

    #[test]
    fn a_false_alarm_is_counted_apart() {
        let metrics = Metrics::new().unwrap();
        metrics.measure(&cluster("cache"), &Measure::FalseAlarm { kind: PlanKind::Failover });
        let text = text(&metrics);
        assert!(text.contains(r#"redis_ha_false_alarms_total{kind="failover"} 1"#), "{text}");
        assert!(!text.contains("redis_ha_failovers_total{"));
    }

    #[test]
    fn a_cluster_is_held_for_one_reason_at_a_time() {
        let metrics = Metrics::new().unwrap();
        let held = |reason| {
            let gauges = StateGauges { held: reason, ..StateGauges::default() };
            metrics.measure(&cluster("cache"), &Measure::State(gauges));
            let text = text(&metrics);
            let lines = text.lines().filter(|line| line.starts_with("redis_ha_cluster_held{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let line = |reason: &str| {
            vec![format!(r#"redis_ha_cluster_held{{cluster="cache",namespace="shop",reason="{reason}"}} 1"#)]
        };
        assert_eq!(held(Some("SupervisorPartitioned")), line("SupervisorPartitioned"));
        assert_eq!(held(Some("NoSafeCandidate")), line("NoSafeCandidate"));
        assert_eq!(held(None), Vec::<String>::new());
    }

    #[test]
    fn a_deleted_cluster_takes_its_series_with_it_and_no_others() {
        let metrics = Metrics::new().unwrap();
        let gauges = StateGauges { epoch: 5, held: Some("Paused"), members: 3, ..StateGauges::default() };
        for name in ["cache", "queue"] {
            metrics.measure(&cluster(name), &Measure::State(gauges.clone()));
        }
        metrics.forget(&cluster("cache"));
        let text = text(&metrics);
        assert!(!text.contains(r#"cluster="cache""#), "{text}");
        assert!(text.contains(r#"redis_ha_cluster_epoch{cluster="queue",namespace="shop"} 5"#));
        assert!(text.contains(r#"redis_ha_cluster_members{cluster="queue",namespace="shop"} 3"#));
    }

    #[test]
    fn who_follows_tells_of_no_cluster() {
        let metrics = Metrics::new().unwrap();
        let gauges = StateGauges { held: Some("Paused"), ..StateGauges::default() };
        metrics.measure(&cluster("cache"), &Measure::State(gauges));
        metrics.forget_all();
        assert!(!text(&metrics).contains("redis_ha_cluster_"));
    }

    #[test]
    fn the_process_and_the_api_requests_are_measured_too() {
        let metrics = Metrics::new().unwrap();
        metrics.leads(true);
        metrics.api_request(Call { verb: "update", resource: "leases" }, End::Answered(409));
        let text = text(&metrics);
        assert!(text.contains("redis_ha_is_leader 1"));
        assert!(text.contains("process_resident_memory_bytes"));
        let line = r#"redis_ha_api_requests_total{outcome="conflict",resource="leases",verb="update"} 1"#;
        assert!(text.contains(line), "{text}");
    }
}
