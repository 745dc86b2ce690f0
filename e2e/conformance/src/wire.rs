//! A bare connection: what is written and what comes back, in that order. For what the operator's own
//! connection would not do: commands without waiting, no login, another user's rights.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use futures::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wait::LONGEST;

pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Not logged in.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        ensure!(address.ip().is_loopback(), "only servers of our own");
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Logged in.
    pub async fn login(address: SocketAddr, user: &str, password: &str) -> Result<Self> {
        let mut wire = Self::open(address).await?;
        let said = wire.ask(&["AUTH", user, password]).await?;
        ensure!(said == "OK", "{user}: {said}");
        Ok(wire)
    }

    /// Writes a command; its reply is read later.
    pub async fn send(&mut self, words: &[&str]) -> Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            let _ = write!(request, "${}\r\n{word}\r\n", word.len());
        }
        Ok(self.stream.get_mut().write_all(request.as_bytes()).await?)
    }

    /// The next reply, as text: an error begins with `-`, a list stands in brackets, nothing is `nil`.
    pub async fn reply(&mut self) -> Result<String> {
        timeout(LONGEST, self.read()).await.context("no reply")?
    }

    /// One command and its reply.
    pub async fn ask(&mut self, words: &[&str]) -> Result<String> {
        self.send(words).await?;
        self.reply().await.with_context(|| words.join(" "))
    }

    /// The command, which must succeed.
    pub async fn done(&mut self, words: &[&str]) -> Result<String> {
        let reply = self.ask(words).await?;
        ensure!(!reply.starts_with('-'), "{}: {reply}", words.join(" "));
        Ok(reply)
    }

    /// First word of the refusal, which there must be: `READONLY`.
    pub async fn refused(&mut self, words: &[&str]) -> Result<String> {
        let reply = self.ask(words).await?;
        ensure!(reply.starts_with('-'), "{} was not refused: {reply}", words.join(" "));
        Ok(code(&reply))
    }

    /// A field of INFO.
    pub async fn field(&mut self, field: &str) -> Result<String> {
        let text = self.done(&["INFO", "everything"]).await?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.with_context(|| format!("no {field} in INFO"))?.trim_end().to_owned())
    }

    /// A number in INFO.
    pub async fn number(&mut self, field: &str) -> Result<i64> {
        Ok(self.field(field).await?.parse()?)
    }

    fn read(&mut self) -> BoxFuture<'_, Result<String>> {
        Box::pin(async move {
            let mut line = String::new();
            ensure!(self.stream.read_line(&mut line).await? > 0, "the connection was closed");
            let line = line.trim_end();
            let (kind, rest) = line.split_at_checked(1).context("an empty line")?;
            Ok(match kind {
                "+" | ":" => rest.to_owned(),
                "-" => line.to_owned(),
                "$" | "*" if rest == "-1" => "nil".to_owned(),
                "$" => {
                    let mut text = vec![0; rest.parse::<usize>()? + 2];
                    self.stream.read_exact(&mut text).await?;
                    text.truncate(text.len() - 2);
                    String::from_utf8_lossy(&text).into_owned()
                }
                "*" => {
                    let mut items = Vec::new();
                    for _ in 0..rest.parse::<usize>()? {
                        items.push(self.read().await?);
                    }
                    format!("[{}]", items.join(", "))
                }
                _ => bail!("no reply: {line}"),
            })
        })
    }
}

/// First word of a refusal.
pub fn code(reply: &str) -> String {
    reply.trim_start_matches('-').split(' ').next().unwrap_or_default().to_owned()
}
