//! A connection whose peer takes nothing for too long ends: what it holds is wanted by others.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Whether a connection ended because its peer took nothing: what was cut off then was not left, it was cancelled. Put
/// into the extensions of the connection's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalled(Arc<AtomicBool>);

impl Stalled {
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Fails a write that makes no progress for `limit`.
pub(crate) struct Stalling<T> {
    inner: T,
    limit: Duration,
    stalled: Stalled,
    /// Runs while a write waits.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<T> Stalling<T> {
    /// `stalled` is set when a write fails for want of progress.
    pub fn new(inner: T, limit: Duration, stalled: Stalled) -> Self {
        Self { inner, limit, stalled, alarm: None }
    }

    fn watch<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.alarm = None;
            return written;
        }
        let limit = self.limit;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(alarm.as_mut().poll(cx));
        self.stalled.set();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stalling<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Stalling<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, data);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, data);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_takes_ends_at_the_limit() {
        let (ours, _theirs) = duplex(4);
        let begin = tokio::time::Instant::now();
        let stalled = Stalled::default();
        let error = Stalling::new(ours, LIMIT, stalled.clone()).write_all(&[0; 8]).await.unwrap_err();
        assert!(stalled.get());
        assert_eq!((error.kind(), begin.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_takes_something_goes_on() {
        let (ours, mut theirs) = duplex(1);
        let slow = async {
            for _ in 0..8 {
                tokio::time::sleep(LIMIT / 2).await;
                assert_eq!(theirs.read_u8().await.unwrap(), 7);
            }
        };
        let stalled = Stalled::default();
        let mut writer = Stalling::new(ours, LIMIT, stalled.clone());
        let (written, ()) = tokio::join!(writer.write_all(&[7; 8]), slow);
        written.unwrap();
        assert!(!stalled.get());
    }
}
