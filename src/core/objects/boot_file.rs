//! `redis.conf`: every server boots fenced, whatever its disk holds. Pure.
//!
//! An unknown directive stops the boot, so only what every supported server (Redis 6.2 to 9, Valkey)
//! knows stands here, in the old names and, where 6.2 needs it, one value a line and unquoted.

use std::fmt::Write;

use crate::api::spec::Persistence;
use crate::core::facts::{PLACEHOLDER_HOST, REDIS_PORT};
use crate::core::valid::{BACKLOG_BYTES, ValidCluster};

/// Where the boot file is mounted.
pub const BOOT_DIR: &str = "/etc/redis";
/// Name of the boot file, and its key in the `ConfigMap`.
pub const BOOT_FILE: &str = "redis.conf";
/// Where the users file of the server Secret is mounted.
pub const USERS_DIR: &str = "/etc/redis-users";
/// Where the server keeps its files.
pub const DATA_DIR: &str = "/data";

/// The boot file of every pod of this cluster, the single one of `replicas: 1` included.
pub fn render(cluster: &ValidCluster) -> String {
    let mut file = format!(
        "\
# Written by redis-ha-operator; changes by hand are undone.
port {REDIS_PORT}
dir {DATA_DIR}
include {USERS_DIR}/{users}

# Born fenced: replica of nobody (nothing can listen there), no stale reads. Only the operator lifts it.
replicaof {PLACEHOLDER_HOST} 0
replica-serve-stale-data no
replica-read-only yes

# A master alone keeps its replication id; a snapshot of a sync is no data of ours after a restart.
repl-backlog-ttl 0
rdb-del-sync-files yes
repl-diskless-sync yes
repl-diskless-sync-delay 0
repl-diskless-load on-empty-db
repl-backlog-size {BACKLOG_BYTES}

# Dead links are noticed after seconds, not after a minute.
repl-ping-replica-period 1
repl-timeout 10
min-replicas-max-lag 3
min-replicas-to-write 0

# A replica that hangs must not take all memory of its master.
client-output-buffer-limit replica {replica_buffer} 0 0
",
        users = super::users::USERS_FILE,
        replica_buffer = replica_buffer(cluster.max_memory),
    );
    if let Some(bytes) = cluster.max_memory {
        let _ = write!(file, "\n# 0.6 of the memory limit, the backlog included.\nmaxmemory {bytes}\n");
    }
    file.push_str(match cluster.persistence {
        Persistence::Aof => "\nappendonly yes\nappendfsync everysec\nsave \"\"\n",
        // 6.2 silently drops a line with more than one pair.
        Persistence::Rdb => "\nappendonly no\nsave 3600 1\nsave 300 100\nsave 60 10000\n",
        Persistence::None => "\nappendonly no\nsave \"\"\n",
    });
    file
}

/// Bytes of output that a replica may be behind before its connection is closed.
fn replica_buffer(max_memory: Option<u64>) -> u64 {
    const LEAST: u64 = 256 << 20;
    max_memory.map_or(LEAST, |bytes| LEAST.max(bytes / 4))
}
