//! A pod's volumes: directories below the pod's own, filled from the API.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, EmptyDirVolumeSource, KeyToPath, PersistentVolume, PersistentVolumeClaim,
    ServiceAccount, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::PostParams;
use kube::{Api, Client};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tokio::time::timeout;

use super::environment::Facts;
use super::objects::{Data, Kind, Objects};

const DEADLINE: Duration = Duration::from_secs(5);
const DEFAULT_MODE: i32 = 0o644;

/// Makes the volume's directory, complete with content.
pub async fn make(
    volume: &Volume,
    directory: PathBuf,
    facts: &Facts<'_>,
    client: &Client,
    objects: &mut Objects,
) -> Result<PathBuf> {
    if let Some(host) = &volume.host_path {
        let path = PathBuf::from(&host.path);
        if host.type_.as_deref() == Some("DirectoryOrCreate") {
            create(&path)?;
        }
        return Ok(path);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        return claimed(&claim.claim_name, facts, client).await;
    }
    create(&directory)?;
    if let Some(empty) = &volume.empty_dir {
        empty_dir(empty, &directory)?;
    } else if let Some(source) = &volume.config_map {
        let data = objects.data(Kind::ConfigMap, &source.name, source.optional == Some(true)).await?;
        files(&directory, data, source.items.as_deref(), source.default_mode)?;
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().context("the secret has no name")?;
        let data = objects.data(Kind::Secret, name, source.optional == Some(true)).await?;
        files(&directory, data, source.items.as_deref(), source.default_mode)?;
    } else if let Some(source) = &volume.downward_api {
        downward(&directory, source.items.as_deref(), source.default_mode, facts)?;
    } else if let Some(source) = &volume.projected {
        for part in source.sources.iter().flatten() {
            project(part, &directory, source.default_mode, facts, client, objects).await?;
        }
    } else {
        bail!("this kind of volume is not supported by the pod runner");
    }
    Ok(directory)
}

async fn project(
    part: &VolumeProjection,
    directory: &Path,
    mode: Option<i32>,
    facts: &Facts<'_>,
    client: &Client,
    objects: &mut Objects,
) -> Result<()> {
    if let Some(source) = &part.config_map {
        let data = objects.data(Kind::ConfigMap, &source.name, source.optional == Some(true)).await?;
        files(directory, data, source.items.as_deref(), mode)?;
    }
    if let Some(source) = &part.secret {
        let data = objects.data(Kind::Secret, &source.name, source.optional == Some(true)).await?;
        files(directory, data, source.items.as_deref(), mode)?;
    }
    if let Some(source) = &part.downward_api {
        downward(directory, source.items.as_deref(), mode, facts)?;
    }
    if let Some(source) = &part.service_account_token {
        let token = token(source, facts, client).await?;
        put(directory, &source.path, token.as_bytes(), mode)?;
    }
    Ok(())
}

/// A memory volume of a given size is a tmpfs of that size, so that a test can
/// fill it; any other is a plain directory.
fn empty_dir(source: &EmptyDirVolumeSource, directory: &Path) -> Result<()> {
    let (Some("Memory"), Some(limit)) = (source.medium.as_deref(), &source.size_limit) else {
        return Ok(());
    };
    // A volume that is made again after a later one failed is mounted already.
    let _ = umount2(directory, MntFlags::MNT_DETACH);
    sized(directory, limit)
}

/// Mounts a tmpfs of a size in Ki, Mi or Gi, which the kernel understands; of
/// any other size the directory just stays one.
pub fn sized(directory: &Path, size: &Quantity) -> Result<()> {
    let Some(number) = size.0.strip_suffix('i') else { return Ok(()) };
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), directory, Some("tmpfs"), flags, Some(format!("size={number}").as_str()))
        .with_context(|| format!("mount a tmpfs of {} at {}", size.0, directory.display()))
}

/// Where the volume lies that a claim is bound to.
async fn claimed(claim: &str, facts: &Facts<'_>, client: &Client) -> Result<PathBuf> {
    let namespace = facts.pod.metadata.namespace.as_deref().unwrap_or("default");
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let found = timeout(DEADLINE, claims.get(claim)).await?.with_context(|| format!("get claim {claim}"))?;
    let volume = found.spec.and_then(|spec| spec.volume_name);
    let volume = volume.with_context(|| format!("claim {claim} is not bound yet"))?;
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let found =
        timeout(DEADLINE, volumes.get(&volume)).await?.with_context(|| format!("get volume {volume}"))?;
    let spec = found.spec.context("a volume has no spec")?;
    let path = spec.local.map(|local| local.path).or(spec.host_path.map(|host| host.path));
    path.map(PathBuf::from).with_context(|| format!("volume {volume} is not local"))
}

/// Takes mounted volumes away before the pod's directory is removed.
pub fn unmount(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        // Most are no mount points.
        let _ = umount2(&entry.path(), MntFlags::MNT_DETACH);
    }
}

fn files(directory: &Path, data: Option<Data>, items: Option<&[KeyToPath]>, mode: Option<i32>) -> Result<()> {
    let data = data.unwrap_or_default();
    match items {
        None | Some([]) => data.iter().try_for_each(|(key, value)| put(directory, key, value, mode)),
        Some(items) => items.iter().try_for_each(|item| {
            let value = data.get(&item.key).with_context(|| format!("there is no key {}", item.key))?;
            put(directory, &item.path, value, item.mode.or(mode))
        }),
    }
}

fn downward(
    directory: &Path,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: Option<i32>,
    facts: &Facts<'_>,
) -> Result<()> {
    for item in items.into_iter().flatten() {
        let field = item.field_ref.as_ref().context("only fields of the pod are supported")?;
        put(directory, &item.path, facts.field(&field.field_path)?.as_bytes(), item.mode.or(mode))?;
    }
    Ok(())
}

async fn token(source: &ServiceAccountTokenProjection, facts: &Facts<'_>, client: &Client) -> Result<String> {
    let metadata = &facts.pod.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or("default");
    let account = facts.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: source.audience.iter().cloned().collect(),
            expiration_seconds: source.expiration_seconds,
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            }),
        },
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let account = account.unwrap_or("default");
    let params = PostParams::default();
    let asked = timeout(DEADLINE, accounts.create_token_request(account, &params, &request)).await;
    let answer = asked.context("no answer in time").and_then(|answer| answer.map_err(Into::into));
    let answer = answer.with_context(|| format!("ask for a token of ServiceAccount {account}"))?;
    Ok(answer.status.context("the answer holds no token")?.token)
}

/// Writes a file aside and renames it, so that no reader sees half of it.
fn put(directory: &Path, relative: &str, content: &[u8], mode: Option<i32>) -> Result<()> {
    let path = inside(directory, relative)?;
    if let Some(parent) = path.parent() {
        create(parent)?;
    }
    let unfinished = path.with_extension("unfinished");
    let mode = u32::try_from(mode.unwrap_or(DEFAULT_MODE)).context("a file's mode is negative")?;
    fs::write(&unfinished, content)
        .and_then(|()| fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&unfinished, &path))
        .with_context(|| format!("write {}", path.display()))
}

/// A path below a volume; a way out of it is refused.
pub fn inside(directory: &Path, relative: &str) -> Result<PathBuf> {
    let plain =
        Path::new(relative).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain {
        bail!("{relative} leads out of its volume");
    }
    Ok(directory.join(relative))
}

fn create(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))
}
