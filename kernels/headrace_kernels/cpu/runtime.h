// What kernels need of the process: threads and memory. Compiled once, for the plainest instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// The most threads that work at once, the caller among them.
constexpr int kMostThreads = 256;

// Runs body(data, thread, threads) on up to `wanted` threads at once, thread 0 being the caller, and returns when all
// have returned. All of them get the same `threads`, the number that really run: 1 if another call is under way or the
// system gives no more, never more than `wanted`.
//
// The workers are kept from call to call and sleep in between, so that a core which the router needs is free at once.
void run_on_threads(int wanted, void (*body)(void*, int thread, int threads), void* data);

// Where the threads of one `run_on_threads` wait for each other. All must call `wait` equally often, with their number.
//
// Who waits spins for the few microseconds that a balanced phase needs, then sleeps: on a machine with few cores the
// late one may be waiting for the core of the early one.
class Barrier {
public:
    void wait(int threads);

private:
    alignas(64) uint32_t arrived_ = 0;
    alignas(64) uint32_t round_ = 0;
    uint32_t sleepers_ = 0;
};

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
