//! `headrace warm`: compile a model's GPU kernels before its server starts, for a GPU that need not be here.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Command;

use crate::config::WarmConfig;
use crate::failure::Failure;
use crate::group::GroupChild;
use crate::prepare::{Preparation, PrepareError};
use crate::python::Python;
use crate::signals::Signals;
use crate::supervise::compute_arguments;

/// From SIGTERM to SIGKILL. Kernels that are compiled already are kept.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Runs the command. Ends well when a signal asked for the end.
pub async fn run(config: WarmConfig, signals: &mut Signals) -> Result<(), Failure> {
    let binary = std::env::current_exe().map_err(Failure::Runtime)?;
    let python = Python::find(config.compute.python.as_deref(), &binary);
    let mut preparation = Preparation::start(&python, &config.model)?;
    let prepared = tokio::select! {
        prepared = preparation.finish() => match prepared {
            Err(PrepareError::Said) if python.lacks_the_package().await => {
                return Err(PrepareError::NoPackage { program: python.program().display().to_string() }.into());
            }
            prepared => prepared?,
        },
        _ = signals.next() => {
            preparation.stop().await;
            return Ok(());
        }
    };
    let mut command = Command::new(python.program());
    command.args(arguments(&config, &prepared.model_dir)).stdin(Stdio::null());
    let mut child = GroupChild::spawn(&mut command, Signal::SIGTERM).map_err(|reason| Failure::Spawn {
        rank: 0,
        program: python.program().display().to_string(),
        reason,
    })?;
    tokio::select! {
        status = child.wait() => {
            if status.map_err(Failure::Runtime)?.success() { Ok(()) } else { Err(Failure::Warm) }
        }
        _ = signals.next() => {
            child.stop(Signal::SIGTERM, STOP_GRACE).await;
            Ok(())
        }
    }
}

/// `python -m headrace_server warm …`.
fn arguments(config: &WarmConfig, model_dir: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = ["-m", "headrace_server", "warm", "--model-dir"].map(Into::into).into();
    args.push(model_dir.into());
    args.extend(["--target".into(), config.targets.join(",").into()]);
    args.extend(["--num-shard".into(), config.ranks.to_string().into()]);
    args.extend(compute_arguments(&config.compute));
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, check};
    use crate::flags::{Task, read};

    #[test]
    fn flags_that_only_a_server_needs_are_refused() {
        for flag in ["--device", "--num-threads", "--cuda-memory-fraction", "--cuda-graphs", "--master-port"] {
            let error = read(["headrace", "warm", flag, "1"].map(Into::into)).expect_err(flag);
            assert!(error.to_string().contains(&format!("unknown flag {flag}")), "{error}");
        }
    }

    #[test]
    fn the_package_is_told_the_chips_and_what_kernels_depend_on() {
        let words = "headrace warm --target sm_80,sm_90 --dtype bfloat16 --num-shard 2 --cache-dir /c";
        let Ok(Task::Run(flags)) = read(words.split(' ').map(Into::into)) else { panic!("a command") };
        let Ok(Config::Warm(config)) = check(flags) else { panic!("a configuration") };
        let args = arguments(&config, Path::new("/m"));
        let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        let start = "-m headrace_server warm --model-dir /m --target sm_80,sm_90 --num-shard 2 --dtype bfloat16";
        assert_eq!(words.join(" "), format!("{start} --kernel-cache /c/kernels"));
    }
}
