//! `users.conf`: the three users of every server. Pure.
//!
//! The application's user cannot change roles, configuration or users, and cannot act as a replica; the
//! replication user is off until the operator records a master, so no other server can be a source of
//! data. Lines are those of Redis 6.2; what newer servers need in addition is set after connecting.

use sha2::{Digest, Sha256};

use super::hex;
use super::secrets::Passwords;
use crate::api::names;

/// Name of the file, and its key in the server Secret.
pub const USERS_FILE: &str = "users.conf";

/// What the supervisor does, and no more. SHUTDOWN and FAILOVER are nothing it uses.
const OPERATOR: &str = "-@all +auth +hello +ping +info +replicaof +multi +exec +discard +config|get +config|set \
    +client|setname +client|id +client|list +client|kill +client|pause +client|unpause +acl|setuser +acl|whoami +script|kill";

/// By ROLE a pod that is to end sees whether it still is a master with replicas.
const REPLICATION: &str = "-@all +ping +psync +replconf +role";

/// 6.2 cannot forbid single subcommands: forbid the container, then allow what is harmless.
const APPLICATION: &str = "~* &* +@all -replicaof -slaveof -failover -shutdown -debug -psync -sync -replconf \
    -acl +acl|whoami -module -cluster -config +config|get -client +client|id +client|setname +client|getname \
    +client|list +client|info +client|reply +client|tracking +client|caching +client|trackinginfo \
    +client|getredir +client|unblock";

/// Passwords stand as SHA-256, so that their bytes cannot break the file; only replication's own, which is
/// hex of ours, stands in clear, since a replica must send it.
pub fn render(cluster_uid: &str, passwords: &Passwords) -> String {
    let operator = names::operator_user(cluster_uid);
    let replication = names::replication_user(cluster_uid);
    format!(
        "\
user {operator} on #{} {OPERATOR}
user {replication} off #{} {REPLICATION}
user default on #{} {APPLICATION}
masteruser {replication}
masterauth {}
",
        sha256(passwords.operator.as_bytes()),
        sha256(passwords.replication.as_bytes()),
        sha256(&passwords.application),
        passwords.replication,
    )
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
