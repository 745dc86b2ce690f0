//! Sends a pod's status to the API server, the newest first and only, without
//! holding the pod up: containers restart also while the API server is away.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const DEADLINE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(500);

pub struct Reporter {
    pods: Api<Pod>,
    name: String,
    uid: String,
    wanted: watch::Sender<Value>,
    sender: JoinHandle<()>,
}

impl Reporter {
    pub fn new(client: Client, namespace: &str, name: &str, uid: &str) -> Self {
        let pods = Api::<Pod>::namespaced(client, namespace);
        let (wanted, news) = watch::channel(Value::Null);
        let sender = tokio::spawn(send(pods.clone(), name.to_owned(), uid.to_owned(), news));
        Self { pods, name: name.into(), uid: uid.into(), wanted, sender }
    }

    /// Makes this the pod's status, now or as soon as the API server answers.
    pub fn tell(&self, status: Value) {
        self.wanted.send_if_modified(|wanted| {
            let changed = *wanted != status;
            *wanted = status;
            changed
        });
    }

    /// Sends the status again when somebody else has changed its readiness.
    pub fn correct(&self, pod: &Pod) {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let theirs = conditions.find(|it| it.type_ == "Ready").map(|it| it.status.clone());
        let ours = ready(&self.wanted.borrow());
        if ours.is_some() && theirs.is_some() && ours != theirs {
            self.wanted.send_modify(|_| {});
        }
    }

    /// Sends the last status and takes the object away.
    pub async fn finish(self) {
        self.sender.abort();
        let last = self.wanted.borrow().clone();
        while !settled(patch(&self.pods, &self.name, &self.uid, &last).await) {
            sleep(RETRY).await;
        }
        while !settled(remove(&self.pods, &self.name, &self.uid).await) {
            sleep(RETRY).await;
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.sender.abort();
    }
}

async fn send(pods: Api<Pod>, name: String, uid: String, mut news: watch::Receiver<Value>) {
    while news.changed().await.is_ok() {
        loop {
            let status = news.borrow_and_update().clone();
            if settled(patch(&pods, &name, &uid, &status).await) {
                break;
            }
            sleep(RETRY).await;
        }
    }
}

fn ready(status: &Value) -> Option<String> {
    let conditions = status.get("conditions")?.as_array()?;
    let ready = conditions.iter().find(|it| it.get("type").is_some_and(|kind| kind == "Ready"))?;
    Some(ready.get("status")?.as_str()?.to_owned())
}

/// The uid makes sure that a successor of the same name is never meant.
async fn patch(pods: &Api<Pod>, name: &str, uid: &str, status: &Value) -> Outcome {
    let patch = Patch::Strategic(json!({"metadata": {"uid": uid}, "status": status}));
    timeout(DEADLINE, pods.patch_status(name, &PatchParams::default(), &patch))
        .await
        .map(|done| done.map(drop))
}

/// Removes a pod's object at once, if it is still the one with this uid.
pub async fn remove(pods: &Api<Pod>, name: &str, uid: &str) -> Outcome {
    let preconditions = Preconditions { uid: Some(uid.into()), ..Preconditions::default() };
    let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
    timeout(DEADLINE, pods.delete(name, &params)).await.map(|done| done.map(drop))
}

pub type Outcome = Result<Result<(), kube::Error>, tokio::time::error::Elapsed>;

/// Done, or refused for good: the object is gone or another one has its name.
pub fn settled(outcome: Outcome) -> bool {
    match outcome {
        Ok(Ok(())) => true,
        Ok(Err(kube::Error::Api(status))) => {
            let final_word = matches!(status.code, 404 | 409 | 422);
            if status.code == 422 {
                eprintln!("a status was refused: {}", status.message);
            }
            final_word
        }
        Ok(Err(_)) | Err(_) => false,
    }
}
