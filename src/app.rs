//! Wires all rooms together, runs them, and ends them in order. The only file, with its doors, that knows
//! every room.

mod doors;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::cli::{Cli, Command, RunArgs};
use crate::controller;
use crate::kube::client::Clients;
use crate::kube::lease::{Candidacy, Elector, Leadership, Standing};
use crate::report::events::Teller;
use crate::report::http::Readiness;
use crate::report::metrics::Metrics;
use crate::report::{http, log};
use crate::supervisor::crash_points::CrashPoints;
use crate::supervisor::{Machine, Supervisors, clock};
use doors::{Handover, World};

/// How long changes under way may take at the end: longer than any of their deadlines, and together with
/// the release well within a pod's grace period.
const LAST_CHANGES: Duration = Duration::from_secs(5);

/// Why the program ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] log::Error),
    #[error(transparent)]
    Metrics(#[from] crate::report::metrics::Error),
    #[error(transparent)]
    Kube(#[from] crate::kube::Error),
    #[error(transparent)]
    Crd(#[from] crate::api::crd::CrdError),
    #[error("listening on {address} for /metrics and the probes: {source}; choose another --http-address")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("finding this pod's name: {0}; give it by --pod-name")]
    PodName(nix::Error),
    #[error("asking to be told of SIGTERM and SIGINT: {0}")]
    Signals(std::io::Error),
    #[error("starting the runtime: {0}")]
    Runtime(std::io::Error),
    /// Everything runs until it is told to stop: an end by itself is a defect, and a restart the remedy.
    #[error("the {0} ended by itself")]
    Ended(&'static str),
}

/// Does what the command line asks for.
pub fn main(cli: Cli) -> Result<(), Error> {
    match cli.command {
        Command::Crd => print!("{}", crate::api::crd::yaml()?),
        Command::Version => println!("{}", env!("CARGO_PKG_VERSION")),
        Command::Run(args) => {
            log::start(args.log_format, &args.log_filter)?;
            tokio::runtime::Runtime::new().map_err(Error::Runtime)?.block_on(run(*args))?;
        }
    }
    Ok(())
}

/// Runs the operator until SIGTERM or SIGINT.
async fn run(args: RunArgs) -> Result<(), Error> {
    let mut signals = Signals::new()?;
    let metrics = Metrics::new()?;
    let counted = metrics.clone();
    let observer = Arc::new(move |call, end| counted.api_request(call, end));
    let (clients, config) = Clients::infer(observer).await?;
    let (leadership, elector) = candidate(&args, &clients, config.default_namespace)?;
    let listener = listen(args.http_address).await?;
    info!(version = env!("CARGO_PKG_VERSION"), operator = leadership.identity(), "started");

    let mut operator = Operator::wire(&args, &clients, &metrics, &leadership, elector);
    operator.serve(listener, metrics);
    let ended = tokio::select! {
        name = signals.received() => {
            info!(signal = name, "stopping");
            Ok(())
        }
        name = operator.ended() => Err(Error::Ended(name)),
    };
    operator.stop(&leadership).await;
    ended
}

/// Everything that runs.
struct Operator {
    supervisors: Arc<Supervisors>,
    readiness: Readiness,
    /// All loops but the election and the HTTP server; each ends with its name.
    loops: JoinSet<&'static str>,
    /// The election outlives the loops: it ends by giving the lease back.
    election: JoinSet<()>,
    serving: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Operator {
    fn wire(
        args: &RunArgs,
        clients: &Clients,
        metrics: &Metrics,
        leadership: &Leadership,
        elector: Elector,
    ) -> Self {
        let teller = Teller::new(clients.impatient.clone(), leadership.identity());
        let world = World {
            client: clients.impatient.clone(),
            leadership: leadership.clone(),
            teller: teller.clone(),
            metrics: metrics.clone(),
        };
        let supervisors =
            Arc::new(Supervisors::new(Arc::new(world), Box::new(new_machine), crash_points(args)));
        let mut operator = Self {
            supervisors: supervisors.clone(),
            readiness: Readiness::default(),
            loops: JoinSet::new(),
            election: JoinSet::new(),
            serving: JoinSet::new(),
            stop: watch::Sender::new(false),
        };
        operator.watch(args, clients);
        let context = controller::Context {
            watches: clients.patient.clone(),
            client: clients.impatient.clone(),
            default_image: args.default_redis_image.clone(),
            namespace: args.namespace.clone(),
            leadership: Arc::new(leadership.clone()),
            handover: Arc::new(Handover { supervisors, metrics: metrics.clone() }),
            announce: Arc::new(teller),
            synced: operator.readiness.part("controller"),
        };
        operator.start("controller", controller::run(context));
        operator.start("leader metric", follow_leadership(leadership.clone(), metrics.clone()));
        operator.election.spawn(elector.run());
        operator
    }

    fn watch(&mut self, args: &RunArgs, clients: &Clients) {
        use crate::kube::nodes::{self, Placed};
        use crate::kube::watch;
        let placed = Arc::new(Placed::new(self.supervisors.clone()));
        let (client, needed, taints) =
            (clients.patient.clone(), args.namespace.is_none(), args.drain_taint.clone());
        let for_nodes = placed.clone();
        self.start("watch of nodes", async move {
            nodes::watch(client, needed, for_nodes, taints).await;
            std::future::pending::<()>().await; // no task of the operator may end
        });
        for what in ["pods", "slices"] {
            let (client, namespace) = (clients.patient.clone(), args.namespace.clone());
            let (sink, synced) = (self.supervisors.clone(), self.readiness.part(what));
            if what == "pods" {
                let placed = placed.clone();
                let watch = async move { watch::pods(client, namespace.as_deref(), placed, synced).await };
                self.start("watch of pods", watch);
            } else {
                let watch = async move { watch::routes(client, namespace.as_deref(), sink, synced).await };
                self.start("watch of slices", watch);
            }
        }
    }

    fn serve(&mut self, listener: TcpListener, metrics: Metrics) {
        let (readiness, mut stop) = (self.readiness.clone(), self.stop.subscribe());
        self.serving.spawn(async move {
            let stopped = async move {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            if let Err(error) = http::serve(listener, metrics, readiness, stopped).await {
                error!(%error, "the HTTP server ended");
            }
        });
    }

    fn start(&mut self, name: &'static str, running: impl Future<Output = ()> + Send + 'static) {
        self.loops.spawn(async move {
            running.await;
            name
        });
    }

    /// Waits for anything to end that should not.
    async fn ended(&mut self) -> &'static str {
        tokio::select! {
            Some(ended) = self.loops.join_next() => ended.unwrap_or("failed loop"),
            Some(_) = self.election.join_next() => "election",
            Some(_) = self.serving.join_next() => "HTTP server",
            else => "operator",
        }
    }

    /// Effects end first, then the lease is given back: the next leader must find quiet.
    async fn stop(mut self, leadership: &Leadership) {
        self.loops.abort_all();
        if self.supervisors.stop(LAST_CHANGES).await {
            leadership.release().await;
        } else {
            warn!("changes are still under way; the lease is not given back and ends by itself");
        }
        self.stop.send_replace(true);
        let _ = tokio::time::timeout(Duration::from_secs(1), self.serving.join_next()).await;
        info!("stopped");
    }
}

fn new_machine(cluster_uid: String) -> Box<dyn Machine> {
    Box::new(crate::core::supervisor::Supervisor::new(cluster_uid))
}

fn candidate(
    args: &RunArgs,
    clients: &Clients,
    own_namespace: String,
) -> Result<(Leadership, Elector), Error> {
    let pod = match &args.pod_name {
        Some(pod) => pod.clone(),
        None => nix::unistd::gethostname().map_err(Error::PodName)?.to_string_lossy().into_owned(),
    };
    let namespace = args.lease_namespace.clone().unwrap_or(own_namespace);
    let candidacy = Candidacy { namespace, lease: args.lease_name.clone(), pod };
    Ok(Leadership::new(&clients.impatient, &candidacy, clock::now)?)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// Keeps the leader gauge, and drops the gauges of clusters that another operator looks after now.
async fn follow_leadership(mut leadership: Leadership, metrics: Metrics) {
    loop {
        metrics.leads(leadership.is_leader());
        if let Standing::Following { .. } = leadership.standing() {
            metrics.forget_all();
        }
        leadership.changed().await;
    }
}

#[cfg(not(feature = "crash-points"))]
fn crash_points(_args: &RunArgs) -> CrashPoints {
    CrashPoints::default()
}

#[cfg(feature = "crash-points")]
fn crash_points(args: &RunArgs) -> CrashPoints {
    args.crash_points_socket.clone().map(CrashPoints::at).unwrap_or_default()
}

/// The two signals that end the operator in order.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
        })
    }

    async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
