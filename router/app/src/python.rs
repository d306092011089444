//! Which Python interpreter runs the shard.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// Looks for the package without importing it, and ends with [`MISSING`] where there is none.
const LOOK: &str = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('headrace_server') else 44)";
const MISSING: i32 = 44;

/// The interpreter to start, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Python {
    /// The user named it.
    Given(PathBuf),
    /// An installed package: the interpreter of the environment that holds the binary.
    BesideBinary(PathBuf),
    /// A checkout: `target/release/headrace` has its environment in `.venv`.
    Checkout(PathBuf),
    /// Nothing better was found: whatever `python3` is on PATH.
    OnPath,
}

impl Python {
    /// Looks for the interpreter; `binary` is this program's own path with links resolved.
    pub fn find(given: Option<&Path>, binary: &Path) -> Self {
        if let Some(path) = given {
            return Self::Given(path.to_owned());
        }
        let Some(folder) = binary.parent() else { return Self::OnPath };
        let beside = folder.join("python");
        // Never resolved further: a virtual environment is recognised by the path its interpreter is called by.
        let checkout = folder.parent().and_then(Path::parent).map(|root| root.join(".venv/bin/python"));
        match checkout {
            _ if beside.exists() => Self::BesideBinary(beside),
            Some(path) if path.exists() => Self::Checkout(path),
            _ => Self::OnPath,
        }
    }

    /// What to execute.
    pub fn program(&self) -> &Path {
        match self {
            Self::Given(path) | Self::BesideBinary(path) | Self::Checkout(path) => path,
            Self::OnPath => Path::new("python3"),
        }
    }

    /// Whether the interpreter works and does not have the shard's package. Asked when something has failed already: it
    /// takes as long as an interpreter's start.
    pub async fn lacks_the_package(&self) -> bool {
        let mut command = Command::new(self.program());
        command.args(["-c", LOOK]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.kill_on_drop(true).status().await.is_ok_and(|status| status.code() == Some(MISSING))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory with empty files at the given places.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
            fs::write(path, "").expect("a file");
        }
        root
    }

    #[test]
    fn the_given_interpreter_wins() {
        let root = tree(&["bin/headrace", "bin/python"]);
        let found = Python::find(Some(Path::new("/my/python")), &root.path().join("bin/headrace"));
        assert_eq!(found, Python::Given("/my/python".into()));
    }

    #[test]
    fn an_installed_package_uses_the_interpreter_beside_the_binary() {
        let root = tree(&["checkout/.venv/bin/python", "checkout/clients/bin/python", "checkout/clients/bin/headrace"]);
        let bin = root.path().join("checkout/clients/bin");
        assert_eq!(Python::find(None, &bin.join("headrace")), Python::BesideBinary(bin.join("python")));
    }

    #[test]
    fn a_checkout_uses_its_own_environment() {
        let root = tree(&[".venv/bin/python", "target/release/headrace"]);
        let found = Python::find(None, &root.path().join("target/release/headrace"));
        assert_eq!(found, Python::Checkout(root.path().join(".venv/bin/python")));
    }

    #[test]
    fn without_either_it_is_python3_on_path() {
        let root = tree(&["a/b/headrace"]);
        let found = Python::find(None, &root.path().join("a/b/headrace"));
        assert_eq!((found.program(), found.clone()), (Path::new("python3"), Python::OnPath));
    }
}
