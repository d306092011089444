use std::net::IpAddr;

use super::*;
use crate::flags;

fn checked(words: &str) -> Result<Config, ConfigError> {
    let words = words.split_whitespace().map(Into::into);
    check(flags::parse(std::iter::once("headrace".into()).chain(words)).expect("clap takes the words"))
}

fn serve(words: &str) -> ServeConfig {
    match checked(&format!("serve {words}")) {
        Ok(Config::Serve(config)) => *config,
        other => panic!("{words}: {other:?}"),
    }
}

/// Each line: the words, and what the one-line error must contain.
const CONTRADICTIONS: &[(&str, &[&str])] = &[
    ("serve --num-shard 0", &["--num-shard", "at least 1"]),
    ("serve --max-input-tokens 5 --max-input-length 6", &["--max-input-tokens", "--max-input-length"]),
    ("serve --max-input-tokens 8 --max-total-tokens 8", &["--max-input-tokens 8", "--max-total-tokens 8"]),
    ("serve --max-input-length 9 --max-total-tokens 8", &["--max-input-tokens 9", "--max-total-tokens 8"]),
    ("serve --max-batch-total-tokens 7 --max-total-tokens 8", &["--max-batch-total-tokens 7", "--max-total-tokens 8"]),
    (
        "serve --max-batch-prefill-tokens 9 --max-batch-total-tokens 8",
        &["--max-batch-prefill-tokens 9", "--max-batch-total-tokens 8"],
    ),
    ("serve --waiting-served-ratio=-1", &["--waiting-served-ratio -1"]),
    ("serve --waiting-served-ratio nan", &["--waiting-served-ratio NaN"]),
    ("serve --target-itl-ms 40 --no-chunked-prefill", &["--target-itl-ms", "--no-chunked-prefill"]),
    ("serve --group-size 9 --max-batch-size 8", &["--group-size 9", "--max-batch-size 8"]),
    ("serve --max-concurrent-requests 0", &["--max-concurrent-requests"]),
    ("serve --max-input-tokens 0", &["--max-input-tokens"]),
    ("serve --max-total-tokens 0", &["--max-total-tokens"]),
    ("serve --max-best-of 0", &["--max-best-of"]),
    ("serve --max-client-batch-size 0", &["--max-client-batch-size"]),
    ("serve --max-batch-size 0", &["--max-batch-size"]),
    ("serve --max-batch-prefill-tokens 0", &["--max-batch-prefill-tokens"]),
    ("serve --max-batch-total-tokens 0", &["--max-batch-total-tokens"]),
    ("serve --block-size 0", &["--block-size"]),
    ("serve --num-threads 0", &["--num-threads"]),
    ("serve --num-threads 100000", &["--num-threads 100000", "1024"]),
    ("serve --max-total-tokens 1", &["--max-total-tokens is 1", "at least 2"]),
    ("serve --log-level nonsense", &["--log-level nonsense", "off, error, warn, info, debug, trace"]),
    ("serve --log-level info,nonsense", &["`nonsense` is no level"]),
    ("serve --validation-workers 0", &["--validation-workers"]),
    ("serve --payload-limit 0", &["--payload-limit"]),
    ("serve --step-timeout 0", &["--step-timeout"]),
    ("serve --model-id /no/such/model", &["--model-id /no/such/model", "no such"]),
    ("serve --model-id model.gguf", &["--model-id model.gguf", "no such"]),
    ("serve --model-id=", &["--model-id is empty"]),
    ("serve --python /no/such/python", &["--python /no/such/python"]),
    ("serve --tokenizer-config-path /no/such.json", &["--tokenizer-config-path /no/such.json"]),
    ("serve --hostname no..name", &["--hostname no..name"]),
    ("serve --api-key=", &["--api-key number 1", "empty"]),
    ("serve --api-key a,,b", &["--api-key number 2"]),
    ("serve --api-key a --api-key é", &["--api-key number 2"]),
    ("serve --request-timeout 0", &["--request-timeout"]),
    ("serve --cors-allow-origin here", &["--cors-allow-origin here"]),
    ("serve --log-level a=b=c", &["--log-level a=b=c"]),
    ("serve --ssl-keyfile k", &["--ssl-keyfile", "proxy that ends TLS"]),
    (
        "serve --no-chunked-prefill --max-batch-prefill-tokens 8 --max-input-tokens 9",
        &["--no-chunked-prefill", "--max-batch-prefill-tokens 8", "--max-input-tokens 9"],
    ),
    (
        "serve --max-batch-prefill-tokens 8 --max-num-batched-tokens 9",
        &["--max-batch-prefill-tokens and --max-num-batched-tokens"],
    ),
    ("serve --max-num-batched-tokens 8 --max-num-seqs 8", &["--max-num-batched-tokens 8", "8 decode rows"]),
    ("serve --max-num-batched-tokens 1", &["--max-num-batched-tokens 1", "1 decode rows"]),
    ("serve --no-prefix-cache --enable-prefix-caching", &["--no-prefix-cache and --enable-prefix-caching"]),
    ("serve --no-enable-chunked-prefill --enable-chunked-prefill", &["--enable-chunked-prefill"]),
    ("serve --cors-allow-origin http://a --allowed-origins [\"*\"]", &["--allowed-origins and --cors-allow-origin"]),
    ("router --model-id / --shards 127.0.0.1:1 --master-shard-uds-path /s", &["--master-shard-uds-path and --shards"]),
    ("router --model-id / --fake-shard --master-shard-uds-path /s", &["--master-shard-uds-path and --fake-shard"]),
    ("router --model-id /no/such/model --fake-shard", &["--model-id /no/such/model"]),
    ("router --model-id /dev/null --fake-shard", &["--model-id /dev/null", "not a directory"]),
    ("router --model-id / --fake-shard --shards 127.0.0.1:1", &["--shards", "--fake-shard"]),
    ("router --model-id / --fake-shard --block-size 0", &["--block-size"]),
    ("router --model-id /", &["--shards", "--fake-shard", "headrace serve"]),
];

#[test]
fn each_contradiction_is_one_line_that_names_its_flags() {
    for (words, parts) in CONTRADICTIONS {
        let error = checked(words).expect_err(words).to_string();
        assert!(!error.contains('\n'), "{words}: {error}");
        for part in *parts {
            assert!(error.contains(part), "{words}: `{error}` lacks `{part}`");
        }
    }
}

#[test]
fn an_error_does_not_repeat_a_secret() {
    let error = checked("serve --api-key hunter2,é").expect_err("refused").to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn a_socket_path_leaves_room_for_the_rank() {
    let longest = format!("/{}", "s".repeat(100));
    assert!(checked(&format!("serve --shard-uds-path {longest}")).is_ok());
    assert!(checked(&format!("serve --shard-uds-path {longest}s")).is_err());
}

#[test]
fn without_flags_the_defaults_of_the_design_hold() {
    let ServeConfig { model, shard, compute, service } = serve("");
    assert_eq!((model.model_id.as_str(), model.revision), ("embedded", None));
    assert_eq!((compute.dtype, shard.device, compute.block_size), (Dtype::Auto, Device::Auto, None));
    assert!(shard.num_threads >= 1);
    let limits = service.limits;
    assert_eq!((limits.max_concurrent_requests, limits.max_best_of), (128, 2));
    assert_eq!((limits.max_stop_sequences, limits.max_top_n_tokens), (4, None));
    assert_eq!((limits.max_input_tokens, limits.max_total_tokens), (None, None));
    let batching = service.batching;
    assert_eq!((batching.max_batch_size, batching.max_batch_prefill_tokens, batching.pool_tokens), (256, None, None));
    assert_eq!((batching.waiting_served_ratio_permille, batching.max_waiting_tokens), (0, 0));
    assert_eq!((service.http.port, service.http.payload_limit), (3000, 2_000_000));
    assert_eq!(service.graceful_termination, Duration::from_secs(90));
    assert_eq!(service.warnings, Vec::<String>::new());
}

#[test]
fn a_ratio_becomes_thousandths_and_a_lone_flag_gets_a_partner_that_lets_it_work() {
    let patience = |words: &str| {
        let batching = serve(words).service.batching;
        (batching.waiting_served_ratio_permille, batching.max_waiting_tokens)
    };
    assert_eq!(patience("--waiting-served-ratio 1.2 --max-waiting-tokens 7"), (1200, 7));
    assert_eq!(patience("--waiting-served-ratio 0.3"), (300, 20));
    assert_eq!(patience("--max-waiting-tokens 7"), (300, 7));
    assert_eq!(patience("--waiting-served-ratio 0 --max-waiting-tokens 0"), (0, 0));
    assert_eq!(patience("--no-chunked-prefill"), (300, 20));
    assert_eq!(patience("--no-chunked-prefill --waiting-served-ratio 0 --max-waiting-tokens 0"), (0, 0));
}

fn warnings(words: &str) -> Vec<String> {
    serve(words).service.warnings
}

#[test]
fn flags_without_effect_are_one_warning_each_with_the_reason() {
    let words = "--trust-remote-code --usage-stats on --ngrok --quantize exl2";
    let warnings = warnings(words);
    let named = ["trust-remote-code", "usage-stats", "ngrok", "quantize"];
    assert_eq!(warnings.len(), named.len(), "{warnings:?}");
    for (warning, name) in warnings.iter().zip(named) {
        assert!(warning.starts_with(&format!("--{name} has no effect: ")), "{warning}");
    }
}

#[test]
fn a_flag_that_asks_for_what_is_done_anyway_is_no_warning() {
    let words = "--speculate 0 --usage-stats off --kv-cache-dtype auto --swap-space 0 --num-shard 1 \
                 --no-enforce-eager --no-trust-remote-code --sharded false";
    assert_eq!(warnings(words), Vec::<String>::new());
}

#[test]
fn numbers_of_graph_rows_that_mean_nothing_are_a_warning_each() {
    for words in ["--cuda-graphs 0", "--cuda-graphs 4,1,4,8 --max-batch-size 8", ""] {
        assert_eq!(serve(words).service.warnings, Vec::<String>::new(), "{words}");
    }
    let warnings = serve("--cuda-graphs 0,4,16 --max-batch-size 8").service.warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("--cuda-graphs 16 has no effect"), "{warnings:?}");
    assert!(warnings[1].starts_with("--cuda-graphs 0 has no effect beside"), "{warnings:?}");
}

#[test]
fn the_shard_quantizes_by_our_methods_and_other_servers_are_a_warning() {
    for (word, name) in [
        ("int8", Some("int8")),
        ("int4", Some("int4")),
        ("fp8", Some("fp8")),
        ("gptq", Some("gptq")),
        ("awq", Some("awq")),
        ("compressed-tensors", Some("compressed-tensors")),
        ("none", None),
    ] {
        let config = serve(&format!("--quantize {word}"));
        assert_eq!((config.compute.quantize, config.service.warnings.len()), (name, 0), "{word}");
    }
    let others = ["bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4", "eetq"];
    for word in others.into_iter().chain(["exl2", "marlin"]) {
        let config = serve(&format!("--quantize {word}"));
        assert_eq!(config.compute.quantize, None, "{word}");
        let [warning] = &config.service.warnings[..] else { panic!("{word}: {:?}", config.service.warnings) };
        assert!(warning.starts_with("--quantize has no effect: "), "{warning}");
        assert!(
            warning.ends_with("--quantize int8, int4 (on a CPU) or fp8 (on a GPU) makes them smaller"),
            "{warning}"
        );
    }
}

#[test]
fn the_cache_has_the_type_that_is_asked_for_by_any_of_its_names() {
    let names = [("auto", None), ("int8", Some("int8")), ("fp8_e5m2", Some("fp8_e5m2"))];
    let e4m3 = ["fp8_e4m3fn", "fp8_e4m3", "fp8"].map(|word| (word, Some("fp8_e4m3fn")));
    for (word, name) in names.into_iter().chain(e4m3) {
        assert_eq!(serve(&format!("--kv-cache-dtype {word}")).compute.kv_cache_dtype, name, "{word}");
    }
    assert_eq!(serve("").compute.kv_cache_dtype, None);
}

#[test]
fn ranks_are_as_many_as_was_said_in_any_servers_words() {
    for (words, ranks) in [("--num-shard 2 --device cpu", 2), ("-tp 4 --device cpu", 4), ("--device cpu", 1)] {
        let config = serve(words);
        assert_eq!((config.shard.ranks, config.service.warnings.len()), (ranks, 0), "{words}");
    }
    let meeting = serve("--num-shard 2 --master-addr localhost --master-port 29500").shard;
    assert_eq!((meeting.master_addr.as_str(), meeting.master_port), ("localhost", Some(29500)));
}

#[test]
fn vllms_names_are_those_of_the_same_knobs() {
    let words = "org/model --max-num-seqs 8 --max-model-len 4k --gpu-memory-utilization 0.8 --block-size 16 \
                 --host 127.0.0.1 --dtype half --scheduling-policy priority --max-logprobs 7 --download-dir /hub \
                 --no-enable-prefix-caching --served-model-name a b";
    let ServeConfig { model, shard, compute, service } = serve(words);
    assert_eq!((model.model_id.as_str(), model.hub_cache), ("org/model", Some("/hub".into())));
    assert_eq!((compute.dtype, shard.memory_fraction, compute.block_size), (Dtype::Float16, 0.8, Some(Tokens(16))));
    assert_eq!((service.batching.max_batch_size, service.limits.max_total_tokens), (8, Some(Tokens(4000))));
    assert_eq!((service.limits.max_top_n_tokens, service.http.address), (Some(7), IpAddr::from([127, 0, 0, 1])));
    assert_eq!(service.http.served_model_names, ["a", "b"]);
    assert!(service.scheduling.no_prefix_cache && !service.scheduling.no_chunked_prefill);
    assert_eq!(service.scheduling.scheduling_policy, crate::flags::scheduling::Policy::Priority);
    assert_eq!(service.warnings, Vec::<String>::new());
}

#[test]
fn vllms_budget_of_a_step_leaves_a_token_for_each_row() {
    let sizes = |words: &str| {
        let batching = serve(words).service.batching;
        (batching.max_batch_size, batching.max_batch_prefill_tokens)
    };
    assert_eq!(sizes("--max-num-batched-tokens 2048"), (256, Some(Tokens(1792))));
    assert_eq!(sizes("--max-num-batched-tokens 2048 --max-num-seqs 48"), (48, Some(Tokens(2000))));
    assert_eq!(sizes("--max-num-batched-tokens 100"), (50, Some(Tokens(50))));
    assert_eq!(sizes(""), (256, None));
}

#[test]
fn positions_are_stretched_as_text_generation_inference_did() {
    let rope = |words: &str| serve(words).compute.rope.map(|rope| (rope.scaling, rope.factor));
    assert_eq!(rope(""), None);
    assert_eq!(rope("--rope-scaling dynamic"), Some((RopeScaling::Dynamic, 1.0)));
    assert_eq!(rope("--rope-factor 2.5"), Some((RopeScaling::Linear, 2.5)));
}

#[test]
fn a_list_of_origins_in_json_is_taken_as_vllm_takes_it() {
    let origins = serve(r#"--allowed-origins ["http://a","http://b"]"#).service.http.cors_allow_origin;
    assert_eq!(origins, ["http://a", "http://b"]);
}

#[test]
fn text_generation_inferences_socket_of_the_first_shard_is_a_shard() {
    let Ok(Config::Router(config)) = checked("router --model-id / --master-shard-uds-path /s") else {
        panic!("a router's configuration");
    };
    assert!(matches!(&config.shards, Shards::At(at) if *at == [ShardAddress::Unix("/s".into())]), "{config:?}");
}

#[test]
fn a_group_size_without_groups_and_a_window_that_nobody_waits_in_are_a_warning_each() {
    for (words, flag, policy) in
        [("--group-size 4", "--group-size", "static"), ("--window-ms 5", "--window-ms", "dynamic")]
    {
        let warned = serve(words).service.warnings;
        assert!(warned.len() == 1 && warned[0].starts_with(&format!("{flag} has no effect")), "{warned:?}");
        assert!(serve(&format!("{words} --scheduling-policy {policy}")).service.warnings.is_empty());
    }
    assert_eq!(serve("--group-size 4 --window-ms 5").service.warnings.len(), 2);
}

#[test]
fn a_revision_of_what_has_none_is_a_warning() {
    for words in ["--revision main", "--model-id / --revision main"] {
        let warnings = serve(words).service.warnings;
        assert!(warnings.len() == 1 && warnings[0].starts_with("--revision has no effect: "), "{warnings:?}");
    }
    assert_eq!(serve("--model-id org/name --revision main").service.warnings, Vec::<String>::new());
}

#[test]
fn a_level_or_a_list_of_modules_with_levels_says_what_to_log() {
    for level in ["off", "error", "WARN", "debug", "info,headrace_engine=debug", "headrace_engine=debug"] {
        assert_eq!(serve(&format!("--log-level {level}")).service.logs.filter, level);
    }
}

#[test]
fn a_name_of_this_machine_is_an_address() {
    let address = serve("--hostname localhost").service.http.address;
    assert!(address.is_loopback(), "{address}");
}
