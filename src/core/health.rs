//! Evidence about the recorded master, in a fixed order of precedence: its own word, then its replicas' word,
//! then certain death, then presumed death. Pure.

use std::time::Duration;

use super::facts::{Mono, NodeState, REDIS_PORT, Role};
use super::mechanism::{Mechanism, on};
use super::members::{Class, Link, Member, REFUSAL_SPACING};
use super::situation::{Situation, WITNESS_SILENCE, WITNESS_WINDOW, WITNESS_WORD};
use crate::api::status::ProcessRef;

/// A script that cannot be ended: after this the master counts like one that hangs.
const BUSY_FOR: Duration = Duration::from_secs(60);

/// The verdict about the recorded master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The recorded process answers as master.
    Well,
    /// The recorded process answers as a replica: something demoted it.
    Demoted,
    /// A replica is still being fed by it, whatever we see.
    AliveByWitness {
        witness: String,
    },
    /// Something is wrong, but not for long enough, or not by enough witnesses.
    Suspect,
    Dead(Death),
    /// It answers, or at least accepts connections, but not as a master should.
    Sick(Class),
}

/// How certain a death is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// Nothing of the process can be left: no fence wait is needed.
    Definitive(&'static str),
    /// It may live on where we cannot see it: its write lease must run out first.
    Presumptive(&'static str),
}

impl Death {
    pub fn reason(&self) -> &'static str {
        match self {
            Death::Definitive(reason) | Death::Presumptive(reason) => reason,
        }
    }
}

/// Judge the recorded process.
pub fn judge(situation: &Situation<'_>, process: &ProcessRef) -> Health {
    let Some(member) = situation.member_of(process) else {
        // Its pod is gone and we hold no connection: only its replicas can still know it.
        return judge_unseen(situation, process, None);
    };
    if !on(Mechanism::Veto) && (member.pod.terminating || !member.listed) {
        return Health::Dead(Death::Definitive("PodDeleted"));
    }
    if let Some(health) = own_word(situation, process, member) {
        return health;
    }
    judge_unseen(situation, process, Some(member))
}

/// 1. Its own word, to a question asked after the first bad sign.
///
/// That a script runs is a word, too, also after the silence with which a script begins.
fn own_word(situation: &Situation<'_>, process: &ProcessRef, member: &Member) -> Option<Health> {
    let class = member.class(situation.now);
    if !member.is(process) || (member.bad_since.is_some() && class != Class::Busy) {
        return None;
    }
    match class {
        Class::Ok => {
            let info = member.reading(situation.now)?;
            Some(if info.role == Role::Master { Health::Well } else { Health::Demoted })
        }
        // A script that goes on for so long will not let it serve soon.
        Class::Busy if has_been_busy(situation, member) => None,
        Class::Busy | Class::Loading | Class::Denied => Some(Health::Sick(class)),
        _ => None,
    }
}

fn has_been_busy(situation: &Situation<'_>, member: &Member) -> bool {
    member.busy_since.is_some_and(|since| situation.now.saturating_sub(since) >= BUSY_FOR)
}

fn judge_unseen(situation: &Situation<'_>, process: &ProcessRef, member: Option<&Member>) -> Health {
    // The pod runs another process than the recorded one: certain, once the pod was read live.
    if member.and_then(Member::process).is_some_and(|other| other.run_id != process.run_id) {
        return if situation.replaced_confirmed {
            Health::Dead(Death::Definitive("MasterRestarted"))
        } else {
            Health::Suspect
        };
    }
    let first_sign = member.map_or(Some(situation.evidence_since), |member| {
        // Whom nobody can ask, and nobody has asked, gives no sign at all: its silence counts from our beginning.
        let cannot_be_asked = member.link == Link::Closed && (!member.listed || member.pod.ip.is_none());
        let unseen = cannot_be_asked.then_some(situation.evidence_since);
        member.bad_since.or(member.busy_since).or(unseen)
    });
    let Some(bad_since) = first_sign.map(|since| since.max(situation.evidence_since)) else {
        return Health::Suspect; // nothing was heard yet
    };
    // 2. The replicas' word.
    if let Some(witness) =
        living_witness(situation, process, bad_since).filter(|_| on(Mechanism::AliveByWitness))
    {
        return Health::AliveByWitness { witness };
    }
    // 3. Certain death.
    let ended = member.is_some_and(|member| member.is_gone() || member.ended_with_its_pod());
    let agreed = witnesses_agree(situation, process, bad_since) || !on(Mechanism::QualifiedWitness);
    if ended && agreed {
        return Health::Dead(Death::Definitive("MasterProcessEnded"));
    }
    // 4. Presumed death.
    presumed(situation, process, member, bad_since)
}

/// A replica that says, to a question asked after `since`, that the master feeds it.
fn living_witness(situation: &Situation<'_>, process: &ProcessRef, since: Mono) -> Option<String> {
    let master_ip = situation.member_of(process).and_then(|member| member.pod.ip);
    situation
        .others(process)
        .find(|member| {
            member.reading(situation.now).is_some()
                && member.answer_since(since).is_some_and(|info| {
                    master_ip.is_some_and(|ip| Situation::streams_from(info, ip))
                        && info.last_io.is_some_and(|word| (0..=WITNESS_WORD).contains(&word))
                        && situation.current_id() == Some(info.replid.as_str())
                })
        })
        .map(|member| member.pod.name.clone())
}

/// Every qualified witness, at least one, has lost its link to the master since.
fn witnesses_agree(situation: &Situation<'_>, process: &ProcessRef, bad_since: Mono) -> bool {
    let qualified = |member: &&Member| {
        member.streamed_at.is_some_and(|seen| seen + WITNESS_WINDOW >= bad_since) && !member.is_gone()
    };
    let Some(ip) = situation.member_of(process).and_then(|member| member.pod.ip) else { return false };
    let mut witnesses = 0;
    for member in situation.others(process).filter(qualified) {
        let down = member.answer_since(bad_since).is_some_and(|info| {
            // Still told to follow it, and not detached by anybody.
            let lost = !info.link_up && info.link_down_since.is_some_and(|seconds| seconds >= 0);
            lost && Member::follows(info, ip, REDIS_PORT)
        });
        if !down {
            return false;
        }
        witnesses += 1;
    }
    witnesses > 0
}

/// Refused or unroutable for long enough, and no reachable replica has had word from it.
fn presumed(
    situation: &Situation<'_>,
    process: &ProcessRef,
    member: Option<&Member>,
    bad_since: Mono,
) -> Health {
    let reason = match member.map(|member| (member.class(situation.now), member)) {
        None => "MasterPodGone",
        Some((Class::Refused, member)) if member.refused_twice() => "MasterRefusesConnections",
        Some((Class::Unknown, member)) if !member.listed || member.pod.ip.is_none() => "MasterPodGone",
        Some((Class::Unroutable | Class::Refused | Class::Unknown, member))
            if member.pod.node_state == NodeState::Lost =>
        {
            "NodeLost"
        }
        // Unknown: connections end before the first answer, as behind a proxy whose server is gone.
        Some((Class::Unroutable | Class::Unknown, _)) => "MasterUnreachable",
        Some((Class::Hung, _)) => "MasterHung",
        Some((Class::Busy, _)) if situation.now.saturating_sub(bad_since) < BUSY_FOR => {
            return Health::Sick(Class::Busy);
        }
        Some((Class::Busy, _)) => "MasterBusy",
        Some((class @ Class::Denied, _))
            if situation.now.saturating_sub(bad_since) >= situation.desired.unreachable_after =>
        {
            return Health::Sick(class);
        }
        _ => return Health::Suspect,
    };
    let patience = match reason {
        "MasterHung" => situation.desired.hung_after,
        _ => situation.desired.unreachable_after,
    };
    if situation.now.saturating_sub(bad_since) < patience {
        return Health::Suspect;
    }
    let master_ip = member.and_then(|member| member.pod.ip);
    let mut replicas = 0;
    for member in situation.others(process).filter(|member| situation.reachable(member)) {
        let Some(info) = member.answer_since(bad_since + REFUSAL_SPACING) else { return Health::Suspect };
        let elsewhere = master_ip.is_some_and(|ip| !Situation::streams_from(info, ip));
        let cut = !info.link_up || elsewhere || info.last_io.is_some_and(|word| word >= WITNESS_SILENCE);
        if !cut {
            return Health::Suspect;
        }
        replicas += 1;
    }
    if replicas == 0 { Health::Suspect } else { Health::Dead(Death::Presumptive(reason)) }
}
