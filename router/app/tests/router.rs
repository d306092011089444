//! `headrace router --fake-shard` as a user runs it: a real process on a free port.

mod harness;

use harness::{Headrace, answer, first_event, get, post, post_with, rest, send, text, tiny_model, wait_until};
use nix::sys::signal::Signal;

const ENDLESS: &str = r#"{"inputs": "once upon", "parameters": {"max_new_tokens": 4000, "ignore_eos_token": true}}"#;
const SHORT: &str = r#"{"inputs": "once upon", "parameters": {"max_new_tokens": 5, "ignore_eos_token": true}}"#;

/// On a free port, with the given flags added.
fn router(model: &tempfile::TempDir, more: &[&str]) -> Headrace {
    let flags = ["router", "--fake-shard", "--hostname", "127.0.0.1", "--port", "0", "--model-id", text(model.path())];
    Headrace::start(&[&flags, more].concat())
}

/// A router whose request of `tokens` tokens is under way: its first token is there.
fn busy_router(
    model: &tempfile::TempDir,
    more: &[&str],
    body: &str,
) -> (Headrace, String, std::io::BufReader<std::net::TcpStream>) {
    let mut router = self::router(model, &[&["--fake-step-us", "10000"], more].concat());
    let address = router.address();
    let mut stream = send(&address, "/generate_stream", body);
    first_event(&mut stream);
    (router, address, stream)
}

#[test]
fn it_says_that_it_is_ready_answers_and_ends_well_on_sigterm() {
    let model = tiny_model();
    let mut router = router(&model, &[]);
    let address = router.address();
    assert!(router.line().starts_with(&format!("curl http://{address}/generate ")));
    let (status, body) = post(&address, "/generate", SHORT);
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("generated_text"), "{body}");
    router.signal(Signal::SIGTERM);
    let ended = router.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn the_log_says_where_the_time_of_the_start_went() {
    let model = tiny_model();
    let mut router = router(&model, &[]);
    router.address();
    let log = router.log();
    let breakdown = log.lines().find(|line| line.contains("start-up took")).expect("a line");
    assert!(breakdown.contains("warm-up") && breakdown.contains("tokenizer"), "{breakdown}");
}

#[test]
fn with_json_output_every_log_line_is_an_object() {
    let model = tiny_model();
    let mut router = router(&model, &["--json-output", "--api-key", "s3cret"]);
    let ready = [router.line(), router.line()];
    assert!(ready[0].contains("Headrace serves ") && ready[1].contains("Bearer <your key>"), "{ready:?}");
    let log = router.log();
    assert!(log.lines().count() >= 2 && !ready[1].contains("s3cret"), "{log}");
    for line in log.lines().chain(ready.iter().map(String::as_str)) {
        let fields: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(fields["level"].is_string() && fields["message"].is_string(), "{line}");
    }
}

#[test]
fn a_drain_finishes_what_runs_and_refuses_what_is_new() {
    let model = tiny_model();
    let body = r#"{"inputs": "once upon", "parameters": {"max_new_tokens": 60, "ignore_eos_token": true}}"#;
    let (router, address, stream) = busy_router(&model, &[], body);
    router.signal(Signal::SIGINT);
    wait_until("a refusal", || post(&address, "/generate", SHORT).0 == 503);
    for path in ["/health", "/ping", "/"] {
        let (status, body) = get(&address, path);
        assert!(status == 503 && body.contains("healthcheck"), "{path}: {status} {body}");
    }
    let rest = rest(stream);
    assert!(rest.contains("generated_text\":\""), "the last event is there: {rest}");
    let ended = router.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_drain_takes_no_longer_than_the_graceful_termination_timeout() {
    let model = tiny_model();
    let (router, address, stream) = busy_router(&model, &["--graceful-termination-timeout", "1"], ENDLESS);
    let whole = send(&address, "/generate", ENDLESS);
    wait_until("both requests", || metric(&address, "headrace_running_requests") == 2.0);
    router.signal(Signal::SIGTERM);
    let ended = router.wait();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("error: 2 requests were cut off"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--graceful-termination-timeout"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("died"), "{}", ended.stderr);
    // Whoever was cut off is told so.
    let (status, body) = answer(whole);
    assert_eq!(status, 503);
    for said in [body, rest(stream)] {
        assert!(said.contains("The server shut down before the answer was finished"), "{said}");
        assert!(said.contains(r#""error_type":"shutting_down""#), "{said}");
    }
}

/// The value of a gauge or counter.
fn metric(address: &str, name: &str) -> f64 {
    let (_, text) = get(address, "/metrics");
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or("- 0");
    line.split(' ').nth(1).and_then(|value| value.parse().ok()).expect("a number")
}

#[test]
fn a_second_signal_cuts_off_what_runs_and_says_so() {
    let model = tiny_model();
    for (second, name) in [(Signal::SIGTERM, "SIGTERM"), (Signal::SIGINT, "SIGINT")] {
        let (router, address, stream) = busy_router(&model, &[], ENDLESS);
        router.signal(Signal::SIGTERM);
        wait_until("the drain", || post(&address, "/generate", SHORT).0 == 503);
        router.signal(second);
        let ended = router.wait();
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let why = format!("cut off: a second signal, {name}, came while they ran");
        assert!(ended.error_line().contains(&why), "{}", ended.stderr);
        assert!(rest(stream).contains("shut down before the answer was finished"));
    }
}

#[test]
fn a_busy_port_is_one_line_before_anything_starts() {
    let model = tiny_model();
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = other.local_addr().expect("an address").port().to_string();
    let flags =
        ["router", "--fake-shard", "--hostname", "127.0.0.1", "--model-id", text(model.path()), "--port", &port];
    let ended = Headrace::start(&flags).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains(&format!("port {port} of 127.0.0.1 is in use")), "{}", ended.stderr);
}

#[test]
fn metrics_are_at_a_port_of_their_own_too_and_nothing_else_is() {
    let model = tiny_model();
    let mut router = router(&model, &[]);
    router.address();
    let log = router.log();
    let metrics = log.split("metrics are also at http://").nth(1).and_then(|rest| rest.split('/').next());
    let metrics = metrics.unwrap_or_else(|| panic!("no address of metrics in {log}"));
    let (status, body) = get(metrics, "/metrics");
    assert!(status == 200 && body.contains("# TYPE tgi_queue_size gauge"), "{status} {body}");
    assert_eq!(get(metrics, "/health").0, 404);
}

#[test]
fn a_busy_port_for_metrics_is_one_warning_and_no_obstacle() {
    let model = tiny_model();
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = other.local_addr().expect("an address").port().to_string();
    let mut router = router(&model, &["--prometheus-port", &port]);
    let address = router.address();
    assert_eq!(get(&address, "/metrics").0, 200);
    let log = router.log();
    let about: Vec<&str> = log.lines().filter(|line| line.contains(&format!("port {port} of 127.0.0.1"))).collect();
    assert!(matches!(about[..], [line] if line.contains("WARN") && line.contains("--prometheus-port")), "{log}");
}

#[test]
fn a_contradiction_of_flags_is_one_line_and_exit_code_2() {
    let model = tiny_model();
    let ended = router(&model, &["--max-input-tokens", "9", "--max-total-tokens", "8"]).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("--max-input-tokens 9"), "{}", ended.stderr);
}

#[test]
fn more_tokens_than_the_model_has_positions_is_one_line_and_exit_code_2() {
    let model = tiny_model();
    let ended = router(&model, &["--max-total-tokens", "5000"]).wait();
    assert_eq!(ended.code, Some(2));
    assert!(ended.error().contains("5000") && ended.error().contains("4096"), "{}", ended.stderr);
}

#[test]
fn a_model_without_a_tokenizer_is_one_line_that_names_the_file() {
    let model = tiny_model();
    std::fs::remove_file(model.path().join("tokenizer.json")).expect("it was there");
    let ended = router(&model, &[]).wait();
    assert_eq!(ended.code, Some(1));
    assert!(ended.error().contains("tokenizer.json does not exist"), "{}", ended.stderr);
}

#[test]
fn a_flag_without_effect_is_a_warning_and_no_obstacle() {
    let model = tiny_model();
    let mut router = router(&model, &["--watermark-gamma", "0.5"]);
    router.address();
    assert!(router.log().contains("--watermark-gamma has no effect"), "{}", router.log());
}

#[test]
fn without_one_of_the_keys_nobody_generates_and_no_key_is_ever_shown() {
    let model = tiny_model();
    let flags = ["--api-key", "s3cret-one,s3cret-two", "--api-key", "s3cret-three", "--log-level", "trace"];
    let mut router = router(&model, &flags);
    let address = router.address();
    assert_eq!(post(&address, "/generate", SHORT).0, 401);
    for key in ["s3cret-one", "s3cret-two", "s3cret-three"] {
        assert_eq!(post_with(&address, "/generate", &[("Authorization", &format!("Bearer {key}"))], SHORT).0, 200);
    }
    assert_eq!(post_with(&address, "/generate", &[("Authorization", "Bearer s3cret")], SHORT).0, 401);
    assert_eq!(get(&address, "/info").0, 200);
    let log = router.log();
    assert!(log.contains("tenant=\"key-2\""), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
}

#[test]
fn keys_of_the_environment_are_a_list() {
    let model = tiny_model();
    let flags = ["router", "--fake-shard", "--hostname", "127.0.0.1", "--port", "0", "--model-id", text(model.path())];
    let mut router = Headrace::start_with(&flags, &[("API_KEY", "one,two")]);
    let address = router.address();
    assert_eq!(post(&address, "/generate", SHORT).0, 401);
    assert_eq!(post_with(&address, "/generate", &[("Authorization", "Bearer two")], SHORT).0, 200);
}

#[test]
fn an_answer_that_takes_longer_than_the_request_timeout_is_given_up() {
    let model = tiny_model();
    let mut router = router(&model, &["--fake-step-us", "10000", "--request-timeout", "1"]);
    let address = router.address();
    let (status, body) = post(&address, "/generate", ENDLESS);
    assert!(status == 504 && body.contains("--request-timeout"), "{status}: {body}");
    let stream = rest(send(&address, "/generate_stream", ENDLESS));
    assert!(stream.contains(r#""error_type":"timeout"}"#), "{stream}");
    assert_eq!(post(&address, "/generate", SHORT).0, 200);
}

#[test]
fn likely_tokens_are_as_many_as_each_api_allows_unless_a_flag_says() {
    let model = tiny_model();
    let template = model.path().join("chat.jinja");
    std::fs::write(&template, "{{ messages[0].content }}").expect("a file");
    let chat = |top: u32| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "once"}}], "max_tokens": 1, "logprobs": true, "top_logprobs": {top}}}"#
        )
    };
    let completion = |top: u32| format!(r#"{{"prompt": "once", "max_tokens": 1, "logprobs": {top}}}"#);
    for (flags, chats, completions) in [(&[][..], 20, 5), (&["--max-top-n-tokens", "3"][..], 3, 3)] {
        let mut router = router(&model, &[&["--chat-template", text(&template)][..], flags].concat());
        let address = router.address();
        for (path, body, max) in [
            ("/v1/chat/completions", &chat as &dyn Fn(u32) -> String, chats),
            ("/v1/completions", &completion as &dyn Fn(u32) -> String, completions),
        ] {
            let status = |top| post(&address, path, &body(top)).0;
            assert_eq!((status(max), status(max + 1)), (200, 422), "{path} {flags:?}");
        }
    }
}

#[test]
fn a_silent_stream_gets_comments_and_kserves_routes_are_there_when_asked_for() {
    let model = tiny_model();
    let mut router = router(&model, &["--fake-step-us", "2500000", "--sse-ping-interval", "1", "--kserve"]);
    let address = router.address();
    let stream = rest(send(&address, "/generate_stream", r#"{"inputs": "once", "parameters": {"max_new_tokens": 1}}"#));
    assert!(stream.contains("\n:\n\n"), "{stream}");
    assert_eq!(get(&address, "/v2/health/ready").0, 200);
}
