//! All ranks of one model: started together, and none lives on when another one ends.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use headrace_shard::ShardAddress;
use tokio::time::timeout;

use crate::config::{ComputeConfig, ShardConfig};
use crate::failure::Failure;
use crate::python::Python;
use crate::socket::ShardSocket;
use crate::supervise::{Cause, Death, Place, ShardProcess, shard_arguments};

/// The exit status of a rank that ended because another one had: server/headrace_server/distributed/lifeline.py.
const LOST_ANOTHER: Cause = Cause::Exit(3);

/// From the end of such a rank until the end of the one that it lost was noticed here.
const CULPRIT: Duration = Duration::from_secs(2);

/// The processes and their sockets. Dropping it kills them.
#[derive(Debug)]
pub struct ShardGroup {
    ranks: Vec<ShardProcess>,
    sockets: Vec<ShardSocket>,
}

impl ShardGroup {
    /// Starts every rank. To be called on the main thread, see `GroupChild::spawn`.
    pub fn start(
        config: &ShardConfig,
        compute: &ComputeConfig,
        python: &Python,
        model_dir: &Path,
    ) -> Result<Self, Failure> {
        let port = meeting_port(config)?;
        let sockets = (0..config.ranks).map(|rank| ShardSocket::new(config.uds_prefix.as_deref(), rank));
        let sockets: Vec<_> = sockets.collect::<Result<_, _>>()?;
        let start = |(rank, socket): (u32, &ShardSocket)| {
            let args = shard_arguments(config, compute, model_dir, Place { rank, socket: socket.path(), port });
            ShardProcess::spawn(rank, python.program(), args).map_err(|reason| Failure::Spawn {
                rank,
                program: python.program().display().to_string(),
                reason,
            })
        };
        let ranks = (0..).zip(&sockets).map(start).collect::<Result<_, _>>()?;
        Ok(Self { ranks, sockets })
    }

    /// In rank order.
    pub fn addresses(&self) -> Vec<ShardAddress> {
        self.sockets.iter().map(|socket| ShardAddress::Unix(socket.path().to_owned())).collect()
    }

    /// Waits until a rank has ended by itself: not because another one had, if that one is known soon. May be dropped
    /// and called again.
    pub async fn death(&mut self) -> Death {
        let mut deaths: FuturesUnordered<_> = self.ranks.iter_mut().map(ShardProcess::death).collect();
        let first = deaths.next().await.expect("a group has at least one rank");
        if first.cause != LOST_ANOTHER {
            return first;
        }
        let mut by_themselves = deaths.filter(|death| std::future::ready(death.cause != LOST_ANOTHER));
        timeout(CULPRIT, by_themselves.next()).await.ok().flatten().unwrap_or(first)
    }

    /// Ends all of them at the same time.
    pub async fn stop(&mut self) {
        join_all(self.ranks.iter_mut().map(ShardProcess::stop)).await;
    }

    /// The same where one of them hangs: it hears no signal, and the others wait for it.
    pub async fn kill(&mut self) {
        join_all(self.ranks.iter_mut().map(ShardProcess::kill)).await;
    }
}

/// Where several ranks meet. A free port is only found by taking it: until rank 0 takes it again somebody else could,
/// and then rank 0 says so.
fn meeting_port(config: &ShardConfig) -> Result<Option<u16>, Failure> {
    match (config.ranks, config.master_port) {
        (1, _) => Ok(None),
        (_, Some(port)) => Ok(Some(port)),
        (_, None) => {
            let free = TcpListener::bind((config.master_addr.as_str(), 0)).and_then(|free| free.local_addr());
            let port = free.map_err(|reason| Failure::Meeting { address: config.master_addr.clone(), reason })?.port();
            Ok(Some(port))
        }
    }
}

#[cfg(test)]
mod tests;
