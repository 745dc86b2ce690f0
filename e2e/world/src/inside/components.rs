//! The control plane's components and their command lines.

use std::path::Path;

use crate::addresses::{API_PORT, NodeNumber, OUTER, PODS, SERVICES};
use crate::paths;

/// A program that the supervisor keeps.
#[derive(Clone, Debug)]
pub struct Component {
    pub name: String,
    /// The network namespace it runs in; none is the outer one.
    pub node: Option<NodeNumber>,
    pub program: std::path::PathBuf,
    pub args: Vec<String>,
}

fn pki(file: &str) -> String {
    paths::pki(file).display().to_string()
}

fn applet(kubebox: &Path, name: &str, args: Vec<String>) -> Component {
    let args = std::iter::once(name.to_owned()).chain(args).collect();
    Component { name: name.into(), node: None, program: kubebox.into(), args }
}

pub fn etcd(kubebox: &Path) -> Component {
    applet(kubebox, "etcd", vec!["--dir".into(), paths::state("etcd").display().to_string()])
}

pub fn api_server(kubebox: &Path) -> Component {
    let args = [
        "--etcd-servers=http://127.0.0.1:2379".into(),
        "--bind-address=0.0.0.0".into(),
        format!("--secure-port={API_PORT}"),
        format!("--advertise-address={OUTER}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--authorization-mode=Node,RBAC".into(),
        format!("--token-auth-file={}", pki("tokens.csv")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        format!("--audit-policy-file={}", paths::state("audit-policy.yaml").display()),
        format!("--audit-log-path={}", paths::audit_log().display()),
        // Readers hold a position in the file, so it must not be rotated.
        "--audit-log-maxsize=100000".into(),
        "--allow-privileged=true".into(),
        // A node's name means nothing to a resolver here.
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--profiling=false".into(),
        "--shutdown-delay-duration=0s".into(),
        "--v=1".into(),
    ];
    applet(kubebox, "kube-apiserver", args.into())
}

/// Who asked what and when of every request, without bodies.
pub const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

pub fn controller_manager(kubebox: &Path) -> Component {
    let mut args = kubeconfigs("controller-manager");
    args.extend([
        format!("--service-account-private-key-file={}", pki("sa.key")),
        format!("--root-ca-file={}", pki("ca.crt")),
        format!("--cluster-signing-cert-file={}", pki("ca.crt")),
        format!("--cluster-signing-key-file={}", pki("ca.key")),
        "--use-service-account-credentials=false".into(),
        "--allocate-node-cidrs=true".into(),
        format!("--cluster-cidr={PODS}"),
        "--controllers=*".into(),
        // A lost node is found in ten seconds instead of forty.
        "--node-monitor-period=1s".into(),
        "--node-monitor-grace-period=10s".into(),
        "--controller-start-interval=0s".into(),
    ]);
    applet(kubebox, "kube-controller-manager", args)
}

pub fn scheduler(kubebox: &Path) -> Component {
    applet(kubebox, "kube-scheduler", kubeconfigs("scheduler"))
}

fn kubeconfigs(identity: &str) -> Vec<String> {
    let file = pki(&format!("{identity}.kubeconfig"));
    vec![
        format!("--kubeconfig={file}"),
        format!("--authentication-kubeconfig={file}"),
        format!("--authorization-kubeconfig={file}"),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
        "--kube-api-qps=200".into(),
        "--kube-api-burst=400".into(),
        "--v=1".into(),
    ]
}

/// The kube-proxy of a node, or of the outer namespace.
pub fn proxy(kubebox: &Path, node: Option<NodeNumber>, fast: bool) -> Component {
    // The outer namespace is no node, but kube-proxy waits 30 s for one.
    let (name, host) = match node {
        Some(node) => (format!("kube-proxy-{}", node.name()), node.name()),
        None => ("kube-proxy-outer".into(), NodeNumber(1).name()),
    };
    let mut args = vec![
        format!("--kubeconfig={}", pki("proxy.kubeconfig")),
        format!("--hostname-override={host}"),
        "--proxy-mode=nftables".into(),
        format!("--cluster-cidr={PODS}"),
        // It would write sysctls that belong to the host.
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0s".into(),
        "--conntrack-tcp-timeout-close-wait=0s".into(),
    ];
    if node.is_none() {
        args.push(format!("--bind-address={OUTER}"));
    }
    if fast {
        // Holds for nftables too; 0 would mean "the default".
        args.push("--iptables-min-sync-period=1ms".into());
    }
    Component { name, node, ..applet(kubebox, "kube-proxy", args) }
}

/// The pod runner of a node. It moves into the node's namespace by itself.
pub fn node_agent(world: &Path, node: NodeNumber) -> Component {
    Component {
        name: format!("node-agent-{}", node.name()),
        node: None,
        program: world.into(),
        args: vec!["__node".into(), node.name()],
    }
}
