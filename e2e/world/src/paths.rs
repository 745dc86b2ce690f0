//! Where things lie in the state directory. It is a tmpfs inside the world's
//! own mount namespace, so it vanishes with the world.

use std::path::{Path, PathBuf};

/// The state directory, the same in every world: worlds never see each other.
pub const STATE: &str = "/run/world";

/// A path below the state directory.
pub fn state(relative: impl AsRef<Path>) -> PathBuf {
    Path::new(STATE).join(relative)
}

/// Certificates, tokens and kubeconfigs of the control plane.
pub fn pki(file: &str) -> PathBuf {
    state("pki").join(file)
}

/// What a component of the control plane prints.
pub fn component_log(component: &str) -> PathBuf {
    state("log").join(format!("{component}.log"))
}

/// One line for each request to the API server.
pub fn audit_log() -> PathBuf {
    state("log/audit.log")
}

/// Answers requests to stop, start and freeze components.
pub fn control_socket() -> PathBuf {
    state("control.sock")
}

/// Server builds: one file for each image name, holding a directory's path.
pub fn image(name: &str) -> PathBuf {
    state("images").join(name.replace('/', "+"))
}

/// Volumes and container directories of one pod; removed with the pod.
pub fn pod(uid: &str) -> PathBuf {
    state("pods").join(uid)
}

/// Logs of one pod; they stay when the pod is gone, since tests read them then.
pub fn pod_logs(namespace: &str, name: &str, uid: &str) -> PathBuf {
    state("pod-logs").join(format!("{namespace}_{name}_{uid}"))
}

/// All that the runs of one container have printed.
pub fn container_log(namespace: &str, name: &str, uid: &str, container: &str) -> PathBuf {
    pod_logs(namespace, name, uid).join(format!("{container}.log"))
}

/// The process number of a container's main process, as the world sees it.
pub fn container_pid(uid: &str, container: &str) -> PathBuf {
    pod(uid).join(container).join("pid")
}

/// How a container's present run was made.
pub fn container_plan(uid: &str, container: &str) -> PathBuf {
    pod(uid).join(container).join("plan.json")
}

/// A test's order how long a pod's containers wait before they restart.
pub fn restart_delay(namespace: &str, pod: &str) -> PathBuf {
    state("restart-delay").join(format!("{namespace}_{pod}"))
}

/// One file for each cut link.
pub fn cuts() -> PathBuf {
    state("cuts")
}

/// A node's network namespace.
pub fn node_namespace(node: &str) -> PathBuf {
    Path::new("/run/netns").join(node)
}

/// What a claim's volume holds; it outlives pods and crashes of its node.
pub fn persistent_volume(name: &str) -> PathBuf {
    state("persistent-volumes").join(name)
}
