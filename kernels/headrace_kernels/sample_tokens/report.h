// Log-probabilities of the raw logits.
#pragma once

#include <cmath>

#include "candidates.h"

namespace headrace::HEADRACE_ISA::sampling {

// The mass of a whole row, in a fixed number whatever the order: e^(score - highest) of each token.
inline uint64_t mass_of(const Row& row, const Maxima& maxima) {
    MassSum sum;
    const float top = maxima.highest;
    for_each_near(
        row, maxima, [top](float largest) { return largest >= top - kMassReach; },
        [&](int64_t, Vec scores) { sum.add(exp(scores - broadcast(top))); });
    return sum.total();
}

// Of one row, taken before its logits are edited.
class Report {
public:
    Report(const Row& row, const Maxima& maxima) {
        const double total = static_cast<double>(mass_of(row, maxima)) / kMassOfOne;
        log_total_ = static_cast<double>(maxima.highest) + std::log(total);
    }

    float logprob(float logit) const { return static_cast<float>(static_cast<double>(logit) - log_total_); }

    // The `wanted` likeliest tokens, likeliest first, the lowest id first among equals.
    void likeliest(const Row& row, const Maxima& maxima, int64_t wanted, Candidates& found, int64_t* ids,
                   float* logprobs) const {
        found.gather_largest(row, maxima, wanted, -kInfinity);
        uint64_t* order = found.weights;
        for (int64_t i = 0; i < found.count; i++) {
            order[i] = static_cast<uint64_t>(~key_of(found.scores[i])) << 32 | static_cast<uint32_t>(found.ids[i]);
        }
        sort(order, found.count);
        for (int64_t i = 0; i < wanted; i++) {
            ids[i] = static_cast<int64_t>(order[i] & 0xffffffff);
            logprobs[i] = logprob(row.logits[ids[i]]);
        }
    }

private:
    double log_total_;
};

}  // namespace headrace::HEADRACE_ISA::sampling
