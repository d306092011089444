// The arg-max of scores plus Gumbel noise, which is computed only for tokens that can still win.
#pragma once

#include "../gumbel_noise/noise.h"
#include "candidates.h"

namespace headrace::HEADRACE_ISA::sampling {

// A token whose score plus the most noise there is lies below the best sum so far can't win, and rounding keeps the
// order of sums. So which tokens are tried makes no difference to who wins; the lowest id does among equals. The
// likeliest token goes first: most others need no noise then.
class Draw {
public:
    Draw(uint64_t seed, uint64_t index) : seed_(seed), index_(index) { clear(); }

    // The winner of a whole row, of which `likeliest` has the highest score.
    int64_t from(const Row& row, const Maxima& maxima, int64_t likeliest) {
        offer(likeliest, maxima.highest);
        flush();
        for (int64_t first = 0; first < maxima.count; first += kLanes) {
            const int64_t left = maxima.count - first;
            const Vec largest = load_part_or(maxima.of + first, left < kLanes ? left : kLanes, -kInfinity);
            uint32_t bits = at_least(largest + broadcast(kMostNoise), broadcast(best_));
            if (bits == 0) continue;
            float least[kLanes];
            store(least, least_uniform(largest));
            for (; bits != 0; bits &= bits - 1) {
                const int lane = __builtin_ctz(bits);
                try_group(row, first + lane, static_cast<int32_t>(least[lane]));
            }
        }
        return winner_;
    }

    // The winner among candidates, of which there is at least one.
    int64_t from(const Candidates& candidates) {
        int64_t likeliest = 0;
        for (int64_t i = 1; i < candidates.count; i++) {
            if (candidates.scores[i] > candidates.scores[likeliest]) likeliest = i;
        }
        offer(candidates.ids[likeliest], candidates.scores[likeliest]);
        flush();
        for (int64_t i = 0; i < candidates.count; i++) {
            if (candidates.scores[i] + kMostNoise >= best_) offer(candidates.ids[i], candidates.scores[i]);
        }
        flush();
        return winner_;
    }

private:
    static constexpr float kMostNoise = 16.64f;
    static constexpr int kQuad = 4;  // tokens that share a counter of the generator

    // What u, in units of 2^-23, must at least be for a score of at most `largest` to reach the best so far: of
    // noise = -log(-log(u)) >= need follows u >= e^-e^-need >= 1 - e^-need. Most tokens can be told from their u alone,
    // without a logarithm.
    Vec least_uniform(Vec largest) const {
        // Sums are rounded, and so is noise; both by far less than this.
        const float margin = 1e-4f + 1e-6f * (best_ < 0.0f ? -best_ : best_);
        const Vec need = broadcast(best_ - margin) - largest;
        const Vec units = (broadcast(1.0f) - exp(zero() - need)) * broadcast(0x1p23f) - broadcast(4.0f);
        return max(units, zero());
    }

    void try_group(const Row& row, int64_t group, int32_t least) {
        for (int64_t token = group * kGroup; token < (group + 1) * kGroup && token < row.size; token += gumbel::kTokens) {
            for (int i = 0; i < gumbel::kCounters; i++) quads_[i] = static_cast<uint64_t>(token / kQuad + i);
            const gumbel::Block block = gumbel::philox(seed_, index_, quads_);
            if (!gumbel::any_at_least(block, least)) continue;
            for (int i = 0; i < gumbel::kTokens; i += kLanes) store(scores_ + i, row.scores(token + i));
            take_best(block, gumbel::kCounters);
        }
    }

    void offer(int64_t token, float score) { quad(token / kQuad)[token % kQuad] = score; }

    // Where the scores of a quad's tokens go; -inf for one that takes no part. Quads come in rising order.
    float* quad(int64_t number) {
        if (waiting_ > 0 && quads_[waiting_ - 1] == static_cast<uint64_t>(number)) {
            return scores_ + (waiting_ - 1) * kQuad;
        }
        if (waiting_ == gumbel::kCounters) flush();
        quads_[waiting_] = static_cast<uint64_t>(number);
        return scores_ + waiting_++ * kQuad;
    }

    void flush() {
        if (waiting_ == 0) return;
        take_best(gumbel::philox(seed_, index_, quads_), waiting_);
        clear();
    }

    // Of scores_ and the block's noise.
    void take_best(const gumbel::Block& block, int quads) {
        alignas(64) float noise[gumbel::kTokens];
        gumbel::noise_of(block, noise);
        for (int first = 0; first < quads * kQuad; first += kLanes) {
            const Vec sums = load(scores_ + first) + load(noise + first);
            float lanes[kLanes];
            store(lanes, sums);
            for (uint32_t bits = at_least(sums, broadcast(best_)); bits != 0; bits &= bits - 1) {
                const int lane = __builtin_ctz(bits), place = first + lane;
                const int64_t token = static_cast<int64_t>(quads_[place / kQuad]) * kQuad + place % kQuad;
                if (lanes[lane] > best_ || (lanes[lane] == best_ && token < winner_)) {
                    best_ = lanes[lane];
                    winner_ = token;
                }
            }
        }
    }

    void clear() {
        waiting_ = 0;
        for (uint64_t& number : quads_) number = 0;
        for (float& score : scores_) score = -kInfinity;
    }

    uint64_t seed_, index_;
    float best_ = -kInfinity;
    int64_t winner_ = -1;
    int waiting_ = 0;
    alignas(64) uint64_t quads_[gumbel::kCounters];
    alignas(64) float scores_[gumbel::kTokens];
};

}  // namespace headrace::HEADRACE_ISA::sampling
