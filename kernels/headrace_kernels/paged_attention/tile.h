// Softmax over one tile of keys, row by row. Rows share loads, never sums.
#pragma once

#include <cfloat>

#include "../cpu/lines.h"
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

// Turns a row's scores of keys [begin, end) into weights e^(scale (score - largest)), rounded to T, and the others
// into 0. `largest` and `total`, the sum of weights before rounding, are running values of the row; returns what the
// older ones among its sums must be multiplied with. Weights take the scales of values along.
template <class T>
inline float weigh(float* scores, int begin, int end, float scale, TileScales scales, char* weights, int row,
                   float& largest_score, float& total) {
    if (scales.keys != nullptr) {
        for (int j = 0; j < kTile; j += kLanes) store(scores + j, load(scores + j) * load(scales.keys + j));
    }
    for (int j = 0; j < begin; j++) scores[j] = kMasked;
    for (int j = end; j < kTile; j++) scores[j] = kMasked;
    Vec most = load(scores);
    for (int j = kLanes; j < kTile; j += kLanes) most = max(most, load(scores + j));
    const float tile_largest = largest(most);
    const float now = tile_largest > largest_score ? tile_largest : largest_score;
    Vec sums = zero();
    for (int j = 0; j < kTile; j += kLanes) {
        const Vec weight = exp((load(scores + j) - broadcast(now)) * broadcast(scale));
        sums = sums + weight;
        store(weights_at<T>(weights, row, j), scales.values == nullptr ? weight : weight * load(scales.values + j));
    }
    float decay[kLanes] = {1.0f};
    if (now != largest_score) store(decay, exp(broadcast((largest_score - now) * scale)));
    largest_score = now;
    total = total * decay[0] + sum(sums);
    return decay[0];
}

}  // namespace headrace::HEADRACE_ISA
