//! Where the master Service should lead. Pure.
//!
//! Routing is not the fence. After a certain death the slice is written once, at the promotion, because
//! kube-proxy takes the first change after a quiet second at once and makes the next one wait. Only where the
//! old master may still answer somebody is it emptied first.

use std::time::Duration;

use super::event::Endpoint;
use super::facts::RouteFact;
use super::health::{Health, judge};
use super::situation::Situation;
use crate::api::status::{PlanKind, PlanStep};

/// Without a selector nobody else removes the address of a pod that is gone, and it may be given to another.
const RECYCLED_AFTER: Duration = Duration::from_secs(1);

/// What the slice should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// As it is.
    Kept,
    Nobody,
    To(Endpoint),
}

pub fn wanted(situation: &Situation<'_>) -> Wanted {
    if let Some(plan) = situation.plan().filter(|plan| plan.step < PlanStep::Promoted) {
        let fails_over = match plan.kind {
            PlanKind::Failover => true,
            PlanKind::Switchover => plan.step >= PlanStep::Revoked && plan.to != plan.from,
            PlanKind::Bootstrap | PlanKind::Recover => false,
        };
        let may_still_answer = fails_over
            && !situation.definitive
            && plan.from.as_ref().is_some_and(|from| judge(situation, from) != Health::Well);
        return if may_still_answer { Wanted::Nobody } else { Wanted::Kept };
    }
    let Some((process, member)) = situation.master() else { return Wanted::Kept };
    let settled = situation.now >= situation.evidence_since + RECYCLED_AFTER;
    let Some(member) = member else {
        return if settled { Wanted::Nobody } else { Wanted::Kept };
    };
    if member.unlisted_since.is_some_and(|since| situation.now >= since + RECYCLED_AFTER) {
        return Wanted::Nobody;
    }
    match member.pod.ip {
        Some(ip) if member.listed => Wanted::To(Endpoint {
            pod: process.pod.clone(),
            uid: process.uid.clone(),
            ip,
            node: member.pod.node.clone(),
        }),
        _ => Wanted::Kept,
    }
}

/// Does the slice already say that?
pub fn leads_to(seen: &RouteFact, endpoint: Option<&Endpoint>) -> bool {
    match endpoint {
        None => seen.ip.is_none(),
        Some(endpoint) => {
            seen.ip.as_deref() == Some(endpoint.ip.to_string().as_str())
                && seen.uid.as_deref() == Some(endpoint.uid.as_str())
        }
    }
}
