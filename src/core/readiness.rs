//! Would a failover be allowed if the master died now? The same rules as then, asked before. Pure.

#[cfg(test)]
mod tests;

use super::candidate;
use super::facts::Info;
use super::health::Death;
use super::members::Member;
use super::permission::{Permission, permit};
use super::situation::Situation;
use crate::api::status::ProcessRef;

/// `Err`: no, with a reason in one CamelCase word and the sentence for people. `Ok`: yes, likewise.
pub type Readiness = Result<(&'static str, String), (&'static str, String)>;

/// Asked at every look; the answer is the condition `FailoverReady`.
pub fn readiness(situation: &Situation<'_>) -> Readiness {
    if situation.desired.replicas < 2 {
        return Err((
            "SinglePod",
            "a single pod has nobody to fail over to; set spec.replicas to 3".to_owned(),
        ));
    }
    let Some(((master, info), process)) = situation.well_master().zip(situation.record.master.as_ref())
    else {
        return Err(("NoMaster", "there is no master that answers".to_owned()));
    };
    if situation.plan().is_some() {
        return Err(("ChangeUnderWay", "a change of the master is under way".to_owned()));
    }
    if situation.current_id() != Some(info.replid.as_str()) {
        return Err(("LineageNotRecorded", "the master's replication id is not on record yet".to_owned()));
    }
    let fit = |member: &&Member| situation.in_sync(member) && candidate::examine(situation, member).is_ok();
    if !situation.others(process).any(|member| fit(&member)) {
        return Err(("NoCandidate", format!("no replica could replace {} now", master.pod.name)));
    }
    if !situation.desired.automatic {
        let message = "a replica in sync could replace the master, but spec.failover.mode is Manual";
        return Err(("ManualMode", message.to_owned()));
    }
    permitted(situation, process, master, info)?;
    Ok(("CandidateInSync", "a replica in sync can replace the master".to_owned()))
}

/// The permission, for a death that is certain, for one that is not, and for one that takes the master's node.
fn permitted(
    situation: &Situation<'_>,
    process: &ProcessRef,
    master: &Member,
    info: &Info,
) -> Result<(), (&'static str, String)> {
    let quorum = situation.record.write_quorum.effective;
    let answers = |member: &Member| member.reading(situation.now).is_some_and(|info| !info.loading);
    let certain = permit(situation, process, &Death::Definitive(""), quorum, answers);
    if let Permission::Refused(arithmetic) = certain {
        return Err(("NoQuorum", arithmetic));
    }
    if quorum < situation.desired.write_quorum {
        let enforced = info.good_replicas.is_some();
        return Err((
            "WriteQuorumNotInForce",
            format!(
                "the write quorum is not {} (it is 0 on record{}): only a master that has certainly ended would be replaced",
                situation.desired.write_quorum,
                if enforced { ", about to be raised" } else { "" }
            ),
        ));
    }
    if let Permission::Refused(arithmetic) =
        permit(situation, process, &Death::Presumptive(""), quorum, answers)
    {
        return Err(("NoQuorum", arithmetic));
    }
    let elsewhere = |member: &Member| member.pod.node.is_none() || member.pod.node != master.pod.node;
    let survives = |member: &Member| answers(member) && elsewhere(member);
    match permit(situation, process, &Death::Presumptive(""), quorum, survives) {
        Permission::Granted => Ok(()),
        Permission::Refused(arithmetic) => Err((
            "MasterAndReplicaOnOneNode",
            format!(
                "a replica runs on the master's node {}; if that node is lost, nobody could replace the master: {arithmetic}",
                master.pod.node.as_deref().unwrap_or_default()
            ),
        )),
    }
}
