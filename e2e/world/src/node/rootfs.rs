//! A container's root directory: the host's programs read-only, an /etc of its
//! own, and empty directories for everything else, all on a fresh tmpfs.
//!
//! An overlay of the whole of / would be shorter, but the kernel refuses it in
//! a user namespace.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, pivot_root};

use super::images::BUILD;
use super::plan::Plan;

const NONE: Option<&str> = None;

const EMPTY: [&str; 14] = [
    "usr",
    "etc",
    "proc",
    "dev",
    "sys",
    "tmp",
    "run",
    "root",
    "home",
    "opt",
    "var/lib",
    "var/log",
    "var/cache",
    "var/tmp",
];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Builds the root directory of the plan and makes it the process's own.
pub fn enter(plan: &Plan) -> Result<()> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).context("make mounts private")?;
    tmpfs(&plan.directory, "mode=0755")?;
    let root = plan.directory.join("root");
    for directory in EMPTY {
        make_directory(&root.join(directory))?;
    }
    programs(&root)?;
    etc(&plan.directory, &root, plan)?;
    devices(&root.join("dev"))?;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), &root.join("proc"), Some("proc"), quiet, NONE).context("mount /proc")?;
    // A fresh one, and read-only: the host's would bring its cgroups along.
    mount(Some("sysfs"), &root.join("sys"), Some("sysfs"), quiet | MsFlags::MS_RDONLY, NONE)
        .context("mount /sys")?;
    // Not to /run: volumes are mounted through it while / is still another.
    symlink("../run", root.join("var/run")).context("link /var/run")?;
    if let Some(build) = &plan.build {
        let place = root.join(BUILD.trim_start_matches('/'));
        make_directory(&place)?;
        bind(build, &place, false)?;
        read_only(&place)?;
    }
    for volume in &plan.mounts {
        let target = root.join(volume.target.strip_prefix("/").unwrap_or(&volume.target));
        make_place(&volume.source, &target)?;
        bind(&volume.source, &target, false)?;
        if volume.read_only {
            read_only(&target)?;
        }
    }
    bind(&root, &root, true)?;
    if plan.read_only_root {
        read_only(&root)?;
        read_only(&root.join("etc"))?;
    }
    become_root(&root)
}

/// /usr of the host, and the links or directories that belong to it.
fn programs(root: &Path) -> Result<()> {
    bind(Path::new("/usr"), &root.join("usr"), true)?;
    read_only(&root.join("usr"))?;
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let host = Path::new("/").join(name);
        let place = root.join(name);
        if let Ok(target) = fs::read_link(&host) {
            symlink(&target, &place).with_context(|| format!("link {}", place.display()))?;
        } else if host.is_dir() {
            make_directory(&place)?;
            bind(&host, &place, true)?;
            read_only(&place)?;
        }
    }
    Ok(())
}

fn etc(directory: &Path, root: &Path, plan: &Plan) -> Result<()> {
    let (upper, work) = (directory.join("upper"), directory.join("work"));
    make_directory(&upper)?;
    make_directory(&work)?;
    let files = [
        ("hosts", plan.hosts.as_str()),
        ("hostname", plan.hostname.as_str()),
        // No server: a name that is no address fails at once.
        ("resolv.conf", ""),
    ];
    for (name, text) in files {
        write(&upper.join(name), text)?;
    }
    let options = format!("lowerdir=/etc,upperdir={},workdir={},userxattr", upper.display(), work.display());
    mount(Some("overlay"), &root.join("etc"), Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .context("mount an overlay over /etc")
}

/// Device files cannot be made here, only borrowed.
fn devices(dev: &Path) -> Result<()> {
    for name in DEVICES {
        let host = Path::new("/dev").join(name);
        if host.exists() {
            let place = dev.join(name);
            write(&place, "")?;
            bind(&host, &place, false)?;
        }
    }
    let shm = dev.join("shm");
    make_directory(&shm)?;
    tmpfs(&shm, "mode=1777")?;
    for (name, target) in
        [("fd", "self/fd"), ("stdin", "self/fd/0"), ("stdout", "self/fd/1"), ("stderr", "self/fd/2")]
    {
        symlink(Path::new("/proc").join(target), dev.join(name))
            .with_context(|| format!("link /dev/{name}"))?;
    }
    Ok(())
}

/// Swaps the old root for the new one and lets go of the old. Not chroot: a
/// process that enters the mount namespace later must find this root too.
fn become_root(root: &Path) -> Result<()> {
    chdir(root).with_context(|| format!("go to {}", root.display()))?;
    pivot_root(".", ".").context("change the root directory")?;
    umount2(".", MntFlags::MNT_DETACH).context("let go of the host's directories")?;
    chdir("/").context("go to the new root")
}

fn tmpfs(place: &Path, options: &str) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some(options))
        .with_context(|| format!("mount a tmpfs at {}", place.display()))
}

fn bind(source: &Path, place: &Path, recursive: bool) -> Result<()> {
    let flags = if recursive { MsFlags::MS_BIND | MsFlags::MS_REC } else { MsFlags::MS_BIND };
    mount(Some(source), place, NONE, flags, NONE)
        .with_context(|| format!("bind {} at {}", source.display(), place.display()))
}

/// The kernel lets nobody drop a flag that the mount came with, so they are
/// repeated.
fn read_only(place: &Path) -> Result<()> {
    let had = statvfs(place).with_context(|| format!("look at {}", place.display()))?.flags();
    let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    for (had_flag, flag) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        flags.set(flag, had.contains(had_flag));
    }
    mount(NONE, place, NONE, flags, NONE).with_context(|| format!("make {} read-only", place.display()))
}

/// A mount point of the source's kind.
fn make_place(source: &Path, target: &Path) -> Result<()> {
    if source.is_dir() {
        return make_directory(target);
    }
    if let Some(parent) = target.parent() {
        make_directory(parent)?;
    }
    write(target, "")
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
