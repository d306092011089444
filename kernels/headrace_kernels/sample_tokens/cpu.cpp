// One row is one task: a thread takes it from its raw logits to its token. What follows the first pass over a row, for
// the largest logit of every 64, looks only into groups that can matter.
#include "../cpu/parallel.h"
#include "columns.h"
#include "draw.h"
#include "edits.h"
#include "report.h"

namespace headrace::HEADRACE_ISA::sampling {
namespace {

thread_local ThreadBuffer sampling_memory;

// What a row needs beside its logits: 28 bytes a token of the vocabulary, of which most rows touch little.
struct Scratch {
    Maxima maxima;
    Candidates candidates;
    float* raw;

    bool reserve(int64_t vocab_size, int64_t edits) {
        const int64_t room = vocab_size + kLanes;  // a whole vector is written where its first lane is inside
        const int64_t bytes = room * (2 * sizeof(uint64_t) + sizeof(int32_t) + sizeof(float) + sizeof(uint32_t)) +
                              (groups_of(vocab_size) + edits) * sizeof(float);
        auto* memory = static_cast<char*>(sampling_memory.reserve(static_cast<size_t>(bytes)));
        if (memory == nullptr) return false;
        take(memory, candidates.masses, room);
        take(memory, candidates.weights, room);
        take(memory, candidates.ids, room);
        take(memory, candidates.scores, room);
        take(memory, candidates.keys, room);
        take(memory, maxima.of, groups_of(vocab_size));
        take(memory, raw, edits);
        return true;
    }

private:
    template <class T>
    static void take(char*& memory, T*& array, int64_t count) {
        array = reinterpret_cast<T*>(memory);
        memory += count * static_cast<int64_t>(sizeof(T));
    }
};

// A row's filters; one that is off changes nothing.
struct Filters {
    int64_t top_k;
    float typical_p, top_p, min_p;
    bool by_rank, by_information, by_mass, by_share;

    Filters(const Columns& columns, int64_t row, int64_t vocab_size)
        : top_k(columns.top_k[row]),
          typical_p(columns.typical_p[row]),
          top_p(columns.top_p[row]),
          min_p(columns.min_p[row]),
          by_rank(top_k < vocab_size),
          by_information(typical_p < 1.0f),
          by_mass(top_p < 1.0f),
          by_share(min_p > 0.0f) {}

    bool any() const { return by_rank || by_information || by_mass || by_share; }

    // Leaves in `found` the tokens that may be sampled, at least one.
    void apply(const Row& row, const Maxima& maxima, Candidates& found) const {
        const float top = maxima.highest;
        if (by_rank) {
            found.gather_largest(row, maxima, top_k, -__FLT_MAX__);
        } else if (by_information) {
            found.gather(row, maxima, top - kMassReach);
        } else if (by_mass) {
            keep_top_p_of_row(row, maxima, found);
        } else {
            found.gather(row, maxima, by_share ? top + log_min_p() : -__FLT_MAX__);
        }
        if (by_information) found.keep_typical(typical_p);
        if (by_mass && (by_rank || by_information)) {
            found.keep_top_p(Candidates::reached(top_p, found.weigh(found.highest()).total));
        }
        if (by_share) found.keep_at_least(found.highest() + log_min_p());
    }

private:
    float log_min_p() const { return static_cast<float>(std::log(static_cast<double>(min_p))); }

    // The mass of the whole row counts, but few tokens can be in the share of it that stays: if all that weigh less
    // than e^(bound - highest) were dropped, they would together be less than what may go.
    void keep_top_p_of_row(const Row& row, const Maxima& maxima, Candidates& found) const {
        const uint64_t total = mass_of(row, maxima), target = Candidates::reached(top_p, total);
        const double each = static_cast<double>(total - target) / static_cast<double>(row.size);
        // Less than this many units, and rounding to whole ones would matter.
        constexpr double kFew = 256.0;
        constexpr float kMargin = 0.01f;  // far more than e^x is wrong by
        const float below = each < kFew ? -kMassReach : static_cast<float>(std::log(each / kMassOfOne)) - kMargin;
        found.gather(row, maxima, maxima.highest + below);
        found.weigh(maxima.highest);
        found.keep_top_p(target);
    }
};

class RowTask {
public:
    RowTask(const Call& call, const Columns& columns, int64_t place)
        : call_(call),
          columns_(columns),
          place_(place),
          row_(call.rows[place]),
          logits_(call.logits + place * call.stride),
          edits_(columns, row_) {}

    int64_t run() {
        if (!edits_.inside(call_.vocab_size)) return kBadArgument;
        if (!scratch_.reserve(call_.vocab_size, edits_.count())) return kOutOfMemory;
        const Row raw{logits_, call_.vocab_size, 1.0f};
        const int64_t wanted = call_.top_starts == nullptr ? 0 : columns_.top_n[row_];
        const bool reports = columns_.logprobs[row_] != 0 || wanted > 0;
        call_.logprobs[place_] = __builtin_nanf("");
        if (reports || edits_.count() == 0) scratch_.maxima.scan(raw);
        if (!reports) return choose(raw);
        const bool finite = scratch_.maxima.finite;
        const Report report(raw, scratch_.maxima);
        if (wanted > 0) report_likeliest(raw, report, finite, wanted);
        const int64_t status = choose(raw);
        if (finite && call_.possible[place_]) {
            const int64_t token = call_.ids[place_];
            call_.logprobs[place_] = report.logprob(edits_.raw_of(token, logits_, scratch_.raw));
        }
        return status;
    }

private:
    // Needs the maxima of a row without edits.
    int64_t choose(const Row& raw) {
        if (edits_.count() > 0) {
            edits_.apply(logits_, scratch_.raw);
            scratch_.maxima.scan(raw);
        }
        const int64_t token = pick(raw);
        call_.possible[place_] = token >= 0;
        call_.ids[place_] = token >= 0 ? token : 0;
        const bool remembers = edits_.num_seen > 0 && token >= 0;
        return remembers && !remember(columns_.history, row_, token) ? kBadArgument : kOk;
    }

    // The token, or -1 if none can be chosen.
    int64_t pick(const Row& raw) {
        Maxima& maxima = scratch_.maxima;
        if (!maxima.finite) return -1;
        const int64_t likeliest = maxima.first_of_highest(logits_);
        const float temperature = columns_.temperature[row_];
        if (temperature <= 0.0f) return likeliest;
        const Row row{logits_, raw.size, temperature};
        maxima.divide(temperature);
        if (!maxima.finite) return -1;
        Draw draw(columns_.seed[row_], static_cast<uint64_t>(call_.indices[place_]));
        const Filters filters(columns_, row_, raw.size);
        if (call_.kept == nullptr && !filters.any()) return draw.from(row, maxima, likeliest);
        filters.apply(row, maxima, scratch_.candidates);
        if (call_.kept != nullptr) mark_kept();
        return draw.from(scratch_.candidates);
    }

    void mark_kept() const {
        uint8_t* kept = call_.kept + place_ * call_.vocab_size;
        std::memset(kept, 0, static_cast<size_t>(call_.vocab_size));
        for (int64_t i = 0; i < scratch_.candidates.count; i++) kept[scratch_.candidates.ids[i]] = 1;
    }

    void report_likeliest(const Row& raw, const Report& report, bool finite, int64_t wanted) {
        int64_t* ids = call_.top_ids + call_.top_starts[place_];
        float* logprobs = call_.top_logprobs + call_.top_starts[place_];
        if (finite) {
            report.likeliest(raw, scratch_.maxima, wanted, scratch_.candidates, ids, logprobs);
            return;
        }
        for (int64_t i = 0; i < wanted; i++) {
            ids[i] = 0;
            logprobs[i] = __builtin_nanf("");
        }
    }

    const Call& call_;
    const Columns& columns_;
    const int64_t place_, row_;
    float* logits_;
    const Edits edits_;
    Scratch scratch_;
};

bool is_inside(const Call& call, const Columns& columns) {
    for (int64_t i = 0; i < call.num_rows; i++) {
        const int64_t row = call.rows[i];
        if (row < 0 || row >= columns.num_rows || columns.top_k[row] < 1) return false;
        if (columns.top_n[row] < 0 || columns.top_n[row] > call.vocab_size) return false;
    }
    return true;
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA::sampling

HEADRACE_ENTRY(sample_tokens)
(const void* call_memory, const void* columns_memory, int32_t threads) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    using namespace headrace::HEADRACE_ISA::sampling;
    const Call& call = *static_cast<const Call*>(call_memory);
    const Columns& columns = *static_cast<const Columns*>(columns_memory);
    if (!is_inside(call, columns)) return kBadArgument;
    int64_t status = kOk;
    parallel_for(threads, call.num_rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t place = begin; place < end; place++) {
            const int64_t done = RowTask(call, columns, place).run();
            if (done != kOk) __atomic_store_n(&status, done, __ATOMIC_RELAXED);
        }
    });
    return status;
}
