//! One pass over one cluster: read, validate, build, make equal, hand over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};

use super::apply::{self, Error, Kind, converge, delete_orphan};
use super::claims;
use super::passwords::{self, Found};
use super::report::Findings;
use super::{Guarded, Room, cluster_key, requests, restarts, scale, spread};
use crate::api::{RedisCluster, names};
use crate::core::facts::{ControllerReport, Desired};
use crate::core::objects::secrets::Passwords;
use crate::core::objects::{self, Objects};
use crate::core::valid::{self, ValidCluster};
use crate::supervisor::{ClusterInput, ClusterKey, Credentials};

/// How soon to look again at what no watch tells: a foreign object without our label, a Secret of the user.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The whole pass. Nothing is written when nothing differs, and nothing at all unless this operator leads.
pub(super) async fn reconcile(object: Arc<Guarded>, room: Arc<Room>) -> Result<Action, Error> {
    let Some((key, uid)) = cluster_key(&*object).zip(object.meta().uid.clone()) else {
        return Ok(Action::await_change());
    };
    if object.meta().deletion_timestamp.is_some() {
        room.depart(&key);
        return Ok(Action::await_change());
    }
    if !room.caches.are_filled() {
        return Ok(Action::await_change()); // woken again when they are
    }
    let created = object.meta().creation_timestamp.clone();
    let annotations = object.meta().annotations.clone().unwrap_or_default();
    let pass = Pass { room: &room, key, uid, created, annotations, live: None };
    let pass = Pass { live: pass.own_stateful_set(), ..pass };
    let cluster = match &object.0 {
        Ok(cluster) => cluster,
        Err(malformed) => {
            let sentence = format!("the stored object cannot be read: {}; correct it", malformed.error);
            return Ok(pass.refuse("ObjectNotReadable", sentence, None));
        }
    };
    let valid = match valid::validate(cluster, &room.ctx.default_image) {
        Ok(valid) => valid,
        Err(refusal) => return Ok(pass.refuse(refusal.reason(), refusal.to_string(), Some(cluster))),
    };
    pass.remember_desired(&valid);
    if !room.ctx.leadership.is_leader() {
        return Ok(pass.stand_by(cluster));
    }
    if let Some(sentence) = requests::unreadable(&pass.annotations) {
        pass.tell(cluster, "AnnotationNotReadable", &sentence);
    }
    if valid.paused {
        return Ok(pass.pause(cluster));
    }
    let passwords = match passwords::find(&room, &pass.key, &valid).await {
        Ok(Found::Passwords(passwords)) => passwords,
        Ok(Found::Refused(reason, sentence)) => return Ok(pass.refuse(reason, sentence, Some(cluster))),
        Err(error) => return pass.conclude(cluster, Findings { failed: vec![error], ..Findings::default() }),
    };
    let (findings, live) = Box::pin(pass.make_equal(cluster, &valid, &passwords)).await;
    Pass { live: live.or(pass.live), ..pass }.conclude(cluster, findings)
}

/// One pass: where it works, and for which object.
struct Pass<'a> {
    room: &'a Room,
    key: ClusterKey,
    /// Uid of the `RedisCluster`.
    uid: String,
    /// When that was created.
    created: Option<Time>,
    /// Its annotations.
    annotations: BTreeMap<String, String>,
    /// The StatefulSet, if it is ours.
    live: Option<StatefulSet>,
}

impl Pass<'_> {
    fn own_stateful_set(&self) -> Option<StatefulSet> {
        let live = self.room.caches.stateful_set(&self.key, &self.key.name)?;
        apply::is_controlled_by(&*live, &self.uid).then(|| (*live).clone())
    }

    fn owner(&self) -> claims::Owner<'_> {
        claims::Owner { key: &self.key, created: self.created.as_ref() }
    }

    /// All objects. What one of them lacks does not stop the others.
    async fn make_equal(
        &self,
        cluster: &RedisCluster,
        valid: &ValidCluster,
        passwords: &Passwords,
    ) -> (Findings, Option<StatefulSet>) {
        let (room, key, ctx) = (self.room, &self.key, &self.room.ctx);
        let mut findings = Findings::default();
        let live = self.live.as_ref();
        let size = scale::size(room, valid, cluster.status.as_ref(), live).await;
        let spread = spread::choose(ctx, valid, live).await;
        let (size, spread) = match (size, spread) {
            (Ok(size), Ok(spread)) => (size, spread),
            (Err(error), _) | (_, Err(error)) => {
                findings.failed.push(error);
                return (findings, None);
            }
        };
        self.room.memory.of(key, &self.uid, |entry| {
            let scale_in_to = size.held.is_some().then_some(valid.replicas);
            entry.desired = Some(Desired { scale_in_to, ..valid.desired(size.replicas) });
        });
        findings.held = size.held;
        let Objects {
            server_secret,
            auth_secret,
            config_map,
            headless_service,
            master_service,
            replicas_service,
            budgets,
            stateful_set,
        } = objects::build(valid, passwords, size.replicas, spread);

        let secrets = std::iter::once(server_secret).chain(auth_secret).collect();
        let secrets = self.keep(&mut findings, &room.caches.secrets, secrets).await;
        let config = self.keep(&mut findings, &room.caches.config_maps, vec![config_map]).await;
        let services = vec![headless_service, master_service, replicas_service];
        let services = self.keep(&mut findings, &room.caches.services, services).await;
        let wanted: Vec<String> = budgets.iter().map(ResourceExt::name_any).collect();
        self.keep(&mut findings, &room.caches.budgets, budgets).await;
        self.delete_orphans(&mut findings, room.caches.budgets.state(), &wanted).await;
        // Pods must not boot from files that are not ours. And once there is a master, our slice would add it to whoever
        // stands behind a Service of its name: no cluster begins while one is somebody else's.
        let begins = self.live.is_none();
        let bootable = secrets.first().is_some_and(Option::is_some)
            && config.iter().all(Option::is_some)
            && (!begins || services.iter().all(Option::is_some));
        let live = if bootable {
            let sets = self.keep(&mut findings, &room.caches.stateful_sets, vec![stateful_set]).await;
            sets.into_iter().next().flatten()
        } else {
            None
        };
        if let Some(live) = &live {
            match restarts::pending(ctx, key, live).await {
                Ok(old_pods) => findings.old_pods = old_pods,
                Err(error) => findings.failed.push(error),
            }
        }
        if let Some(status) = cluster.status.as_ref().filter(|_| valid.storage.is_some())
            && let Err(error) = claims::mark(ctx, &room.caches, self.owner(), status).await
        {
            findings.failed.push(error);
        }
        (findings, live)
    }

    /// All objects of one kind. Returns those that are as wanted, in the same order. Each object on its own: one that
    /// fails does not stop the others.
    async fn keep<K: Kind>(
        &self,
        findings: &mut Findings,
        cache: &Store<K>,
        wanted: Vec<K>,
    ) -> Vec<Option<K>> {
        let mut kept = Vec::with_capacity(wanted.len());
        for object in wanted {
            let cached = cache.get(&ObjectRef::new(&object.name_any()).within(&self.key.namespace));
            // On the heap: the future holds the object several times.
            let standing = Box::pin(converge(&self.room.ctx, &self.uid, object, cached.as_deref())).await;
            kept.push(findings.note(standing));
        }
        kept
    }

    /// Objects of ours under names that are not used any more. Only budgets come and go with the spec; of other kinds there
    /// can be none but a copy that somebody made.
    async fn delete_orphans<K: Kind>(&self, findings: &mut Findings, cached: Vec<Arc<K>>, wanted: &[String]) {
        let orphans = cached.into_iter().filter(|object| {
            let name = object.meta().name.as_deref().unwrap_or_default();
            object.meta().namespace.as_ref() == Some(&self.key.namespace)
                && apply::is_controlled_by(&**object, &self.uid)
                && !wanted.iter().any(|wanted| wanted == name)
        });
        for orphan in orphans {
            if let Err(error) = delete_orphan(&self.room.ctx, &*orphan).await {
                findings.failed.push(error);
            }
        }
    }

    /// Hands over what was found; a failed call makes the pass fail, so that it is repeated.
    fn conclude(&self, cluster: &RedisCluster, mut findings: Findings) -> Result<Action, Error> {
        let progressing = findings.progressing();
        if !findings.foreign.is_empty()
            && let Some((_, message)) = &progressing
        {
            self.tell(cluster, "ForeignObject", message);
        }
        let applied = findings.failed.is_empty() && findings.foreign.is_empty() && findings.held.is_none();
        let report = ControllerReport {
            observed_generation: if applied { cluster.metadata.generation } else { observed(Some(cluster)) },
            progressing,
            ..self.report(Some(cluster))
        };
        self.hand_over(report);
        if !findings.failed.is_empty() {
            return Err(findings.failed.swap_remove(0));
        }
        self.room.memory.of(&self.key, &self.uid, |entry| entry.succeeded(applied));
        Ok(if findings.foreign.is_empty() { Action::await_change() } else { Action::requeue(LOOK_AGAIN) })
    }

    /// A spec that cannot be applied changes nothing that runs.
    fn refuse(&self, reason: &'static str, sentence: String, cluster: Option<&RedisCluster>) -> Action {
        if let Some(cluster) = cluster.filter(|_| self.room.ctx.leadership.is_leader()) {
            self.tell(cluster, reason, &sentence);
        }
        let report = ControllerReport {
            observed_generation: observed(cluster),
            spec_invalid: Some((reason.to_owned(), sentence)),
            ..self.report(cluster)
        };
        self.hand_over(report);
        Action::requeue(LOOK_AGAIN)
    }

    /// The user wants all objects left as they are.
    fn pause(&self, cluster: &RedisCluster) -> Action {
        let report = ControllerReport {
            observed_generation: observed(Some(cluster)),
            paused: true,
            ..self.report(Some(cluster))
        };
        self.hand_over(report);
        Action::await_change()
    }

    /// Keeps memory and supervisors ready for the moment when this operator leads.
    fn stand_by(&self, cluster: &RedisCluster) -> Action {
        let passwords = passwords::cached(&self.room.caches, &self.key, &self.uid);
        self.room.memory.of(&self.key, &self.uid, |entry| entry.passwords = passwords);
        self.hand_over(ControllerReport {
            observed_generation: observed(Some(cluster)),
            ..self.report(Some(cluster))
        });
        Action::await_change()
    }

    fn remember_desired(&self, valid: &ValidCluster) {
        let running = scale::running(self.live.as_ref()).unwrap_or(valid.replicas);
        let replicas = if valid.paused { running } else { running.max(valid.replicas) };
        self.room.memory.of(&self.key, &self.uid, |entry| {
            // A scale step that waits keeps its size until `make_equal` has looked at it again.
            entry.desired = Some(valid.desired(replicas));
        });
    }

    fn report(&self, cluster: Option<&RedisCluster>) -> ControllerReport {
        let status = cluster.and_then(|cluster| cluster.status.as_ref());
        let pods =
            self.live.as_ref().and_then(|live| live.status.as_ref()).map_or(0, |status| status.replicas);
        ControllerReport {
            replicas: pods,
            selector: Some(objects::selector(&self.key.name)),
            recorded: status.is_some_and(|status| status.supervision.is_some()),
            ..ControllerReport::default()
        }
    }

    /// Claims of this name may be left from an object that had storage.
    fn has_volumes(&self) -> bool {
        let spec = self.live.as_ref().and_then(|live| live.spec.as_ref());
        spec.and_then(|spec| spec.volume_claim_templates.as_ref()).is_some_and(|claims| !claims.is_empty())
    }

    fn hand_over(&self, report: ControllerReport) {
        let Self { room, key, uid, live, .. } = self;
        let (desired, remembered) =
            room.memory.of(key, uid, |entry| (entry.desired.clone(), entry.passwords.clone()));
        // Without a valid spec since the start, what runs says what is wanted: failover goes on.
        let desired: Option<Desired> =
            desired.or_else(|| scale::running(live.as_ref()).map(valid::desired_from_running));
        let data_expected = self.has_volumes() && claims::data_expected(&room.caches, self.owner());
        let desired =
            desired.map(|desired| Desired { data_expected, ..requests::add(&self.annotations, desired) });
        let passwords = remembered.or_else(|| passwords::cached(&room.caches, key, uid));
        let input = ClusterInput {
            uid: uid.clone(),
            desired,
            credentials: passwords.map(|passwords| Credentials {
                operator_user: names::operator_user(uid),
                operator_password: passwords.operator,
                replication_user: names::replication_user(uid),
            }),
            stateful_set_uid: live.as_ref().and_then(|live| live.metadata.uid.clone()),
            report,
        };
        room.arrive(key, uid, input);
    }

    fn tell(&self, cluster: &RedisCluster, reason: &'static str, message: &str) {
        if self.room.memory.of(&self.key, &self.uid, |entry| entry.is_news(message)) {
            self.room.ctx.announce.warn(&cluster.object_ref(&()), reason, message);
        }
    }
}

/// Generation that was applied before, as recorded.
fn observed(cluster: Option<&RedisCluster>) -> Option<i64> {
    cluster?.status.as_ref()?.observed_generation
}
