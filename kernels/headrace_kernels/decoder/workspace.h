// The memory between a step's operations. It grows to the largest step and stays: none is allocated in a steady state.
#pragma once

#include <sys/mman.h>

#include <cmath>

#include "../linear/panels.h"
#include "../paged_attention/attention.h"
#include "../quantized_linear/formats.h"
#include "model.h"

namespace headrace::HEADRACE_ISA {

// Pages of zeros, huge ones if the system has them: a tenth of the time to find an address.
class Pages {
public:
    ~Pages() { release(); }

    // At least `bytes`; the contents survive only if nothing had to grow. False: no memory, and all is as it was. That
    // takes addresses for both at once, but no more memory: nobody has written to the new pages yet.
    bool reserve(int64_t bytes) {
        if (bytes <= size_) return true;
        constexpr int64_t kHugePage = 2 << 20;
        const int64_t size = round_up(bytes, kHugePage);
        void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fresh == MAP_FAILED) return false;
        madvise(fresh, size, MADV_HUGEPAGE);
        release();
        data_ = static_cast<char*>(fresh);
        size_ = size;
        return true;
    }

    char* data() const { return data_; }
    int64_t size() const { return size_; }

private:
    void release() {
        if (size_ > 0) munmap(data_, size_);
    }

    char* data_ = nullptr;
    int64_t size_ = 0;
};

// Hands out pieces of memory one after the other, aligned to a cache line; without memory it only counts.
class Pieces {
public:
    explicit Pieces(char* memory) : memory_(memory) {}

    template <class P>
    void take(P*& to, int64_t bytes) {
        to = memory_ == nullptr ? nullptr : reinterpret_cast<P*>(memory_ + used_);
        used_ += round_up(bytes, kLineBytes);
    }

    int64_t used() const { return used_; }

private:
    char* memory_;
    int64_t used_ = 0;
};

// Of so few rows every thread normalises its own copy, which costs less than waiting for each other.
constexpr int64_t kOwnRows = 16;

// What one thread has for itself.
template <class T>
struct ThreadSpace {
    float* scratch;      // of a product
    void* attention;     // a Worker's
    RowTiles<T> normed;  // kOwnRows rows, where there are no more
    quantized::TileGroup* quantized;  // the same of a quantized layer's input
    float* best;         // [num_sampled] largest logit so far
    int64_t* best_ids;
};

inline bool has_quantized(const Decoder& model) {
    bool any = model.head.kind != kDense;
    for (int64_t i = 0; i < model.num_layers; i++) {
        const DecoderLayer& layer = model.layers[i];
        any |= layer.qkv.kind != kDense || layer.output.kind != kDense || layer.gate_up.kind != kDense ||
               layer.down.kind != kDense;
    }
    return any;
}

template <class T>
struct Workspace {
    float* residual;  // [tokens, hidden_size]
    RowTiles<T> normed, attended, gated;
    T* queries;         // [tokens, num_heads * head_dim], rotated
    RowTiles<T> heads;  // rows that the head is computed for
    quantized::TileGroup* quantized;  // of any quantized layer's input
    int64_t* positions;      // [tokens]
    int64_t* row_of_token;   // [tokens]
    ThreadSpace<T> threads[kMostThreads];

    static int64_t tiles(int64_t k) { return round_up(k, kTileK<T>) / kTileK<T>; }

    void lay_out(Pieces& pieces, const Decoder& model, int64_t tokens, int64_t sampled, int num_threads,
                 int64_t attention_bytes) {
        const int64_t hidden = model.hidden_size, query = model.num_heads * model.head_dim;
        const auto take_tiles = [&](RowTiles<T>& to, int64_t rows, int64_t k) {
            pieces.take(to.data, RowTiles<T>::bytes(rows, k));
            to.tiles = tiles(k);
        };
        pieces.take(residual, tokens * hidden * static_cast<int64_t>(sizeof(float)));
        take_tiles(normed, tokens, hidden);
        take_tiles(attended, tokens, query);
        take_tiles(gated, tokens, model.intermediate_size);
        take_tiles(heads, sampled, hidden);
        pieces.take(queries, tokens * query * static_cast<int64_t>(sizeof(T)));
        pieces.take(positions, tokens * static_cast<int64_t>(sizeof(int64_t)));
        pieces.take(row_of_token, tokens * static_cast<int64_t>(sizeof(int64_t)));
        int64_t widest = hidden > query ? hidden : query;
        if (model.intermediate_size > widest) widest = model.intermediate_size;
        const int64_t tile_bytes = quantized::ceil_div(widest, quantized::kGroup) * static_cast<int64_t>(sizeof(quantized::TileGroup));
        const bool any_quantized = has_quantized(model);
        const int64_t most_rows = tokens > sampled ? tokens : sampled;
        pieces.take(quantized, any_quantized ? round_up(most_rows, kTileRows) / kTileRows * tile_bytes : 0);
        const int64_t head_panels = round_up(model.head_dim, kPanelColumns) / kPanelColumns;
        for (int i = 0; i < num_threads; i++) {
            ThreadSpace<T>& own = threads[i];
            pieces.take(own.scratch,
                        scratch_floats<T>(head_panels > 2 ? head_panels : 2) * static_cast<int64_t>(sizeof(float)));
            pieces.take(own.attention, attention_bytes);
            take_tiles(own.normed, kOwnRows, hidden);
            pieces.take(own.quantized, any_quantized ? tile_bytes : 0);
            pieces.take(own.best, sampled * static_cast<int64_t>(sizeof(float)));
            pieces.take(own.best_ids, sampled * static_cast<int64_t>(sizeof(int64_t)));
        }
    }
};

}  // namespace headrace::HEADRACE_ISA
