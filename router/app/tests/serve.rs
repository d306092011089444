//! `headrace serve` with a shell script in the place of Python: every way a start can end, and what is left then.

mod harness;

use std::fs;
use std::path::{Path, PathBuf};

use harness::{Headrace, get, post, pretend_python, tiny_model, wait_until, wait_until_gone};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;

/// A directory with a model and a pretend Python.
struct World {
    dir: TempDir,
    python: String,
}

impl World {
    /// `serve` is what the script does as a shard.
    fn with_shard(serve: &str) -> Self {
        let dir = tiny_model();
        let answer = format!(r#"{{"model_dir": "{}", "model_id": "tiny", "revision": null}}"#, dir.path().display());
        Self::with(dir, &format!("echo '{answer}'"), serve)
    }

    fn with_preparation(prepare: &str) -> Self {
        Self::with(tiny_model(), prepare, "exit 99")
    }

    fn with(dir: TempDir, prepare: &str, serve: &str) -> Self {
        let script = format!("cd {}\ncase $3 in prepare) {prepare};; serve) {serve};; esac", dir.path().display());
        let python = pretend_python(dir.path(), &script);
        Self { dir, python }
    }

    fn serve(&self) -> Headrace {
        Headrace::start(&["serve", "--hostname", "127.0.0.1", "--port", "0", "--python", &self.python])
    }

    /// Waits for a process id that the script wrote, whole line and all.
    fn pid(&self, file: &str) -> Pid {
        let path = self.dir.path().join(file);
        let mut pid = None;
        wait_until("a process id", || {
            pid = fs::read_to_string(&path).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok());
            pid.is_some()
        });
        Pid::from_raw(pid.expect("it is there"))
    }
}

#[test]
fn a_model_that_cannot_be_prepared_is_the_childs_own_line_and_nothing_more() {
    let world = World::with_preparation("echo 'error: no such model' >&2; exit 1");
    let ended = world.serve().wait();
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.error(), "error: no such model");
}

#[test]
fn a_preparation_that_says_nothing_usable_is_one_line() {
    let ended = World::with_preparation("echo fine").serve().wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains("same version"), "{}", ended.stderr);
}

#[test]
fn a_shard_that_cannot_load_is_its_own_line_with_its_rank() {
    let ended = World::with_shard("echo starting >&2; echo 'error: unknown architecture' >&2; exit 1").serve().wait();
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.error(), "error: rank 0: unknown architecture");
    assert!(ended.stderr.contains("[rank 0] starting"), "{}", ended.stderr);
}

#[test]
fn a_shard_that_somebody_else_ends_is_one_line_that_says_so() {
    let ended = World::with_shard("echo ending >&2; exit 0").serve().wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.error_line().ends_with("was told to end by somebody (SIGTERM or SIGINT)"), "{}", ended.stderr);
}

#[test]
fn an_interpreter_without_the_package_is_one_line_that_names_it() {
    let dir = tiny_model();
    let python = pretend_python(dir.path(), "case $1 in -c) exit 44;; esac; echo No module >&2; exit 1");
    let ended = Headrace::start(&["serve", "--hostname", "127.0.0.1", "--port", "0", "--python", &python]).wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().starts_with(&format!("error: {python} has no package headrace_server")), "{}", ended.stderr);
}

#[test]
fn more_tokens_than_config_json_has_positions_is_refused_before_a_shard_is_started() {
    let world = World::with_shard("touch started; sleep 300");
    let flags = ["serve", "--hostname", "127.0.0.1", "--port", "0", "--python", &world.python];
    let ended = Headrace::start(&[&flags[..], &["--max-total-tokens", "4097"]].concat()).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("4097") && ended.error().contains("4096"), "{}", ended.stderr);
    assert!(!world.dir.path().join("started").exists());
}

#[test]
fn a_shard_that_is_killed_is_named_with_the_signal() {
    let ended = World::with_shard("kill -KILL $$").serve().wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains("killed by signal 9"), "{}", ended.stderr);
}

#[test]
fn the_shards_json_lines_keep_their_level() {
    let line = r#"{"level": "WARNING", "message": "the disk is slow"}"#;
    let ended = World::with_shard(&format!("echo '{line}' >&2; exit 1")).serve().wait();
    let logged = ended.stderr.lines().find(|line| line.contains("WARN")).expect("a warning");
    assert!(logged.ends_with("[rank 0] the disk is slow"), "{logged}");
}

/// The shard and what it started, while the shard seems to load.
fn loading() -> (World, Headrace, [Pid; 2]) {
    let world = World::with_shard("sleep 300 & echo $! > helper; echo $$ > shard; wait");
    let server = world.serve();
    let pids = [world.pid("shard"), world.pid("helper")];
    (world, server, pids)
}

#[test]
fn while_the_model_loads_the_server_is_alive_and_says_that_it_is_not_ready() {
    let (_world, server, _pids) = loading();
    let mut address = None;
    wait_until("the address", || {
        let log = server.log();
        let listening = log.split("listening on http://").nth(1).and_then(|rest| rest.split(';').next());
        address = listening.map(str::to_owned);
        address.is_some()
    });
    let address = address.expect("it is there");
    assert_eq!(get(&address, "/livez").0, 200);
    for path in ["/readyz", "/health"] {
        let (status, body) = get(&address, path);
        assert!(status == 503 && body.contains("starting the shard"), "{path}: {status} {body}");
    }
    let (status, body) = post(&address, "/generate", r#"{"inputs": "once"}"#);
    assert!(status == 503 && body.contains(r#""error_type":"loading""#), "{status} {body}");
}

#[test]
fn sigterm_during_the_start_ends_well_and_leaves_no_process_and_no_socket() {
    let (world, server, pids) = loading();
    let socket = socket_argument(pids[0]);
    server.signal(Signal::SIGTERM);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    pids.into_iter().for_each(wait_until_gone);
    assert!(!socket.parent().expect("a directory").exists());
    drop(world);
}

#[test]
fn ctrl_c_reaches_the_launcher_alone() {
    let (_world, server, pids @ [shard, _]) = loading();
    let group = |pid| nix::unistd::getpgid(Some(pid)).expect("it runs");
    assert_ne!(group(shard), group(server.pid()));
    assert_eq!(group(shard), shard);
    server.signal(Signal::SIGTERM);
    server.wait();
    pids.into_iter().for_each(wait_until_gone);
}

#[cfg(target_os = "linux")]
#[test]
fn sigkill_of_the_launcher_takes_the_shard_along() {
    let (_world, server, [shard, helper]) = loading();
    let socket = socket_argument(shard);
    server.signal(Signal::SIGKILL);
    assert_eq!(server.wait().code, None);
    wait_until_gone(shard);
    // What a shard starts is its own to end, and nobody was left to remove the socket's directory.
    nix::sys::signal::kill(helper, Signal::SIGKILL).expect("it runs");
    fs::remove_dir_all(socket.parent().expect("a directory")).expect("ours");
}

#[test]
fn sigterm_during_the_preparation_ends_well_and_leaves_no_process() {
    let world = World::with_preparation("sleep 300 & echo $! > helper; echo $$ > child; wait");
    let server = world.serve();
    let pids = [world.pid("child"), world.pid("helper")];
    server.signal(Signal::SIGTERM);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    pids.into_iter().for_each(wait_until_gone);
}

#[test]
fn a_model_that_is_not_there_is_one_line_and_exit_code_2() {
    let world = World::with_shard("exit 99");
    let flags = ["serve", "--python", &world.python, "--model-id", "/no/such/model"];
    let ended = Headrace::start(&flags).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("/no/such/model"), "{}", ended.stderr);
}

/// The socket's path among the arguments of a shard's process.
fn socket_argument(shard: Pid) -> PathBuf {
    let words = fs::read_to_string(format!("/proc/{shard}/cmdline")).expect("it runs");
    let mut words = words.split('\0').skip_while(|word| *word != "--uds-path");
    Path::new(words.nth(1).expect("a socket")).to_owned()
}
