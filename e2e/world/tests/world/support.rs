//! What several tests need.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use world::{World, wait_for};

/// Enough on a busy machine; nothing waits this long when all is well.
pub const LONG: Duration = Duration::from_secs(40);

/// A `StatefulSet` of Redis pods, spread over the nodes, with its headless Service.
pub fn redis(replicas: u8) -> String {
    format!(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {{name: redis}}
data: {{redis.conf: "bind 0.0.0.0\nprotected-mode no\nsave \"\"\ndir /data\n"}}
---
apiVersion: v1
kind: Service
metadata: {{name: redis}}
spec: {{clusterIP: None, selector: {{app: redis}}, ports: [{{port: 6379}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: redis}}
spec:
  serviceName: redis
  replicas: {replicas}
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: redis}}}}
  template:
    metadata: {{labels: {{app: redis}}}}
    spec:
      terminationGracePeriodSeconds: 5
      topologySpreadConstraints:
      - {{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: redis}}}}}}
      containers:
      - name: redis
        image: redis:7.0
        args: ["/conf/redis.conf"]
        ports: [{{containerPort: 6379, name: redis}}]
        readinessProbe: {{tcpSocket: {{port: redis}}, periodSeconds: 1}}
        volumeMounts:
        - {{name: conf, mountPath: /conf, readOnly: true}}
        - {{name: data, mountPath: /data}}
      volumes:
      - {{name: conf, configMap: {{name: redis}}}}
      - {{name: data, emptyDir: {{}}}}
"#
    )
}

/// A pod whose only container `main` runs a shell script; `more` are further
/// lines of the container, as flow YAML.
pub fn shell_pod(name: &str, script: &str, more: &[&str]) -> String {
    let more = more.iter().fold(String::new(), |all, line| all + "\n    " + line);
    let script = serde_json::to_string(script).expect("a string");
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: redis:7.0
    command: ["sh", "-c", {script}]{more}
"#
    )
}

/// Waits until the status of the pod's container `main` is as wanted.
pub async fn wait_status(
    world: &World,
    namespace: &str,
    pod: &str,
    what: &str,
    wanted: impl Fn(&ContainerStatus) -> bool,
) -> Result<ContainerStatus> {
    let pods = Api::<Pod>::namespaced(world.client(), namespace);
    let mut last = None;
    let found = wait_for(&format!("{pod}: {what}"), LONG, async || {
        let status = pods.get(pod).await?.status.unwrap_or_default();
        let status = status.container_statuses.unwrap_or_default().into_iter().next();
        last.clone_from(&status);
        Ok(status.filter(&wanted))
    })
    .await;
    found.map_err(|error| error.context(format!("the last status was {last:?}")))
}

/// The phase of a pod.
pub async fn phase(world: &World, namespace: &str, pod: &str) -> Result<String> {
    let pods = Api::<Pod>::namespaced(world.client(), namespace);
    Ok(pods.get(pod).await?.status.and_then(|status| status.phase).unwrap_or_default())
}

/// Asks a Redis server for a sign of life, in at most `patience`.
pub async fn ping(host: &str, patience: Duration) -> Result<()> {
    timeout(patience, async {
        let mut stream = TcpStream::connect((host, 6379)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await?;
        anyhow::ensure!(&answer == b"+PONG", "answered {answer:?}");
        Ok(())
    })
    .await?
}
