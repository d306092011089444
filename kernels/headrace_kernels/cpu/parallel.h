// Loops that several threads share.
#pragma once

#include "isa.h"
#include "runtime.h"

namespace headrace::HEADRACE_ISA {

// Calls body(begin, end) for pieces of [0, count) of `grain` items, in any order, on up to `threads` threads.
//
// A thread takes the next piece when it is done with one, so a slow core takes fewer. Results must not depend on who
// computes what. Too little for two pieces stays on the calling thread: waking others costs microseconds.
template <class Body>
void parallel_for(int threads, int64_t count, int64_t grain, const Body& body) {
    if (threads <= 1 || count <= grain) {
        if (count > 0) body(int64_t{0}, count);
        return;
    }
    struct Shared {
        const Body& body;
        int64_t next, count, grain;
    } shared{body, 0, count, grain};
    run_on_threads(
        threads,
        [](void* data, int, int) {
            auto& loop = *static_cast<Shared*>(data);
            for (;;) {
                const int64_t begin = __atomic_fetch_add(&loop.next, loop.grain, __ATOMIC_RELAXED);
                if (begin >= loop.count) return;
                const int64_t end = begin + loop.grain;
                loop.body(begin, end < loop.count ? end : loop.count);
            }
        },
        &shared);
}

// Rows that are worth a piece of their own when a row has `elements` elements to touch once.
inline int64_t row_grain(int64_t elements) {
    constexpr int64_t kElements = 16384;  // a few microseconds of work
    return elements >= kElements ? 1 : kElements / (elements > 0 ? elements : 1);
}

}  // namespace headrace::HEADRACE_ISA
