//! What a pass found, and the one sentence of it that people see. Pure.

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
    /// Pods that were made from an older template.
    pub old_pods: Vec<String>,
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
        let Self { foreign, failed, held, old_pods } = self;
        let foreign = (!foreign.is_empty()).then(|| ("ForeignObject", foreign_message(foreign)));
        let failed = failed.first().map(|error| (error.reason(), error.to_string()));
        let restart = (!old_pods.is_empty()).then(|| ("RestartPending", restart_message(old_pods)));
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

fn restart_message(old_pods: &[String]) -> String {
    format!(
        "{} run with an older image, configuration, password or pod template: each takes the new one when it is deleted and made anew",
        old_pods.join(", ")
    )
}
