//! What a pass found, and the one sentence of it that people see. Pure.

use k8s_openapi::api::apps::v1::StatefulSet;

use super::apply::{Error, Standing};

/// Collects what stands between the objects and the spec.
#[derive(Debug, Default)]
pub struct Findings {
    /// Objects with our names that are not ours.
    pub foreign: Vec<String>,
    /// Calls that failed.
    pub failed: Vec<Error>,
    /// A scale step that waits: (reason, sentence).
    pub held: Option<(&'static str, String)>,
    /// Running pods were made from an older template.
    pub restart_pending: bool,
}

impl Findings {
    /// Notes how one object stands; returns it when it is as wanted.
    pub fn note<K: Clone>(&mut self, result: Result<Standing<K>, Error>) -> Option<K> {
        match result {
            Ok(standing) => {
                if let Standing::Foreign(whose) = &standing {
                    self.foreign.push(whose.clone());
                }
                standing.equal().cloned()
            }
            Err(error) => {
                self.failed.push(error);
                None
            }
        }
    }

    /// The most urgent finding: (reason, sentence); `None` when all objects equal the spec.
    pub fn progressing(&self) -> Option<(String, String)> {
        let Self { foreign, failed, held, restart_pending } = self;
        let foreign = (!foreign.is_empty()).then(|| ("ForeignObject", foreign_message(foreign)));
        let failed = failed.first().map(|error| (error.reason(), error.to_string()));
        let restart = restart_pending.then(|| {
            (
                "RestartPending",
                "pods run with an older image, configuration or password: each takes the new one when it is deleted and made anew".to_owned(),
            )
        });
        foreign
            .or(failed)
            .or_else(|| held.clone())
            .or(restart)
            .map(|(reason, message)| (reason.to_owned(), message))
    }
}

fn foreign_message(foreign: &[String]) -> String {
    format!(
        "{}: it is left alone; rename or delete it, or give this RedisCluster another name",
        foreign.join("; ")
    )
}

/// Whether pods of an older template run. The counts of a StatefulSet lag behind its spec; then nothing is known.
/// A pod that is being deleted counts as old, so equal revisions are looked at first.
pub fn is_restart_pending(live: &StatefulSet) -> bool {
    let Some(status) = live.status.as_ref() else { return false };
    status.observed_generation == live.metadata.generation
        && status.current_revision != status.update_revision
        && status.updated_replicas.unwrap_or(0) < status.replicas
}
