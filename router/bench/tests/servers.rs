//! Whole runs against small servers that say what a test wants, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headrace_bench::{
    Api, Arrivals, Asks, Bench, Counts, Gaps, Limits, Load, Progress, Report, Shape, Target, Words, Workload, run,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

/// How a server answers request number n (from 0) of a connection: bytes, and whether it closes after them.
type Script = fn(u32) -> (String, bool);

/// A server that answers by a script.
struct Server {
    url: String,
    connections: Arc<AtomicU32>,
}

impl Server {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicU32::new(0));
        let accepted = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, script));
            }
        });
        Self { url, connections }
    }

    async fn bench(&self, api: Api, arrivals: Arrivals, requests: u64) -> Report {
        run(&bench(&self.url, api, arrivals, requests), Arc::default()).await.unwrap()
    }
}

/// Prompts of three words, answers of two tokens.
fn bench(url: &str, api: Api, arrivals: Arrivals, requests: u64) -> Bench {
    let timeout = Duration::from_millis(500);
    Bench {
        target: Target::new(url, api, "m".into(), Some("secret")).unwrap(),
        workload: Workload {
            name: "test".into(),
            asks: Asks::Shaped(Shape::Fixed { prompt: 3, output: 2 }),
            words: Words::common(),
            seed: 1,
        },
        load: Load { arrivals, requests, duration: None, warmup: 0, timeout },
        limits: Limits::default(),
        first: 0,
        parse_events: false,
        server: None,
    }
}

async fn serve(mut stream: TcpStream, script: Script) {
    for number in 0.. {
        if read_request(&mut stream).await.is_none() {
            return;
        }
        let (answer, closes) = script(number);
        stream.write_all(answer.as_bytes()).await.unwrap();
        if closes {
            return;
        }
    }
}

/// Reads a request to its end, for its body; `None` when there is none.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut piece = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            assert!(head.starts_with("post /") && head.contains("authorization: bearer secret"), "{head}");
            let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().unwrap_or(0);
            if body.len() >= length {
                return Some(body.to_owned());
            }
        }
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => text.push_str(std::str::from_utf8(&piece[..count]).unwrap()),
        }
    }
}

/// A response in chunks, which end where the pieces do.
fn chunked(pieces: &[&str]) -> String {
    let chunks: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

fn two_tokens() -> String {
    chunked(&[
        "data: {\"index\":1,\"token\":{\"id\":1,\"text\":\"a\"}}\n\nda",
        "ta: {\"index\":2,\"token\":{\"id\":1,\"text\":\"a\"},\"details\":{\"generated_tokens\":2}}\n\n",
    ])
}

#[tokio::test]
async fn a_stream_asks_again_on_its_own_connection() {
    let server = Server::start(|_| (two_tokens(), false)).await;
    let report = server.bench(Api::Tgi, Arrivals::Streams(3), 30).await;
    assert_eq!((report.whole, report.failed, report.short, report.output_tokens), (30, 0, 0, 60));
    assert_eq!(server.connections.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_gets_new_connections() {
    let server = Server::start(|_| (two_tokens(), true)).await;
    let report = server.bench(Api::Tgi, Arrivals::Rate { per_second: 2000.0, gaps: Gaps::Poisson }, 20).await;
    assert_eq!((report.whole, report.failed), (20, 0), "{:?}", report.failures);
    assert_eq!(server.connections.load(Ordering::Relaxed), 20);
}

#[tokio::test]
async fn a_request_that_meets_a_connection_already_given_up_is_sent_on_a_new_one() {
    // As llama.cpp's server: each connection takes one request, and nothing says so before the next one is sent.
    let server = Server::start(|number| if number == 0 { (two_tokens(), false) } else { (String::new(), true) }).await;
    let report = server.bench(Api::Tgi, Arrivals::Streams(1), 5).await;
    assert_eq!((report.whole, report.failed), (5, 0), "{:?}", report.failures);
    assert_eq!(server.connections.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn refusals_are_counted_by_status_and_sentence() {
    let refuse = |number| {
        let body = r#"{"error":{"message":"too busy","type":"overloaded"}}"#;
        let refusal = format!("HTTP/1.1 429 Too Many Requests\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        (if number % 2 == 1 { refusal } else { two_tokens() }, false)
    };
    let report = Server::start(refuse).await.bench(Api::Tgi, Arrivals::Streams(1), 10).await;
    assert_eq!((report.whole, report.failed), (5, 5));
    assert_eq!((report.failures["status 429: too busy"], report.failure_kinds["status 429"]), (5, 5));
    assert_eq!(report.first_failure.as_deref(), Some("status 429: too busy"));
}

#[tokio::test]
async fn an_answer_with_fewer_tokens_than_asked_is_short() {
    let one = |_| {
        let event = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n";
        let usage =
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
        (chunked(&[event, usage]), false)
    };
    let report = Server::start(one).await.bench(Api::Completions, Arrivals::Streams(1), 4).await;
    assert_eq!((report.whole, report.short, report.output_tokens, report.prompt_tokens), (4, 4, 4, 12));
}

#[tokio::test]
async fn a_connection_that_is_cut_and_one_that_says_nothing_are_failures() {
    let cut = |number| {
        let whole = two_tokens();
        let part = whole[..whole.len() - 20].to_owned();
        if number == 0 { (part, true) } else { (String::new(), false) }
    };
    let server = Server::start(cut).await;
    let report = server.bench(Api::Tgi, Arrivals::Streams(1), 1).await;
    assert!(report.failures.keys().all(|cause| cause.starts_with("the connection broke")), "{:?}", report.failures);
    let silent = Server::start(|_| (String::new(), false)).await;
    let report = silent.bench(Api::Tgi, Arrivals::Streams(1), 1).await;
    assert_eq!(report.failures["no whole answer within 0.5 s"], 1, "{:?}", report.failures);
}

#[tokio::test]
async fn with_as_many_streams_as_requests_all_are_sent_at_once() {
    const ALL: usize = 8;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let all_are_there = Arc::new(Barrier::new(ALL));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all_are_there = all_are_there.clone();
            tokio::spawn(async move {
                read_request(&mut stream).await;
                all_are_there.wait().await;
                stream.write_all(two_tokens().as_bytes()).await.unwrap();
            });
        }
    });
    let bench = bench(&url, Api::Tgi, Arrivals::Streams(50), ALL as u64);
    let progress = Arc::new(Progress::default());
    let report = run(&bench, progress.clone()).await.unwrap();
    assert_eq!((report.whole, report.failed), (ALL as u64, 0), "{:?}", report.failures);
    assert_eq!(progress.counts(), Counts { started: 8, whole: 8, failed: 0, events: 16 });
}

#[tokio::test]
async fn good_answers_are_those_within_the_limits_and_failed_ones_are_not() {
    let every_other = |number| {
        let refusal = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned();
        (if number % 2 == 1 { refusal } else { two_tokens() }, false)
    };
    let server = Server::start(every_other).await;
    let mut bench = bench(&server.url, Api::Tgi, Arrivals::Streams(1), 10);
    let mut good = async |limits| {
        bench.limits = limits;
        let goodput = run(&bench, Arc::default()).await.unwrap().goodput.unwrap();
        (goodput.requests, goodput.share)
    };
    let (none, loose) = (Limits::default(), Some(10_000.0));
    assert_eq!(good(Limits { ttft_ms: loose, itl_ms: loose }).await, (5, 0.5));
    assert_eq!(good(Limits { ttft_ms: Some(1e-3), ..none }).await, (0, 0.0));
}

#[tokio::test]
async fn requests_of_a_file_with_times_are_sent_once_each_and_not_before_their_time() {
    let server = Server::start(|_| (two_tokens(), false)).await;
    let times = [0, 0, 30].map(Duration::from_millis);
    let report = server.bench(Api::Tgi, Arrivals::At(times.into()), 100).await;
    assert_eq!((report.whole, report.failed), (3, 0));
    assert!(report.seconds >= 0.03 && report.late_ms.is_some());
}

#[tokio::test]
async fn what_went_on_when_adds_up_to_the_tokens() {
    let server = Server::start(|_| (two_tokens(), false)).await;
    let report = server.bench(Api::Tgi, Arrivals::Streams(2), 20).await;
    let curves = &report.curves;
    let tokens: f64 = curves.timeline.iter().map(|moment| moment.tokens_per_s * 2.0 * curves.timeline[0].at_s).sum();
    assert!((tokens - 40.0).abs() < 1e-6, "{tokens}");
    for distribution in [&curves.ttft, &curves.itl, &curves.e2e] {
        assert_eq!(distribution.last().map(|point| point.1), Some(1.0));
    }
}

#[tokio::test]
async fn runs_ask_the_same_again_unless_their_first_numbers_differ() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = bodies.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Some(body) = read_request(&mut stream).await {
                seen.lock().unwrap().push(body);
                stream.write_all(two_tokens().as_bytes()).await.unwrap();
            }
        }
    });
    let asked = async |first| {
        let bench = Bench { first, ..bench(&url, Api::Tgi, Arrivals::Streams(1), 3) };
        assert_eq!(run(&bench, Arc::default()).await.unwrap().whole, 3);
        std::mem::take(&mut *bodies.lock().unwrap())
    };
    let (one, again, other) = (asked(0).await, asked(0).await, asked(1 << 32).await);
    assert_eq!((one.len(), &one), (3, &again));
    assert!(other.iter().all(|body| !one.contains(body)), "{one:?} {other:?}");
}
