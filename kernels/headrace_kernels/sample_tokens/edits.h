// What a request changes about its raw logits before anything is chosen: bias, then penalties. In place.
#pragma once

#include "columns.h"

namespace headrace::HEADRACE_ISA::sampling {

// The tokens that one row's edits touch.
struct Edits {
    const int32_t* biased;
    const float* biases;
    int64_t num_biased;
    const int32_t* seen;
    int32_t* occurrences;
    int64_t num_seen;
    float repetition, frequency, presence;

    Edits(const Columns& columns, int64_t row)
        : biased(columns.biases.ids + row * columns.biases.width),
          biases(columns.biases.values + row * columns.biases.width),
          num_biased(columns.biases.lengths[row]),
          seen(columns.history.ids + row * columns.history.width),
          occurrences(columns.history.values + row * columns.history.width),
          num_seen(columns.history.lengths[row]),
          repetition(columns.repetition_penalty[row]),
          frequency(columns.frequency_penalty[row]),
          presence(columns.presence_penalty[row]) {}

    int64_t count() const { return num_biased + num_seen; }

    bool inside(int64_t vocab_size) const {
        return all_inside(biased, num_biased, vocab_size) && all_inside(seen, num_seen, vocab_size);
    }

    // `raw` gets what each touched token had: those with a bias, then those seen.
    void apply(float* logits, float* raw) const {
        for (int64_t i = 0; i < num_biased; i++) raw[i] = logits[biased[i]];
        for (int64_t i = 0; i < num_seen; i++) raw[num_biased + i] = logits[seen[i]];
        for (int64_t i = 0; i < num_biased; i++) logits[biased[i]] += biases[i];
        for (int64_t i = 0; i < num_seen; i++) penalize(logits[seen[i]], static_cast<float>(occurrences[i]));
    }

    // The logit that a token had before.
    float raw_of(int64_t token, const float* logits, const float* raw) const {
        for (int64_t i = 0; i < num_biased; i++) {
            if (biased[i] == token) return raw[i];
        }
        for (int64_t i = 0; i < num_seen; i++) {
            if (seen[i] == token) return raw[num_biased + i];
        }
        return logits[token];
    }

private:
    void penalize(float& logit, float times) const {
        logit = logit < 0.0f ? logit * repetition : logit / repetition;
        if (times > 0.0f) logit -= times * frequency + presence;
    }

    static bool all_inside(const int32_t* ids, int64_t count, int64_t vocab_size) {
        bool inside = true;
        for (int64_t i = 0; i < count; i++) inside &= ids[i] >= 0 && ids[i] < vocab_size;
        return inside;
    }
};

// One more token of a row's answer. False if there is no room for it.
inline bool remember(const SparseRows<int32_t>& history, int64_t row, int64_t token) {
    int32_t* ids = history.ids + row * history.width;
    int32_t* occurrences = history.values + row * history.width;
    int64_t& count = history.lengths[row];
    int64_t at = 0;
    while (at < count && ids[at] != token) at++;
    if (at == history.width) return false;
    if (at == count) {
        ids[count] = static_cast<int32_t>(token);
        occurrences[count++] = 0;
    }
    occurrences[at]++;
    return true;
}

}  // namespace headrace::HEADRACE_ISA::sampling
