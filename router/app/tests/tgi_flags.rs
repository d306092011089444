//! Every name by which a script can configure Text Generation Inference 3: as a flag and as a variable, it works or is one
//! warning.

mod harness;

use harness::{Headrace, pretend_python, text, tiny_model};

/// Flags of the launcher, with a value that a script may give; `""`: a switch.
const LAUNCHER: &[(&str, &str)] = &[
    ("--model-id", "org/model"),
    ("--revision", "main"),
    ("--validation-workers", "2"),
    ("--sharded", "false"),
    ("--num-shard", "2"),
    ("--quantize", "bitsandbytes"),
    ("--speculate", "3"),
    ("--dtype", "float16"),
    ("--kv-cache-dtype", "fp8_e5m2"),
    ("--trust-remote-code", ""),
    ("--max-concurrent-requests", "128"),
    ("--max-best-of", "2"),
    ("--max-stop-sequences", "4"),
    ("--max-top-n-tokens", "5"),
    ("--max-input-tokens", "1024"),
    ("--max-input-length", "1024"),
    ("--max-total-tokens", "2048"),
    ("--waiting-served-ratio", "0.3"),
    ("--max-batch-prefill-tokens", "4096"),
    ("--max-batch-total-tokens", "16000"),
    ("--max-waiting-tokens", "20"),
    ("--max-batch-size", "32"),
    ("--cuda-graphs", "1,2,4,8,16,32"),
    ("--hostname", "0.0.0.0"),
    ("--port", "3000"),
    ("--prometheus-port", "9000"),
    ("--shard-uds-path", "/tmp/text-generation-server"),
    ("--master-addr", "localhost"),
    ("--master-port", "29500"),
    ("--huggingface-hub-cache", "/data"),
    ("--weights-cache-override", "/data"),
    ("--disable-custom-kernels", ""),
    ("--cuda-memory-fraction", "0.9"),
    ("--rope-scaling", "linear"),
    ("--rope-factor", "2.0"),
    ("--json-output", ""),
    ("--otlp-endpoint", "http://localhost:4317"),
    ("--otlp-service-name", "text-generation-inference.router"),
    ("--cors-allow-origin", "https://example.org"),
    ("--api-key", "key"),
    ("--watermark-gamma", "0.5"),
    ("--watermark-delta", "2.0"),
    ("--ngrok", ""),
    ("--ngrok-authtoken", "token"),
    ("--ngrok-edge", "edge"),
    ("--disable-grammar-support", ""),
    ("--max-client-batch-size", "4"),
    ("--lora-adapters", "org/adapter"),
    ("--usage-stats", "off"),
    ("--payload-limit", "2000000"),
    ("--enable-prefill-logprobs", ""),
    ("--graceful-termination-timeout", "90"),
    ("--messages-api-enabled", ""),
    ("--block-size", "16"),
];

/// Those that only the router has; its --tokenizer-name must be a directory here.
const ROUTER: &[(&str, &str)] = &[
    ("--revision", "main"),
    ("--trust-remote-code", ""),
    ("--master-shard-uds-path", "/tmp/text-generation-server-0"),
    ("--max-image-fetch-size", "1073741824"),
    ("--max-input-tokens", "1024"),
    ("--prometheus-port", "9000"),
    ("--validation-workers", "2"),
    ("--disable-grammar-support", ""),
    ("--usage-stats", "on"),
];

/// Variables without a flag in Text Generation Inference.
const VARIABLES: &[(&str, &str)] = &[
    ("ATTENTION", "flashinfer"),
    ("PREFIX_CACHING", "1"),
    ("PREFIX_CACHING", "false"),
    ("PREFILL_CHUNKING", "0"),
    ("TGI_WIGGLE_ROOM", "0.9"),
    ("USE_FLASH_ATTENTION", "true"),
    ("REQUEST_LOGPROBS", "1"),
    ("XPU_MEMORY_FRACTION", "0.9"),
    ("EXLLAMA_VERSION", "2"),
    ("DISABLE_EXLLAMA", "1"),
    ("OMP_NUM_THREADS", "2"),
    ("ROCM_USE_FLASH_ATTN_V2_TRITON", "1"),
    ("ROCM_USE_CUSTOM_PAGED_ATTN", "1"),
    ("PYTORCH_TUNABLEOP_ENABLED", "1"),
    ("DEBUG", "1"),
    ("HF_TOKEN", "hf_x"),
    ("HF_API_TOKEN", "hf_x"),
    ("HUGGING_FACE_HUB_TOKEN", "hf_x"),
    ("HF_HUB_OFFLINE", "1"),
    ("HF_HUB_ENABLE_HF_TRANSFER", "1"),
    ("HF_HUB_USER_AGENT_ORIGIN", "text-generation-inference"),
    ("LOG_LEVEL", "debug"),
    ("LOG_COLORIZE", "1"),
    ("COMPUTE_TYPE", "1-nvidia-l4"),
    ("MAX_IMAGE_FETCH_SIZE", "1073741824"),
    ("AIP_HTTP_PORT", "8080"),
    ("AIP_PREDICT_ROUTE", "/v1/endpoints/7/deployedModels/8:predict"),
    ("AIP_HEALTH_ROUTE", "/v1/endpoints/7/deployedModels/8"),
    ("HF_MODEL_ID", "org/model"),
    ("HF_MODEL_REVISION", "main"),
    ("SM_NUM_GPUS", "4"),
    ("HF_MODEL_QUANTIZE", "awq"),
    ("HF_MODEL_TRUST_REMOTE_CODE", "true"),
];

/// What `headrace config` says of a command line; it must accept it.
fn shown(words: &[&str], environment: &[(&str, &str)]) -> String {
    let mut process = Headrace::start_with(&[&["config"], words].concat(), environment);
    let output = process.output();
    let ended = process.wait();
    assert_eq!(ended.code, Some(0), "{words:?} {environment:?}: {}", ended.stderr);
    output
}

/// The value stands in the configuration, or is refused an effect in exactly one line.
fn assert_taken(shown: &str, name: &str, origin: &str) {
    let warnings = shown.lines().filter(|line| line.starts_with("warning: ") && line.contains(name)).count();
    assert!(warnings <= 1, "{name}: {shown}");
    assert!(warnings == 1 || shown.lines().any(|line| line.ends_with(origin)), "{name}: {shown}");
}

#[test]
fn every_flag_of_the_launcher_is_taken() {
    for (flag, value) in LAUNCHER {
        let words = ["text-generation-launcher", flag, value];
        let words = if value.is_empty() { &words[..2] } else { &words[..] };
        assert_taken(&shown(words, &[]), flag, flag);
    }
}

#[test]
fn every_variable_of_a_flag_of_the_launcher_is_taken() {
    for (flag, value) in LAUNCHER {
        let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
        let value = if value.is_empty() { "true" } else { value };
        assert_taken(
            &shown(&["text-generation-launcher"], &[(&variable, value)]),
            flag,
            &format!("variable {variable}"),
        );
    }
}

#[test]
fn every_flag_of_the_router_is_taken() {
    let model = tiny_model();
    for (flag, value) in ROUTER {
        let words = ["text-generation-router", "--tokenizer-name", text(model.path()), flag, value];
        let words = if value.is_empty() { &words[..4] } else { &words[..] };
        assert_taken(&shown(words, &[]), flag, flag);
    }
}

#[test]
fn the_routers_model_may_be_named_by_its_own_variable_which_no_other_program_reads() {
    let model = tiny_model();
    let environment = [("TOKENIZER_NAME", text(model.path())), ("MODEL_ID", "/no/such/model")];
    for program in ["text-generation-router", "router"] {
        let shown = shown(&[program, "--master-shard-uds-path", "/s"], &environment);
        assert!(shown.contains(text(model.path())) && shown.contains("variable TOKENIZER_NAME"), "{shown}");
    }
    assert!(!shown(&["serve"], &environment[..1]).contains("TOKENIZER_NAME"));
}

#[test]
fn every_variable_without_a_flag_is_taken() {
    // Libraries of the shard read these themselves.
    let inherited = ["PYTORCH_TUNABLEOP_ENABLED", "HF_HUB_OFFLINE", "HF_HUB_USER_AGENT_ORIGIN"];
    for (variable, value) in VARIABLES {
        let shown = shown(&["serve"], &[(variable, value)]);
        if !inherited.contains(variable) {
            let flag = if *variable == "SM_NUM_GPUS" { "--num-shard" } else { variable };
            assert_taken(&shown, flag, &format!("variable {variable}"));
        }
    }
}

#[test]
fn the_environment_is_described_for_a_report() {
    let ended = Headrace::start(&["serve", "-e", "--model-id", "org/model", "--python", "/bin/false"]).wait();
    assert!(ended.stderr.contains("Runtime environment:"), "{}", ended.stderr);
    assert!(ended.stderr.contains("\nPython: N/A\n"), "{}", ended.stderr);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let python =
        pretend_python(folder.path(), "case $1 in -c) echo 3.12.7; echo 2.15.0+cpu; echo 0.1.0; exit;; esac; exit 1");
    let ended = Headrace::start(&["serve", "--env", "--model-id", "org/model", "--python", &python]).wait();
    let versions = "\nPython: 3.12.7\ntorch: 2.15.0+cpu\nheadrace-server: 0.1.0\n";
    assert!(ended.stderr.contains(versions), "{}", ended.stderr);
}

#[test]
fn sagemakers_variables_alone_are_enough() {
    let environment = [("HF_MODEL_ID", "org/model"), ("SM_NUM_GPUS", "1"), ("HF_MODEL_TRUST_REMOTE_CODE", "true")];
    let shown = shown(&["serve"], &environment);
    let line = |flag: &str| shown.lines().find(|line| line.split_whitespace().next() == Some(flag)).unwrap_or_default();
    assert!(line("model-id").contains("org/model") && line("port").contains("8080"), "{shown}");
}

#[test]
fn vertex_ais_port_wins_over_that_of_an_image_and_the_command_line_over_both() {
    let environment = [("AIP_HTTP_PORT", "8081"), ("PORT", "80")];
    assert!(shown(&["serve"], &environment).contains("variable AIP_HTTP_PORT"));
    assert!(!shown(&["serve", "-p", "1"], &environment).contains("AIP_HTTP_PORT"));
}
