// Softmax over one tile of keys, row by row. Rows share loads, never sums.
#pragma once

#include <cfloat>

#include "../cpu/product.h"
#include "../cpu/vector.h"

namespace headrace::HEADRACE_ISA {

// Keys a tile. Tiles begin at multiples of it, whatever the block size and wherever a chunk begins.
constexpr int kTile = 32;

// What a masked score is: below every finite one, and e to the power of its distance to any of them is 0.
constexpr float kMasked = -FLT_MAX;

// Row r's weights of a tile of keys lie at `weights` as a left-hand side: kTile elements of K.
template <class T>
inline T* weights_at(char* weights, int r, int key) {
    return reinterpret_cast<T*>(weights + key / kTileK<T> * kTileBytes + r * kLineBytes) + key % kTileK<T>;
}

// Bytes of 16 rows' weights.
template <class T>
constexpr int64_t kWeightsBytes = kTile / kTileK<T> * kTileBytes;

// What the products of a tile's quants must be multiplied with, position by position; null where there are no quants.
struct TileScales {
    const float *keys, *values;
};

// The keys of a tile that a row sees: [begin, end), empty if it sees none.
struct Span {
    int begin, end;

    bool empty() const { return begin >= end; }
};

// The running values of 16 rows, and what the older ones among their sums must be multiplied with.
struct Running {
    float *largest, *total;
    float* decay;
};

// Calls body(first, Int<N>) for rows [0, count) in blocks of N = 4, and one of what is left: N rows have N results in
// registers, and no instruction of one waits for another's.
template <class Body>
inline void for_each_block(int count, const Body& body) {
    int r = 0;
    for (; r + 4 <= count; r += 4) body(r, Int<4>{});
    if (count - r == 3) body(r, Int<3>{});
    if (count - r == 2) body(r, Int<2>{});
    if (count - r == 1) body(r, Int<1>{});
}

constexpr int64_t requests_of_weights(int64_t count) { return (count + 3) / 4; }

// Turns the scores of `count` rows, at most 16, into weights e^(scale (score - largest)), rounded to T, and those of
// keys that the row does not see into 0: spans[r] is what row r sees, and no spans mean that all rows see all.
// `largest`, and `total`, the sum of weights before rounding, become those with this tile. Weights take the scales of
// values along.
//
// Meanwhile both Fetches are asked for more, `requests_of_weights(count)` times each.
//
// Rows go through each stage side by side: one by one they would wait for every sum over lanes. A row's own operations
// are the same whoever is beside it. What stands in rows behind the last one, up to 16, may become anything.
template <class T>
__attribute__((noinline)) inline void weigh(int count, float* scores, const Span* spans, float scale, TileScales scales,
                                            char* weights, Running running, Fetch& first, Fetch& second) {
    constexpr int kVectors = kTile / kLanes;
    if (scales.keys != nullptr) {
        for (int r = 0; r < count; r++) {
            float* row = scores + r * kTile;
            for (int j = 0; j < kTile; j += kLanes) store(row + j, load(row + j) * load(scales.keys + j));
        }
    }
    if (spans != nullptr) {
        for (int r = 0; r < count; r++) {
            for (int j = 0; j < spans[r].begin; j++) scores[r * kTile + j] = kMasked;
            for (int j = spans[r].end; j < kTile; j++) scores[r * kTile + j] = kMasked;
        }
    }
    float of_tile[kTileRows];  // the largest score, then the sum of weights
    for_each_block(count, [&](int r, auto rows) {
        constexpr int N = decltype(rows)::value;
        first.next();
        Vec most[4] = {zero(), zero(), zero(), zero()};
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            const float* row = scores + (r + i) * kTile;
            most[i] = load(row);
#pragma GCC unroll 8
            for (int j = 1; j < kVectors; j++) most[i] = max(most[i], load(row + j * kLanes));
        }
        largest_of_four(most, of_tile + r);
    });
    const Vec factor = broadcast(scale * 1.44269504088896341f);
    for (int r = 0; r < count; r += kLanes) {
        const Vec before = load(running.largest + r), now = max(load(of_tile + r), before);
        store(running.largest + r, now);
        store(running.decay + r, exp2((before - now) * factor));
    }
    for_each_block(count, [&](int r, auto rows) {
        constexpr int N = decltype(rows)::value;
        second.next();
        Vec sums[4] = {zero(), zero(), zero(), zero()};
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            const float* row = scores + (r + i) * kTile;
            const Vec now = broadcast(running.largest[r + i]);
#pragma GCC unroll 8
            for (int j = 0; j < kTile; j += kLanes) {
                const Vec weight = exp2((load(row + j) - now) * factor);
                sums[i] = sums[i] + weight;
                store_normal(weights_at<T>(weights, r + i, j), weight);
            }
        }
        sum_of_four(sums, of_tile + r);
    });
    if (spans != nullptr) {
        for (int r = 0; r < count; r++) {
            if (!spans[r].empty()) continue;
            // Of a row that has seen nothing yet the greatest score is that of masked keys.
            of_tile[r] = 0.0f;
            for (int j = 0; j < kTile; j += kLanes) store(weights_at<T>(weights, r, j), zero());
        }
    }
    for (int r = 0; r < count; r += kLanes) {
        store(running.total + r, load(running.total + r) * load(running.decay + r) + load(of_tile + r));
    }
    if (scales.values != nullptr) {
        for (int r = 0; r < count; r++) {
            for (int j = 0; j < kTile; j += kLanes) {
                T* weight = weights_at<T>(weights, r, j);
                store_normal(weight, load(weight) * load(scales.values + j));
            }
        }
    }
}

}  // namespace headrace::HEADRACE_ISA
