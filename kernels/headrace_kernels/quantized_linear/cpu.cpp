// Packing, quantizing and the product as functions of their own; a decoder that does a whole step calls product.h.
#include "../cpu/parallel.h"
#include "multiply.h"
#include "pack.h"
#include "product.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {
namespace {

Weight weight_of(const void* data, int32_t kind, int64_t columns, int64_t inner) {
    return {static_cast<const uint8_t*>(data), static_cast<Kind>(kind), ceil_div(columns, kColumns),
            ceil_div(inner, kGroup)};
}

bool is_kind(int32_t kind) { return kind >= 0 && kind < kKinds; }

template <class T>
void quantize(const T* x, int64_t stride, int64_t rows, int64_t inner, TileGroup* tiles, int32_t threads) {
    const int64_t groups = ceil_div(inner, kGroup);
    parallel_for(threads, ceil_div(rows, kTileRows), 1, [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; tile++) {
            const int64_t first = tile * kTileRows;
            const int64_t count = rows - first < kTileRows ? rows - first : kTileRows;
            quantize_tile(x + first * stride, stride, count, inner, 0, groups, tiles + tile * groups);
        }
    });
}

// Panels that one thread takes at once: few enough that threads end together, enough to read memory in long runs.
int64_t grain(int64_t panels, int32_t threads) {
    constexpr int64_t kPiecesOfAThread = 4;
    const int64_t pairs = ceil_div(panels, int64_t{2} * threads * kPiecesOfAThread);
    return 2 * (pairs > 1 ? pairs : 1);
}

template <class T>
void pack_matrix(const T* matrix, int64_t stride, int64_t columns, int64_t inner, const Weight& weight,
                 int64_t first_column, int32_t threads) {
    parallel_for(threads, columns, kColumns, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; c++) pack_matrix_row(matrix + c * stride, inner, weight, first_column + c);
    });
}

}  // namespace

void multiply_quantized(const Weight& weight, int64_t panel, int64_t panels, const TileGroup* tiles, int64_t rows,
                        float* out, int64_t out_stride) {
    product(weight, panel, panels, tiles, rows, out, out_stride);
}

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA

// Bytes of a packed [columns, inner] matrix; -1 if there is no such kind.
HEADRACE_ENTRY(quantized_weight_bytes)(int32_t kind, int64_t columns, int64_t inner) {
    using namespace headrace::HEADRACE_ISA::quantized;
    if (!is_kind(kind)) return -1;
    const Weight weight = weight_of(nullptr, kind, columns, inner);
    return weight.panels * weight.stride();
}

// Bytes of `rows` quantized rows.
HEADRACE_ENTRY(quantized_rows_bytes)(int64_t rows, int64_t inner) {
    using namespace headrace::HEADRACE_ISA::quantized;
    return ceil_div(rows, kTileRows) * ceil_div(inner, kGroup) * static_cast<int64_t>(sizeof(TileGroup));
}

// Packs rows of GGUF blocks as columns first_column ... of a matrix with `columns` columns; source row i is at
// blocks + order[i] * row_bytes, or i * row_bytes without an order. The memory is zeros before the first call.
HEADRACE_ENTRY(pack_quantized_blocks)
(const void* blocks, int64_t row_bytes, const int64_t* order, int64_t rows, void* packed, int32_t kind,
 int64_t columns, int64_t inner, int64_t first_column, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    using namespace headrace::HEADRACE_ISA::quantized;
    if (!is_kind(kind) || inner % block_elements(static_cast<Kind>(kind)) != 0) return kBadArgument;
    if (first_column < 0 || first_column + rows > columns) return kBadArgument;
    const Weight weight = weight_of(packed, kind, columns, inner);
    parallel_for(threads, rows, kColumns, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t row = order == nullptr ? i : order[i];
            pack_blocks(static_cast<const uint8_t*>(blocks) + row * row_bytes, weight, first_column + i);
        }
    });
    return kOk;
}

// Quantizes rows of a float32 or bfloat16 matrix to kInt8 or kInt4; otherwise as pack_quantized_blocks.
HEADRACE_ENTRY(pack_quantized_matrix)
(const void* matrix, int64_t stride, int32_t dtype, int64_t rows, void* packed, int32_t kind, int64_t columns,
 int64_t inner, int64_t first_column, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    using namespace headrace::HEADRACE_ISA::quantized;
    if (kind != kInt8 && kind != kInt4) return kBadArgument;
    if (first_column < 0 || first_column + rows > columns) return kBadArgument;
    const Weight weight = weight_of(packed, kind, columns, inner);
    if (dtype == kBFloat16) {
        pack_matrix(static_cast<const BFloat16*>(matrix), stride, rows, inner, weight, first_column, threads);
    } else {
        pack_matrix(static_cast<const float*>(matrix), stride, rows, inner, weight, first_column, threads);
    }
    return kOk;
}

// out[row, column], out_stride elements from row to row, a multiple of 16 columns wide. `tiles` is room for
// quantized_rows_bytes.
HEADRACE_ENTRY(quantized_linear)
(const void* x, int64_t x_stride, int32_t x_dtype, const void* packed, int32_t kind, void* tiles, float* out,
 int64_t out_stride, int64_t rows, int64_t columns, int64_t inner, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    using namespace headrace::HEADRACE_ISA::quantized;
    if (!is_kind(kind)) return kBadArgument;
    const Weight weight = weight_of(packed, kind, columns, inner);
    if (out_stride < weight.panels * kColumns) return kBadArgument;
    TileGroup* quantized_rows = static_cast<TileGroup*>(tiles);
    if (x_dtype == kBFloat16) {
        quantize(static_cast<const BFloat16*>(x), x_stride, rows, inner, quantized_rows, threads);
    } else {
        quantize(static_cast<const float*>(x), x_stride, rows, inner, quantized_rows, threads);
    }
    parallel_for(threads, weight.panels, grain(weight.panels, threads), [&](int64_t begin, int64_t end) {
        const Products products;
        const EightBitProducts of_rows(rows);
        product(weight, begin, end - begin, quantized_rows, rows, out + begin * kColumns, out_stride);
    });
    return kOk;
}
