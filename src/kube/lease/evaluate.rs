//! What to do about the lease, from what was seen of it and when. Pure.
//!
//! Clocks of different machines are never compared: another holder's lease has run out when *we* saw no
//! change of it for its whole duration, on a clock that counts suspension.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::core::facts::Mono;

/// How long a lease lasts without a renewal.
pub const DURATION: Duration = Duration::from_secs(8);
/// How long after the start of its last renewal a holder may act. Shorter than [`DURATION`] by more than
/// an effect takes, so that the next holder finds quiet.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(5);
/// Pause between two tries.
pub const RETRY: Duration = Duration::from_secs(1);
/// A longer duration in the lease was written by hand; it must not lock everybody out.
const LONGEST: Duration = Duration::from_secs(60);

/// The lease as seen, and since when it has not changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    pub holder: Option<String>,
    /// Number of acquisitions so far.
    pub transitions: i32,
    /// As long as the holder promised.
    duration: Duration,
    renewed: Option<MicroTime>,
    acquired: Option<MicroTime>,
    /// When this operator first saw it like this.
    since: Mono,
}

impl Sighting {
    /// `before`: the last sighting; only a change of the record itself starts its time anew.
    pub fn new(spec: Option<&LeaseSpec>, before: Option<&Self>, now: Mono) -> Self {
        let empty = LeaseSpec::default();
        let spec = spec.unwrap_or(&empty);
        let written = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let mut sighting = Self {
            holder: spec.holder_identity.clone().filter(|holder| !holder.is_empty()),
            transitions: spec.lease_transitions.unwrap_or(0).max(0),
            // Never shorter than ours: a holder of this version acts that long.
            duration: written.map_or(DURATION, Duration::from_secs).clamp(DURATION, LONGEST),
            renewed: spec.renew_time.clone(),
            acquired: spec.acquire_time.clone(),
            since: now,
        };
        if let Some(before) = before {
            let unchanged = Self { since: before.since, ..sighting.clone() } == *before;
            sighting.since = if unchanged { before.since } else { now };
        }
        sighting
    }
}

/// Our own hold on the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `leaseTransitions` of our acquisition.
    pub transitions: i32,
    /// We may act until then.
    pub valid_until: Mono,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no lease: make it, as a new term.
    Create,
    /// It is free, has run out, or is ours from a term that is over: take it as a new term.
    Take,
    /// It is ours: renew it.
    Renew,
    /// Somebody else holds it, at least until then.
    Wait { until: Mono },
}

/// Decides from the newest sighting. A wrong one (a stale read) costs a refused write: each write names
/// the version that was read.
pub fn evaluate(seen: Option<&Sighting>, me: &str, claim: Option<Claim>, now: Mono) -> Verdict {
    let Some(seen) = seen else { return Verdict::Create };
    match seen.holder.as_deref() {
        None => Verdict::Take,
        Some(holder) if holder == me => {
            let current =
                claim.is_some_and(|claim| now < claim.valid_until && claim.transitions == seen.transitions);
            if current { Verdict::Renew } else { Verdict::Take }
        }
        Some(_) => {
            let until = seen.since.saturating_add(seen.duration);
            if now < until { Verdict::Wait { until } } else { Verdict::Take }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    const ME: &str = "operator-a_1";
    const OTHER: &str = "operator-b_2";

    fn at(seconds: u64) -> Mono {
        Duration::from_secs(seconds)
    }

    fn lease(holder: &str, transitions: i32, renewed: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_transitions: Some(transitions),
            lease_duration_seconds: Some(8),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        }
    }

    fn seen(spec: &LeaseSpec, now: Mono) -> Sighting {
        Sighting::new(Some(spec), None, now)
    }

    fn claim(transitions: i32, valid_until: Mono) -> Claim {
        Claim { transitions, valid_until }
    }

    #[test]
    fn each_state_of_the_lease_has_one_next_act() {
        let mine = lease(ME, 4, 1_000);
        let theirs = lease(OTHER, 4, 1_000);
        let released = LeaseSpec { holder_identity: None, ..theirs.clone() };
        let blank = lease("", 4, 1_000);
        let table = [
            ("no lease", None, None, at(100), Verdict::Create),
            ("released", Some(&released), None, at(100), Verdict::Take),
            ("holder is an empty text", Some(&blank), None, at(100), Verdict::Take),
            ("held by another, fresh", Some(&theirs), None, at(100), Verdict::Wait { until: at(108) }),
            (
                "held by another, just before the end",
                Some(&theirs),
                None,
                at(107),
                Verdict::Wait { until: at(108) },
            ),
            ("held by another, run out", Some(&theirs), None, at(108), Verdict::Take),
            ("ours and valid", Some(&mine), Some(claim(4, at(105))), at(104), Verdict::Renew),
            (
                "ours, but past the renew deadline",
                Some(&mine),
                Some(claim(4, at(105))),
                at(105),
                Verdict::Take,
            ),
            ("ours, of an earlier life of the process", Some(&mine), None, at(101), Verdict::Take),
            ("ours, but of another term", Some(&mine), Some(claim(3, at(105))), at(101), Verdict::Take),
            (
                "taken from us while we thought it valid",
                Some(&theirs),
                Some(claim(3, at(105))),
                at(101),
                Verdict::Wait { until: at(108) },
            ),
        ];
        for (name, spec, claim, now, expected) in table {
            let sighting = spec.map(|spec| seen(spec, at(100)));
            assert_eq!(evaluate(sighting.as_ref(), ME, claim, now), expected, "{name}");
        }
    }

    #[test]
    fn a_renewal_of_the_other_starts_its_time_anew() {
        let first = seen(&lease(OTHER, 4, 1_000), at(100));
        let renewed = Sighting::new(Some(&lease(OTHER, 4, 1_001)), Some(&first), at(107));
        assert_eq!(evaluate(Some(&renewed), ME, None, at(110)), Verdict::Wait { until: at(115) });
    }

    #[test]
    fn seeing_the_same_record_again_does_not_prolong_it() {
        let first = seen(&lease(OTHER, 4, 1_000), at(100));
        let again = Sighting::new(Some(&lease(OTHER, 4, 1_000)), Some(&first), at(107));
        assert_eq!(again, first);
        assert_eq!(evaluate(Some(&again), ME, None, at(108)), Verdict::Take);
    }

    #[test]
    fn clocks_of_the_holder_do_not_matter() {
        for renewed in [0, 1_000, 4_000_000_000] {
            let sighting = seen(&lease(OTHER, 4, renewed), at(100));
            assert_eq!(evaluate(Some(&sighting), ME, None, at(107)), Verdict::Wait { until: at(108) });
            assert_eq!(evaluate(Some(&sighting), ME, None, at(108)), Verdict::Take);
        }
        // A holder whose clock jumps back still renews: any change counts.
        let first = seen(&lease(OTHER, 4, 5_000), at(100));
        let back = Sighting::new(Some(&lease(OTHER, 4, 10)), Some(&first), at(107));
        assert_eq!(evaluate(Some(&back), ME, None, at(108)), Verdict::Wait { until: at(115) });
    }

    #[test]
    fn a_holder_that_was_suspended_does_not_go_on_in_its_old_term() {
        let mine = seen(&lease(ME, 4, 1_000), at(100));
        assert_eq!(evaluate(Some(&mine), ME, Some(claim(4, at(105))), at(3_700)), Verdict::Take);
    }

    #[test]
    fn a_stale_read_can_only_make_a_candidate_wait_longer() {
        let newer = seen(&lease(OTHER, 4, 1_005), at(105));
        let stale = Sighting::new(Some(&lease(OTHER, 4, 1_000)), Some(&newer), at(106));
        assert_eq!(evaluate(Some(&stale), ME, None, at(113)), Verdict::Wait { until: at(114) });
    }

    #[test]
    fn two_candidates_see_the_same_end_and_the_version_decides_between_them() {
        let dead = lease("operator-c_3", 4, 1_000);
        let (one, two) = (seen(&dead, at(100)), seen(&dead, at(101)));
        assert_eq!(evaluate(Some(&one), ME, None, at(109)), Verdict::Take);
        assert_eq!(evaluate(Some(&two), OTHER, None, at(109)), Verdict::Take);
        // The loser sees the winner and waits its whole time.
        let won = Sighting::new(Some(&lease(ME, 5, 1_009)), Some(&two), at(109));
        assert_eq!(evaluate(Some(&won), OTHER, None, at(110)), Verdict::Wait { until: at(117) });
    }

    #[test]
    fn a_duration_written_by_hand_is_kept_within_bounds() {
        for (written, until) in
            [(Some(1), 108), (None, 108), (Some(-5), 108), (Some(20), 120), (Some(86_400), 160)]
        {
            let spec = LeaseSpec { lease_duration_seconds: written, ..lease(OTHER, 4, 1_000) };
            let verdict = evaluate(Some(&seen(&spec, at(100))), ME, None, at(100));
            assert_eq!(verdict, Verdict::Wait { until: at(until) }, "{written:?}");
        }
    }
}
