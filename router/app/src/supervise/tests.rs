use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use super::*;
use crate::config::Rope;
use crate::flags::{Device, Dtype, RopeScaling};

/// A shell script as a pretend shard.
fn shell(script: &str) -> ShardProcess {
    ShardProcess::spawn(0, Path::new("/bin/sh"), vec!["-c".into(), script.into()]).expect("a shell")
}

/// A named pipe that a script writes to when it has something to say.
struct Mailbox {
    _folder: tempfile::TempDir,
    path: PathBuf,
    lines: tokio::io::Lines<BufReader<pipe::Receiver>>,
}

impl Mailbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("mail");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
        // Also opened for writing, so that it does not end before a script has opened it.
        let receiver = pipe::OpenOptions::new().read_write(true).open_receiver(&path).expect("the pipe's end");
        Self { _folder: folder, path, lines: BufReader::new(receiver).lines() }
    }

    async fn next(&mut self) -> String {
        self.lines.next_line().await.expect("the pipe is open").expect("a line")
    }

    async fn next_pid(&mut self) -> Pid {
        Pid::from_raw(self.next().await.parse().expect("a process id"))
    }
}

/// Whether the process is gone, or dead and only waits for its parent to ask.
fn is_gone(pid: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    kill(pid, None) == Err(Errno::ESRCH) || state.is_ok_and(|stat| stat.contains(") Z "))
}

async fn wait_until_gone(pid: Pid) {
    let gone = async {
        while !is_gone(pid) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), gone).await.expect("the process is gone within five seconds");
}

#[tokio::test]
async fn a_death_with_an_error_line_is_that_line_and_the_rank() {
    let mut shard = shell("echo loading >&2; echo 'error: no such architecture' >&2; exit 3");
    let death = shard.death().await;
    assert_eq!(death.cause, Cause::Exit(3));
    assert_eq!(death.last_lines, ["loading", "error: no such architecture"]);
    assert_eq!(death.to_string(), "rank 0: no such architecture");
}

#[tokio::test]
async fn a_death_without_an_error_line_names_the_rank_the_code_and_the_last_words() {
    let death = shell("echo loading >&2; exit 3").death().await;
    assert_eq!(death.to_string(), format!("rank 0 (pid {}) died: exit code 3; its last words: loading", death.pid));
}

#[tokio::test]
async fn a_shard_that_somebody_else_ends_is_said_to_be() {
    let death = shell("echo ending >&2; exit 0").death().await;
    let sentence = format!("rank 0 (pid {}) was told to end by somebody (SIGTERM or SIGINT)", death.pid);
    assert_eq!(death.to_string(), sentence);
}

#[tokio::test]
async fn a_death_by_signal_names_the_signal() {
    let mut shard = shell("kill -KILL $$");
    let death = shard.death().await;
    assert_eq!(death.cause, Cause::Signal(9));
    assert!(death.to_string().contains("died: killed by signal 9"), "{death}");
}

#[tokio::test]
async fn asking_for_the_death_twice_gives_the_same_answer() {
    let mut shard = shell("exit 4");
    assert_eq!(shard.death().await, shard.death().await);
}

#[tokio::test]
async fn a_shard_that_ignores_sigterm_is_killed() {
    let mut mail = Mailbox::new();
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 60; done", mail.path.display());
    let mut shard = shell(&script);
    let pid = mail.next_pid().await;
    shard.process.stop(Signal::SIGTERM, Duration::from_millis(50)).await;
    assert_eq!(shard.death().await.cause, Cause::Signal(9));
    wait_until_gone(pid).await;
}

#[tokio::test]
async fn a_shard_that_heeds_sigterm_ends_by_itself() {
    let mut mail = Mailbox::new();
    let script = format!("trap 'exit 0' TERM; echo $$ > {}; sleep 60 & wait", mail.path.display());
    let mut shard = shell(&script);
    mail.next().await;
    shard.stop().await;
    assert_eq!(shard.death().await.cause, Cause::Exit(0));
}

#[tokio::test]
async fn what_a_dead_shard_started_dies_with_it() {
    let mut mail = Mailbox::new();
    let script = format!("sleep 60 & echo $! > {}; exit 1", mail.path.display());
    let mut shard = shell(&script);
    let grandchild = mail.next_pid().await;
    shard.death().await;
    wait_until_gone(grandchild).await;
}

#[tokio::test]
async fn a_dropped_shard_leaves_no_process() {
    let mut mail = Mailbox::new();
    let shard = shell(&format!("sleep 60 & echo $! > {}; wait", mail.path.display()));
    let grandchild = mail.next_pid().await;
    let leader = Pid::from_raw(shard.process.pid());
    drop(shard);
    wait_until_gone(leader).await;
    wait_until_gone(grandchild).await;
}

#[tokio::test]
async fn a_shard_leads_its_own_process_group() {
    let mut mail = Mailbox::new();
    let script = format!("ps -o pgid= -p $$ | tr -d ' ' > {}; sleep 60", mail.path.display());
    let shard = shell(&script);
    assert_eq!(mail.next_pid().await.as_raw(), shard.process.pid());
}

#[test]
fn a_program_that_is_missing_is_an_error_and_no_death() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    assert!(ShardProcess::spawn(0, Path::new("/no/such/python"), Vec::new()).is_err());
}

#[test]
fn the_shard_is_told_what_was_configured_and_nothing_else() {
    let mut config = ShardConfig {
        ranks: 1,
        master_addr: "127.0.0.1".to_owned(),
        master_port: None,
        memory_fraction: 1.0,
        cuda_graphs: None,
        device: Device::Auto,
        num_threads: 2,
        uds_prefix: None,
    };
    let mut compute = ComputeConfig {
        python: None,
        dtype: Dtype::Auto,
        quantize: None,
        kv_cache_dtype: None,
        attention_backend: AttentionBackend::Auto,
        batch_invariant: false,
        block_size: None,
        kernel_cache: None,
        rope: None,
    };
    let words = |config: &ShardConfig, compute: &ComputeConfig| {
        let place = Place { rank: 0, socket: Path::new("/s-0"), port: (config.ranks > 1).then_some(7000) };
        let args = shard_arguments(config, compute, Path::new("/m"), place);
        args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    };
    let start = "-m headrace_server serve --model-dir /m --uds-path /s-0 --rank 0 --world-size 1 --device auto \
                 --num-threads 2 --parent-pid ";
    assert!(words(&config, &compute).starts_with(start), "{}", words(&config, &compute));
    assert!(!words(&config, &compute).contains("--dtype"));
    assert!(!words(&config, &compute).contains("--quantize"));
    assert!(!words(&config, &compute).contains("--attention-backend"));
    assert!(!words(&config, &compute).contains("--kv-cache-dtype"));
    assert!(!words(&config, &compute).contains("--batch-invariant"));
    assert!(
        words(&config, &compute).contains(" --uds-owner launcher "),
        "the directory is ours: {}",
        words(&config, &compute)
    );
    compute.dtype = Dtype::Bfloat16;
    compute.attention_backend = AttentionBackend::FlashInfer;
    compute.quantize = Some("int8");
    compute.kv_cache_dtype = Some("int8");
    compute.batch_invariant = true;
    compute.block_size = Some(headrace_scheduler::Tokens(16));
    config.uds_prefix = Some("/s".into());
    config.memory_fraction = 0.5;
    config.cuda_graphs = Some(vec![1, 8]);
    compute.rope = Some(Rope { scaling: RopeScaling::Dynamic, factor: 2.0 });
    let end = "--uds-owner user --cuda-memory-fraction 0.5 --cuda-graphs 1,8 --dtype bfloat16 --quantize int8 \
               --kv-cache-dtype int8 --rope-scaling dynamic --rope-factor 2 --attention-backend flashinfer --block-size 16 \
               --batch-invariant --json-output";
    assert!(words(&config, &compute).ends_with(end), "{}", words(&config, &compute));
    config.ranks = 4;
    let meeting = "--world-size 4 --master-addr 127.0.0.1 --master-port 7000 --device auto --num-threads 1 ";
    assert!(words(&config, &compute).contains(meeting), "{}", words(&config, &compute));
}
