//! What a streamed token costs from the fake shard to the socket: memory allocations, counted, and CPU time; and beside
//! them what a tracing span for each token would cost. `cargo bench -p headrace-http --bench streams`.
//!
//! Allocations are those between answers of two lengths, so what a request costs once does not count. The client is a
//! thread that reads into one buffer: it allocates nothing.
#![allow(clippy::unwrap_used, reason = "a benchmark that fails panics")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headrace_http::Limits;
use headrace_shard::CostModel;
use serde_json::json;

#[path = "../tests/http/tokenizer.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod tokenizer;
#[path = "../tests/http/world.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod world;

use world::{Setup, World};

#[global_allocator]
static COUNTING: Counting = Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The system's allocator; growing in place counts as an allocation.
struct Counting;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        unsafe { System.realloc(memory, layout, size) }
    }
}

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

const SHORT: u32 = 200;
const LONG: u32 = 3800;
const MAX_TOTAL: u32 = 4096;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("{:22} {:>8} {:>14} {:>10} {:>12}", "step", "streams", "allocations", "bytes", "CPU µs");
    for (name, step) in [("free", Duration::ZERO), ("1 ms", Duration::from_millis(1))] {
        let server = runtime.block_on(server(step));
        for streams in [1, 64] {
            read_answers(server, streams, LONG); // What grows once has grown.
            let (short, long) = (cost(server, streams, SHORT), cost(server, streams, LONG));
            let tokens = f64::from(streams * (LONG - SHORT));
            println!(
                "{name:22} {streams:>8} {:>14.3} {:>10.1} {:>12.2}",
                (long.allocations - short.allocations) as f64 / tokens,
                (long.bytes - short.bytes) as f64 / tokens,
                long.cpu.saturating_sub(short.cpu).as_secs_f64() * 1e6 / tokens,
            );
        }
    }
    let span = span_cost();
    println!("{:22} {:>8} {:>14.3} {:>10.1} {:>12.2}", "a span of its fields", "", span.0, span.1, span.2);
}

/// What was spent so far, or meanwhile.
struct Cost {
    allocations: u64,
    bytes: u64,
    cpu: Duration,
}

impl Cost {
    fn now() -> Self {
        let (allocations, bytes) = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
        Self { allocations, bytes, cpu: cpu_time() }
    }
}

fn cost(server: SocketAddr, streams: u32, tokens: u32) -> Cost {
    let before = Cost::now();
    read_answers(server, streams, tokens);
    let after = Cost::now();
    Cost {
        allocations: after.allocations - before.allocations,
        bytes: after.bytes - before.bytes,
        cpu: after.cpu - before.cpu,
    }
}

/// The client's CPU time is in it, too: reading large pieces costs little beside writing small ones.
fn read_answers(server: SocketAddr, streams: u32, tokens: u32) {
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": tokens, "ignore_eos_token": true}});
    let body = body.to_string();
    let head = "POST /generate_stream HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\nconnection: close";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut connections: Vec<TcpStream> = (0..streams).map(|_| TcpStream::connect(server).unwrap()).collect();
    connections.iter_mut().for_each(|connection| connection.write_all(request.as_bytes()).unwrap());
    let mut buffer = vec![0; 1 << 16];
    for connection in &mut connections {
        let mut read = 0;
        loop {
            match connection.read(&mut buffer).unwrap() {
                0 => break,
                count => read += count,
            }
        }
        assert!(read > 50 * tokens as usize, "a stream of {read} bytes is no answer of {tokens} tokens");
    }
}

async fn server(step: Duration) -> SocketAddr {
    let limits = Limits { max_input_tokens: 100, max_total_tokens: MAX_TOTAL, ..Limits::default() };
    let cost = CostModel { step, ..CostModel::FREE };
    World::with(Setup { limits, cost, max_batch_size: 64, ..Setup::default() }).await.listen().await
}

/// Allocations, bytes and CPU microseconds of a span with a generated token's fields, formatted, as TGI's router opens
/// one for each token; written to nowhere.
fn span_cost() -> (f64, f64, f64) {
    const SPANS: u32 = 200_000;
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let before = Cost::now();
    for id in 0..SPANS {
        let token = (id, " word", -1.25_f32, false);
        drop(black_box(tracing::info_span!("send_generation", generation = ?token).entered()));
    }
    let after = Cost::now();
    let each = |count: u64| count as f64 / f64::from(SPANS);
    let cpu = (after.cpu - before.cpu).as_secs_f64() * 1e6 / f64::from(SPANS);
    (each(after.allocations - before.allocations), each(after.bytes - before.bytes), cpu)
}

/// User and system time of this process: fields 14 and 15 of /proc/self/stat, in hundredths of a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
