//! A real server, started from the boot file and the users file on loopback: it boots fenced, and each
//! user can do what it must and no more.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis_ha_operator::api::{RedisCluster, names};
use redis_ha_operator::core::objects::secrets::Passwords;
use redis_ha_operator::core::objects::{boot_file, users};
use redis_ha_operator::core::valid::validate;
use serde_json::json;

const UID: &str = "0a1b2c3d-4e5f-6a7b";
/// Bytes that would break a file of clear passwords.
const APPLICATION: &str = "p\"'#\\ ü";

struct Server {
    process: Child,
    port: u16,
    dir: PathBuf,
}

impl Server {
    /// Starts the server from the very files that pods get, with other places and another port.
    fn start(name: &str, spec: &serde_json::Value) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = std::env::temp_dir().join(format!("redis-ha-boot-{name}-{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        let object: RedisCluster = serde_json::from_value(json!({
            "apiVersion": "redis-ha.dev/v1alpha1", "kind": "RedisCluster",
            "metadata": {"name": "cache", "namespace": "shop", "uid": UID}, "spec": spec,
        }))
        .unwrap();
        let place = dir.to_str().unwrap();
        let file = boot_file::render(&validate(&object, "redis").unwrap())
            .replace("\nport 6379\n", &format!("\nport {port}\n"))
            .replace(&format!("\ndir {}\n", boot_file::DATA_DIR), &format!("\ndir {place}\n"))
            .replace(boot_file::USERS_DIR, place);
        std::fs::write(dir.join(users::USERS_FILE), users::render(UID, &passwords())).unwrap();
        std::fs::write(dir.join(boot_file::BOOT_FILE), file).unwrap();
        let mut server = Self { process: spawn(&dir), port, dir };
        server.wait_until_it_listens();
        server
    }

    /// Ends the process by this signal and starts another one on the same disk.
    fn restart(&mut self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
        self.process.wait().unwrap();
        self.process = spawn(&self.dir);
        self.wait_until_it_listens();
    }

    fn wait_until_it_listens(&mut self) {
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(self.process.try_wait().unwrap().is_none(), "the server refused its boot file");
            std::thread::yield_now();
        }
    }

    fn session(&self, user: &str, password: &str) -> Session {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut session = Session { reader: BufReader::new(stream) };
        assert_eq!(session.say(&["AUTH", user, password]), "+OK");
        session
    }
}

fn spawn(dir: &Path) -> Child {
    Command::new("redis-server").arg(dir.join(boot_file::BOOT_FILE)).stdout(Stdio::null()).spawn().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct Session {
    reader: BufReader<TcpStream>,
}

impl Session {
    /// First line of the reply, and for a bulk string its text.
    fn say(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            let _ = write!(request, "${}\r\n{word}\r\n", word.len());
        }
        self.reader.get_mut().write_all(request.as_bytes()).unwrap();
        let first = self.line();
        let Some(length) = first.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) else {
            return first;
        };
        let mut text = vec![0; length + 2];
        std::io::Read::read_exact(&mut self.reader, &mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

fn passwords() -> Passwords {
    Passwords {
        operator: "0f".repeat(32),
        replication: "1e".repeat(32),
        application: APPLICATION.as_bytes().to_vec(),
    }
}

fn operator(server: &Server) -> Session {
    server.session(&names::operator_user(UID), &passwords().operator)
}

#[test]
fn server_boots_fenced() {
    let server = Server::start("fenced", &json!({"resources": {"limits": {"memory": "256Mi"}}}));
    let info = operator(&server).say(&["INFO", "replication"]);
    for line in ["role:slave", "master_host:127.0.0.1", "master_port:0", "master_link_status:down"] {
        assert!(info.contains(line), "{line} not in {info}");
    }
    let mut application = server.session("default", APPLICATION);
    assert!(application.say(&["SET", "a", "1"]).starts_with("-READONLY"));
    assert!(application.say(&["GET", "a"]).starts_with("-MASTERDOWN"));
}

#[test]
fn every_persistence_boots() {
    for persistence in ["AOF", "RDB", "None"] {
        let server = Server::start(persistence, &json!({"persistence": persistence}));
        assert!(operator(&server).say(&["INFO", "server"]).contains("redis_version"), "{persistence}");
    }
}

#[test]
fn what_is_on_the_disk_is_loaded_and_stays_fenced() {
    for (name, spec, signal, kept) in [
        // An AOF is written before the answer; flushed to the disk itself each second.
        ("aof-killed", json!({"storage": {"size": "1Gi"}}), Signal::SIGKILL, true),
        ("aof-ended", json!({"persistence": "AOF"}), Signal::SIGTERM, true),
        // A server with save points writes a last snapshot when it is asked to end, and has none when it is killed.
        ("rdb-ended", json!({"persistence": "RDB"}), Signal::SIGTERM, true),
        ("rdb-killed", json!({"persistence": "RDB"}), Signal::SIGKILL, false),
        ("none-ended", json!({}), Signal::SIGTERM, false),
    ] {
        let mut server = Server::start(name, &spec);
        assert_eq!(operator(&server).say(&["REPLICAOF", "NO", "ONE"]), "+OK");
        assert_eq!(server.session("default", APPLICATION).say(&["SET", "a", "1"]), "+OK");
        server.restart(signal);
        let mut session = operator(&server);
        let info = loop {
            let info = session.say(&["INFO"]);
            if info.contains("\nloading:0") {
                break info;
            }
        };
        assert_eq!(info.contains("db0:keys=1"), kept, "{name}");
        assert!(info.contains("role:slave") && info.contains("master_port:0"), "{name}: not fenced");
    }
}

#[test]
fn application_cannot_change_roles_configuration_or_users() {
    let server = Server::start("application", &json!({}));
    assert_eq!(operator(&server).say(&["REPLICAOF", "NO", "ONE"]), "+OK");
    let mut application = server.session("default", APPLICATION);
    assert_eq!(application.say(&["SET", "a", "1"]), "+OK");
    for refused in [
        &["REPLICAOF", "NO", "ONE"][..],
        &["SLAVEOF", "NO", "ONE"],
        &["FAILOVER"],
        &["SHUTDOWN", "NOSAVE"],
        &["PSYNC", "?", "-1"],
        &["SYNC"],
        &["REPLCONF", "ACK", "1"],
        &["CONFIG", "SET", "maxmemory", "0"],
        &["CONFIG", "REWRITE"],
        &["CLIENT", "PAUSE", "1000"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["ACL", "SETUSER", "me", "on", "nopass", "+@all"],
        &["ACL", "LIST"],
        &["MODULE", "LIST"],
    ] {
        let reply = application.say(refused);
        assert!(reply.starts_with('-'), "{refused:?} was not refused: {reply}");
        assert!(
            reply.contains("NOPERM") || reply.contains("ACL"),
            "{refused:?} was refused for another reason: {reply}"
        );
    }
    let script = "return redis.call('REPLICAOF', 'NO', 'ONE')";
    assert!(application.say(&["EVAL", script, "0"]).starts_with('-'), "not by way of a script either");
    assert!(application.say(&["CONFIG", "GET", "maxmemory"]).starts_with('*'));
}

#[test]
fn replication_user_is_off_until_it_is_switched_on() {
    let server = Server::start("replication", &json!({}));
    let replication = names::replication_user(UID);
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut stranger = Session { reader: BufReader::new(stream) };
    assert!(stranger.say(&["PING"]).starts_with("-NOAUTH"));
    assert!(stranger.say(&["AUTH", &replication, &passwords().replication]).starts_with("-WRONGPASS"));
    assert_eq!(operator(&server).say(&["ACL", "SETUSER", &replication, "on"]), "+OK");
    let mut replica = server.session(&replication, &passwords().replication);
    for refused in [&["GET", "a"][..], &["SET", "a", "1"], &["INFO"], &["ACL", "WHOAMI"]] {
        assert!(replica.say(refused).contains("NOPERM"), "{refused:?}");
    }
}

#[test]
fn operator_can_do_what_the_supervisor_does_and_nothing_with_data() {
    let server = Server::start("operator", &json!({}));
    let mut session = operator(&server);
    assert!(session.say(&["HELLO", "2"]).starts_with('*'));
    let mut session = operator(&server);
    let replication = names::replication_user(UID);
    for allowed in [
        &["CLIENT", "UNPAUSE"][..],
        &["ACL", "SETUSER", &replication, "off"],
        &["CONFIG", "SET", "min-replicas-to-write", "1"],
        &["REPLICAOF", "127.0.0.1", "0"],
        &["REPLICAOF", "NO", "ONE"],
        &["CLIENT", "PAUSE", "1", "WRITE"],
        &["MULTI"],
        &["DISCARD"],
    ] {
        let reply = session.say(allowed);
        assert!(reply.starts_with("+OK"), "{allowed:?}: {reply}");
    }
    assert!(session.say(&["CLIENT", "KILL", "TYPE", "pubsub"]).starts_with(':'));
    for refused in [&["GET", "a"][..], &["SET", "a", "1"], &["FLUSHALL"], &["SHUTDOWN"], &["KEYS", "*"]] {
        assert!(session.say(refused).contains("NOPERM"), "{refused:?}");
    }
}
