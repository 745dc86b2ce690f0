//! INFO text -> [`Info`]. Pure.
//!
//! Own parser with signed numbers: the typed `ROLE` of redis-rs turns "no offset" (-1) into the largest
//! offset there is, and its `InfoDict` is only a tokenizer.

use ::redis::Cmd;
use thiserror::Error;

use crate::core::facts::{AttachedReplica, Info, Role};

/// The text is not an INFO reply that names a process and its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the INFO reply has no usable field {0}: is this a Redis or Valkey server?")]
pub struct Unreadable(&'static str);

/// Which INFO a server can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sections {
    /// All default sections (5 KB): the only form with every needed section that 6.2 knows.
    Default,
    /// The four needed sections (2 KB), since 7.0.
    Needed,
}

impl Sections {
    /// The cheapest form that this version answers.
    pub fn of(redis_version: &str) -> Self {
        if major_minor(redis_version) >= (7, 0) { Self::Needed } else { Self::Default }
    }

    /// The command.
    pub fn command(self) -> Cmd {
        let mut info = ::redis::cmd("INFO");
        if self == Self::Needed {
            info.arg(&["server", "replication", "persistence", "keyspace"]);
        }
        info
    }
}

/// Major and minor of `redis_version`; (0, 0) when it is no version.
pub fn major_minor(redis_version: &str) -> (u32, u32) {
    let mut parts = redis_version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Reads an INFO reply. Unknown fields are ignored, absent or odd numbers read as "none".
///
/// # Errors
/// [`Unreadable`] when run id, role or replication id is missing: without them nothing can be judged.
pub fn parse(text: &str) -> Result<Info, Unreadable> {
    let mut info = Info {
        run_id: String::new(),
        redis_version: String::new(),
        uptime_seconds: 0,
        role: Role::Replica,
        master_host: None,
        master_port: 0,
        link_up: false,
        link_down_since: None,
        last_io: None,
        sync_in_progress: false,
        replid: String::new(),
        replid2: String::new(),
        second_offset: -1,
        master_offset: 0,
        replica_offset: None,
        attached: Vec::new(),
        loading: false,
        keys: 0,
        cannot_save: false,
        failover_running: false,
        good_replicas: None,
    };
    let mut role = None;
    for (field, value) in text.lines().filter_map(|line| line.trim_end().split_once(':')) {
        match field {
            "run_id" => value.clone_into(&mut info.run_id),
            "redis_version" => value.clone_into(&mut info.redis_version),
            "uptime_in_seconds" => info.uptime_seconds = value.parse().unwrap_or(0),
            "role" => role = role_of(value),
            "master_host" => info.master_host = Some(value.to_owned()),
            "master_port" => info.master_port = value.parse().unwrap_or(0),
            "master_link_status" => info.link_up = value == "up",
            "master_link_down_since_seconds" => info.link_down_since = value.parse().ok(),
            "master_last_io_seconds_ago" => info.last_io = value.parse().ok(),
            "master_sync_in_progress" => info.sync_in_progress = value == "1",
            "master_replid" => value.clone_into(&mut info.replid),
            "master_replid2" => value.clone_into(&mut info.replid2),
            "second_repl_offset" => info.second_offset = value.parse().unwrap_or(-1),
            "master_repl_offset" => info.master_offset = value.parse().unwrap_or(0),
            "slave_repl_offset" => info.replica_offset = value.parse().ok(),
            "loading" => info.loading = value == "1",
            "rdb_last_bgsave_status" | "aof_last_write_status" => info.cannot_save |= value != "ok",
            "master_failover_state" => info.failover_running = value != "no-failover",
            "min_slaves_good_slaves" => info.good_replicas = value.parse().ok(),
            _ if numbered(field, "slave") => info.attached.extend(attached(value)),
            _ if numbered(field, "db") => info.keys = info.keys.saturating_add(keys(value)),
            _ => {}
        }
    }
    info.role = role.ok_or(Unreadable("role"))?;
    if info.run_id.is_empty() {
        return Err(Unreadable("run_id"));
    }
    if info.replid.is_empty() {
        return Err(Unreadable("master_replid"));
    }
    Ok(info)
}

fn role_of(value: &str) -> Option<Role> {
    match value {
        "master" => Some(Role::Master),
        "slave" | "replica" => Some(Role::Replica),
        _ => None,
    }
}

/// `slave0`, `db15`, but not `slave_priority` or `slave`.
fn numbered(field: &str, prefix: &str) -> bool {
    field
        .strip_prefix(prefix)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// `ip=10.0.0.1,port=6379,state=online,offset=14,lag=0[,type=main-channel]`
fn attached(value: &str) -> Option<AttachedReplica> {
    let mut replica =
        AttachedReplica { ip: String::new(), port: 0, state: String::new(), offset: 0, lag: -1 };
    for (name, value) in value.split(',').filter_map(|pair| pair.split_once('=')) {
        match name {
            "ip" => value.clone_into(&mut replica.ip),
            "port" => replica.port = value.parse().unwrap_or(0),
            "state" => value.clone_into(&mut replica.state),
            "offset" => replica.offset = value.parse().unwrap_or(0),
            "lag" => replica.lag = value.parse().unwrap_or(-1),
            _ => {}
        }
    }
    (!replica.ip.is_empty()).then_some(replica)
}

/// `keys=2,expires=0,avg_ttl=0`
fn keys(value: &str) -> u64 {
    value
        .split(',')
        .find_map(|pair| pair.strip_prefix("keys="))
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MASTER: &str = include_str!("samples/master.info");
    const REPLICA: &str = include_str!("samples/replica.info");
    const FENCED: &str = include_str!("samples/fenced.info");

    #[test]
    fn a_master_tells_its_replicas_and_its_keys_in_all_databases() {
        let info = parse(MASTER).unwrap();
        assert_eq!(info.role, Role::Master);
        assert_eq!(info.redis_version, "7.0.15");
        assert_eq!(info.keys, 4);
        assert_eq!(info.good_replicas, Some(1));
        assert_eq!(info.replica_offset, None);
        assert_eq!(info.attached.len(), 1);
        assert_eq!(info.attached[0].ip, "127.0.0.1");
        assert_eq!(info.attached[0].port, 17002);
        assert_eq!(info.attached[0].state, "online");
        assert!(info.attached[0].offset > 0 && info.attached[0].offset <= info.master_offset);
        assert!(!info.is_fenced());
    }

    #[test]
    fn a_streaming_replica_tells_its_link_and_position() {
        let (info, master) = (parse(REPLICA).unwrap(), parse(MASTER).unwrap());
        assert_eq!(info.role, Role::Replica);
        assert!(info.link_up && !info.sync_in_progress);
        assert_eq!((info.master_host.as_deref(), info.master_port), (Some("127.0.0.1"), 17001));
        assert_eq!(info.link_down_since, None);
        assert!(matches!(info.last_io, Some(0..=1)));
        assert_eq!(info.replid, master.replid);
        assert!(info.replica_offset >= Some(master.attached[0].offset));
        assert_eq!(info.keys, 4);
    }

    #[test]
    fn a_fenced_replica_keeps_its_position_and_has_no_link() {
        let (info, replica) = (parse(FENCED).unwrap(), parse(REPLICA).unwrap());
        assert!(info.is_fenced());
        assert!(!info.link_up);
        assert_eq!(info.link_down_since, Some(0), "it streamed before; -1 is for a link that never was up");
        assert_eq!(info.last_io, Some(-1));
        assert_eq!(info.run_id, replica.run_id);
        assert_eq!(info.replid, replica.replid);
        assert!(info.replica_offset >= replica.replica_offset);
        assert_eq!(info.keys, 4);
    }

    #[test]
    fn a_reply_without_role_or_process_is_not_read() {
        assert_eq!(parse(""), Err(Unreadable("role")));
        assert_eq!(parse("role:master\r\n"), Err(Unreadable("run_id")));
        assert_eq!(parse("role:sentinel\r\nrun_id:x\r\n"), Err(Unreadable("role")));
        assert_eq!(parse("role:slave\r\nrun_id:x\r\n"), Err(Unreadable("master_replid")));
    }

    #[test]
    fn offsets_keep_their_sign_and_odd_numbers_mean_none() {
        let info = parse(
            "role:slave\nrun_id:x\nmaster_replid:y\nslave_repl_offset:-1\nmaster_last_io_seconds_ago:soon\n\
             slave_priority:100\ndb0:keys=99999999999999999999\nslave0:ip=,port=1",
        )
        .unwrap();
        assert_eq!(info.replica_offset, Some(-1));
        assert_eq!(info.last_io, None);
        assert_eq!((info.keys, info.attached.len()), (0, 0));
    }

    #[test]
    fn the_short_form_is_asked_from_version_seven_on() {
        for (version, sections) in [
            ("6.2.14", Sections::Default),
            ("7.0.15", Sections::Needed),
            ("7.2.4", Sections::Needed),
            ("10.0.0", Sections::Needed),
            ("", Sections::Default),
            ("unstable", Sections::Default),
        ] {
            assert_eq!(Sections::of(version), sections, "{version}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".*") {
            let _ = parse(&text);
        }

        #[test]
        fn mangled_replies_never_panic(at in 0usize..1500, junk in "[a-z0-9:=,\r\n-]{0,40}") {
            for sample in [MASTER, REPLICA, FENCED] {
                let cut = sample.floor_char_boundary(at);
                let _ = parse(&format!("{}{junk}{}", &sample[..cut], &sample[cut..]));
            }
        }
    }
}
