//! Operators as processes with the rights of their `ServiceAccount`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use world::{Process, Signal, World, wait_for};

use crate::servers;

/// Namespace of the operators, their `ServiceAccount` and their Lease.
pub const NAMESPACE: &str = "redis-ha-system";
/// Name of the `ServiceAccount`, and of the Lease.
pub const NAME: &str = "redis-ha-operator";
/// The user that the API server sees.
pub const USER: &str = "system:serviceaccount:redis-ha-system:redis-ha-operator";

const MANIFEST: &str = include_str!("../manifests/operator.yaml");

/// Path of the operator's binary, given by whoever built it.
pub const BINARY: &str = "OPERATOR_BINARY";
/// The same for a release build: figures come from no other.
pub const RELEASE_BINARY: &str = "OPERATOR_RELEASE_BINARY";

/// Several operators of one release; one of them leads.
pub struct Operators {
    world: World,
    binary: PathBuf,
    lease: String,
    running: Vec<Operator>,
    started: u32,
}

/// One operator process.
pub struct Operator {
    pub pod_name: String,
    pub http_port: u16,
    pub process: Process,
}

/// How an operator is started besides the usual flags.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Look after this namespace only.
    pub namespace: Option<String>,
    /// More arguments.
    pub args: Vec<OsString>,
}

impl Operators {
    /// Installs CRD, RBAC and namespace; starts none yet. `release` names the lease, so that operators of
    /// several tests can live in one world.
    pub async fn install(world: &World, release: &str) -> Result<Self> {
        Self::install_built(world, release, BINARY).await
    }

    /// The same with the binary that this variable names.
    pub async fn install_built(world: &World, release: &str, variable: &str) -> Result<Self> {
        servers::ensure_here(&servers::usual())?;
        world.apply("default", MANIFEST).await.context("apply the operator's manifest")?;
        let crd = redis_ha_operator::api::crd::yaml().context("render the CRD")?;
        world.apply("default", &crd).await.context("apply the CRD")?;
        wait_for("the RedisCluster API is served", Duration::from_secs(20), async || {
            let clusters: Api<redis_ha_operator::api::RedisCluster> = Api::all(world.client());
            Ok(clusters.list(&kube::api::ListParams::default().limit(1)).await.ok())
        })
        .await?;
        let binary = std::env::var_os(variable).map(PathBuf::from).with_context(|| {
            format!(
                "{variable} must name the operator's binary; use `make test`, `make bench` or `make demo`"
            )
        })?;
        ensure!(binary.exists(), "{} does not exist: build the operator first", binary.display());
        Ok(Self { world: world.clone(), binary, lease: release.to_owned(), running: Vec::new(), started: 0 })
    }

    /// Starts one more operator.
    pub async fn start(&mut self, options: &Options) -> Result<&Operator> {
        self.started += 1;
        let pod_name = format!("{}-{}", self.lease, self.started);
        let http_port = free_port()?;
        let kubeconfig = self.world.service_account_kubeconfig(NAMESPACE, NAME).await?;
        let mut args: Vec<OsString> = vec!["run".into()];
        if let Some(namespace) = &options.namespace {
            args.extend(["--namespace".into(), namespace.into()]);
        }
        args.extend(options.args.iter().cloned());
        let env = [
            ("KUBECONFIG", kubeconfig.into_os_string()),
            ("REDIS_HA_POD_NAME", pod_name.clone().into()),
            ("REDIS_HA_LEASE_NAMESPACE", NAMESPACE.into()),
            ("REDIS_HA_LEASE_NAME", self.lease.clone().into()),
            ("REDIS_HA_DEFAULT_REDIS_IMAGE", servers::usual().into()),
            ("REDIS_HA_HTTP_ADDRESS", format!("127.0.0.1:{http_port}").into()),
        ];
        let process = Process::spawn(&pod_name, &self.binary, args, env)?;
        self.running.push(Operator { pod_name, http_port, process });
        self.running.last().context("an operator was just started")
    }

    /// Starts two operators and waits until one of them leads.
    pub async fn start_pair(&mut self, options: &Options) -> Result<()> {
        self.start(options).await?;
        self.leader(Duration::from_secs(20)).await?;
        self.start(options).await?;
        Ok(())
    }

    /// Who holds the lease, as it is written there; empty: nobody.
    pub async fn holder(&self) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.world.client(), NAMESPACE);
        let lease = leases.get_opt(&self.lease).await?;
        Ok(lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity).unwrap_or_default())
    }

    /// Index of the operator that holds the lease.
    pub async fn leader(&self, limit: Duration) -> Result<usize> {
        wait_for("one of the operators holds the lease", limit, async || {
            let holder = self.holder().await?;
            Ok(self.running.iter().position(|operator| {
                operator.process.pid().is_some() && holder.starts_with(&format!("{}_", operator.pod_name))
            }))
        })
        .await
    }

    /// Kills this operator without a word and forgets it.
    pub async fn kill(&mut self, index: usize) -> Result<()> {
        ensure!(index < self.running.len(), "no operator {index}");
        let mut operator = self.running.swap_remove(index);
        operator.process.kill(Signal::SIGKILL)?;
        operator.process.wait(Duration::from_secs(5)).await?;
        Ok(())
    }

    /// Asks this operator to end, and waits for it.
    pub async fn terminate(&mut self, index: usize) -> Result<u8> {
        ensure!(index < self.running.len(), "no operator {index}");
        let mut operator = self.running.swap_remove(index);
        operator.process.kill(Signal::SIGTERM)?;
        operator.process.wait(Duration::from_secs(15)).await
    }

    pub fn all(&mut self) -> &mut Vec<Operator> {
        &mut self.running
    }

    /// What all operators printed so far.
    pub fn logs(&self) -> Result<String> {
        let mut all = String::new();
        for operator in &self.running {
            all.push_str(&operator.process.log()?);
        }
        Ok(all)
    }
}

impl Operator {
    /// Text of a page of its HTTP server.
    pub async fn http(&self, path: &str) -> Result<String> {
        http(&format!("127.0.0.1:{}", self.http_port), path).await
    }
}

/// Text of a page that an operator serves at this address.
pub async fn http(address: &str, path: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    tokio::time::timeout(Duration::from_secs(2), ask)
        .await?
        .with_context(|| format!("ask {address} for {path}"))
}

/// A port of this namespace's loopback that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr()?.port())
}
