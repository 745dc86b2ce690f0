//! Points at which an operator is crashed, or an answer lost: counted, so that all of them can be tried.

use crate::world::World;

/// What is counted, and what is to happen where.
#[derive(Clone, Debug, Default)]
pub struct Points {
    pub counting: bool,
    /// Changing effects so far.
    pub effects: u32,
    /// Writes to the API server so far.
    pub writes: u32,
    /// Crash at this effect; `true`: after it was started.
    pub crash_at: Option<(u32, bool)>,
    /// Lose the answer to this write.
    pub lose_at: Option<u32>,
    /// It happened.
    pub hit: bool,
}

impl World {
    /// Crash before (`false`) or after (`true`) this effect?
    pub fn crash_here(&mut self) -> Option<bool> {
        if !self.points.counting {
            return None;
        }
        self.points.effects += 1;
        let (at, after) = self.points.crash_at?;
        if at != self.points.effects {
            return None;
        }
        self.points.hit = true;
        Some(after)
    }

    /// Is the answer to this write to be lost?
    pub fn lose_reply_at_point(&mut self) -> bool {
        if !self.points.counting {
            return false;
        }
        self.points.writes += 1;
        let hit = self.points.lose_at == Some(self.points.writes);
        self.points.hit |= hit;
        hit
    }
}
