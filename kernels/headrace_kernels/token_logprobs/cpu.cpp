// One row is one task: the largest of every 64 logits, then the mass of the groups that have any.
#include "../cpu/parallel.h"
#include "../sample_tokens/report.h"

namespace headrace::HEADRACE_ISA::sampling {
namespace {

thread_local ThreadBuffer maxima_memory;

}  // namespace
}  // namespace headrace::HEADRACE_ISA::sampling

// logits [num_rows, vocab_size], a row `stride` elements after the other; tokens are inside the vocabulary.
HEADRACE_ENTRY(token_logprobs)
(const float* logits, int64_t stride, int64_t num_rows, int64_t vocab_size, const int64_t* tokens, float* out,
 int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    using namespace headrace::HEADRACE_ISA::sampling;
    int64_t status = kOk;
    parallel_for(threads, num_rows, 1, [&](int64_t begin, int64_t end) {
        Maxima maxima;
        maxima.of = static_cast<float*>(maxima_memory.reserve(groups_of(vocab_size) * sizeof(float)));
        if (maxima.of == nullptr) {
            __atomic_store_n(&status, int64_t{kOutOfMemory}, __ATOMIC_RELAXED);
            return;
        }
        for (int64_t i = begin; i < end; i++) {
            const Row row{logits + i * stride, vocab_size, 1.0f};
            maxima.scan(row);
            out[i] = maxima.finite ? Report(row, maxima).logprob(row.logits[tokens[i]]) : __builtin_nanf("");
        }
    });
    return status;
}
