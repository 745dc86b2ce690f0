//! The address plan. Everything is routed and nothing bridged, so that every
//! packet passes an nftables hook where a test can drop it.

/// The control plane and everything a test runs "outside" of the nodes. Not a
/// loopback address, since it becomes the endpoint of the Service `kubernetes`.
pub const OUTER: &str = "10.200.0.1";

/// Range of the Services.
pub const SERVICES: &str = "10.96.0.0/16";

/// The Service `kubernetes`: the first address of the range.
pub const API_SERVICE: &str = "10.96.0.1";

/// Range of all pods.
pub const PODS: &str = "10.244.0.0/16";

/// Next hop of every node and pod, link-local and the same everywhere.
pub const GATEWAY: &str = "169.254.1.1";

/// Where the API server listens.
pub const API_PORT: u16 = 6443;

/// More nodes would not fit into the last byte of a node's address.
pub const MAX_NODES: u8 = 200;

/// A node's number counts from 1; names and addresses follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNumber(pub u8);

impl NodeNumber {
    /// The number in a name such as `node-2`.
    pub fn parse(name: &str) -> Option<Self> {
        let number = name.strip_prefix("node-")?.parse().ok()?;
        (1..=MAX_NODES).contains(&number).then_some(Self(number))
    }

    pub fn name(self) -> String {
        format!("node-{}", self.0)
    }

    pub fn address(self) -> String {
        format!("10.200.0.{}", 10 + u16::from(self.0))
    }

    pub fn pod_cidr(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    /// Address number `host` of the node's pod range.
    pub fn pod_address(self, host: u8) -> String {
        format!("10.244.{}.{host}", self.0)
    }

    /// The outer end of the node's link.
    pub fn link(self) -> String {
        format!("n{}", self.0)
    }
}
