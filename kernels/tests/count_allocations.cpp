// Preloaded before the C library: counts what the library of the kernels takes from the heap, and what it maps.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

// Since the process began.
int64_t kernel_allocations = 0;
}

namespace {

void count(const void* caller) {
    Dl_info where;
    if (dladdr(caller, &where) != 0 && where.dli_fname != nullptr && strstr(where.dli_fname, "libheadrace_cpu")) {
        __atomic_add_fetch(&kernel_allocations, 1, __ATOMIC_RELAXED);
    }
}

}  // namespace

#define COUNT() count(__builtin_return_address(0))

extern "C" {

void* malloc(size_t size) {
    COUNT();
    return __libc_malloc(size);
}

void* calloc(size_t number, size_t size) {
    COUNT();
    return __libc_calloc(number, size);
}

void* realloc(void* old, size_t size) {
    COUNT();
    return __libc_realloc(old, size);
}

void* memalign(size_t alignment, size_t size) {
    COUNT();
    return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
    COUNT();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void** memory, size_t alignment, size_t size) {
    COUNT();
    *memory = __libc_memalign(alignment, size);
    return *memory == nullptr ? 12 : 0;
}

void* mmap(void* address, size_t size, int protection, int flags, int file, long offset) {
    COUNT();
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
}

// What inlined code of the standard library asks for. Others end in malloc, which the C++ library calls.
void* operator new(size_t size) {
    COUNT();
    if (void* memory = __libc_malloc(size)) return memory;
    throw std::bad_alloc();
}

void* operator new(size_t size, const std::nothrow_t&) noexcept {
    COUNT();
    return __libc_malloc(size);
}

void* operator new[](size_t size) {
    COUNT();
    if (void* memory = __libc_malloc(size)) return memory;
    throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { __libc_free(memory); }
void operator delete(void* memory, size_t) noexcept { __libc_free(memory); }
void operator delete[](void* memory) noexcept { __libc_free(memory); }
