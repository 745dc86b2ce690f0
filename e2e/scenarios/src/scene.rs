//! What most tests begin with: a Kubernetes namespace and an operator release of their own.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use redis_ha_operator::api::RedisClusterSpec;
use world::World;

use crate::cluster::Cluster;
use crate::operator::{Operators, Options};

/// A debug build on a busy machine takes its time; no test is about it.
pub const SETTLE: Duration = Duration::from_secs(90);

/// One test's corner of the world. Unless it was closed, its end prints what the operators said.
pub struct Scene {
    pub world: World,
    pub namespace: String,
    pub operators: Operators,
    closed: bool,
}

impl Scene {
    /// No operator runs yet.
    pub async fn open(world: World, prefix: &str) -> Result<Self> {
        let namespace = world.create_namespace(prefix).await?;
        let operators = Operators::install(&world, &namespace).await?;
        Ok(Self { world, namespace, operators, closed: false })
    }

    /// Two operators run, and the first one leads.
    pub async fn with_operators(world: World, prefix: &str) -> Result<Self> {
        let mut scene = Self::open(world, prefix).await?;
        scene.operators.start_pair(&scene.options()).await?;
        Ok(scene)
    }

    /// One operator runs and leads.
    pub async fn with_operator(world: World, prefix: &str) -> Result<Self> {
        let mut scene = Self::open(world, prefix).await?;
        scene.start_operator().await?;
        scene.operators.leader(SETTLE).await?;
        Ok(scene)
    }

    /// One more operator.
    pub async fn start_operator(&mut self) -> Result<()> {
        let options = self.options();
        self.operators.start(&options).await?;
        Ok(())
    }

    /// All operators end without a word.
    pub async fn kill_operators(&mut self) -> Result<()> {
        while !self.operators.all().is_empty() {
            self.operators.kill(0).await?;
        }
        Ok(())
    }

    /// How operators of this scene are started.
    pub fn options(&self) -> Options {
        Options {
            namespace: Some(self.namespace.clone()),
            args: vec!["--log-filter=warn,redis_ha_operator=debug".into()],
        }
    }

    /// A cluster whose servers are restarted at once when they end, with everything in sync.
    pub async fn cluster(&self, name: &str, spec: RedisClusterSpec) -> Result<Cluster> {
        let cluster = Cluster::create(&self.world, &self.namespace, name, spec).await?;
        cluster.restart_after(Some(Duration::ZERO))?;
        cluster.settled(SETTLE).await?;
        Ok(cluster)
    }

    /// The end of a test that went well.
    pub async fn close(mut self) -> Result<()> {
        self.closed = true;
        self.kill_operators().await?;
        let namespaces: Api<Namespace> = Api::all(self.world.client());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !self.closed {
            eprintln!("what the operators of {} said:", self.namespace);
            eprintln!("{}", self.operators.logs().unwrap_or_else(|error| format!("{error:#}")));
        }
    }
}
