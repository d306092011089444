//! Where a shard's Unix socket lies. Dropping it removes what was made for it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("another shard listens on {} (--shard-uds-path); stop it or choose another path", path.display())]
    InUse { path: PathBuf },
    #[error("{} exists and is no socket (--shard-uds-path); choose another path", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot use {} for the shard's socket: {reason}; choose a place with --shard-uds-path", path.display())]
    Io { path: PathBuf, reason: io::Error },
}

/// A path that is free for rank `rank` to listen on.
#[derive(Debug)]
pub struct ShardSocket {
    path: PathBuf,
    /// The private directory, when we made one.
    _home: Option<TempDir>,
}

impl ShardSocket {
    /// `PREFIX-rank`, or a socket in a fresh directory that only this user can enter.
    pub fn new(prefix: Option<&Path>, rank: u32) -> Result<Self, SocketError> {
        match prefix {
            Some(prefix) => {
                let mut path = prefix.as_os_str().to_owned();
                path.push(format!("-{rank}"));
                let path = PathBuf::from(path);
                remove_stale(&path)?;
                Ok(Self { path, _home: None })
            }
            None => {
                let home = private_directory()?;
                Ok(Self { path: home.path().join(format!("shard-{rank}")), _home: Some(home) })
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ShardSocket {
    fn drop(&mut self) {
        // The shard may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Only this user can enter it. Always below /tmp: a socket's path has about a hundred bytes, and other places for
/// temporary files can be longer.
fn private_directory() -> Result<TempDir, SocketError> {
    const PLACE: &str = "/tmp";
    let mut builder = tempfile::Builder::new();
    builder.prefix("headrace-").permissions(fs::Permissions::from_mode(0o700));
    builder.tempdir_in(PLACE).map_err(|reason| SocketError::Io { path: PLACE.into(), reason })
}

/// Removes a socket that nobody listens on any more: what a process leaves that was killed.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed = |reason| SocketError::Io { path: path.to_owned(), reason };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => Err(SocketError::NotASocket { path: path.to_owned() }),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(SocketError::InUse { path: path.to_owned() }),
            Err(_) => fs::remove_file(path).map_err(failed),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_default_place_is_private_and_goes_with_the_socket() {
        let socket = ShardSocket::new(None, 0).expect("a place");
        let home = socket.path().parent().expect("a directory").to_owned();
        assert_eq!(fs::metadata(&home).expect("it exists").permissions().mode() & 0o777, 0o700);
        let _listener = UnixListener::bind(socket.path()).expect("a free path");
        drop(socket);
        assert!(!home.exists());
    }

    #[test]
    fn a_socket_that_a_killed_process_left_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let prefix = folder.path().join("shard");
        drop(UnixListener::bind(folder.path().join("shard-1")).expect("a free path"));
        let socket = ShardSocket::new(Some(&prefix), 1).expect("the old socket is dead");
        assert_eq!(socket.path(), folder.path().join("shard-1"));
        assert!(!socket.path().exists());
    }

    #[test]
    fn a_socket_that_somebody_listens_on_is_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let _other = UnixListener::bind(folder.path().join("shard-0")).expect("a free path");
        let error = ShardSocket::new(Some(&folder.path().join("shard")), 0).expect_err("it is in use");
        assert!(matches!(error, SocketError::InUse { .. }), "{error}");
        assert!(folder.path().join("shard-0").exists());
    }

    #[test]
    fn a_file_in_its_place_is_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::write(folder.path().join("shard-0"), "precious").expect("a file");
        let error = ShardSocket::new(Some(&folder.path().join("shard")), 0).expect_err("it is a file");
        assert!(matches!(error, SocketError::NotASocket { .. }), "{error}");
        assert!(folder.path().join("shard-0").exists());
    }
}
