#include "runtime.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace headrace {
namespace {

// Turns of a waiting loop before the thread sleeps: some 20 microseconds, longer than a wake-up costs.
constexpr int kSpins = 1500;

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void sleep_while(uint32_t* word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_all(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0); }

// Returns when *word is no longer `value`. Who changes it calls `wake_sleepers` with the same counter.
void wait_for_change(uint32_t* word, uint32_t value, uint32_t* sleepers) {
    for (int i = 0; i < kSpins; i++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) return;
        relax();
    }
    __atomic_add_fetch(sleepers, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) sleep_while(word, value);
    __atomic_sub_fetch(sleepers, 1, __ATOMIC_RELAXED);
}

// After *word was changed: a system call only if somebody gave up spinning.
void wake_sleepers(uint32_t* word, uint32_t* sleepers) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(sleepers, __ATOMIC_SEQ_CST) != 0) wake_all(word);
}

// Threads that sleep until there is a job for them. Never destroyed: they may still sleep when the process ends.
class Pool {
public:
    static Pool& get() {
        static Pool* pool = new Pool;
        // A forked child has none of its parent's threads.
        if (pool->process_ != getpid()) pool = new Pool;
        return *pool;
    }

    void run(int wanted, void (*body)(void*, int, int), void* data) {
        const bool alone = __atomic_exchange_n(&busy_, true, __ATOMIC_ACQUIRE) == false;
        const int threads = alone ? grow(wanted < kMostThreads ? wanted : kMostThreads) : 1;
        if (threads > 1) {
            share(threads, body, data);
        } else {
            body(data, 0, 1);
        }
        if (alone) __atomic_store_n(&busy_, false, __ATOMIC_RELEASE);
    }

private:
    struct alignas(64) Worker {
        Pool* pool;
        int id;
        uint32_t jobs = 0;  // given to this worker so far
    };

    void share(int threads, void (*body)(void*, int, int), void* data) {
        body_ = body;
        data_ = data;
        threads_ = threads;
        __atomic_store_n(&unfinished_, static_cast<uint32_t>(threads - 1), __ATOMIC_RELAXED);
        for (int i = 1; i < threads; i++) {
            __atomic_fetch_add(&workers_[i].jobs, 1, __ATOMIC_RELEASE);
            wake_all(&workers_[i].jobs);
        }
        body(data, 0, threads);
        for (uint32_t left; (left = __atomic_load_n(&unfinished_, __ATOMIC_ACQUIRE)) != 0;) {
            wait_for_change(&unfinished_, left, &waiting_);
        }
    }

    // Starts workers until there are `wanted` threads with the caller, or the system refuses.
    int grow(int wanted) {
        while (size_ < wanted) {
            workers_[size_].pool = this;
            workers_[size_].id = size_;
            pthread_t thread;
            const auto start = [](void* worker) -> void* {
                static_cast<Worker*>(worker)->pool->work(*static_cast<Worker*>(worker));
                return nullptr;
            };
            if (pthread_create(&thread, nullptr, start, &workers_[size_]) != 0) break;
            pthread_setname_np(thread, "kernels");
            pthread_detach(thread);
            size_++;
        }
        return size_ < wanted ? size_ : wanted;
    }

    [[noreturn]] void work(Worker& self) {
        for (uint32_t seen = 0;; seen++) {
            while (__atomic_load_n(&self.jobs, __ATOMIC_ACQUIRE) == seen) sleep_while(&self.jobs, seen);
            body_(data_, self.id, threads_);
            __atomic_sub_fetch(&unfinished_, 1, __ATOMIC_ACQ_REL);
            wake_sleepers(&unfinished_, &waiting_);
        }
    }

    const pid_t process_ = getpid();
    bool busy_ = false;
    int size_ = 1;  // threads there are, with the caller
    Worker workers_[kMostThreads];
    alignas(64) uint32_t unfinished_ = 0;
    uint32_t waiting_ = 0;
    void (*body_)(void*, int, int) = nullptr;
    void* data_ = nullptr;
    int threads_ = 1;
};

#if defined(__x86_64__)
// Whether the processor has bfloat16 and 8-bit tiles and the kernel lets this process use them.
bool may_use_tiles() {
#if defined(__linux__)
    constexpr int kRequestPermission = 0x1023, kTileData = 18;
    unsigned eax, ebx, ecx, edx;
    __asm__("cpuid" : "=a"(eax), "=b"(ebx), "=c"(ecx), "=d"(edx) : "a"(7), "c"(0));
    const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
    if ((edx & bf16) == 0 || (edx & tile) == 0 || (edx & int8) == 0) return false;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}
#endif

}  // namespace

void run_on_threads(int wanted, void (*body)(void*, int, int), void* data) {
    if (wanted <= 1) return body(data, 0, 1);
    Pool::get().run(wanted, body, data);
}

void Barrier::wait(int threads) {
    if (threads == 1) return;
    const uint32_t round = __atomic_load_n(&round_, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&arrived_, 1, __ATOMIC_ACQ_REL) == static_cast<uint32_t>(threads)) {
        __atomic_store_n(&arrived_, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&round_, round + 1, __ATOMIC_RELEASE);
        wake_sleepers(&round_, &sleepers_);
    } else {
        wait_for_change(&round_, round, &sleepers_);
    }
}

ThreadBuffer::~ThreadBuffer() { std::free(data_); }

void* ThreadBuffer::reserve(size_t bytes) {
    if (bytes > capacity_) {
        constexpr size_t kCacheLine = 64;
        std::free(data_);
        // By half at least: what a step needs rises a little with every token of the longest context.
        const size_t grown = capacity_ + capacity_ / 2, wanted = bytes > grown ? bytes : grown;
        capacity_ = (wanted + kCacheLine - 1) / kCacheLine * kCacheLine;
        data_ = std::aligned_alloc(kCacheLine, capacity_);
        if (data_ == nullptr) capacity_ = 0;
    }
    return data_;
}

}  // namespace headrace

// The best instruction set of this machine that the library has kernels for.
EXPORT const char* headrace_best_isa() {
#if defined(__x86_64__)
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool vnni = __builtin_cpu_supports("avx512vnni");
    const bool dots = __builtin_cpu_supports("avx512bf16") && vnni;
    if (avx2 && avx512 && dots && headrace::may_use_tiles()) return "amx";
    // Intel's cores begin one bfloat16 dot product in two cycles, but two float32 products in each: twice as many.
    if (avx2 && avx512 && dots && !__builtin_cpu_is("intel")) return "avx512_bf16";
    if (avx2 && avx512 && vnni) return "avx512_vnni";
    if (avx2 && avx512) return "avx512";
    if (avx2) return "avx2";
#endif
    return "baseline";
}

// Says which sources the library was built from: build.py looks for it in the file.
EXPORT const char* headrace_fingerprint() { return "headrace-sources:" HEADRACE_FINGERPRINT; }
