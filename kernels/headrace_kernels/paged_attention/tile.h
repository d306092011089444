// The arithmetic of attention on one tile: at most kTile keys and values that lie side by side in a sequence.
//
// Every function gives a row the bits it would give it alone: rows share loads, never sums. Rows are (query, head of
// the group) pairs in float32, `width` elements apart, which is the head size rounded up to whole vectors. Keys and
// values may be stored as T; what is computed is the same as if they had been converted before.
#pragma once

#include <cfloat>

#include "../cpu/vector.h"

namespace headrace::HEADRACE_ISA {

// Keys a tile. Tiles begin at multiples of it, whatever the block size and wherever a chunk begins.
constexpr int kTile = 32;

// What a masked score is: below every finite one, and e to the power of its distance to any of them is 0.
constexpr float kMasked = -FLT_MAX;

template <int N>
struct Int {
    static constexpr int value = N;
};

// Calls f(Int<rows>) for 1 <= rows <= Most.
template <int Most, class F>
inline void with_rows(int rows, const F& f) {
    if constexpr (Most > 1) {
        if (rows < Most) return with_rows<Most - 1>(rows, f);
    }
    f(Int<Most>{});
}

// Where the keys and values are that will be needed after this tile, so that they travel while this one is used.
struct Ahead {
    static constexpr int kGroup = 8;  // consecutive positions that share a block, whatever its size
    const char *keys[kTile / kGroup], *values[kTile / kGroup];  // null: nothing to fetch
    int64_t bytes;                                              // of a group's keys

    // Asks the second-level cache to load the keys, or values, that correspond to position j of the current tile
    // and the three after it.
    static void fetch(const char* const* groups, int64_t bytes, int j) {
        constexpr int kCacheLine = 64;
        const char* from = groups[j / kGroup];
        if (from == nullptr) return;
        from += j % kGroup != 0 ? bytes / 2 : 0;
        for (int64_t line = 0; line < bytes / 2; line += kCacheLine) __builtin_prefetch(from + line, 0, 2);
    }
};

// scores[r][j] = q[r] . keys[j] for begin <= j < end; writes up to the next multiple of four.
// `begin` is a multiple of four, and keys has an address for each score written.
template <int R, class T>
inline void dot_rows(const float* q, int64_t width, const T* const* keys, int begin, int end, const Ahead* ahead,
                     float* scores) {
    for (int j = begin; j < end; j += 4) {
        if (ahead != nullptr) Ahead::fetch(ahead->keys, ahead->bytes, j);
        const T* const* key = keys + j;
        Vec sums[R][4];
        for (int r = 0; r < R; r++) {
            for (int k = 0; k < 4; k++) sums[r][k] = zero();
        }
        for (int64_t d = 0; d < width; d += kLanes) {
            Vec rows[R];
            for (int r = 0; r < R; r++) rows[r] = load(q + r * width + d);
            for (int k = 0; k < 4; k++) {
                const Vec column = load(key[k] + d);
                for (int r = 0; r < R; r++) sums[r][k] = fma(rows[r], column, sums[r][k]);
            }
        }
        for (int r = 0; r < R; r++) {
            sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3], scores + r * kTile + j);
        }
    }
}

// out[r] = out[r] * decay[r] + sum_j weights[r][j] * values[j] over begin <= j < end, one j after another.
template <int R, int Columns, class T>
inline void add_columns(const float* weights, const float* decay, const T* const* values, int begin, int end, int64_t d,
                        int64_t width, const Ahead* ahead, float* out) {
    Vec sums[R][Columns];
    for (int r = 0; r < R; r++) {
        const Vec kept = broadcast(decay[r]);
        for (int c = 0; c < Columns; c++) sums[r][c] = load(out + r * width + d + c * kLanes) * kept;
    }
    for (int j = begin; j < end; j++) {
        if (ahead != nullptr && j % 4 == 0) Ahead::fetch(ahead->values, ahead->bytes, j);
        Vec row[R];
        for (int r = 0; r < R; r++) row[r] = broadcast(weights[r * kTile + j]);
        for (int c = 0; c < Columns; c++) {
            const Vec column = load(values[j] + d + c * kLanes);
            for (int r = 0; r < R; r++) sums[r][c] = fma(row[r], column, sums[r][c]);
        }
    }
    for (int r = 0; r < R; r++) {
        for (int c = 0; c < Columns; c++) store(out + r * width + d + c * kLanes, sums[r][c]);
    }
}

template <int R, class T>
inline void add_rows(const float* weights, const float* decay, const T* const* values, int begin, int end,
                     int64_t width, const Ahead* ahead, float* out) {
    constexpr int kColumns = 4;
    int64_t d = 0;
    for (; d + kColumns * kLanes <= width; d += kColumns * kLanes) {
        add_columns<R, kColumns>(weights, decay, values, begin, end, d, width, d == 0 ? ahead : nullptr, out);
    }
    for (; d < width; d += kLanes) {
        add_columns<R, 1>(weights, decay, values, begin, end, d, width, d == 0 ? ahead : nullptr, out);
    }
}

// Turns a row's scores of keys [begin, end) into weights e^(score - largest) and the others into 0. `largest` and
// `total`, the sum of weights, are running values of the row; returns what the older ones among its sums must be
// multiplied with.
inline float weigh(float* scores, int begin, int end, float& largest_score, float& total) {
    for (int j = 0; j < begin; j++) scores[j] = kMasked;
    for (int j = end; j < kTile; j++) scores[j] = kMasked;
    Vec most = load(scores);
    for (int j = kLanes; j < kTile; j += kLanes) most = max(most, load(scores + j));
    const float tile_largest = largest(most);
    const float now = tile_largest > largest_score ? tile_largest : largest_score;
    Vec sums = zero();
    for (int j = 0; j < kTile; j += kLanes) {
        const Vec weight = exp(load(scores + j) - broadcast(now));
        sums = sums + weight;
        store(scores + j, weight);
    }
    float decay[kLanes];
    store(decay, exp(broadcast(largest_score - now)));
    largest_score = now;
    total = total * decay[0] + sum(sums);
    return decay[0];
}

}  // namespace headrace::HEADRACE_ISA
