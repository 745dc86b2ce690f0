//! Which faults strike when: drawn from the seed before the world begins, so that some can be left out afterwards.

use crate::rng::Rng;
use crate::setup::Setup;
use crate::time::{MS, SECOND, Time};

/// Which server is meant. Who is the master is decided when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Master,
    /// Any other, counted from the master on.
    Other(u32),
    /// The recorded successor, else the master.
    Target,
    All,
}

/// Which operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Leader,
    Standby,
}

/// A place in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Server(Who),
    Operator(Which),
    Api,
    Client(usize),
}

/// What strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed; its container starts again after this time.
    Kill {
        who: Who,
        back: Time,
    },
    Delete {
        who: Who,
    },
    /// The pod's object goes at once, its process later: a false certificate.
    ForceDelete {
        who: Who,
        lingers: Time,
    },
    Freeze {
        who: Who,
        time: Time,
    },
    Script {
        who: Who,
        time: Time,
    },
    CannotSave {
        who: Who,
        time: Time,
    },
    /// `both`: in both directions. `reset`: somebody answers instead of silence.
    Cut {
        from: Place,
        to: Place,
        both: bool,
        reset: bool,
        time: Time,
    },
    /// From everything else.
    Isolate {
        place: Place,
        time: Time,
    },
    /// A machine loses power.
    PowerLoss {
        who: Who,
        time: Time,
    },
    ApiOutage {
        time: Time,
    },
    ApiSlow {
        time: Time,
    },
    LoseRequests {
        count: u32,
    },
    LoseReplies {
        count: u32,
    },
    LateRequests {
        count: u32,
    },
    Conflicts {
        count: u32,
    },
    StaleWatch {
        time: Time,
    },
    OperatorCrash {
        which: Which,
        back: Time,
    },
    /// Right before its next change, if `in_hand`.
    OperatorPause {
        which: Which,
        time: Time,
        in_hand: bool,
        clock_stops: bool,
    },
    Scale {
        to: u32,
    },
    Flush,
    Switchover {
        to: Option<u32>,
    },
    /// Somebody with the operator's password.
    ByHand {
        who: Who,
    },
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    pub at: Time,
    pub fault: Fault,
}

/// Draws the faults of one world: `per_hour` on average, for this long. Some come in company.
pub fn draw(seed: u64, setup: &Setup, per_hour: u64, from: Time, length: Time) -> Vec<Strike> {
    let mut rng = Rng::new(seed, 2);
    let mean = 3600 * SECOND / per_hour.max(1);
    let mut strikes = Vec::new();
    let mut at = from;
    loop {
        // A second fault while the first is being dealt with is where mistakes are.
        let company = !strikes.is_empty() && rng.percent(45);
        // The others are rarer, so that the mean holds.
        let pause = if company { rng.span(MS, 12 * SECOND) } else { rng.range(mean * 4 / 5, mean * 14 / 5) };
        at += pause;
        if at >= from + length {
            return strikes;
        }
        strikes.push(Strike { at, fault: fault(&mut rng, setup) });
    }
}

fn who(rng: &mut Rng) -> Who {
    match rng.below(20) {
        0..=9 => Who::Master,
        10..=16 => Who::Other(u32::try_from(rng.below(4)).unwrap_or(0)),
        17..=18 => Who::Target,
        _ => Who::All,
    }
}

fn place(rng: &mut Rng) -> Place {
    match rng.below(10) {
        0..=5 => Place::Server(who(rng)),
        6..=8 => Place::Operator(which(rng)),
        _ => Place::Client(rng.index(2)),
    }
}

fn which(rng: &mut Rng) -> Which {
    if rng.percent(80) { Which::Leader } else { Which::Standby }
}

fn time(rng: &mut Rng) -> Time {
    rng.span(5 * MS, 25 * SECOND)
}

fn count(rng: &mut Rng) -> u32 {
    u32::try_from(rng.range(1, 3)).unwrap_or(1)
}

fn fault(rng: &mut Rng, setup: &Setup) -> Fault {
    match rng.below(100) {
        0..=19 => Fault::Kill { who: who(rng), back: rng.span(30 * MS, 20 * SECOND) },
        20..=25 => Fault::Delete { who: who(rng) },
        26..=28 => Fault::ForceDelete { who: who(rng), lingers: rng.span(100 * MS, 30 * SECOND) },
        29..=36 => Fault::Freeze { who: who(rng), time: time(rng) },
        37..=38 => Fault::Script { who: who(rng), time: time(rng) },
        39 => Fault::CannotSave { who: who(rng), time: time(rng) },
        40..=52 => {
            let from = Place::Server(who(rng));
            let to = if rng.percent(15) { Place::Api } else { place(rng) };
            let both = rng.percent(60);
            let (from, to) = if rng.percent(50) { (from, to) } else { (to, from) };
            Fault::Cut { from, to, both, reset: rng.percent(10), time: time(rng) }
        }
        53..=59 => Fault::Isolate {
            place: if rng.percent(70) { Place::Server(who(rng)) } else { Place::Operator(which(rng)) },
            time: time(rng),
        },
        60..=62 => Fault::PowerLoss { who: who(rng), time: rng.span(SECOND, 60 * SECOND) },
        63..=65 => Fault::ApiOutage { time: time(rng) },
        66..=67 => Fault::ApiSlow { time: time(rng) },
        68..=69 => Fault::LoseRequests { count: count(rng) },
        70..=72 => Fault::LoseReplies { count: count(rng) },
        73..=75 => Fault::LateRequests { count: count(rng) },
        76 => Fault::Conflicts { count: count(rng) },
        77..=78 => Fault::StaleWatch { time: time(rng) },
        79..=84 => Fault::OperatorCrash { which: which(rng), back: rng.span(100 * MS, 12 * SECOND) },
        85..=92 => Fault::OperatorPause {
            which: which(rng),
            time: rng.span(10 * MS, 20 * SECOND),
            in_hand: rng.percent(75),
            clock_stops: rng.percent(40),
        },
        93..=94 => Fault::Scale { to: rng.pick(&[setup.replicas, 2, 3, 5, setup.replicas]).max(1) },
        95 => Fault::Flush,
        96..=98 => {
            Fault::Switchover { to: rng.percent(50).then(|| u32::try_from(rng.below(3)).unwrap_or(0)) }
        }
        _ => Fault::ByHand { who: who(rng) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_rate_is_about_what_was_asked_for() {
        let hours = 200;
        let count = draw(1, &Setup::usual(), 60, 0, hours * 3600 * SECOND).len() as u64;
        assert!((45 * hours..75 * hours).contains(&count), "{count}");
    }
}
