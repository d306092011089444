// A whole model on the CPU: one call a step. Or a rank's slices of one: a call for each part.
#include <new>

#include "forward.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kMostPlans = 8;

// A model that is ready to compute, and the memory it computes in.
template <class T>
class Engine {
public:
    explicit Engine(const Decoder& model) : model_(model) {}

    // Assigns each layer the plan of its window. False: there are more windows than plans, or a size is too large.
    bool prepare() {
        if (model_.head_dim > kMostHeadDim) return false;
        if (!plan_of_layer_.reserve(model_.num_layers * static_cast<int64_t>(sizeof(int32_t)))) return false;
        for (int64_t i = 0; i < model_.num_layers; i++) {
            const int64_t window = model_.layers[i].window;
            int plan = 0;
            while (plan < num_plans_ && windows_[plan] != window) plan++;
            if (plan == kMostPlans) return false;
            if (plan == num_plans_) windows_[num_plans_++] = window;
            plan_of_layers()[i] = plan;
        }
        return true;
    }

    // Without memory for more, all stays as it was: what was computed, and room for steps that are no larger.
    int64_t reserve(int64_t tokens, int64_t sampled, int threads) {
        if (tokens <= tokens_ && sampled <= sampled_ && threads <= threads_) return kOk;
        tokens = tokens > tokens_ ? round_up(tokens, kTileRows) : tokens_;
        sampled = sampled > sampled_ ? round_up(sampled, kTileRows) : sampled_;
        threads = threads > threads_ ? threads : threads_;
        // A step of one row says what a worker needs: it does not depend on the step.
        const int32_t starts[2] = {0, 0}, contexts[1] = {0};
        DecoderStep nothing{};
        nothing.query_starts = starts;
        nothing.context_lengths = contexts;
        nothing.num_rows = 1;
        const Batch batch = batch_of(nothing);
        const auto write = [](int64_t, int64_t, const float*) {};
        const int64_t attention =
            has_attention() ? Worker<T, decltype(write)>::bytes(batch, TaskList(batch, threads).most_rows()) : 0;
        Pieces needed(nullptr);
        Workspace<T> larger{};
        larger.lay_out(needed, model_, tokens, sampled, threads, attention);
        if (!memory_.reserve(needed.used())) return kOutOfMemory;
        // What was there before would lie elsewhere now, and padding must be zeros.
        if (tokens_ > 0) __builtin_memset(memory_.data(), 0, memory_.size());
        Pieces pieces(memory_.data());
        space_.lay_out(pieces, model_, tokens, sampled, threads, attention);
        tokens_ = tokens;
        sampled_ = sampled;
        threads_ = threads;
        return kOk;
    }

    // Checks a step, and makes the memory and the plans that its parts need.
    int64_t begin(const DecoderStep& step, int threads) {
        threads = threads < kMostThreads ? threads : kMostThreads;
        Batch batch = batch_of(step);
        for (int i = 0; i < num_plans_; i++) {
            batch.window = windows_[i];
            if (!batch.valid()) return kBadArgument;
        }
        if (!tokens_are_valid(step) || !samples_are_valid(step)) return kBadArgument;
        if (const int64_t status = reserve(step.num_tokens, step.num_sampled, threads); status != kOk) return status;
        for (int i = 0; i < num_plans_ && has_attention(); i++) {
            batch.window = windows_[i];
            if (!plans_[i].template make<T>(batch, threads)) return kOutOfMemory;
        }
        find_positions(step);
        last_tokens_ = step.num_tokens;
        return kOk;
    }

    // Parts [first, end) of the step that was begun.
    int64_t run(const DecoderStep& step, int64_t first, int64_t end, int threads) {
        const Batch batch = batch_of(step);
        struct Job {
            Forward<T> forward;
            int64_t first, end;
            int threads;
        } job{{model_, step, space_, batch, plans_, plan_of_layers(), team_}, first, end, 1};
        run_on_threads(
            threads < threads_ ? threads : threads_,
            [](void* data, int thread, int of_threads) {
                auto& shared = *static_cast<Job*>(data);
                if (thread == 0) shared.threads = of_threads;
                shared.forward.run(thread, of_threads, shared.first, shared.end);
            },
            &job);
        if (end == num_parts(model_)) job.forward.merge_best(job.threads);
        return kOk;
    }

    int64_t forward(const DecoderStep& step, int threads) {
        const int64_t status = begin(step, threads);
        return status == kOk ? run(step, 0, num_parts(model_), threads) : status;
    }

    // [tokens, hidden_size] of the step that was begun.
    float* residual() const { return space_.residual; }

    int64_t logits(const DecoderStep& step, int threads) {
        DecoderStep of_last = step;
        of_last.num_tokens = last_tokens_;
        if (!samples_are_valid(of_last) || step.num_sampled > sampled_) return kBadArgument;
        return run(of_last, num_parts(model_) - 1, num_parts(model_), threads);
    }

private:
    bool has_attention() const { return model_.num_heads > 0; }

    Batch batch_of(const DecoderStep& step) const {
        return {space_.queries,
                model_.num_heads * model_.head_dim,
                nullptr,
                nullptr,
                step.block_tables,
                step.query_starts,
                step.context_lengths,
                step.num_tokens,
                step.num_rows,
                step.max_blocks,
                model_.num_blocks,
                model_.num_heads,
                model_.num_kv_heads,
                model_.head_dim,
                model_.block_size,
                windows_[0],
                1.0f / std::sqrt(static_cast<float>(model_.head_dim)),
                model_.eight_bit_cache != 0};
    }

    bool tokens_are_valid(const DecoderStep& step) const {
        for (int64_t t = 0; t < step.num_tokens; t++) {
            if (step.token_ids[t] < 0 || step.token_ids[t] >= model_.vocab_size) return false;
        }
        for (int64_t row = 0; row < step.num_rows; row++) {
            if (step.context_lengths[row] > model_.positions) return false;
        }
        return true;
    }

    static bool samples_are_valid(const DecoderStep& step) {
        for (int64_t s = 0; s < step.num_sampled; s++) {
            if (step.sampled[s] < 0 || step.sampled[s] >= step.num_tokens) return false;
        }
        return true;
    }

    void find_positions(const DecoderStep& step) {
        for (int64_t row = 0; row < step.num_rows; row++) {
            const int64_t behind = step.context_lengths[row] - step.query_starts[row + 1];
            for (int64_t t = step.query_starts[row]; t < step.query_starts[row + 1]; t++) {
                space_.positions[t] = behind + t;
                space_.row_of_token[t] = row;
            }
        }
    }

    int32_t* plan_of_layers() const { return reinterpret_cast<int32_t*>(plan_of_layer_.data()); }

    const Decoder model_;
    Workspace<T> space_{};
    Pages memory_, plan_of_layer_;
    AttentionPlan plans_[kMostPlans];
    int64_t windows_[kMostPlans] = {};
    int num_plans_ = 0;
    Team team_;
    int64_t tokens_ = 0, sampled_ = 0, last_tokens_ = 0;
    int threads_ = 0;
};

// Either of the two, with its type.
struct Handle {
    int32_t dtype;
    void* engine;

    template <class F>
    int64_t with(const F& f) const {
        return dtype == kBFloat16 ? f(*static_cast<Engine<BFloat16>*>(engine)) : f(*static_cast<Engine<float>*>(engine));
    }
};

template <class T>
int64_t create(const Decoder& model, void** handle) {
    auto* engine = new (std::nothrow) Engine<T>(model);
    auto* made = new (std::nothrow) Handle{model.dtype, engine};
    if (engine == nullptr || made == nullptr || !engine->prepare()) {
        delete engine;
        delete made;
        return engine == nullptr || made == nullptr ? kOutOfMemory : kBadArgument;
    }
    *handle = made;
    return kOk;
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA

// Everything that `model` points to must stay where it is until `decoder_destroy`.
HEADRACE_ENTRY(decoder_create)(const headrace::Decoder* model, void** handle) {
    using namespace headrace;
    using namespace headrace::HEADRACE_ISA;
    return model->dtype == kBFloat16 ? create<BFloat16>(*model, handle) : create<float>(*model, handle);
}

HEADRACE_ENTRY(decoder_destroy)(void* handle) {
    auto* made = static_cast<headrace::HEADRACE_ISA::Handle*>(handle);
    made->with([](auto& engine) {
        delete &engine;
        return int64_t{headrace::kOk};
    });
    delete made;
    return headrace::kOk;
}

// Memory for steps of so many tokens, so many of them sampled. Larger ones take more when they come.
HEADRACE_ENTRY(decoder_reserve)(void* handle, int64_t tokens, int64_t sampled, int32_t threads) {
    return static_cast<headrace::HEADRACE_ISA::Handle*>(handle)->with(
        [&](auto& engine) { return engine.reserve(tokens, sampled, threads); });
}

// kBadArgument: an array names a token, a position or a block that there isn't, and nothing was computed.
HEADRACE_ENTRY(decoder_forward)(void* handle, const headrace::DecoderStep* step, int32_t threads) {
    return static_cast<headrace::HEADRACE_ISA::Handle*>(handle)->with(
        [&](auto& engine) { return engine.forward(*step, threads); });
}

// A step in parts, for ranks that add up the residual stream in between. First this, which computes nothing;
// `residual` gets where the stream of the step's tokens lies, [num_tokens, hidden_size]. kBadArgument as above.
HEADRACE_ENTRY(decoder_begin)(void* handle, const headrace::DecoderStep* step, float** residual, int32_t threads) {
    return static_cast<headrace::HEADRACE_ISA::Handle*>(handle)->with([&](auto& engine) {
        const int64_t status = engine.begin(*step, threads);
        *residual = engine.residual();
        return status;
    });
}

// Then parts [first, end) of the same step, in their order.
HEADRACE_ENTRY(decoder_run)(void* handle, const headrace::DecoderStep* step, int64_t first, int64_t end,
                            int32_t threads) {
    return static_cast<headrace::HEADRACE_ISA::Handle*>(handle)->with(
        [&](auto& engine) { return engine.run(*step, first, end, threads); });
}

// The head for other tokens of the step before, no more at once than were reserved; of `step` only what is sampled
// and what comes out is read.
HEADRACE_ENTRY(decoder_logits)(void* handle, const headrace::DecoderStep* step, int32_t threads) {
    return static_cast<headrace::HEADRACE_ISA::Handle*>(handle)->with(
        [&](auto& engine) { return engine.logits(*step, threads); });
}
