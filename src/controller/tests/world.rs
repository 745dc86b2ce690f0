//! A small API server in memory, and caches that are filled from it on demand, as a watch would do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{self, Store, store::Writer};
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::names;
use crate::controller::apply::Error;
use crate::controller::caches::{Caches, Lists, WATCHES};
use crate::controller::memory::Memory;
use crate::controller::{Announce, Context, Guarded, Handover, Room, reconcile};
use crate::supervisor::{ClusterInput, ClusterKey};

/// When the cluster was created.
pub const CREATED: &str = "2026-01-02T03:04:05Z";

pub const NAMESPACE: &str = "/namespaces/shop";

/// What was handed over and told.
#[derive(Default)]
pub struct Heard {
    pub inputs: Mutex<BTreeMap<ClusterKey, ClusterInput>>,
    pub events: Mutex<Vec<(String, String)>>,
}

impl Handover for Heard {
    fn set(&self, key: ClusterKey, input: ClusterInput) {
        self.inputs.lock().unwrap().insert(key, input);
    }

    fn remove(&self, key: &ClusterKey) {
        self.inputs.lock().unwrap().remove(key);
    }
}

impl Announce for Heard {
    fn warn(&self, _: &ObjectReference, reason: &'static str, message: &str) {
        self.events.lock().unwrap().push((reason.to_owned(), message.to_owned()));
    }
}

/// Objects by path, and the requests that came.
#[derive(Default)]
pub struct Server {
    pub objects: BTreeMap<String, Value>,
    pub requests: Vec<String>,
    /// Requests that contain this text are answered with 500.
    pub broken: Option<&'static str>,
    /// An object of this name cannot be applied, only overwritten.
    pub refuses_to_apply: Option<&'static str>,
    /// Leadership ends after this many writes.
    pub lose_leadership_after: Option<usize>,
}

pub struct World {
    pub server: Arc<Mutex<Server>>,
    pub heard: Arc<Heard>,
    pub leading: Arc<watch::Sender<bool>>,
    pub room: Arc<Room>,
    clusters: Writer<Guarded>,
    stateful_sets: Writer<k8s_openapi::api::apps::v1::StatefulSet>,
    services: Writer<k8s_openapi::api::core::v1::Service>,
    config_maps: Writer<k8s_openapi::api::core::v1::ConfigMap>,
    secrets: Writer<k8s_openapi::api::core::v1::Secret>,
    budgets: Writer<k8s_openapi::api::policy::v1::PodDisruptionBudget>,
    claims: Writer<k8s_openapi::api::core::v1::PersistentVolumeClaim>,
}

fn cache<K>() -> (Store<K>, Writer<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    reflector::store()
}

fn context(server: &Arc<Mutex<Server>>, leading: &Arc<watch::Sender<bool>>, heard: &Arc<Heard>) -> Context {
    let client = serve(Arc::clone(server), Arc::clone(leading));
    Context {
        watches: client.clone(),
        client,
        default_image: "registry.example/redis:8.2".to_owned(),
        namespace: None,
        leadership: Arc::new(leading.subscribe()),
        handover: heard.clone(),
        announce: heard.clone(),
        synced: Arc::default(),
    }
}

impl World {
    /// For a whole controller in this world.
    pub fn context(&self) -> Context {
        context(&self.server, &self.leading, &self.heard)
    }

    /// Leads, and knows one cluster `cache` with this spec and three nodes.
    pub fn new(spec: &Value) -> Self {
        let server = Arc::new(Mutex::new(Server::default()));
        let leading = Arc::new(watch::channel(true).0);
        let (cluster_store, clusters) = cache();
        let (stateful_set_store, stateful_sets) = cache();
        let (service_store, services) = cache();
        let (config_map_store, config_maps) = cache();
        let (secret_store, secrets) = cache();
        let (budget_store, budgets) = cache();
        let (claim_store, claims) = cache();
        let heard = Arc::new(Heard::default());
        let ctx = context(&server, &leading, &heard);
        let caches = Caches {
            clusters: cluster_store,
            stateful_sets: stateful_set_store,
            services: service_store,
            config_maps: config_map_store,
            secrets: secret_store,
            budgets: budget_store,
            claims: claim_store,
            lists: Lists::default(),
        };
        for _ in 0..WATCHES {
            caches.lists.one_more::<Guarded>()(&Ok(Event::InitDone));
        }
        let room = Arc::new(Room { ctx, caches, memory: Memory::default() });
        let mut world = Self {
            server,
            heard,
            leading,
            room,
            clusters,
            stateful_sets,
            services,
            config_maps,
            secrets,
            budgets,
            claims,
        };
        for node in ["n1", "n2", "n3"] {
            world.put(&format!("/api/v1/nodes/{node}"), json!({"metadata": {"name": node}, "spec": {}}));
        }
        world.put(
            &cluster_path(),
            json!({
                "apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster", "spec": spec,
                "metadata": {"name": "cache", "namespace": "shop", "uid": "0a1b2c3d-4e5f", "generation": 7,
                    "creationTimestamp": CREATED},
            }),
        );
        world.sync();
        world
    }

    pub fn put(&mut self, path: &str, object: Value) {
        self.server.lock().unwrap().objects.insert(path.to_owned(), object);
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.server.lock().unwrap().objects.get(path).cloned()
    }

    pub fn edit(&mut self, path: &str, pointer: &str, value: Value) {
        let mut server = self.server.lock().unwrap();
        *server.objects.get_mut(path).unwrap().pointer_mut(pointer).unwrap() = value;
    }

    pub fn delete(&mut self, path: &str) {
        self.server.lock().unwrap().objects.remove(path).unwrap();
    }

    /// The caches see what is there now.
    pub fn sync(&mut self) {
        let server = self.server.lock().unwrap();
        fill(&server, "/apis/redis-ha.dev/v1alpha1", "redisclusters", false, &mut self.clusters);
        fill(&server, "/apis/apps/v1", "statefulsets", true, &mut self.stateful_sets);
        fill(&server, "/api/v1", "services", true, &mut self.services);
        fill(&server, "/api/v1", "configmaps", true, &mut self.config_maps);
        fill(&server, "/api/v1", "secrets", true, &mut self.secrets);
        fill(&server, "/apis/policy/v1", "poddisruptionbudgets", true, &mut self.budgets);
        fill(&server, "/api/v1", "persistentvolumeclaims", true, &mut self.claims);
    }

    /// One pass with fresh caches. Returns its result and the requests that it sent.
    pub async fn pass(&mut self) -> (Result<Action, Error>, Vec<String>) {
        self.sync();
        self.stale_pass().await
    }

    /// One pass with caches as they are.
    pub async fn stale_pass(&mut self) -> (Result<Action, Error>, Vec<String>) {
        self.server.lock().unwrap().requests.clear();
        let cluster = self.room.caches.clusters.state().pop().unwrap();
        let result = reconcile::reconcile(cluster, Arc::clone(&self.room)).await;
        (result, self.server.lock().unwrap().requests.clone())
    }

    /// What the supervisor was handed last.
    pub fn input(&self) -> ClusterInput {
        self.heard.inputs.lock().unwrap().get(&key()).cloned().unwrap()
    }

    pub fn progressing(&self) -> Option<String> {
        self.input().report.progressing.map(|(reason, _)| reason)
    }
}

pub fn key() -> ClusterKey {
    ClusterKey { namespace: "shop".to_owned(), name: "cache".to_owned() }
}

pub fn cluster_path() -> String {
    format!("/apis/redis-ha.dev/v1alpha1{NAMESPACE}/redisclusters/cache")
}

pub fn core(kind: &str, name: &str) -> String {
    format!("/api/v1{NAMESPACE}/{kind}/{name}")
}

pub fn budget(name: &str) -> String {
    format!("/apis/policy/v1{NAMESPACE}/poddisruptionbudgets/{name}")
}

pub fn stateful_set() -> String {
    format!("/apis/apps/v1{NAMESPACE}/statefulsets/cache")
}

/// Requests that change something.
pub fn writes(requests: &[String]) -> Vec<&str> {
    requests.iter().map(String::as_str).filter(|request| !request.starts_with("GET")).collect()
}

fn fill<K>(server: &Server, group: &str, kind: &str, labelled: bool, writer: &mut Writer<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    let prefix = format!("{group}{NAMESPACE}/{kind}/");
    let pointer = format!("/metadata/labels/{}", names::CLUSTER_LABEL.replace('/', "~1"));
    writer.apply_watcher_event(&Event::Init);
    for (_, object) in server.objects.iter().filter(|(path, _)| path.starts_with(&prefix)) {
        if !labelled || object.pointer(&pointer).is_some() {
            writer.apply_watcher_event(&Event::InitApply(serde_json::from_value(object.clone()).unwrap()));
        }
    }
    writer.apply_watcher_event(&Event::InitDone);
}

/// Answers GET, LIST, PATCH (server-side apply) and DELETE.
fn serve(server: Arc<Mutex<Server>>, leading: Arc<watch::Sender<bool>>) -> Client {
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    tokio::spawn(async move {
        let mut watches = Vec::new();
        while let Some((request, respond)) = handle.next_request().await {
            let (parts, body) = request.into_parts();
            if parts.uri.query().unwrap_or_default().contains("watch=true") {
                watches.push(respond); // nothing ever happens
                continue;
            }
            let body = body.collect_bytes().await.unwrap();
            let mut server = server.lock().unwrap();
            let (code, answer) = server.answer(&parts, &body);
            let written = server.requests.iter().filter(|request| request.starts_with("PATCH")).count();
            if server.lose_leadership_after.is_some_and(|limit| written >= limit) {
                leading.send_replace(false);
            }
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            respond.send_response(response.unwrap());
        }
    });
    Client::new(service, "default")
}

impl Server {
    fn answer(&mut self, parts: &http::request::Parts, body: &[u8]) -> (u16, Value) {
        let (method, uri) = (parts.method.as_str(), &parts.uri);
        let applied =
            parts.headers.get("content-type").is_some_and(|kind| kind == "application/apply-patch+yaml");
        let path = uri.path().to_owned();
        let forced = uri.query().unwrap_or_default().contains("force=true");
        let request = format!("{method}{} {path}", if forced { " force" } else { "" });
        let broken = self.broken.is_some_and(|text| request.contains(text));
        self.requests.push(request);
        if broken {
            return failure(500, "InternalError");
        }
        match method {
            "GET" if !path.contains("/namespaces/") || path.ends_with("/pods") => {
                let (group, kind) = path.rsplit_once('/').unwrap();
                let listed = |at: &&String| at.starts_with(group) && at.contains(&format!("/{kind}/"));
                let items: Vec<_> = self.objects.keys().filter(listed).map(|at| &self.objects[at]).collect();
                let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
                (200, list)
            }
            "GET" => self.objects.get(&path).map_or(failure(404, "NotFound"), |object| (200, object.clone())),
            "PATCH" => {
                let mut wanted: Value = serde_json::from_slice(body).unwrap();
                let before = self.objects.get(&path).cloned();
                let uid = before
                    .as_ref()
                    .map_or_else(|| json!(format!("uid:{path}")), |before| before["metadata"]["uid"].clone());
                if wanted["metadata"].get("uid").is_some_and(|meant| *meant != uid) {
                    return failure(409, "Conflict");
                }
                wanted["metadata"]["uid"] = uid;
                let mut object = before.unwrap_or_else(|| json!({}));
                merge(&mut object, wanted);
                if applied && self.refuses_to_apply == Some(path.rsplit('/').next().unwrap_or_default()) {
                    return failure(422, "Invalid");
                }
                self.objects.insert(path, object.clone());
                (200, object)
            }
            "DELETE" => match self.objects.remove(&path) {
                Some(_) => (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
                None => failure(404, "NotFound"),
            },
            other => panic!("unexpected {other} {path}"),
        }
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code});
    (code, status)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
