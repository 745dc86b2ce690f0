//! The application's Secret and the servers' Secret, and the passwords in them. Pure: passwords are
//! generated outside and come in.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::metadata;
use super::users::USERS_FILE;
use crate::api::names;
use crate::core::valid::ValidCluster;

/// Key of the application's password in Secret `<name>-auth`, and in a Secret of the user.
pub const PASSWORD_KEY: &str = "password";
const OPERATOR_KEY: &str = "operator-password";
const REPLICATION_KEY: &str = "replication-password";
const APPLICATION_KEY: &str = "application-password";

/// The three passwords of one cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Passwords {
    /// 64 hex digits.
    pub operator: String,
    /// 64 hex digits.
    pub replication: String,
    /// Any bytes, at least one.
    pub application: Vec<u8>,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords").finish_non_exhaustive()
    }
}

/// The passwords kept in a server Secret; `None` when they are not as we write them.
pub fn stored(server: &Secret) -> Option<Passwords> {
    let data = server.data.as_ref()?;
    Some(Passwords {
        operator: own(data, OPERATOR_KEY)?,
        replication: own(data, REPLICATION_KEY)?,
        application: application(data, APPLICATION_KEY)?,
    })
}

/// The application's password in a Secret of the user, or in `<name>-auth`.
pub fn application_password(secret: &Secret) -> Option<Vec<u8>> {
    application(secret.data.as_ref()?, PASSWORD_KEY)
}

/// Secret `<name>-auth`, for the application.
pub fn auth(cluster: &ValidCluster, passwords: &Passwords) -> Secret {
    secret(cluster, names::auth_secret(&cluster.name), [(PASSWORD_KEY, passwords.application.clone())])
}

/// Secret `<name>-server`. The copy of the application's password brings a deleted `<name>-auth` back unchanged.
pub fn server(cluster: &ValidCluster, passwords: &Passwords, users: &str) -> Secret {
    secret(
        cluster,
        names::server_secret(&cluster.name),
        [
            (USERS_FILE, users.as_bytes().to_vec()),
            (OPERATOR_KEY, passwords.operator.clone().into_bytes()),
            (REPLICATION_KEY, passwords.replication.clone().into_bytes()),
            (APPLICATION_KEY, passwords.application.clone()),
        ],
    )
}

fn secret<const N: usize>(cluster: &ValidCluster, name: String, data: [(&str, Vec<u8>); N]) -> Secret {
    Secret {
        metadata: metadata(cluster, name),
        type_: Some("Opaque".to_owned()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value))).collect()),
        ..Secret::default()
    }
}

fn own(data: &BTreeMap<String, ByteString>, key: &str) -> Option<String> {
    let text = String::from_utf8(data.get(key)?.0.clone()).ok()?;
    let plain = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (text.len() == 64 && text.chars().all(plain)).then_some(text)
}

fn application(data: &BTreeMap<String, ByteString>, key: &str) -> Option<Vec<u8>> {
    data.get(key).map(|value| value.0.clone()).filter(|password| !password.is_empty())
}
