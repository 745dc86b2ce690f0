//! Wrong specs, foreign objects, malformed objects and drift, with the real API server.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use redis_ha_operator::api::spec::Auth;
use redis_ha_operator::api::{RedisCluster, RedisClusterSpec, crd, names};
use scenarios::cluster::Cluster;
use scenarios::operator::{Operators, USER};
use scenarios::scene::{SETTLE, Scene};
use serde_json::{Value, json};
use tokio::time::sleep;
use world::{Signal, World, audit_position, audit_since, wait_for};

/// What the controller asks for.
const CONTROLLED: [&str; 7] = [
    "statefulsets",
    "services",
    "configmaps",
    "secrets",
    "poddisruptionbudgets",
    "persistentvolumeclaims",
    "nodes",
];

fn cluster(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster", "metadata": {"name": name}, "spec": spec})
}

fn raw(world: &World, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(names::GROUP, "v1alpha1", "RedisCluster"));
    Api::namespaced_with(world.client(), namespace, &kind)
}

/// The sentence with which the API server refuses to create the object.
async fn refusal(api: &Api<DynamicObject>, object: Value) -> Result<String> {
    let what = object.to_string();
    refused(&what, api.create(&PostParams::default(), &serde_json::from_value(object)?).await)
}

fn refused(what: &str, answer: kube::Result<DynamicObject>) -> Result<String> {
    match answer {
        Ok(_) => bail!("the API server took {what}"),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(status.message),
        Err(error) => Err(error).context("no refusal"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_specs_are_refused_with_a_sentence_each() -> Result<()> {
    let world = World::enter().await?;
    let namespace = world.create_namespace("specs").await?;
    Operators::install(&world, &namespace).await?;
    let api = raw(&world, &namespace);
    let mut count = 0;
    for (spec, sentence) in [
        (json!({"replicas": 0}), "spec.replicas must be 1 to 9"),
        (json!({"replicas": 10}), "spec.replicas must be 1 to 9"),
        (json!({"replicas": "three"}), "spec.replicas in body must be of type integer"),
        (json!({"image": "redis: 8"}), "spec.image must not contain spaces"),
        (json!({"persistence": "Some"}), "supported values: \"AOF\", \"RDB\", \"None\""),
        (json!({"failover": {"unreachableAfter": "900ms"}}), "must be a duration from 1s to 5m"),
        (json!({"failover": {"unreachableAfter": "6m"}}), "must be a duration from 1s to 5m"),
        (json!({"failover": {"unreachableAfter": "soon"}}), "must be a duration from 1s to 5m"),
        (json!({"failover": {"hungAfter": "200ms"}}), "must be a duration from 300ms to 5m"),
        (json!({"failover": {"hungAfter": "301s"}}), "must be a duration from 300ms to 5m"),
        (json!({"failover": {"hungAfter": "never"}}), "must be a duration from 300ms to 5m"),
        (json!({"failover": {"maxLostBytes": "much"}}), "spec.failover.maxLostBytes"),
        (json!({"failover": {"maxLostBytes": -1}}), "maxLostBytes must be a number of bytes"),
        (json!({"profile": "Fast"}), "supported values: \"Cache\", \"Balanced\", \"Durable\""),
        (json!({"auth": {"secretName": ""}}), "spec.auth.secretName must be the name of a Secret"),
        (json!({"auth": {"secretName": "My Secret"}}), "spec.auth.secretName must be the name of a Secret"),
        (json!({"auth": {"secretName": "cache-server"}}), "must not be the operator's own Secret"),
        (json!({"storage": {"size": "0"}}), "spec.storage.size must be more than 0"),
        (json!({"storage": {"size": "big"}}), "spec.storage.size"),
        (json!({"storage": {}}), "spec.storage.size: Required value"),
        (json!({"storage": {"size": "1Gi"}, "persistence": "None"}), "would leave the volumes"),
        (json!({"failover": {"mode": "Perhaps"}}), "supported values: \"Automatic\", \"Manual\""),
        (json!({"service": {"type": "ExternalName"}}), "supported values: \"ClusterIP\""),
        (json!({"service": {"annotations": {"redis-ha.dev/x": ""}}}), "are the operator's: use other keys"),
        (json!({"service": {"loadBalancerClass": "x"}}), "need type LoadBalancer"),
        (
            json!({"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["all"]}}),
            "spec.service.loadBalancerSourceRanges[0]",
        ),
        (
            json!({"replicasService": {"externalTrafficPolicy": "Local"}}),
            "needs type NodePort or LoadBalancer",
        ),
        (json!({"podTemplate": {"labels": {"redis-ha.dev/role": "master"}}}), "use other keys"),
        (json!({"podTemplate": {"labels": {"app.kubernetes.io/name": "x"}}}), "use other keys"),
        (json!({"podTemplate": {"annotations": {"redis-ha.dev/config-hash": "x"}}}), "use other keys"),
        (
            json!({"podTemplate": {"tolerations": "all"}}),
            "spec.podTemplate.tolerations in body must be of type array",
        ),
        (json!({"resources": {"limits": {"memory": "128Mi"}}}), "limits.memory must be at least 160Mi"),
        (json!({"resources": {"limits": {"memory": "lots"}}}), "spec.resources.limits.memory"),
        (
            json!({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}),
            "requests.memory must not exceed",
        ),
        (
            json!({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}),
            "requests.cpu must not exceed",
        ),
    ] {
        let said = refusal(&api, cluster("cache", &spec)).await?;
        println!("{spec}\n    {said}");
        assert!(said.contains(sentence), "{spec}: {said}");
        count += 1;
    }
    for name in ["9lives", "my.cache", "a-name-of-more-than-forty-characters-is-x"] {
        let said = refusal(&api, cluster(name, &json!({}))).await?;
        println!("name {name}\n    {said}");
        assert!(said.contains("metadata.name must be at most 40"), "{name}: {said}");
        count += 1;
    }
    for (number, (old, new, sentence)) in [
        (json!({"persistence": "AOF"}), json!({"persistence": "RDB"}), "spec.persistence cannot be changed"),
        (json!({}), json!({"persistence": "RDB"}), "spec.persistence cannot be changed"),
        (json!({}), json!({"auth": {"secretName": "mine"}}), "spec.auth.secretName cannot be changed"),
        (json!({}), json!({"storage": {"size": "1Gi"}}), "spec.storage cannot be added or removed"),
        (
            json!({"storage": {"size": "1Gi"}}),
            json!({"storage": null}),
            "spec.storage cannot be added or removed",
        ),
        (
            json!({"storage": {"size": "1Gi"}}),
            json!({"storage": {"size": "2Gi"}}),
            "spec.storage.size cannot be changed",
        ),
        (
            json!({"storage": {"size": "1Gi"}}),
            json!({"storage": {"storageClassName": "local"}}),
            "spec.storage.storageClassName cannot be changed",
        ),
        (
            json!({"service": {"type": "LoadBalancer", "loadBalancerClass": "a.example/a"}}),
            json!({"service": {"loadBalancerClass": "a.example/b"}}),
            "loadBalancerClass cannot be changed while",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("change-{number}");
        api.create(&PostParams::default(), &serde_json::from_value(cluster(&name, &old))?).await?;
        let change = Patch::Merge(json!({"spec": new}));
        let said = refused(&name, api.patch(&name, &PatchParams::default(), &change).await)?;
        println!("{old} -> {new}\n    {said}");
        assert!(said.contains(sentence), "{old} -> {new}: {said}");
        count += 1;
    }
    println!("{count} wrong specs refused");
    world.delete_namespace(&namespace).await
}

/// What must not move while a spec is wrong.
async fn running(cluster: &Cluster) -> Result<(Option<i64>, Vec<String>, Option<String>)> {
    let sets: Api<StatefulSet> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    let generation = sets.get(&cluster.name).await?.metadata.generation;
    Ok((generation, cluster.run_ids().await?, cluster.status().await?.master))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_operator_sees_is_said_and_changes_nothing_that_runs() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "seen").await?;
    let secrets: Api<Secret> = Api::namespaced(scene.world.client(), &scene.namespace);
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "mine", "labels": {(names::CLUSTER_LABEL): "cache"}},
        "stringData": {"password": "a b\"c'd"}});
    let auth = Some(Auth { secret_name: Some("mine".into()) });
    let spec = RedisClusterSpec { auth, ..RedisClusterSpec::default() };
    let cluster = Cluster::create(&scene.world, &scene.namespace, "cache", spec.clone()).await?;
    let early = cluster_says_spec_invalid(&cluster).await?;
    println!("before its Secret exists: {early}");
    scene.world.apply_value(&scene.namespace, secret.clone()).await?;
    cluster.restart_after(Some(Duration::ZERO))?;
    let settled = cluster.settled(SETTLE).await?;
    let before = running(&cluster).await?;
    let mut app = cluster.connect(&cluster.master().await?.ip, "default", "a b\"c'd").await?;
    redis::cmd("SET").arg("odd").arg("password").query_async::<()>(&mut app).await?;
    assert_eq!(settled.phase.map(|phase| format!("{phase:?}")).as_deref(), Some("Ready"));

    secrets.delete("mine", &DeleteParams::default()).await?;
    // A change of the spec makes the operator look again.
    touch(&cluster).await?;
    let late = cluster_says_spec_invalid(&cluster).await?;
    println!("after it was deleted: {late}");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(running(&cluster).await?, before);

    // Supervision goes on meanwhile.
    let old = cluster.master().await?;
    old.kill(Signal::SIGKILL)?;
    wait_for("another master", SETTLE, async || {
        Ok((cluster.status().await?.master.as_deref() != Some(&old.name)).then_some(()))
    })
    .await?;

    scene.world.apply_value(&scene.namespace, secret).await?;
    cluster.says("SpecValid", "True", "Valid", SETTLE).await?;
    cluster.settled(SETTLE).await?;
    scene.close().await
}

async fn cluster_says_spec_invalid(cluster: &Cluster) -> Result<String> {
    wait_for("SpecValid is False", SETTLE, async || {
        let status = cluster.status().await?;
        let condition = status.conditions.iter().find(|it| it.type_ == "SpecValid");
        let condition = condition.context("no condition yet")?;
        Ok((condition.status == "False").then(|| format!("{}: {}", condition.reason, condition.message)))
    })
    .await
}

async fn touch(cluster: &Cluster) -> Result<()> {
    let api: Api<RedisCluster> = Api::namespaced(cluster.world.client(), &cluster.namespace);
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {"touched": audit_position()?.to_string()}}}));
    api.patch(&cluster.name, &PatchParams::default(), &patch).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_object_with_one_of_our_names_is_never_taken_over() -> Result<()> {
    let scene = Scene::with_operator(World::enter().await?, "foreign").await?;
    let configs: Api<ConfigMap> = Api::namespaced(scene.world.client(), &scene.namespace);
    let services: Api<Service> = Api::namespaced(scene.world.client(), &scene.namespace);
    let config =
        serde_json::from_value(json!({"metadata": {"name": "cache-config"}, "data": {"mine": "yes"}}))?;
    let service = serde_json::from_value(
        json!({"metadata": {"name": "cache"}, "spec": {"ports": [{"port": 80}], "selector": {"mine": "yes"}}}),
    )?;
    let config = configs.create(&PostParams::default(), &config).await?;
    let service = services.create(&PostParams::default(), &service).await?;
    let cluster =
        Cluster::create(&scene.world, &scene.namespace, "cache", RedisClusterSpec::default()).await?;
    let said = cluster.says("Progressing", "True", "ForeignObject", SETTLE).await?;
    let told = cluster.is_told("ForeignObject", SETTLE).await?;
    println!("condition: {said}\nEvent: {told:?}");
    assert!(told.warning && said.contains("cache-config"), "{said}");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        configs.get("cache-config").await?.metadata.resource_version,
        config.metadata.resource_version
    );
    assert_eq!(services.get("cache").await?.metadata.resource_version, service.metadata.resource_version);

    configs.delete("cache-config", &DeleteParams::default()).await?;
    services.delete("cache", &DeleteParams::default()).await?;
    touch(&cluster).await?;
    cluster.settled(SETTLE).await?;
    scene.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_stored_object_stops_neither_the_watch_nor_other_clusters() -> Result<()> {
    // The CRD is everybody's.
    let mut scene = Scene::with_operator(World::enter_alone().await?, "malformed").await?;
    let good = scene.cluster("good", RedisClusterSpec::default()).await?;
    let raw = raw(&scene.world, &scene.namespace);

    // What an older or a newer version may have stored.
    let mut loose = crd::json()?;
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    scene.world.apply_value("default", loose).await?;
    let spec = cluster("bad-spec", &json!({"replicas": 3, "image": 7, "resources": "all"}));
    create_raw(&raw, spec).await?;
    create_raw(&raw, cluster("bad-status", &json!({"replicas": 1}))).await?;
    let status = json!({"status": {"epoch": "many", "supervision": "none", "conditions": "all"}});
    raw.patch_status("bad-status", &PatchParams::default(), &Patch::Merge(&status)).await?;
    scene.world.apply_value("default", crd::json()?).await?;
    let stored = raw.get("bad-spec").await?;
    ensure!(stored.data["spec"]["image"] == 7, "the malformed object was not stored: {stored:?}");

    for fresh in [false, true] {
        if fresh {
            scene.kill_operators().await?;
            scene.start_operator().await?;
            scene.operators.leader(SETTLE).await?;
        }
        good.settled(SETTLE).await?;
        let name = if fresh { "after" } else { "before" };
        let created =
            scene.cluster(name, RedisClusterSpec { replicas: 1, ..RedisClusterSpec::default() }).await?;
        created.delete().await?;
        let old = good.master().await?;
        old.kill(Signal::SIGKILL)?;
        let moved = format!("a failover beside the malformed objects, fresh operator: {fresh}");
        wait_for(&moved, SETTLE, async || {
            Ok((good.status().await?.master.as_deref() != Some(&old.name)).then_some(()))
        })
        .await?;
        good.settled(SETTLE).await?;
        println!("{moved}: done");
    }
    let log = scene.operators.logs()?;
    let said = log.lines().find(|line| line.contains("cannot be read")).unwrap_or("(nothing)");
    println!("the operator says: {said}");
    for name in ["bad-spec", "bad-status"] {
        let stored = raw.get(name).await?;
        println!("{name}: {}", stored.data["status"]);
        raw.delete(name, &DeleteParams::default()).await?;
    }
    scene.close().await
}

async fn create_raw(raw: &Api<DynamicObject>, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    // The loosened definition takes effect a moment after it was applied.
    wait_for("the malformed object is stored", SETTLE, async || {
        Ok(Some(raw.create(&PostParams::default(), &object).await?))
    })
    .await?;
    Ok(())
}

/// Every kind of object, and fields to which the API server adds defaults of its own.
fn everything() -> Result<RedisClusterSpec> {
    Ok(serde_json::from_value(json!({
        "storage": {"size": "65536Ki"},
        "resources": {"limits": {"memory": "1024Mi"}},
        "podTemplate": {
            "labels": {"team": "shop"},
            "annotations": {"example.org/note": "x"},
            "affinity": {
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
                    "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"team": "shop"}}}}]},
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}}},
            "tolerations": [{"key": "redis", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
            "nodeSelector": {},
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}],
            "priorityClassName": "system-cluster-critical",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1001, "fsGroup": 1001},
            "imagePullSecrets": [{"name": "registry"}],
        },
        "service": {"type": "NodePort", "externalTrafficPolicy": "Local",
            "annotations": {"example.org/internal": "true"}},
        "replicasService": {"type": "LoadBalancer", "loadBalancerClass": "example.org/none",
            "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    }))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_repaired_and_nothing_is_written_when_nothing_differs() -> Result<()> {
    let scene = Scene::with_operators(World::enter().await?, "drift").await?;
    let cluster = scene.cluster("cache", everything()?).await?;
    let password = cluster.password().await?;
    let (client, namespace) = (scene.world.client(), scene.namespace.as_str());
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let merge = PatchParams::default();
    let boot = configs.get("cache-config").await?.data;

    services.delete("cache", &DeleteParams::default()).await?;
    configs.patch("cache-config", &merge, &Patch::Merge(json!({"data": {"redis.conf": "port 1"}}))).await?;
    secrets.delete("cache-auth", &DeleteParams::default()).await?;
    sets.patch("cache", &merge, &Patch::Merge(json!({"spec": {"replicas": 2}}))).await?;
    wait_for("everything is as it was", SETTLE, async || {
        services.get("cache").await.context("the Service")?;
        secrets.get("cache-auth").await.context("the Secret")?;
        ensure!(configs.get("cache-config").await?.data == boot, "the boot file differs");
        let replicas = sets.get("cache").await?.spec.and_then(|spec| spec.replicas);
        ensure!(replicas == Some(3), "{replicas:?} pods are wanted");
        Ok(Some(()))
    })
    .await?;
    assert_eq!(
        cluster.secret("cache-auth", "password").await?,
        password,
        "the application's password is the same again"
    );
    cluster.settled(SETTLE).await?;
    println!("Service, ConfigMap, Secret and StatefulSet repaired");

    sleep(Duration::from_secs(5)).await;
    let position = audit_position()?;
    for _ in 0..3 {
        touch(&cluster).await?;
        sleep(Duration::from_secs(2)).await;
    }
    let asked: Vec<String> = audit_since(position)?
        .into_iter()
        .filter(|event| event.user == USER && event.namespace == namespace && event.verb != "watch")
        // The controller's kinds: on a busy machine the supervisor may have something to tell.
        .filter(|event| CONTROLLED.contains(&event.resource.as_str()))
        .map(|event| format!("{} {} {}", event.verb, event.resource, event.name))
        .collect();
    println!("requests after three passes without a difference: {asked:?}");
    assert_eq!(asked, [] as [String; 0]);
    scene.close().await
}
