//! Interfaces and routes: one network namespace for each node, each behind a
//! routed link of its own. See `addresses` for the plan.

use anyhow::{Context, Result};

use crate::addresses::{GATEWAY, NodeNumber, OUTER, SERVICES};
use crate::program::{ip, run};

/// Builds the outer namespace's network and one namespace for each node.
pub async fn build(nodes: u8) -> Result<()> {
    // Routing looks a Service's address up before kube-proxy's rules replace
    // it, so the range needs some interface that is always up.
    ip(&format!(
        "link set lo up\n\
         addr add {OUTER}/32 dev lo\n\
         link add services type veth peer name services-end\n\
         link set services up\n\
         link set services-end up\n\
         route add {SERVICES} dev services src {OUTER}\n"
    ))
    .await
    .context("set up the outer network")?;
    forward("/proc/sys/net/ipv4/ip_forward").context("let the outer namespace forward")?;
    for number in 1..=nodes {
        node(NodeNumber(number)).await.with_context(|| format!("set up the network of node-{number}"))?;
    }
    Ok(())
}

async fn node(node: NodeNumber) -> Result<()> {
    let (name, link, address) = (node.name(), node.link(), node.address());
    ip(&format!("netns add {name}\n")).await?;
    outer_end(&name, &link).await?;
    link_up(node).await?;
    inner_end(&name, &address).await
}

/// Builds a host: a namespace with an address of its own for programs that are
/// not to share the outer one's. It must exist already and be empty.
pub async fn host(name: &str, link: &str, address: &str) -> Result<()> {
    outer_end(name, link).await?;
    ip(&format!("link set {link} up\nroute replace {address}/32 dev {link} src {OUTER}\n")).await?;
    inner_end(name, address).await
}

async fn outer_end(name: &str, link: &str) -> Result<()> {
    // A scope of "link", or masquerading would pick the gateway as a source.
    ip(&format!(
        "link add {link} type veth peer name eth0 netns {name}\n\
         addr add {GATEWAY}/32 dev {link} scope link\n"
    ))
    .await
}

async fn inner_end(name: &str, address: &str) -> Result<()> {
    run(
        "ip",
        &["-netns", name, "-batch", "-"],
        &format!(
            "link set lo up\n\
             addr add {address}/32 dev eth0\n\
             link set eth0 up\n\
             route add {GATEWAY} dev eth0\n\
             route add default via {GATEWAY} dev eth0 src {address}\n"
        ),
    )
    .await
    .map(drop)
}

/// Sets a node's link up and puts its routes back: a link that goes down loses them.
pub async fn link_up(node: NodeNumber) -> Result<()> {
    let (link, address, pods) = (node.link(), node.address(), node.pod_cidr());
    ip(&format!(
        "link set {link} up\n\
         route replace {address}/32 dev {link} src {OUTER}\n\
         route replace {pods} via {address} dev {link} onlink src {OUTER}\n"
    ))
    .await
}

/// Sets a node's link down: nothing gets in or out, and the node runs on.
pub async fn link_down(node: NodeNumber) -> Result<()> {
    ip(&format!("link set {} down\n", node.link())).await
}

/// Lets the current network namespace pass packets on.
pub fn forward(file: &str) -> Result<()> {
    std::fs::write(file, "1").with_context(|| format!("write {file}"))
}
