// What Python hands over; cpu.py and columns.py declare the same.
#pragma once

#include "../cpu/isa.h"

namespace headrace::HEADRACE_ISA::sampling {

// Some tokens of each row with a value each: entries [row * width, row * width + lengths[row]).
template <class T>
struct SparseRows {
    int32_t* ids;
    T* values;
    int64_t* lengths;
    int64_t width;
};

// One entry for each row that a batch may hold.
struct Columns {
    int64_t num_rows;
    const float* temperature;  // 0: greedy
    const int64_t* top_k;      // vocab_size: off
    const float* typical_p;
    const float* top_p;
    const float* min_p;
    const float* repetition_penalty;
    const float* frequency_penalty;
    const float* presence_penalty;
    const uint64_t* seed;
    const uint8_t* logprobs;
    const int64_t* top_n;
    SparseRows<float> biases;
    SparseRows<int32_t> history;  // occurrences in the answer of each token of prompt or answer
};

// What is asked of one call, and where its answers go.
struct Call {
    float* logits;
    int64_t stride;  // elements from a row to the next
    int64_t num_rows, vocab_size;
    const int64_t* rows;     // [num_rows] where in the columns
    const int64_t* indices;  // [num_rows]
    int64_t* ids;
    uint8_t* possible;
    float* logprobs;
    const int64_t* top_starts;  // [num_rows] where a row's likeliest tokens begin; null if no row wants any
    int64_t* top_ids;
    float* top_logprobs;
    uint8_t* kept;  // [num_rows, vocab_size], or null: the tokens among which noise chose
};

}  // namespace headrace::HEADRACE_ISA::sampling
