// A decoder-only transformer and a step of it, as plain C: decoder/cpu.py has the same structures for ctypes.
#pragma once

#include "../cpu/isa.h"

namespace headrace {

// A linear layer whose weights are panels: of the model's type (cpu/lines.h), or quantized (quantized_linear/formats.h).
// Columns are padded to whole panels.
struct LinearLayer {
    const void* panels;
    const float* bias;  // one a column, padding included; null for none
    int64_t num_panels, in_features;
    int64_t kind;  // of quantized weights, or kDense
};

constexpr int64_t kDense = -1;

struct DecoderLayer {
    const float *input_norm, *mlp_norm;  // [hidden_size]
    const float *query_norm, *key_norm;  // [head_dim], or null
    // qkv: heads, KV heads of keys, KV heads of values, each padded to whole panels; gate_up: a panel of gates, the
    // panel of the same columns of up, and so on.
    LinearLayer qkv, output, gate_up, down;
    void *keys, *values;  // the KV cache; null until there is one
    int64_t window;       // positions a query sees, itself included
    int64_t rotary;       // whether positions are embedded
};

// All of a model, or one rank's slices of it: of each layer some heads and some columns of the feed-forward layer, and
// some tokens of the vocabulary.
struct Decoder {
    const DecoderLayer* layers;
    const void* embedding;  // [end_token - first_token, hidden_size] of embedding_dtype
    const float* norm;      // [hidden_size]
    LinearLayer head;
    const float* cos_sin;  // [positions, rotary_dim]: of each position the cosines, then the sines
    // Heads and columns that are here; num_heads may be 0. vocab_size is the whole model's.
    int64_t num_layers, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim, rotary_dim, vocab_size;
    int64_t first_token, end_token;  // of the vocabulary: what embedding and head have
    int64_t positions;  // that cos_sin has
    int64_t num_blocks, block_size;
    int32_t dtype;  // of weights, activations and cache
    int32_t embedding_dtype;
    int32_t eight_bit_cache;  // the cache is 8-bit quants with scales instead (kv_cache.py)
    int32_t carries_residual;  // 0: of a layer only what its slices add is left in the residual stream
    float eps;
};

// What a step's time goes into. The order is part of the C interface.
enum Operation { kEmbedding, kNorm, kQkv, kAttention, kOutput, kGateUp, kDown, kHead, kQuantize, kOperations };

// Nanoseconds, summed over threads: of work, and of waiting at the barrier before it.
struct Times {
    int64_t work[kOperations];
    int64_t waiting[kOperations];
};

// One step. Arrays of rows: chunks and decodes in any order, their tokens one after the other.
struct DecoderStep {
    const int64_t* token_ids;        // [num_tokens]
    const int32_t* block_tables;     // [num_rows, max_blocks]
    const int32_t* query_starts;     // [num_rows + 1]
    const int32_t* context_lengths;  // [num_rows]
    const int64_t* sampled;          // [num_sampled] which tokens the head is computed for
    const int64_t* logits_rows;      // [num_sampled] row of `logits` that gets a token's logits, or -1 for none
    float* logits;                   // [highest of logits_rows + 1, end_token - first_token]
    int64_t* best_ids;               // [num_sampled] of the largest logit, the lowest id among equals
    float* best_logits;              // [num_sampled] its value; NaN if any logit is NaN
    Times* times;                    // added to by each thread; null: nothing is timed
    int64_t num_tokens, num_rows, max_blocks, num_sampled;
};

// A step goes through the parts of a model: the embedding, each layer's attention and its feed-forward layer, the head.
// Between two of them ranks add up their residual streams.
constexpr int64_t num_parts(const Decoder& model) { return 2 * model.num_layers + 2; }

}  // namespace headrace
