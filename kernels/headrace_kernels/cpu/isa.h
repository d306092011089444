// One source, several instruction sets.
//
// The build compiles every kernel once per instruction set with HEADRACE_ISA set to its name (build.py lists them), and
// the loader binds the functions of the best one this machine has. Everything such a file defines must therefore be in
// `namespace headrace::HEADRACE_ISA` or have internal linkage. Otherwise the linker would keep one copy of an inline
// function for all, perhaps the one with instructions this machine lacks. Templates of the standard library have the
// same problem; kernels don't use them.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef HEADRACE_ISA
#error "compile with -DHEADRACE_ISA=<name>; see headrace_kernels/build.py"
#endif

#define HEADRACE_CONCAT_(a, b) a##_##b
#define HEADRACE_CONCAT(a, b) HEADRACE_CONCAT_(a, b)

// Begins the definition of an operation's C entry point, `headrace_<operation>_<isa>`.
#define HEADRACE_ENTRY(operation) \
    extern "C" __attribute__((visibility("default"))) int64_t HEADRACE_CONCAT(headrace_##operation, HEADRACE_ISA)

namespace headrace {

// What entry points return. Python then finds the argument and the element, and says it in words.
enum Status : int64_t { kOk = 0, kBadArgument = 1, kOutOfMemory = 2 };

// How elements are stored. The numbers are part of the C interface.
enum DType : int32_t { kFloat32 = 0, kBFloat16 = 1 };

struct BFloat16 {
    uint16_t bits;
};

}  // namespace headrace
