//! vLLM's flags that change nothing here. Those that mean what one of ours means are its other names (`--max-num-seqs`
//! is `--max-batch-size`), see the groups.

use super::Foreign;
use super::Shape::{self, Many, Toggle, Value};
use super::Verdict::{self, NoEffect, NotAvailable};

pub const HEADING: &str = "Known from vLLM";

const ONE_SHARD: Verdict = NoEffect("a model is split over the ranks of --num-shard, in no other way");
const UNQUANTIZED: Verdict = NoEffect(
    "a checkpoint's own files say how it is quantized, and plain weights are kept in the type of --dtype; --quantize int8, \
     int4 (on a CPU) or fp8 (on a GPU) makes them smaller",
);
const OWN_FILES: Verdict = NoEffect("a model's own files say how it is read");
const OWN_TOKENIZER: Verdict = NoEffect("the model's own tokenizer.json is used, with the fast implementation");
const NO_ADAPTERS: Verdict = NoEffect("no adapters are loaded, and a request that names one is refused");
const NO_DRAFTS: Verdict = NoEffect("tokens are computed one by one; the answers are the same");
const NO_GRAPHS: Verdict =
    NoEffect("--cuda-graphs says for which numbers of rows decode steps are recorded; 0: for none");
const NO_IMAGES: Verdict = NoEffect("this version takes text only");
const NO_TOOLS: Verdict = NoEffect("tool calls are not parsed in this version");
const NO_REASONING: Verdict = NoEffect("reasoning is part of the text in this version");
const NO_SWAP: Verdict =
    NoEffect("KV of a preempted request is swapped where that is quicker than computing it again, see --swap-space");
const NO_OFFLOAD: Verdict = NoEffect("weights and KV cache stay on the device");
const OWN_SCHEDULER: Verdict = NoEffect("the scheduler decides by --max-batch-prefill-tokens and --target-itl-ms");
const OWN_KERNELS: Verdict = NoEffect("the shard picks its kernels by device");
const OWN_LOG: Verdict = NoEffect("each finished request is one line; --log-level says what else is logged");
const OWN_HTTP: Verdict = NoEffect("HTTP is served by this process itself");
const ALWAYS: Verdict = NoEffect("it is always so");
const NO_TLS: Verdict = NotAvailable("put a proxy that ends TLS before the server, and leave it out");

#[rustfmt::skip]
pub const FLAGS: &[Foreign] = &[
    // The model's files.
    row("tokenizer", Value, OWN_TOKENIZER),
    row("tokenizer-mode", Value, OWN_TOKENIZER),
    row("tokenizer-revision", Value, OWN_TOKENIZER),
    row("skip-tokenizer-init", Toggle, OWN_TOKENIZER),
    row("code-revision", Value, NoEffect("no code of a model repository is ever run")),
    row("runner", Value, NoEffect("models generate text")),
    row("task", Value, NoEffect("models generate text")),
    row("convert", Value, NoEffect("models generate text")),
    row("load-format", Value, OWN_FILES),
    row("config-format", Value, OWN_FILES),
    row("hf-config-path", Value, OWN_FILES),
    row("hf-overrides", Value, OWN_FILES),
    row("model-impl", Value, OWN_FILES),
    row("model-loader-extra-config", Value, OWN_FILES),
    row("generation-config", Value, OWN_FILES),
    row("override-generation-config", Value, NoEffect("requests say how they sample")),
    row("ignore-patterns", Many, OWN_FILES),
    row("use-tqdm-on-load", Toggle, ALWAYS),
    row("seed", Value, NoEffect("a request brings its own seed, or gets a random one")),
    row("logits-processors", Many, NoEffect("no code from outside is run")),
    row("logits-processor-pattern", Value, NoEffect("no code from outside is run")),
    row("disable-sliding-window", Toggle, NoEffect("windows are as the model's config.json has them")),
    row("disable-cascade-attn", Toggle, OWN_KERNELS),
    row("attention-config", Value, OWN_KERNELS),
    row("kernel-config", Value, OWN_KERNELS),
    row("quantization", Value, UNQUANTIZED).unless(&["None"]).short('q'),
    // Several processes and devices.
    row("pipeline-parallel-size", Value, ONE_SHARD),
    row("data-parallel-size", Value, ONE_SHARD),
    row("data-parallel-size-local", Value, ONE_SHARD),
    row("data-parallel-address", Value, ONE_SHARD),
    row("data-parallel-rpc-port", Value, ONE_SHARD),
    row("data-parallel-backend", Value, ONE_SHARD),
    row("data-parallel-rank", Value, ONE_SHARD),
    row("data-parallel-start-rank", Value, ONE_SHARD),
    row("data-parallel-hybrid-lb", Toggle, ONE_SHARD),
    row("data-parallel-external-lb", Toggle, ONE_SHARD),
    row("decode-context-parallel-size", Value, ONE_SHARD),
    row("enable-expert-parallel", Toggle, ONE_SHARD),
    row("enable-eplb", Toggle, ONE_SHARD),
    row("all2all-backend", Value, ONE_SHARD),
    row("distributed-executor-backend", Value, ONE_SHARD),
    row("distributed-timeout-seconds", Value, ONE_SHARD),
    row("disable-custom-all-reduce", Toggle, ONE_SHARD),
    row("max-parallel-loading-workers", Value, ONE_SHARD),
    row("ray-workers-use-nsight", Toggle, ONE_SHARD),
    row("worker-cls", Value, ONE_SHARD),
    row("worker-extension-cls", Value, ONE_SHARD),
    row("nnodes", Value, ONE_SHARD),
    row("node-rank", Value, ONE_SHARD),
    row("headless", Toggle, ONE_SHARD),
    row("kv-transfer-config", Value, ONE_SHARD),
    row("kv-events-config", Value, ONE_SHARD),
    row("ec-transfer-config", Value, ONE_SHARD),
    // Memory.
    row("cpu-offload-gb", Value, NO_OFFLOAD).unless(&["0", "0.0"]),
    row("kv-offloading-size", Value, NO_OFFLOAD),
    row("kv-offloading-backend", Value, NO_OFFLOAD),
    row("num-gpu-blocks-override", Value, NoEffect("--max-batch-total-tokens sizes the KV pool")),
    row("kv-cache-memory-bytes", Value, NoEffect("--max-batch-total-tokens sizes the KV pool")),
    row("calculate-kv-scales", Toggle, NoEffect("the KV cache has the type of --dtype")),
    row("prefix-caching-hash-algo", Value, NoEffect("equal beginnings are compared, not hashed")),
    row("mamba-cache-dtype", Value, NoEffect("no model of this version has such a cache")),
    row("enable-sleep-mode", Toggle, NoEffect("the server holds its memory until it ends")),
    // Scheduling.
    row("max-num-partial-prefills", Value, OWN_SCHEDULER).unless(&["1"]),
    row("max-long-partial-prefills", Value, OWN_SCHEDULER).unless(&["1"]),
    row("long-prefill-token-threshold", Value, OWN_SCHEDULER),
    row("num-lookahead-slots", Value, NO_DRAFTS),
    row("preemption-mode", Value, NO_SWAP),
    row("num-scheduler-steps", Value, NoEffect("two steps are in flight at a time")),
    row("async-scheduling", Toggle, NoEffect("two steps are in flight at a time, always")),
    row("stream-interval", Value, NoEffect("each token is sent when it is there")),
    row("scheduler-cls", Value, NoEffect("no code from outside is run")),
    row("disable-chunked-mm-input", Toggle, NO_IMAGES),
    row("disable-hybrid-kv-cache-manager", Toggle, NoEffect("all layers share one kind of block")),
    // Compilation.
    row("enforce-eager", Toggle, NO_GRAPHS),
    row("max-seq-len-to-capture", Value, NO_GRAPHS),
    row("cuda-graph-sizes", Many, NO_GRAPHS),
    row("cudagraph-capture-sizes", Many, NO_GRAPHS),
    row("max-cudagraph-capture-size", Value, NO_GRAPHS),
    row("compilation-config", Value, NO_GRAPHS).short('O'),
    row("optimization-level", Value, NO_GRAPHS),
    row("additional-config", Value, NoEffect("it is for vLLM's plugins")),
    // Drafts and adapters.
    row("speculative-config", Value, NO_DRAFTS),
    row("speculative-model", Value, NO_DRAFTS),
    row("num-speculative-tokens", Value, NO_DRAFTS),
    row("enable-lora", Toggle, NO_ADAPTERS),
    row("lora-modules", Many, NO_ADAPTERS),
    row("max-loras", Value, NO_ADAPTERS),
    row("max-lora-rank", Value, NO_ADAPTERS),
    row("max-cpu-loras", Value, NO_ADAPTERS),
    row("lora-dtype", Value, NO_ADAPTERS),
    row("lora-extra-vocab-size", Value, NO_ADAPTERS),
    row("fully-sharded-loras", Toggle, NO_ADAPTERS),
    // Images and sounds.
    row("limit-mm-per-prompt", Value, NO_IMAGES),
    row("mm-processor-kwargs", Value, NO_IMAGES),
    row("mm-processor-cache-gb", Value, NO_IMAGES),
    row("mm-encoder-tp-mode", Value, NO_IMAGES),
    row("media-io-kwargs", Value, NO_IMAGES),
    row("allowed-local-media-path", Value, NO_IMAGES),
    row("allowed-media-domains", Many, NO_IMAGES),
    row("interleave-mm-strings", Toggle, NO_IMAGES),
    row("skip-mm-profiling", Toggle, NO_IMAGES),
    row("enable-prompt-embeds", Toggle, NO_IMAGES),
    // Chat.
    row("chat-template-content-format", Value, NoEffect("what a template wants is seen from the template")),
    row("trust-request-chat-template", Toggle, NoEffect("templates come from the server's own files only")),
    row("response-role", Value, NoEffect("answers are the assistant's")),
    row("enable-auto-tool-choice", Toggle, NO_TOOLS),
    row("tool-call-parser", Value, NO_TOOLS),
    row("tool-parser-plugin", Value, NO_TOOLS),
    row("tool-server", Value, NO_TOOLS),
    row("exclude-tools-when-tool-choice-none", Toggle, NO_TOOLS),
    row("reasoning-parser", Value, NO_REASONING),
    row("enable-reasoning", Toggle, NO_REASONING),
    row("guided-decoding-backend", Value, NoEffect("this version takes no grammars")),
    row("structured-outputs-config", Value, NoEffect("this version takes no grammars")),
    row("return-tokens-as-token-ids", Toggle, NoEffect("tokens are texts; native routes give their ids too")),
    row("enable-force-include-usage", Toggle, NoEffect("a stream has usage where its request asks for it")),
    row("enable-prompt-tokens-details", Toggle, ALWAYS),
    row("logprobs-mode", Value, NoEffect("log-probabilities are those of the model's own logits")),
    // HTTP and logs.
    row("ssl-keyfile", Value, NO_TLS),
    row("ssl-certfile", Value, NO_TLS),
    row("ssl-ca-certs", Value, NO_TLS),
    row("ssl-cert-reqs", Value, NO_TLS),
    row("enable-ssl-refresh", Toggle, NO_TLS),
    row("allow-credentials", Toggle, NoEffect("browsers send no cookies here; Authorization is allowed")),
    row("allowed-methods", Value, NoEffect("browsers may GET and POST")),
    row("allowed-headers", Value, NoEffect("browsers may send those that the routes read")),
    row("root-path", Value, NoEffect("a proxy that adds a prefix must take it off again")),
    row("middleware", Value, NoEffect("no code from outside is run")),
    row("api-server-count", Value, OWN_HTTP),
    row("disable-frontend-multiprocessing", Toggle, OWN_HTTP),
    row("h11-max-incomplete-event-size", Value, OWN_HTTP),
    row("h11-max-header-count", Value, OWN_HTTP),
    row("uvicorn-log-level", Value, OWN_LOG),
    row("disable-uvicorn-access-log", Toggle, OWN_LOG),
    row("disable-access-log-for-endpoints", Value, OWN_LOG),
    row("log-config-file", Value, OWN_LOG),
    row("max-log-len", Value, NoEffect("no text of a prompt is logged")),
    row("enable-log-requests", Toggle, OWN_LOG),
    row("disable-log-requests", Toggle, OWN_LOG),
    row("enable-log-outputs", Toggle, NoEffect("no text of an answer is logged")),
    row("enable-log-deltas", Toggle, NoEffect("no text of an answer is logged")),
    row("disable-log-stats", Toggle, NoEffect("statistics are at /metrics")),
    row("enable-server-load-tracking", Toggle, NoEffect("load is at /metrics")),
    row("enable-request-id-headers", Toggle, ALWAYS),
    row("disable-fastapi-docs", Toggle, NoEffect("/docs shows nothing that is secret")),
    row("enable-offline-docs", Toggle, ALWAYS),
    row("collect-detailed-traces", Many, NoEffect("traces have spans of queue, prefill and decode")),
    row("show-hidden-metrics-for-version", Value, NoEffect("no metric is hidden")),
    row("kv-cache-metrics", Toggle, ALWAYS),
    row("enable-mfu-metrics", Toggle, NoEffect("operations are not counted")),
];

const fn row(name: &'static str, shape: Shape, verdict: Verdict) -> Foreign {
    Foreign { name, variable: None, short: None, shape, harmless: &[], verdict }
}
