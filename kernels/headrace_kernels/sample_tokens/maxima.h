// A row of logits seen through the largest of every 64: the groups that can hold what is sought are few.
#pragma once

#include "lanes.h"

namespace headrace::HEADRACE_ISA::sampling {

constexpr int64_t kGroup = 64;  // tokens

constexpr float kInfinity = __builtin_inff();

inline int64_t groups_of(int64_t vocab_size) { return (vocab_size + kGroup - 1) / kGroup; }

inline bool is_finite(float x) { return x - x == 0.0f; }

// One row, and what its logits are divided by.
struct Row {
    const float* logits;
    int64_t size;
    float temperature;

    float score(int64_t token) const { return logits[token] / temperature; }

    // Of kLanes tokens from `token` on; -inf past the end, wherever `token` is.
    Vec scores(int64_t token) const {
        const Vec raw = token + kLanes <= size ? load(logits + token)
                                               : load_part_or(logits + token, size - token, -kInfinity);
        return temperature == 1.0f ? raw : raw / broadcast(temperature);
    }
};

struct Maxima {
    float* of;  // [count] scores
    int64_t count;
    float highest;
    bool finite;  // no logit is NaN, and the highest is finite

    // Reads the row once: the only thing that a greedy row costs.
    void scan(const Row& row) {
        uint32_t nan = 0;
        count = groups_of(row.size);
        highest = -kInfinity;
        for (int64_t group = 0; group < count; group++) {
            of[group] = largest_of(row, group * kGroup, nan);
            if (of[group] > highest) highest = of[group];
        }
        finite = nan == 0 && is_finite(highest);
    }

    // From the maxima of logits to those of scores: a quotient keeps their order.
    void divide(float temperature) {
        for (int64_t group = 0; group < count; group++) of[group] /= temperature;
        highest /= temperature;
        finite = finite && is_finite(highest);
    }

    // The lowest token with the highest logit; the row is finite and has not been divided.
    int64_t first_of_highest(const float* logits) const {
        int64_t group = 0;
        while (of[group] != highest) group++;
        int64_t token = group * kGroup;
        while (logits[token] != highest) token++;
        return token;
    }

private:
    static float largest_of(const Row& row, int64_t begin, uint32_t& nan) {
        const float* logits = row.logits + begin;
        Vec top = broadcast(-kInfinity);
        if (begin + kGroup <= row.size) {
            for (int i = 0; i < kGroup; i += 2 * kLanes) {
                const Vec a = load(logits + i), b = load(logits + i + kLanes);
                nan |= any_nan(a, b);
                top = max(top, max(a, b));
            }
        } else {
            for (int64_t i = 0; i < row.size - begin; i += kLanes) {
                const int64_t left = row.size - begin - i;
                const Vec a = load_part_or(logits + i, left < kLanes ? left : kLanes, -kInfinity);
                nan |= any_nan(a, a);
                top = max(top, a);
            }
        }
        return largest(top);
    }
};

// Calls visit(token, scores) for kLanes tokens from `token` on, in groups whose largest score is worth(it).
template <class Worth, class Visit>
inline void for_each_near(const Row& row, const Maxima& maxima, const Worth& worth, const Visit& visit) {
    for (int64_t group = 0; group < maxima.count; group++) {
        if (!worth(maxima.of[group])) continue;
        const int64_t begin = group * kGroup;
        const int64_t end = begin + kGroup < row.size ? begin + kGroup : row.size;
        for (int64_t token = begin; token < end; token += kLanes) visit(token, row.scores(token));
    }
}

}  // namespace headrace::HEADRACE_ISA::sampling
