// The product of quantized rows and panels, for those who do not compile it themselves; product.h has it.
#pragma once

#include "../cpu/product.h"
#include "formats.h"

namespace headrace::HEADRACE_ISA {
namespace quantized {

// `rows` rows times panels [panel, panel + panels), into out[row * out_stride + column], column 0 being the first of
// `panel`. `tiles` holds [tile of 16 rows][group]. All 16 columns of each panel are written. Within the life of an
// `EightBitProducts` of as many rows, or more.
void multiply_quantized(const Weight& weight, int64_t panel, int64_t panels, const TileGroup* tiles, int64_t rows,
                        float* out, int64_t out_stride);

}  // namespace quantized
}  // namespace headrace::HEADRACE_ISA
