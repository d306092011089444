// Packing of weights, and a linear layer alone.
#include "panels.h"

#include "../cpu/parallel.h"

namespace headrace::HEADRACE_ISA {
namespace {

inline float to_float(float value) { return value; }
inline float to_float(BFloat16 value) { return widen(value); }

inline void from_float(float value, float& to) { to = value; }
inline void from_float(float value, BFloat16& to) { to = narrow(value); }

// One panel of 16 rows of `from`, each of k elements; rows from `rows` on are zeros.
template <class From, class T>
void pack_panel(const From* from, int64_t stride, int64_t rows, int64_t k, T* panel) {
    const int64_t padded = round_up(k, kTileK<T>);
    for (int64_t i = 0; i < padded; i += kTileK<T>) {
        T* lines = panel + i * kPanelColumns;
        for (int64_t n = 0; n < kPanelColumns; n++) {
            const From* row = from + n * stride + i;
            const int64_t there = n >= rows ? 0 : k - i < kTileK<T> ? k - i : kTileK<T>;
            for (int64_t j = 0; j < kTileK<T>; j += kPack<T>) {
                T* to = lines + j * kPanelColumns + n * kPack<T>;
                for (int64_t l = 0; l < kPack<T>; l++) {
                    if (j + l >= there) {
                        to[l] = T{};
                    } else if constexpr (sizeof(From) == sizeof(T)) {
                        __builtin_memcpy(to + l, row + j + l, sizeof(T));
                    } else {
                        from_float(to_float(row[j + l]), to[l]);
                    }
                }
            }
        }
    }
}

struct Packing {
    const void* from;
    int64_t stride, rows, k;
    void* to;
    int64_t first_panel, panel_step;
    int threads;

    template <class From, class T>
    void run() const {
        const int64_t panels = round_up(rows, kPanelColumns) / kPanelColumns, size = panel_lines<T>(k) * kLineBytes;
        parallel_for(threads, panels, 4, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                pack_panel(static_cast<const From*>(from) + i * kPanelColumns * stride, stride,
                           rows - i * kPanelColumns, k,
                           reinterpret_cast<T*>(static_cast<char*>(to) + (first_panel + i * panel_step) * size));
            }
        });
    }
};

template <class T>
int64_t linear(const T* x, int64_t rows, int64_t k, const Weights& weights, float* out, int64_t columns, int threads) {
    RowTiles<T> tiles{nullptr, round_up(k, kTileK<T>) / kTileK<T>};
    thread_local ThreadBuffer memory;
    const int64_t bytes = RowTiles<T>::bytes(rows, k);
    tiles.data = static_cast<char*>(memory.reserve(bytes + 1));
    if (tiles.data == nullptr) return kOutOfMemory;
    __builtin_memset(tiles.data, 0, bytes);
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t i = 0; i < k; i += kTileK<T>) {
            __builtin_memcpy(tiles.line(m, i), x + m * k + i, (k - i < kTileK<T> ? k - i : kTileK<T>)*sizeof(T));
        }
    }
    parallel_for(threads, weights.panels, 4, [&](int64_t begin, int64_t end) {
        const Products products;
        alignas(64) float scratch[scratch_floats<T>(2)];
        for (int64_t panel = begin; panel < end; panel += 2) {
            const int64_t count = end - panel < 2 ? 1 : 2;
            multiply_panels(tiles, 0, rows, weights, panel, count, nullptr, scratch,
                            [&](int64_t m, int64_t some, const float* sums, int64_t stride) {
                                for (int64_t r = 0; r < some; r++) {
                                    const int64_t first = panel * kPanelColumns;
                                    const int64_t there = columns - first < stride ? columns - first : stride;
                                    for (int64_t n = 0; n < there; n++) {
                                        out[(m + r) * columns + first + n] = sums[r * stride + n];
                                    }
                                }
                            });
        }
    });
    return kOk;
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA

// Packs `rows` rows of k elements, `stride` elements apart, as panels first_panel, first_panel + panel_step, …
HEADRACE_ENTRY(pack_panels)
(const void* from, int32_t from_dtype, int64_t stride, int64_t rows, int64_t k, void* to, int32_t dtype,
 int64_t first_panel, int64_t panel_step, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    const Packing packing{from, stride, rows, k, to, first_panel, panel_step, threads};
    if (dtype == kBFloat16) {
        from_dtype == kBFloat16 ? packing.run<BFloat16, BFloat16>() : packing.run<float, BFloat16>();
    } else {
        from_dtype == kBFloat16 ? packing.run<BFloat16, float>() : packing.run<float, float>();
    }
    return kOk;
}

// out [rows, columns] float32 = x [rows, k] times the panels.
HEADRACE_ENTRY(linear)
(const void* x, int32_t dtype, int64_t rows, int64_t k, const void* panels, float* out, int64_t columns,
 int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    using headrace::HEADRACE_ISA::linear;
    const auto weights = [&](int64_t lines) {
        return Weights{static_cast<const char*>(panels), round_up(columns, kPanelColumns) / kPanelColumns, lines};
    };
    if (dtype == kBFloat16) {
        return linear(static_cast<const BFloat16*>(x), rows, k, weights(panel_lines<BFloat16>(k)), out, columns,
                      threads);
    }
    return linear(static_cast<const float*>(x), rows, k, weights(panel_lines<float>(k)), out, columns, threads);
}
