// Threads that go through the phases of a step together.
#pragma once

#include "isa.h"
#include "runtime.h"

namespace headrace::HEADRACE_ISA {

// A phase is a number of pieces that may be computed in any order. Each thread owns an even share of consecutive ones,
// so that it reads consecutive memory; who is done takes pieces from the others' ends.
class Team {
public:
    // Waits until all threads have finished the phase before, then calls prepare() once on each, then body(piece, next)
    // for pieces of [0, count) until none is left; `next` is the piece that this thread will probably compute
    // afterwards, or -1.
    //
    // `number` counts the phases, equally on every thread.
    template <class Prepare, class Body>
    void phase(int thread, int threads, int64_t number, int64_t count, const Prepare& prepare, const Body& body) {
        Share* shares = shares_[number & 1];
        // Nobody can still be in the phase before the last, whose shares these were.
        shares[thread].store(count * thread / threads, count * (thread + 1) / threads);
        barrier_.wait(threads);
        prepare();
        int64_t piece, next;
        while (shares[thread].take_first(piece, next)) body(piece, next);
        for (int i = 1; i < threads; i++) {
            Share& other = shares[(thread + i) % threads];
            while (other.take_last(piece)) body(piece, int64_t{-1});
        }
    }

private:
    // Pieces [begin, end), both in one word so that the owner and others can take at once.
    class alignas(64) Share {
    public:
        void store(int64_t begin, int64_t end) { __atomic_store_n(&range_, pack(begin, end), __ATOMIC_RELAXED); }

        bool take_first(int64_t& piece, int64_t& next) {
            return take([&](int64_t begin, int64_t end) {
                piece = begin;
                next = begin + 1 < end ? begin + 1 : -1;
                return pack(begin + 1, end);
            });
        }

        bool take_last(int64_t& piece) {
            return take([&](int64_t begin, int64_t end) {
                piece = end - 1;
                return pack(begin, end - 1);
            });
        }

    private:
        static uint64_t pack(int64_t begin, int64_t end) {
            return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end);
        }

        template <class Rest>
        bool take(const Rest& rest) {
            uint64_t range = __atomic_load_n(&range_, __ATOMIC_RELAXED);
            for (;;) {
                const auto begin = static_cast<int64_t>(range >> 32), end = static_cast<int64_t>(range & 0xffffffff);
                if (begin >= end) return false;
                if (__atomic_compare_exchange_n(&range_, &range, rest(begin, end), false, __ATOMIC_RELAXED,
                                                __ATOMIC_RELAXED)) {
                    return true;
                }
            }
        }

        uint64_t range_ = 0;
    };

    Barrier barrier_;
    Share shares_[2][kMostThreads];
};

}  // namespace headrace::HEADRACE_ISA
