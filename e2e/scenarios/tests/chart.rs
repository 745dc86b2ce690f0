//! The chart: what it renders, and an operator that was installed with it and runs as pods.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use redis_ha_operator::api::RedisClusterSpec;
use scenarios::cluster::Cluster;
use scenarios::helm::{CHART, helm, kubectl, rendered, values_files};
use scenarios::operator::{BINARY, http};
use scenarios::scene::SETTLE;
use serde_json::Value;
use world::{PodHandle, Signal, World, add_image, is_ready, wait_for};

const MANIFEST: &str = include_str!("../manifests/operator.yaml");
/// Name of the definition.
const CRD: &str = "redisclusters.redis-ha.dev";
/// The namespace of releases admits only what fulfils the strictest Pod Security Standard.
const RESTRICTED: &str = "pod-security.kubernetes.io/enforce=restricted";

/// A release of the chart that runs in the world.
struct Release<'a> {
    world: &'a World,
    namespace: &'a str,
    name: &'a str,
}

impl Release<'_> {
    async fn install(&self, args: &[&str]) -> Result<()> {
        let to = ["install", self.name, CHART, "--namespace", self.namespace];
        helm(&[&to[..], &["--set=defaultRedisImage=redis:7.0"], args].concat()).await.map(drop)
    }

    async fn uninstall(&self) -> Result<()> {
        helm(&["uninstall", self.name, "--namespace", self.namespace]).await.map(drop)
    }

    /// The operators' pods, once this many are Ready and no other is left.
    async fn pods(&self, count: usize) -> Result<Vec<PodHandle>> {
        let pods: Api<Pod> = Api::namespaced(self.world.client(), self.namespace);
        let own = ListParams::default().labels(&format!("app.kubernetes.io/instance={}", self.name));
        let what = format!("{count} operators of {} are Ready", self.name);
        wait_for(&what, SETTLE, async || {
            let found = pods.list(&own).await?.items;
            ensure!(found.len() == count && found.iter().all(is_ready), "{:?}", states(&found));
            found.iter().map(PodHandle::of).collect::<Result<Vec<_>>>().map(Some)
        })
        .await
    }

    /// The operator's pod that holds the release's lease and was not `not`.
    async fn leader(&self, not: Option<&str>) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.world.client(), self.namespace);
        wait_for("an operator leads", SETTLE, async || {
            let lease = leases.get(self.name).await?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            let pod = holder.split('_').next().unwrap_or_default();
            Ok((!pod.is_empty() && Some(pod) != not).then(|| pod.to_owned()))
        })
        .await
    }
}

/// What keeps pods from being Ready, for an error.
fn states(pods: &[Pod]) -> Vec<String> {
    let state = |pod: &Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let containers = serde_json::to_string(&status.container_statuses).unwrap_or_default();
        format!("{} {} {containers}", pod.name_any(), status.phase.unwrap_or_default())
    };
    pods.iter().map(state).collect()
}

/// From now on the chart's default image is the operator under test.
fn provide_image() -> Result<()> {
    let binary = std::env::var_os(BINARY).map(PathBuf::from);
    let binary = binary.with_context(|| format!("{BINARY} must name the operator's binary"))?;
    let image = format!("redis-ha-operator:{}", env!("CARGO_PKG_VERSION"));
    add_image(&image, binary.parent().context("the folder of the operator's binary")?)
}

async fn kill_master(cluster: &Cluster) -> Result<()> {
    let old = cluster.master().await?;
    old.kill(Signal::SIGKILL)?;
    wait_for("another master is recorded", SETTLE, async || {
        Ok((cluster.master().await?.name != old.name).then_some(()))
    })
    .await?;
    cluster.settled(SETTLE).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_of_a_release_look_after_clusters_and_uninstalling_it_takes_none_away() -> Result<()> {
    let world = World::enter().await?;
    provide_image()?;
    let (namespace, shop) = (world.create_namespace("release").await?, world.create_namespace("shop").await?);
    kubectl(&["label", "namespace", &namespace, RESTRICTED], "").await?;
    let outcome = install_upgrade_uninstall(&world, &namespace, &shop).await;
    if outcome.is_err() {
        for args in
            [&["logs", "--selector=app.kubernetes.io/name=redis-ha-operator", "--tail=-1"][..], &["events"]]
        {
            let said = kubectl(&[args, &["--namespace", &namespace]].concat(), "").await;
            eprintln!("{}", said.unwrap_or_else(|error| format!("{error:#}")));
        }
    }
    outcome
}

async fn install_upgrade_uninstall(world: &World, namespace: &str, shop: &str) -> Result<()> {
    // For all namespaces.
    let release = Release { world, namespace, name: "all" };
    release.install(&[]).await?;
    let pods = release.pods(2).await?;
    assert_ne!(pods[0].node, pods[1].node, "both operators are on one node");
    let cluster = Cluster::create(world, shop, "cache", RedisClusterSpec::default()).await?;
    cluster.restart_after(Some(Duration::ZERO))?;
    cluster.settled(SETTLE).await?;
    let keys = cluster.write_confirmed("kept", 50, 2).await?;
    kill_master(&cluster).await?;

    let leader = release.leader(None).await?;
    for pod in &pods {
        let metrics = http(&format!("{}:8080", pod.ip), "/metrics").await?;
        let leads = metrics.lines().any(|line| line == "redis_ha_is_leader 1");
        assert_eq!(leads, pod.name == leader, "{} of {leader}", pod.name);
    }
    world.delete_pod(namespace, &leader, None).await?;
    let heir = release.leader(Some(&leader)).await?;
    println!("{leader} was deleted, {heir} leads");
    kill_master(&cluster).await?;
    release.pods(2).await?;

    // An upgrade replaces both, and somebody looks after the cluster afterwards.
    helm(&["upgrade", "all", CHART, "--namespace", namespace, "--reuse-values", "--set=log.format=json"])
        .await?;
    wait_for("the pods are those of the upgrade", SETTLE, async || {
        Ok((!release.pods(2).await?.iter().any(|pod| pod.name == heir)).then_some(()))
    })
    .await?;
    kill_master(&cluster).await?;

    let servers = cluster.pods().await?;
    release.uninstall().await?;
    release.pods(0).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client());
    let definition = definitions.get(CRD).await.context("the definition is gone")?;
    assert!(definition.metadata.deletion_timestamp.is_none(), "the definition is being deleted");
    assert_eq!(cluster.pods().await?, servers, "the servers were touched");
    let master = cluster.master().await?;
    assert_eq!(cluster.missing(&master.ip, &keys).await?, [] as [String; 0]);

    // For one namespace, with rights in no other.
    let release = Release { world, namespace, name: "one" };
    release.install(&["--set=crds.install=false", &format!("--set=watchNamespace={shop}")]).await?;
    release.pods(2).await?;
    let account = format!("--as=system:serviceaccount:{namespace}:one-redis-ha-operator");
    for (verb, what, place, allowed) in [
        ("create", "services", shop, true),
        ("create", "services", namespace, false),
        ("get", "secrets", namespace, false),
        ("list", "nodes", shop, false),
        ("get", "leases/one", namespace, true),
        ("get", "leases/other", namespace, false),
    ] {
        let answer = kubectl(&["auth", "can-i", verb, what, "--namespace", place, &account], "").await;
        assert_eq!(answer.is_ok(), allowed, "{verb} {what} in {place}: {answer:?}");
    }
    kill_master(&cluster).await?;
    assert_eq!(cluster.missing(&cluster.master().await?.ip, &keys).await?, [] as [String; 0]);
    let other = Cluster::create(world, shop, "other", RedisClusterSpec::default()).await?;
    other.settled(SETTLE).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_takes_what_the_chart_renders_with_any_values() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("dry").await?;
    let files = values_files()?;
    ensure!(files.len() >= 3, "{files:?}");
    for file in [Path::new(CHART).join("values.yaml")].iter().chain(&files) {
        let file = file.to_str().context("a readable path")?;
        let args = ["template", "dry", CHART, "--namespace", &namespace, "--values", file];
        let text = helm(&args).await?;
        let apply = async || {
            kubectl(&["apply", "--dry-run=server", "--validate=strict", "--filename=-"], &text).await
        };
        let mut said = apply().await;
        // Another test may have made the definition between kubectl's look and its creation.
        if said.as_ref().is_err_and(|error| format!("{error:#}").contains("AlreadyExists")) {
            said = apply().await;
        }
        println!("{file}:\n{}", said.with_context(|| format!("apply what {file} makes of the chart"))?);
    }
    Ok(())
}

#[tokio::test]
async fn the_chart_grants_what_the_manifest_grants_and_only_its_own_lease() -> Result<()> {
    let manifest: Vec<Value> = serde_saphyr::from_multiple(MANIFEST)?;
    let all = rendered("r", &[]).await?;
    let mut granted = rules(&all, "ClusterRole");
    let mut wanted = rules(&manifest, "ClusterRole");
    granted.sort();
    wanted.sort();
    assert_eq!(granted, wanted);
    let one = rendered("r", &["--set=watchNamespace=shop"]).await?;
    assert_eq!(rules(&one, "ClusterRole"), [] as [String; 0]);
    let lease = rules(&all, "Role");
    wanted.retain(|rule| !rule.contains("nodes"));
    wanted.extend(lease.iter().cloned());
    let mut granted = rules(&one, "Role");
    granted.sort();
    wanted.sort();
    assert_eq!(granted, wanted);
    assert_eq!(lease.iter().filter(|rule| rule.contains(r#""resourceNames":["r"]"#)).count(), 1);
    Ok(())
}

/// All rules of the objects of this kind, each as a text.
fn rules(objects: &[Value], kind: &str) -> Vec<String> {
    let roles = objects.iter().filter(|object| object["kind"] == kind);
    roles.flat_map(|role| role["rules"].as_array().into_iter().flatten()).map(Value::to_string).collect()
}

#[tokio::test]
async fn the_chart_installs_the_generated_definition_and_keeps_it() -> Result<()> {
    let objects = rendered("r", &[]).await?;
    let definition = objects.iter().find(|object| object["kind"] == "CustomResourceDefinition");
    let mut definition = definition.context("no definition is rendered")?.clone();
    assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    definition["metadata"] = serde_json::json!({"name": CRD});
    let generated: Value = serde_saphyr::from_str(&redis_ha_operator::api::crd::yaml()?)?;
    assert!(definition == generated, "the rendered definition differs from the generated one");
    let without = rendered("r", &["--set=crds.install=false"]).await?;
    assert!(without.iter().all(|object| object["kind"] != "CustomResourceDefinition"));
    Ok(())
}

#[tokio::test]
async fn wrong_values_are_refused_by_name() -> Result<()> {
    for (value, named) in [
        ("replica=2", "replica"),
        ("replicas=two", "replicas"),
        ("image.tag=a b", "tag"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("watchNamespace=Shop", "watchNamespace"),
        ("log.format=xml", "format"),
        ("http.port=0", "port"),
        ("podDisruptionBudget.maxUnavailable=0", "maxUnavailable"),
        ("crds.install=maybe", "install"),
    ] {
        let error = rendered("r", &["--set", value]).await.err();
        let error = format!("{:#}", error.with_context(|| format!("{value} is accepted"))?);
        assert!(error.contains(named) && error.contains("schema"), "{value}: {error}");
    }
    Ok(())
}
