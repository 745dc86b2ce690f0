//! What a server says of itself.

use redis_ha_operator::core::facts::{AttachedReplica, Info, PLACEHOLDER_HOST, REDIS_PORT, Role};

use crate::redis::process::{LinkState, ReplId};
use crate::setup::Build;
use crate::time::{SECOND, Time, seconds};
use crate::world::World;

/// A replication id as text; 0 is none.
pub fn id_text(id: ReplId) -> String {
    format!("id{id}")
}

impl World {
    pub fn info(&self, pid: usize) -> Info {
        let process = &self.processes[pid];
        let age = |at: Time| (seconds(self.now) - seconds(at)).max(0);
        let is_replica = process.role == Role::Replica;
        let (link_up, state) = (process.link_is_up(), process.upstream.map(|upstream| upstream.state));
        // After a start from an append-only file 8.x tells an offset that means nothing.
        let lies = self.setup.build == Build::Redis82 && is_replica && !process.positioned;
        let attached = process.downstream.iter().map(|replica| AttachedReplica {
            ip: self.processes[replica.pid].ip.to_string(),
            port: REDIS_PORT,
            state: if replica.online { "online" } else { "send_bulk" }.to_owned(),
            offset: replica.ack,
            lag: age(replica.ack_at),
        });
        Info {
            run_id: process.run.clone(),
            redis_version: self.setup.build.version().to_owned(),
            uptime_seconds: (self.now - process.born) / SECOND,
            role: process.role,
            master_host: is_replica.then(|| {
                process.source.map_or_else(|| PLACEHOLDER_HOST.to_owned(), |source| source.to_string())
            }),
            master_port: if is_replica && process.source.is_some() { REDIS_PORT } else { 0 },
            link_up,
            link_down_since: (is_replica && !link_up).then(|| process.link_down_at.map_or(-1, age)),
            last_io: is_replica.then(|| if link_up { age(process.last_io) } else { -1 }),
            sync_in_progress: matches!(state, Some(LinkState::Transfer | LinkState::Loading)),
            replid: id_text(process.replid),
            replid2: id_text(process.replid2),
            second_offset: process.second_offset,
            master_offset: if lies { 4_648_927 } else { process.offset },
            replica_offset: is_replica.then_some(if process.positioned { process.offset } else { 1 }),
            attached: attached.collect(),
            loading: process.loading,
            keys: if process.loading { 0 } else { self.history.keys(process.head) },
            cannot_save: process.cannot_save,
            failover_running: false,
            good_replicas: (process.quorum > 0).then_some(process.good),
        }
    }
}
