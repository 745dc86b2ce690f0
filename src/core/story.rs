//! The course of one role change as this supervisor lived it: when each stage was reached. Pure.

use super::facts::Mono;
use crate::api::status::Stages;

/// Moments of one role change. Absent where this supervisor was not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Story {
    pub plan: String,
    pub first_sign: Option<Mono>,
    pub confirmed: Option<Mono>,
    pub recorded: Option<Mono>,
    pub chosen: Option<Mono>,
    pub promoted: Option<Mono>,
    /// The promotion was on record.
    pub on_record: Option<Mono>,
    pub routed: Option<Mono>,
    pub healed: Option<Mono>,
    /// Offset that the old master had when it was last sampled.
    pub sampled_offset: Option<i64>,
    /// Offset of the successor when it was chosen.
    pub chosen_offset: Option<i64>,
}

impl Story {
    /// Milliseconds from the first bad sign to each stage.
    pub fn stages(&self) -> Option<Stages> {
        self.first_sign?;
        Some(Stages {
            confirmed: self.since_first_sign(self.confirmed),
            recorded: self.since_first_sign(self.recorded),
            chosen: self.since_first_sign(self.chosen),
            promoted: self.since_first_sign(self.promoted),
            routed: self.since_first_sign(self.routed),
            healed: self.since_first_sign(self.healed),
        })
    }

    pub fn took_ms(&self) -> Option<u64> {
        self.since_first_sign(self.on_record)
    }

    /// A lower bound of the bytes of stream that the successor had not received.
    pub fn lost_bytes_known(&self) -> Option<i64> {
        Some((self.sampled_offset? - self.chosen_offset?).max(0))
    }

    fn since_first_sign(&self, moment: Option<Mono>) -> Option<u64> {
        let elapsed = moment?.checked_sub(self.first_sign?)?;
        u64::try_from(elapsed.as_millis()).ok()
    }
}
