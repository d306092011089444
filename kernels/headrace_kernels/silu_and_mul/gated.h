// The gate of a SwiGLU layer.
#pragma once

#include "../cpu/vector.h"

namespace headrace::HEADRACE_ISA {

inline Vec gated(Vec gate, Vec up) { return gate / (broadcast(1.0f) + exp(zero() - gate)) * up; }

}  // namespace headrace::HEADRACE_ISA
