// `product`, compiled once an instruction set for all that call it.
#include "product.h"

#include "product_lanes.h"
#if defined(HEADRACE_TILES)
#include "product_amx.h"
#endif

namespace headrace::HEADRACE_ISA {

template <class T, bool Add>
void product(int64_t count, const char* rows, int64_t row_tiles, Panels panels, int64_t num_panels, Fetch& fetch,
             float* out, int64_t stride) {
#if defined(HEADRACE_TILES)
    if constexpr (sizeof(T) == sizeof(BFloat16)) {
        if (panels.lines % kTileLines == 0) {
            return product_in_tiles<Add>(count, rows, row_tiles, panels, num_panels, fetch, out, stride);
        }
    }
#endif
    for (int64_t r = 0; r < count; r += kTileRows) {
        const int64_t some = count - r < kTileRows ? count - r : kTileRows;
        product_on_lanes<T, Add>(some, rows + r / kTileRows * row_tiles * kTileBytes, panels, num_panels, fetch,
                                 out + r * stride, stride);
    }
}

template void product<float, false>(int64_t, const char*, int64_t, Panels, int64_t, Fetch&, float*, int64_t);
template void product<float, true>(int64_t, const char*, int64_t, Panels, int64_t, Fetch&, float*, int64_t);
template void product<BFloat16, false>(int64_t, const char*, int64_t, Panels, int64_t, Fetch&, float*, int64_t);
template void product<BFloat16, true>(int64_t, const char*, int64_t, Panels, int64_t, Fetch&, float*, int64_t);

}  // namespace headrace::HEADRACE_ISA
