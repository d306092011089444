#include "runtime.h"

#include <cstdlib>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace headrace {
namespace {

// GNU OpenMP's entry into a parallel region; LLVM's and Intel's runtimes have it too.
using GompParallel = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);

GompParallel gomp_parallel = nullptr;

}  // namespace

void run_on_threads(int threads, void (*body)(void*), void* data) {
    if (threads > 1 && gomp_parallel != nullptr) {
        gomp_parallel(body, data, static_cast<unsigned>(threads), 0);
    } else {
        body(data);
    }
}

ThreadBuffer::~ThreadBuffer() { std::free(data_); }

void* ThreadBuffer::reserve(size_t bytes) {
    if (bytes > capacity_) {
        constexpr size_t kCacheLine = 64;
        std::free(data_);
        capacity_ = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
        data_ = std::aligned_alloc(kCacheLine, capacity_);
        if (data_ == nullptr) capacity_ = 0;
    }
    return data_;
}

}  // namespace headrace

// The address of GOMP_parallel in the runtime to share; null for none.
EXPORT void headrace_set_openmp(void* parallel) {
    headrace::gomp_parallel = reinterpret_cast<headrace::GompParallel>(parallel);
}

// The best instruction set of this machine that the library has kernels for.
EXPORT const char* headrace_best_isa() {
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx2 && avx512) return "avx512";
    if (avx2) return "avx2";
#endif
    return "baseline";
}

// Says which sources the library was built from: build.py looks for it in the file.
EXPORT const char* headrace_fingerprint() { return "headrace-sources:" HEADRACE_FINGERPRINT; }
