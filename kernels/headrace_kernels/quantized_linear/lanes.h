// The sixteen columns of a panel as vectors, for `product.h`.
//
//   Floats, Ints           16 float32, 16 int32
//   Quants8, Quants4       a line of 8-bit or 4-bit quants, made ready for `dot`
//   dot(sums, line, four)  sums[c] += the products of column c's four quants with four int8, exactly
//   start8(bias)           where dot of 8-bit quants must begin to end at the sum of (u - 128) * a
//   load_ints, +           of 16 int32, where products come from tiles
//   fma(a, b, c)           a * b + c, rounded once where the hardware can
//
// All sums of integers are exact and every float operation but the generic fma is rounded once, so all instruction
// sets that have an fma give the same bits.
#pragma once

#include "formats.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "lanes_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "lanes_avx2.h"
#else
#include "lanes_generic.h"
#endif
