//! A model of Kubernetes: the API server and what it stores, the kubelets and the StatefulSet.

pub mod api;
pub mod calls;
pub mod kubelet;
pub mod scale;
pub mod watch;
