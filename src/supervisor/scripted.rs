//! For tests: a state machine that does what it is told, and a world that answers as told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};

use super::outside::{Cluster, Failure, Leadership, Outside, Standing};
use super::task::Machine;
use super::{ClusterInput, ClusterKey, OwnedPod, Supervisors, clock};
use crate::api::RedisClusterStatus;
use crate::core::event::{Effect, Endpoint, Event, Expect, Measure, Notice, Stored, WriteOutcome};
use crate::core::facts::{ControllerReport, Mono, NodeState, Now, PodFact, REDIS_PORT};
use crate::redis::server::{Server, credentials};
use crate::supervisor::crash_points::CrashPoints;

/// Does the effects that a test asks for, and passes on the events.
struct Puppet {
    name: String,
    events: mpsc::UnboundedSender<(String, Event)>,
    effects: Arc<Mutex<Vec<Effect>>>,
    pulse: bool,
}

impl Machine for Puppet {
    fn handle(&mut self, _now: Now, event: Event) -> Vec<Effect> {
        if self.pulse && event != Event::Tick {
            let _ = self.events.send((self.name.clone(), event));
        }
        std::mem::take(&mut self.effects.lock().unwrap())
    }

    fn wake_at(&self) -> Option<Mono> {
        self.pulse.then(|| clock::mono() + Duration::from_millis(2))
    }
}

/// What the world was asked to do, and how it answers.
#[derive(Default)]
pub struct World {
    pub asked: Mutex<Vec<String>>,
    pub failing_reads: AtomicU8,
    /// Status writes wait until this is true.
    pub let_writes_end: watch::Sender<bool>,
    standing: watch::Sender<Option<Standing>>,
    /// The lease is too old by the holder's own clock; nobody is woken.
    overdue: Mutex<bool>,
}

impl World {
    pub fn stands(&self, standing: Standing) {
        self.standing.send_replace(Some(standing));
    }

    pub fn overdue(&self) {
        *self.overdue.lock().unwrap() = true;
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }
}

struct View {
    world: Arc<World>,
    standing: watch::Receiver<Option<Standing>>,
}

impl Leadership for View {
    fn standing(&self) -> Standing {
        match self.standing.borrow().clone() {
            Some(Standing::Leading { .. }) if *self.world.overdue.lock().unwrap() => Standing::Unsure,
            Some(standing) => standing,
            None => Standing::Unsure,
        }
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        self.standing.changed().map(|_| ()).boxed()
    }

    fn held_live(&self) -> BoxFuture<'static, Result<bool, Failure>> {
        let held = matches!(self.standing(), Standing::Leading { .. });
        async move { if held { Ok(true) } else { Err("the lease cannot be read".into()) } }.boxed()
    }

    fn hand_over(&self) {
        self.world.note("hand over".into());
    }
}

struct Scripted(Arc<World>);

impl Outside for Scripted {
    fn cluster(&self, key: &ClusterKey, uid: &str) -> Arc<dyn Cluster> {
        self.0.note(format!("cluster {} {uid}", key.name));
        Arc::new(Scripted(self.0.clone()))
    }

    fn leadership(&self) -> Box<dyn Leadership> {
        Box::new(View { world: self.0.clone(), standing: self.0.standing.subscribe() })
    }
}

impl Cluster for Scripted {
    fn write_status(&self, _: Expect, status: Box<RedisClusterStatus>) -> BoxFuture<'static, WriteOutcome> {
        let world = self.0.clone();
        async move {
            world.note(format!("status {}", status.epoch));
            let mut may_end = world.let_writes_end.subscribe();
            let _ = may_end.wait_for(|end| *end).await;
            WriteOutcome::Written
        }
        .boxed()
    }

    fn read_object(&self) -> BoxFuture<'static, Result<Option<Stored>, Failure>> {
        let fails =
            self.0.failing_reads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        async move {
            match fails {
                Ok(_) => Err("the API server is away".into()),
                Err(_) => Ok(Some(Stored { uid: "u".into(), resource_version: "7".into(), status: None })),
            }
        }
        .boxed()
    }

    fn write_route(&self, endpoint: Option<Endpoint>, epoch: u64) -> BoxFuture<'static, WriteOutcome> {
        self.0.note(format!("route {:?} {epoch}", endpoint.map(|endpoint| endpoint.pod)));
        async { WriteOutcome::Written }.boxed()
    }

    fn write_reads(&self, endpoints: Vec<Endpoint>, epoch: u64) -> BoxFuture<'static, WriteOutcome> {
        let pods: Vec<String> = endpoints.into_iter().map(|endpoint| endpoint.pod).collect();
        self.0.note(format!("reads {pods:?} {epoch}"));
        futures::future::ready(WriteOutcome::Written).boxed()
    }

    fn reads_seen(&self, resource_version: Option<String>) {
        self.0.note(format!("reads seen {resource_version:?}"));
    }

    fn route_seen(&self, resource_version: Option<String>) {
        self.0.note(format!("route seen {resource_version:?}"));
    }

    fn confirm_pod(&self, _: String, uid: String) -> BoxFuture<'static, Result<Option<IpAddr>, Failure>> {
        async move {
            match uid.as_str() {
                "gone" => Ok(None),
                "unreadable" => Err("the API server is away".into()),
                _ => Ok(Some(Ipv4Addr::LOCALHOST.into())),
            }
        }
        .boxed()
    }

    fn label_pod(
        &self,
        pod: String,
        _: String,
        role: Option<&'static str>,
    ) -> BoxFuture<'static, WriteOutcome> {
        let world = self.0.clone();
        async move {
            world.note(format!("label {pod} {role:?}"));
            WriteOutcome::Gone
        }
        .boxed()
    }

    fn delete_pod(&self, pod: String, uid: String) -> BoxFuture<'static, WriteOutcome> {
        self.0.note(format!("delete {pod} {uid}"));
        futures::future::ready(WriteOutcome::Written).boxed()
    }

    fn clear_switchover(&self, value: String) -> BoxFuture<'static, WriteOutcome> {
        self.0.note(format!("clear switchover {value}"));
        futures::future::ready(WriteOutcome::Written).boxed()
    }

    fn tell(&self, notice: Notice) -> BoxFuture<'static, WriteOutcome> {
        let world = self.0.clone();
        async move {
            world.note(format!("tell {}", notice.reason));
            WriteOutcome::Written
        }
        .boxed()
    }

    fn measure(&self, _: &Measure) {
        self.0.note("measure".into());
    }
}

/// One cluster `shop/cache` under supervision by a puppet.
pub struct Stage {
    pub world: Arc<World>,
    pub supervisors: Supervisors,
    events: mpsc::UnboundedReceiver<(String, Event)>,
    effects: Arc<Mutex<Vec<Effect>>>,
}

impl Stage {
    pub fn new() -> Self {
        Self::with(CrashPoints::default(), true)
    }

    /// `pulse`: the machines want to be woken all the time, so that effects start at once. Without it they
    /// are idle and pass nothing on.
    pub fn with(crash_points: CrashPoints, pulse: bool) -> Self {
        let world = Arc::new(World::default());
        world.let_writes_end.send_replace(true);
        let (sender, events) = mpsc::unbounded_channel();
        let effects = Arc::<Mutex<Vec<Effect>>>::default();
        let (for_machines, events_out) = (effects.clone(), sender);
        let new_machine = move |uid: String| -> Box<dyn Machine> {
            Box::new(Puppet { name: uid, events: events_out.clone(), effects: for_machines.clone(), pulse })
        };
        let outside = Arc::new(Scripted(world.clone()));
        Self {
            world,
            supervisors: Supervisors::new(outside, Box::new(new_machine), crash_points),
            events,
            effects,
        }
    }

    /// Leading, with the cluster set and the first events taken.
    pub async fn leading() -> Self {
        let mut stage = Self::new();
        stage.world.stands(Standing::Leading { term: "t1".into() });
        stage.supervisors.set(&key("cache"), input("uid-1"));
        assert_eq!(stage.event().await, Event::Leading { term: "t1".into() });
        assert_eq!(stage.event().await, Event::Reported(ControllerReport::default()));
        stage
    }

    pub fn perform(&self, effect: Effect) {
        self.effects.lock().unwrap().push(effect);
    }

    pub async fn named_event(&mut self) -> (String, Event) {
        tokio::time::timeout(Duration::from_secs(10), self.events.recv()).await.expect("no event").unwrap()
    }

    pub async fn event(&mut self) -> Event {
        self.named_event().await.1
    }

    /// Nothing but ticks for a while.
    pub async fn silence(&mut self) {
        let event = tokio::time::timeout(Duration::from_millis(150), self.events.recv()).await;
        assert!(event.is_err(), "{event:?}");
    }
}

pub fn key(name: &str) -> ClusterKey {
    ClusterKey { namespace: "shop".into(), name: name.into() }
}

pub fn input(uid: &str) -> ClusterInput {
    ClusterInput {
        uid: uid.into(),
        desired: None,
        credentials: Some(credentials()),
        stateful_set_uid: Some("set-1".into()),
        report: ControllerReport::default(),
    }
}

pub fn pod(ordinal: u32, owner: &str) -> OwnedPod {
    OwnedPod {
        owner_uid: Some(owner.into()),
        fact: PodFact {
            name: format!("cache-{ordinal}"),
            uid: format!("pod-{ordinal}"),
            ordinal,
            ip: None,
            node: None,
            node_state: NodeState::Fit,
            terminating: false,
            role_label: None,
        },
    }
}

/// Last byte of the address given out last.
static LAST: AtomicU8 = AtomicU8::new(0);

/// A server on the port that pods use, at a loopback address that no other test process uses.
pub async fn pod_server() -> (Server, IpAddr) {
    let [.., high, low] = std::process::id().to_be_bytes();
    let last = LAST.fetch_add(1, Ordering::SeqCst) + 1;
    let ip = Ipv4Addr::new(127, high.max(1), low.max(1), last);
    (Server::start_at(SocketAddr::from((ip, REDIS_PORT))).await, ip.into())
}
