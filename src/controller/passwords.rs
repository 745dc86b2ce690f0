//! Where the passwords of a cluster come from: memory, its server Secret, a Secret of the user, or, the
//! first time, randomness. Reads; writes nothing.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::Room;
use super::apply::{self, Error};
use super::caches::Caches;
use crate::api::names;
use crate::core::objects::hex;
use crate::core::objects::secrets::{self, PASSWORD_KEY, Passwords};
use crate::core::valid::{AuthSource, ValidCluster};
use crate::supervisor::ClusterKey;

/// Bytes of randomness in a generated password.
const RANDOM_BYTES: usize = 32;

/// What was found.
pub enum Found {
    Passwords(Passwords),
    /// The user's Secret is not usable: (reason, sentence).
    Refused(&'static str, String),
}

/// The passwords that the servers are to have. What this process remembers wins over a Secret that was edited by
/// hand: the servers would not know the edited one.
pub async fn find(room: &Room, key: &ClusterKey, cluster: &ValidCluster) -> Result<Found, Error> {
    let remembered = room.memory.of(key, &cluster.uid, |entry| entry.passwords.clone());
    let kept = match remembered {
        Some(passwords) => Some(passwords),
        None => own_secret(room, cluster, &names::server_secret(&cluster.name))
            .await?
            .as_ref()
            .and_then(secrets::stored),
    };
    let application = match &cluster.auth {
        AuthSource::Secret(name) => match of_user(room, cluster, name).await? {
            Ok(password) => password,
            Err((reason, sentence)) => return Ok(Found::Refused(reason, sentence)),
        },
        AuthSource::Generated => match &kept {
            Some(passwords) => passwords.application.clone(),
            // The server Secret is gone, but applications may still know the password.
            None => own_secret(room, cluster, &names::auth_secret(&cluster.name))
                .await?
                .as_ref()
                .and_then(secrets::application_password)
                .map_or_else(|| generate().map(String::into_bytes), Ok)?,
        },
    };
    let passwords = match kept {
        Some(kept) => Passwords { application, ..kept },
        None => Passwords { operator: generate()?, replication: generate()?, application },
    };
    room.memory.of(key, &cluster.uid, |entry| entry.passwords = Some(passwords.clone()));
    Ok(Found::Passwords(passwords))
}

/// The passwords that a cached server Secret of this cluster holds.
pub fn cached(caches: &Caches, key: &ClusterKey, owner_uid: &str) -> Option<Passwords> {
    let secret = caches.secret(key, &names::server_secret(&key.name))?;
    apply::is_controlled_by(&*secret, owner_uid).then(|| secrets::stored(&secret)).flatten()
}

/// A Secret that this cluster controls.
async fn own_secret(room: &Room, cluster: &ValidCluster, name: &str) -> Result<Option<Secret>, Error> {
    let secret = any_secret(room, cluster, name).await?;
    Ok(secret.filter(|secret| apply::is_controlled_by(secret, &cluster.uid)))
}

async fn any_secret(room: &Room, cluster: &ValidCluster, name: &str) -> Result<Option<Secret>, Error> {
    let key = ClusterKey { namespace: cluster.namespace.clone(), name: cluster.name.clone() };
    if let Some(secret) = room.caches.secret(&key, name) {
        return Ok(Some((*secret).clone()));
    }
    let api: Api<Secret> = Api::namespaced(room.ctx.client.clone(), &cluster.namespace);
    apply::get_opt(&api, name).await
}

async fn of_user(
    room: &Room,
    cluster: &ValidCluster,
    name: &str,
) -> Result<Result<Vec<u8>, (&'static str, String)>, Error> {
    Ok(match any_secret(room, cluster, name).await? {
        None => Err((
            "AuthSecretMissing",
            format!(
                "spec.auth.secretName: Secret {name} does not exist in this namespace; create it with the key {PASSWORD_KEY}"
            ),
        )),
        Some(secret) => secrets::application_password(&secret).ok_or((
            "AuthSecretWithoutPassword",
            format!("spec.auth.secretName: Secret {name} has no key {PASSWORD_KEY} with a value; add it"),
        )),
    })
}

fn generate() -> Result<String, Error> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::Randomness(error.to_string()))?;
    Ok(hex(&bytes))
}
