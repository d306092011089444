// What kernels need of the process: threads and memory. Compiled once, for the plainest instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// Runs body(data) on `threads` threads at once, the caller among them, and returns when all have.
//
// They are the threads of the OpenMP runtime that torch loaded, so no second pool competes for the cores. Until
// `headrace_set_openmp` names that runtime, or if it gives fewer threads, fewer run: bodies must share work out by a
// counter, not by who they are.
void run_on_threads(int threads, void (*body)(void*), void* data);

// Memory that belongs to one thread and is kept from call to call.
class ThreadBuffer {
public:
    ~ThreadBuffer();

    // At least `bytes`, aligned to a cache line, contents undefined; null if there is no memory. What the last call
    // returned is no longer valid.
    void* reserve(size_t bytes);

private:
    void* data_ = nullptr;
    size_t capacity_ = 0;
};

}  // namespace headrace
