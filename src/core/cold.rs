//! Starting from what the pods brought with them: no process that served this cluster is left, or no master was
//! ever recorded. Whoever may hold data is waited for; nothing empty wins over data. Pure.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::candidate;
use super::facts::{Info, Mono, Profile, Role};
use super::members::Member;
use super::situation::Situation;
use crate::api::status::ProcessRef;

/// After this the recorded master's own data is enough, if its pod is back.
const MASTER_BACK: Duration = Duration::from_secs(30);

/// After this whoever is back is enough.
const ANYBODY_BACK: Duration = Duration::from_secs(60);

/// What a cold start needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cold {
    /// More pods; which, in words.
    Wait(String),
    /// Somebody to look at it; why, in words.
    Refuse(String),
    Start(Start),
}

/// Who becomes the master, and at whose cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub to: ProcessRef,
    /// In one CamelCase word.
    pub reason: &'static str,
    /// For people.
    pub why: String,
    /// Uids of the other pods that hold data, which a sync may replace.
    pub overwrites: Vec<String>,
}

/// A pod that answers, with no command under way.
type Reading<'a> = (&'a Member, &'a Info);

/// The recorded master has ended, and every pod that answers booted anew. `None`: that is not so, or nobody who
/// answers has data and nobody is waited for any more.
pub fn restart(situation: &Situation<'_>, from: &ProcessRef) -> Option<Cold> {
    let survived = |member: &Member| {
        let reading = member.reading(situation.now);
        reading.is_some_and(|info| !info.loading && (!info.is_fenced() || member.is(from)))
    };
    let booted: Vec<Reading<'_>> =
        readings(situation).into_iter().filter(|(_, info)| info.is_fenced()).collect();
    let since = first_seen(&booted)?;
    if situation.listed().any(survived) {
        return None;
    }
    let is_home = |member: &Member| member.pod.uid == from.uid || member.pod.name == from.pod;
    let home = booted.iter().find(|(member, _)| is_home(member));
    let waited = situation.now.saturating_sub(since);
    // What is being loaded is back, and is waited for however long that takes.
    let loading =
        situation.listed().any(|member| member.reading(situation.now).is_some_and(|info| info.loading));
    let enough = is_complete(situation, &booted)
        || (waited >= ANYBODY_BACK && !loading)
        || (waited >= MASTER_BACK && !loading && home.is_some_and(|(_, info)| info.keys > 0));
    if !enough {
        return Some(Cold::Wait(missing(situation, &booted)));
    }
    let on_record = candidate::best(situation).filter(|best| best.info.keys > 0);
    if let Some(best) = on_record {
        let why = format!("it has the newest data on record, up to offset {}", best.offset);
        return start(&booted, best.member, "ColdStart", &why);
    }
    if let Some((member, _)) = home.filter(|(_, info)| info.keys > 0) {
        return start(&booted, member, "ColdStart", "it was the master, and has kept its data");
    }
    let (member, info) = largest(&booted)?;
    if situation.desired.profile == Profile::Durable && !situation.acknowledged() {
        return Some(Cold::Refuse(format!(
            "{}, the last master, did not bring its data back, and what {} has ({} keys) cannot be compared with it: in \
             the profile Durable a person decides. To go on with that, {}",
            from.pod,
            member.pod.name,
            info.keys,
            situation.how_to_acknowledge()
        )));
    }
    let why = format!(
        "{}, the last master, did not bring its data back, and of what is there this is the most: {} keys; what is \
         not among them is lost",
        from.pod, info.keys
    );
    start(&booted, member, "ColdStartLossUnknown", &why)
}

/// No master is on record, but pods hold data or one of them is a master: the object was made again over kept
/// volumes, or its status was lost. `None`: nobody holds anything.
pub fn adopt(situation: &Situation<'_>) -> Option<Cold> {
    let readings = readings(situation);
    let masters: Vec<&Reading<'_>> = readings.iter().filter(|(_, info)| info.role == Role::Master).collect();
    let with_data = readings.iter().filter(|(_, info)| info.keys > 0).count();
    if with_data == 0 && masters.is_empty() {
        return None;
    }
    let complete = is_complete(situation, &readings);
    if let Some((member, info)) = readings.iter().find(|(_, info)| is_fed_by_a_stranger(situation, info)) {
        return Some(Cold::Refuse(format!(
            "no master is on record, and {} is fed by {}, which is none of the pods: a master may live on where it \
             cannot be seen; make sure that it has ended",
            member.pod.name,
            info.master_host.as_deref().unwrap_or_default()
        )));
    }
    match masters.as_slice() {
        [] if complete => adopt_data(&readings),
        // It serves already, so nobody else does.
        [(master, info)] if complete || feeds(master, &readings) => adopt_master(&readings, master, info),
        [] | [_] => Some(Cold::Wait(missing(situation, &readings))),
        _ => Some(Cold::Refuse(format!(
            "no master is on record, and more than one pod says that it is one: {}; delete the pods of all but the right \
             one",
            names(masters.iter().map(|(member, _)| *member))
        ))),
    }
}

fn adopt_master(readings: &[Reading<'_>], master: &Member, master_info: &Info) -> Option<Cold> {
    let others: Vec<&Member> = readings
        .iter()
        .filter(|(member, info)| member.pod.uid != master.pod.uid && info.keys > 0 && !info.link_up)
        .map(|(member, _)| *member)
        .collect();
    if master_info.keys == 0 && !others.is_empty() {
        return Some(Cold::Refuse(format!(
            "no master is on record; {} says that it is one, but is empty, while {} hold data; delete its pod, and the \
             data is taken up",
            master.pod.name,
            names(others.into_iter())
        )));
    }
    start(readings, master, "AdoptedMaster", "no master was on record, and it is one")
}

/// Pods that share a history can be compared by their position; else the number of keys is all there is.
fn adopt_data(readings: &[Reading<'_>]) -> Option<Cold> {
    let mut histories: BTreeMap<&str, Vec<(i64, Reading<'_>)>> = BTreeMap::new();
    for (member, info) in readings {
        if let Some(position) = Member::position(info).filter(|_| info.keys > 0) {
            histories.entry(&info.replid).or_default().push((position, (member, info)));
        }
    }
    let shared = histories.into_values().max_by_key(Vec::len).filter(|history| history.len() > 1);
    if let Some(history) = shared {
        let count = history.len();
        let newest = history
            .into_iter()
            .max_by_key(|(position, (member, _))| (*position, Reverse(member.pod.ordinal)));
        let (position, (member, _)) = newest?;
        let why = format!(
            "no master was on record; {count} pods share one history, and it has the newest data, up to offset \
             {position}"
        );
        return start(readings, member, "AdoptedData", &why);
    }
    let (member, info) = largest(readings)?;
    let why = format!("no master was on record, and it holds the most data: {} keys", info.keys);
    start(readings, member, "AdoptedData", &why)
}

fn readings<'a>(situation: &Situation<'a>) -> Vec<Reading<'a>> {
    situation
        .listed()
        .filter(|member| !member.pod.terminating)
        .filter_map(|member| Some((member, member.settled(situation.now)?)))
        .filter(|(_, info)| !info.loading)
        .collect()
}

/// Since when all of this is seen: the first pod's boot.
fn first_seen(booted: &[Reading<'_>]) -> Option<Mono> {
    booted.iter().filter_map(|(member, _)| member.fenced_since).min()
}

fn is_complete(situation: &Situation<'_>, readings: &[Reading<'_>]) -> bool {
    let wanted = usize::try_from(situation.desired.replicas).unwrap_or(usize::MAX);
    readings.len() >= wanted.max(situation.listed().count())
}

fn is_fed_by_a_stranger(situation: &Situation<'_>, info: &Info) -> bool {
    let from_a_pod = |member: &Member| member.pod.ip.is_some_and(|ip| Situation::streams_from(info, ip));
    info.role == Role::Replica && info.link_up && !situation.listed().any(from_a_pod)
}

fn feeds(master: &Member, readings: &[Reading<'_>]) -> bool {
    let Some(ip) = master.pod.ip else { return false };
    readings.iter().any(|(_, info)| Situation::streams_from(info, ip))
}

/// Most keys, then lowest ordinal. `None`: nobody has any.
fn largest<'a>(readings: &[Reading<'a>]) -> Option<Reading<'a>> {
    readings
        .iter()
        .filter(|(_, info)| info.keys > 0)
        .max_by_key(|(member, info)| (info.keys, Reverse(member.pod.ordinal)))
        .copied()
}

fn start(readings: &[Reading<'_>], to: &Member, reason: &'static str, why: &str) -> Option<Cold> {
    let follows = |info: &Info| to.pod.ip.is_some_and(|ip| Situation::streams_from(info, ip));
    let others: Vec<&Member> = readings
        .iter()
        .filter(|(member, info)| member.pod.uid != to.pod.uid && info.keys > 0 && !follows(info))
        .map(|(member, _)| *member)
        .collect();
    let replaced = if others.is_empty() {
        String::new()
    } else {
        format!("; the data of {} is replaced by it", names(others.iter().copied()))
    };
    Some(Cold::Start(Start {
        to: to.process()?,
        reason,
        why: format!("{why}{replaced}"),
        overwrites: others.iter().map(|member| member.pod.uid.clone()).collect(),
    }))
}

/// Pods that are listed but not read, or not even listed.
fn missing(situation: &Situation<'_>, readings: &[Reading<'_>]) -> String {
    let read = |member: &Member| readings.iter().any(|(other, _)| other.pod.uid == member.pod.uid);
    let silent: Vec<&Member> = situation.listed().filter(|member| !read(member)).collect();
    let wanted = usize::try_from(situation.desired.replicas).unwrap_or(usize::MAX);
    let unlisted = wanted.saturating_sub(situation.listed().count());
    match (silent.is_empty(), unlisted) {
        (false, 0) => names(silent.into_iter()),
        (false, _) => format!("{} and {unlisted} that do not exist yet", names(silent.into_iter())),
        (true, _) => format!("{unlisted} pods that do not exist yet"),
    }
}

fn names<'a>(members: impl Iterator<Item = &'a Member>) -> String {
    members.map(|member| member.pod.name.as_str()).collect::<Vec<_>>().join(", ")
}
