//! At the end: every acknowledged write is there, or was lost in a window that the design admits.

use crate::world::World;

impl World {
    /// The master on record is well, and everybody follows it: what does it hold?
    pub fn check_data(&mut self) {
        let Some(master) = self.recorded_master() else { return };
        let head = self.processes[master].head;
        let mut missing = Vec::new();
        for (number, write) in self.writes.iter().enumerate() {
            let Some(held) = write.head else { continue };
            if self.history.holds(head, held) {
                continue;
            }
            match write.excuse {
                Some(excuse) => *self.counts.lost.entry(excuse).or_default() += 1,
                None => missing.push(number),
            }
        }
        let confirmed = missing.iter().filter(|number| self.writes[**number].confirmed).count();
        if let Some(first) = missing.first() {
            let write = self.writes[*first].clone();
            let (count, at) = (missing.len(), crate::time::clock(write.at));
            self.broke(if confirmed > 0 { "Confirmed" } else { "Acknowledged" }, |world| {
                format!(
                    "{count} writes are lost without a reason ({confirmed} confirmed by a replica); the first was \
                     accepted by {} at {at} of its own time",
                    world.name_of(write.pid)
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::checkers::settled::tests::settled;

    #[test]
    fn a_lost_write_is_found_and_an_excused_one_is_counted() {
        let mut world = settled();
        world.check_data();
        assert!(world.checks.broken.is_empty());
        let last = world.writes.iter().rposition(|write| write.head.is_some()).unwrap();
        let other = world.history.write(0);
        world.writes[last].head = Some(other);
        world.writes[last].excuse = Some("allowed");
        world.check_data();
        assert!(world.checks.broken.is_empty());
        assert_eq!(world.counts.lost["allowed"], 1);
        world.writes[last].excuse = None;
        world.writes[last].confirmed = true;
        world.check_data();
        assert_eq!(world.checks.broken[0].rule, "Confirmed");
    }
}
