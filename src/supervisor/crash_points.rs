//! A hidden door for tests, behind the cargo feature `crash-points`: asks a Unix socket before and after each
//! effect that changes something, so that a test can end the operator exactly there. Without the feature,
//! and without a socket, nothing is asked.

/// Where to ask, if anywhere.
#[derive(Clone, Debug, Default)]
pub struct CrashPoints {
    #[cfg(feature = "crash-points")]
    asked: Option<std::sync::Arc<asking::Asked>>,
}

/// One effect under way.
#[derive(Debug)]
pub struct Point {
    #[cfg(feature = "crash-points")]
    asking: Option<asking::Asking>,
}

#[cfg(not(feature = "crash-points"))]
#[expect(clippy::unused_async, reason = "the shape of the door, walled up")]
impl CrashPoints {
    pub(super) async fn before(&self, _effect: &'static str, _cluster: &str) -> Point {
        Point {}
    }
}

#[cfg(not(feature = "crash-points"))]
#[expect(clippy::unused_async, reason = "the shape of the door, walled up")]
impl Point {
    pub(super) async fn after(self) {}
}

#[cfg(feature = "crash-points")]
mod asking {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::UnixStream;

    use super::{CrashPoints, Point};

    #[derive(Debug)]
    pub struct Asked {
        socket: PathBuf,
        count: AtomicU64,
    }

    #[derive(Debug)]
    pub struct Asking {
        asked: Arc<Asked>,
        /// `<n> <effect name> <cluster>`
        what: String,
    }

    impl CrashPoints {
        /// Asks the listener on this socket: one connection and one line `before|after <n> <effect name>
        /// <namespace>/<name>` each, answered by a line `go`.
        pub fn at(socket: PathBuf) -> Self {
            Self { asked: Some(Arc::new(Asked { socket, count: AtomicU64::new(0) })) }
        }

        pub(in crate::supervisor) async fn before(&self, effect: &'static str, cluster: &str) -> Point {
            let Some(asked) = self.asked.clone() else { return Point { asking: None } };
            let number = asked.count.fetch_add(1, Ordering::Relaxed);
            let asking = Asking { asked, what: format!("{number} {effect} {cluster}") };
            ask(&asking.asked.socket, "before", &asking.what).await;
            Point { asking: Some(asking) }
        }
    }

    impl Point {
        pub(in crate::supervisor) async fn after(self) {
            if let Some(Asking { asked, what }) = self.asking {
                ask(&asked.socket, "after", &what).await;
            }
        }
    }

    /// A listener that is gone holds up nothing.
    async fn ask(socket: &Path, when: &str, what: &str) {
        let answered = async {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(format!("{when} {what}\n").as_bytes()).await?;
            BufReader::new(stream).read_line(&mut String::new()).await
        };
        if let Err(error) = answered.await {
            tracing::warn!(%error, when, what, "the crash point was not answered");
        }
    }
}
