//! Role commands as exact transactions: one packet each, INFO inside as proof. May touch the network.
//!
//! The order inside each transaction matters: the replication user is switched off before the role
//! changes, and clients are cut after it (before, they would come back and write).

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, Value, cmd};

use super::info::{Sections, major_minor};
use super::link::{read_info, refusal};
use crate::core::event::{CommandOutcome, RoleCommand};
use crate::core::facts::PLACEHOLDER_HOST;

/// ACL rules that the application's user gets on this version beyond the boot file, which holds only what
/// every supported server knows.
pub fn default_user_additions(redis_version: &str) -> &'static [&'static str] {
    match major_minor(redis_version) {
        version if version >= (7, 2) => {
            &["+client|help", "+client|no-evict", "+client|setinfo", "+client|no-touch"]
        }
        version if version >= (7, 0) => &["+client|help", "+client|no-evict"],
        _ => &[],
    }
}

/// Sends one role command and reads its outcome. Waits as long as the connection lives: a command on its
/// way cannot be withdrawn, so only its reply or the end of the connection is an answer.
pub(super) async fn carry_out(
    connection: &mut MultiplexedConnection,
    command: &RoleCommand,
    replication_user: &str,
    sections: Sections,
) -> CommandOutcome {
    if *command == RoleCommand::Detach {
        // Apart and awaited: on a paused server the master link's bytes are held back, and cutting such a
        // link throws the position away.
        match connection.send_packed_command(&client(&["UNPAUSE"])).await {
            Ok(reply) => {
                if let Some(refusal) = refusal(&reply) {
                    return CommandOutcome::Refused(refusal);
                }
            }
            Err(error) => return CommandOutcome::Lost(error.to_string()),
        }
    }
    if *command == RoleCommand::KillScript {
        let mut kill = cmd("SCRIPT");
        return match connection.send_packed_command(kill.arg("KILL")).await.map(|reply| refusal(&reply)) {
            Ok(Some(refusal)) => CommandOutcome::Refused(refusal),
            // It ends at its next look around: only what is read afterwards tells.
            Ok(None) => CommandOutcome::Lost("the script was told to end".to_owned()),
            Err(error) => CommandOutcome::Lost(error.to_string()),
        };
    }
    let Transaction { pipeline, decisive } = transaction(command, replication_user, sections);
    // All replies raw, MULTI and EXEC included: the typed queries hide every reply when one is an error.
    match connection.send_packed_commands(&pipeline, 0, pipeline.len()).await {
        Ok(replies) => outcome(&replies, decisive),
        Err(error) => CommandOutcome::Lost(error.to_string()),
    }
}

struct Transaction {
    pipeline: Pipeline,
    /// Index of the command that is the point of the whole.
    decisive: usize,
}

fn transaction(command: &RoleCommand, replication_user: &str, sections: Sections) -> Transaction {
    let acl = |switch| {
        let mut acl = cmd("ACL");
        acl.arg(&["SETUSER", replication_user, switch]);
        acl
    };
    let cut_clients =
        || [client(&["KILL", "TYPE", "normal", "SKIPME", "yes"]), client(&["KILL", "TYPE", "pubsub"])];
    let (commands, decisive) = match command {
        RoleCommand::Detach | RoleCommand::StepDown => (vec![acl("off"), nowhere()], 1),
        RoleCommand::Demote => {
            let [normal, pubsub] = cut_clients();
            (vec![acl("off"), nowhere(), normal, pubsub], 1)
        }
        RoleCommand::Pause { millis } => (vec![client(&["PAUSE", &millis.to_string(), "WRITE"])], 0),
        RoleCommand::Unpause => (vec![client(&["UNPAUSE"])], 0),
        RoleCommand::Promote { write_quorum: quorum } => {
            (vec![write_quorum(*quorum), replica_of("NO", "ONE"), client(&["UNPAUSE"])], 1)
        }
        RoleCommand::Serve => (vec![acl("on")], 0),
        RoleCommand::Follow { ip, port, cut_clients: cut } => {
            let mut commands = vec![
                acl("off"),
                write_quorum(0),
                replica_of(&ip.to_string(), &port.to_string()),
                // With the target in one transaction: a paused replica would not apply its stream.
                client(&["UNPAUSE"]),
            ];
            if *cut {
                commands.extend(cut_clients());
            }
            (commands, 2)
        }
        RoleCommand::SetWriteQuorum(quorum) => (vec![write_quorum(*quorum)], 0),
        RoleCommand::CutClients => (cut_clients().into(), 0),
        RoleCommand::KillScript => (Vec::new(), 0), // sent alone: see above
    };
    let mut pipeline = Pipeline::with_capacity(commands.len() + 3);
    pipeline.cmd("MULTI");
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline.add_command(sections.command()).cmd("EXEC");
    Transaction { pipeline, decisive }
}

/// Ends all connections of this user but the one that says so.
pub(super) fn cut_user(user: &str) -> Cmd {
    client(&["KILL", "USER", user])
}

fn client(arguments: &[&str]) -> Cmd {
    let mut client = cmd("CLIENT");
    client.arg(arguments);
    client
}

fn replica_of(host: &str, port: &str) -> Cmd {
    let mut replica_of = cmd("REPLICAOF");
    replica_of.arg(host).arg(port);
    replica_of
}

/// Replica of nobody: nothing can listen on port 0.
fn nowhere() -> Cmd {
    replica_of(PLACEHOLDER_HOST, "0")
}

fn write_quorum(replicas: u32) -> Cmd {
    let mut config = cmd("CONFIG");
    config.arg(&["SET", "min-replicas-to-write"]).arg(replicas);
    config
}

/// Reads the replies from MULTI to EXEC. Only an intact transaction is done. When the decisive command was
/// carried out and another one failed, the server must be read again before anybody says what happened.
fn outcome(replies: &[Value], decisive: usize) -> CommandOutcome {
    let Some(Value::Array(carried_out)) = replies.last() else {
        return match replies.iter().find_map(refusal) {
            // Refused while queueing: EXEC then carries out nothing.
            Some(error) => CommandOutcome::Refused(error),
            None => CommandOutcome::Lost("EXEC gave no list of replies".into()),
        };
    };
    match (carried_out.iter().find_map(refusal), carried_out.get(decisive)) {
        (Some(error), Some(Value::ServerError(_)) | None) => CommandOutcome::Refused(error),
        (Some(error), Some(_)) => CommandOutcome::Lost(format!("only partly carried out: {error}")),
        (None, _) => match carried_out.last().map(read_info) {
            Some(Ok(info)) => CommandOutcome::Done(Box::new(info)),
            Some(Err(error)) => CommandOutcome::Lost(error),
            None => CommandOutcome::Lost("EXEC gave an empty list of replies".into()),
        },
    }
}

#[cfg(test)]
mod tests;
