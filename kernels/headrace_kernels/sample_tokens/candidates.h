// Some tokens of a row, in rising order, and the filters that leave fewer of them. docs/sampling.md has their order.
#pragma once

#include <cmath>

#include "maxima.h"
#include "select.h"

namespace headrace::HEADRACE_ISA::sampling {

struct Candidates {
    int64_t count = 0;
    int32_t* ids;
    float* scores;
    uint64_t* masses;   // of each, once weighed
    uint32_t* keys;     // for a selection
    uint64_t* weights;  // for a selection

    // All of a row's tokens whose score is at least `bound`.
    void gather(const Row& row, const Maxima& maxima, float bound) {
        count = 0;
        for_each_near(
            row, maxima, [bound](float largest) { return largest >= bound; },
            [&](int64_t token, Vec scores_there) {
                uint32_t bits = at_least(scores_there, broadcast(bound));
                if (token + kLanes > row.size) bits &= (1u << (row.size - token)) - 1;
                if (bits != 0) count += append(bits, scores_there, token, ids + count, scores + count);
            });
    }

    // The k best of a row, and those that equal the last of them; but none of less than `lowest`.
    void gather_largest(const Row& row, const Maxima& maxima, int64_t k, float lowest) {
        gather(row, maxima, bound_of_largest(maxima, k, lowest));
        if (count <= k) return;
        keep_at_least(kth_largest(scores, count, k));
    }

    float highest() const {
        float top = scores[0];
        for (int64_t i = 1; i < count; i++) top = scores[i] > top ? scores[i] : top;
        return top;
    }

    // What all weigh together, and how far below the likeliest they are.
    struct Weight {
        uint64_t total;
        float mean_gap;
    };

    // Fills `masses` with e^(score - top), where top is the highest score.
    Weight weigh(float top) {
        MassSum total, gaps;
        const auto weigh_some = [&](Vec some, uint64_t* to) {
            const Vec gap = min(broadcast(top) - some, broadcast(88.0f));  // infinity times no mass is no number
            const Vec mass = exp(zero() - gap);
            total.add(mass);
            gaps.add(mass * gap);
            store_masses(to, mass);
        };
        for_each_vector(
            count, [&](int64_t i) { weigh_some(load(scores + i), masses + i); },
            [&](int64_t i, int64_t left) { weigh_some(load_part_or(scores + i, left, -kInfinity), masses + i); });
        const double mean = static_cast<double>(gaps.total()) / static_cast<double>(total.total());
        return {total.total(), static_cast<float>(mean)};
    }

    // Those whose information is nearest to the entropy, until they hold `share` of the mass.
    //
    // Both are counted from the likeliest token's score: information is gap + ln(total) then, entropy the mean gap +
    // ln(total), and the logarithm falls out of their difference.
    void keep_typical(float share) {
        const float top = highest();
        const auto [total, mean] = weigh(top);
        for (int64_t i = 0; i < count; i++) {
            keys[i] = ~key_of(std::fabs((top - scores[i]) - mean));
            weights[i] = masses[i];
        }
        const float last = value_of(~key_at_weight(keys, weights, count, reached(share, total)));
        keep([&](int64_t i) { return std::fabs((top - scores[i]) - mean) <= last; });
    }

    // The likeliest, until they hold `target`. They have been weighed.
    void keep_top_p(uint64_t target) {
        for (int64_t i = 0; i < count; i++) {
            keys[i] = key_of(scores[i]);
            weights[i] = masses[i];
        }
        keep_at_least(value_of(key_at_weight(keys, weights, count, target)));
    }

    void keep_at_least(float bound) {
        keep([&](int64_t i) { return scores[i] >= bound; });
    }

    // The least mass that holds `share` of `total`: at least 1, so that a filter keeps a token.
    static uint64_t reached(float share, uint64_t total) {
        const auto target = static_cast<uint64_t>(std::ceil(static_cast<double>(share) * static_cast<double>(total)));
        return target < 1 ? 1 : target > total ? total : target;
    }

private:
    template <class Keep>
    void keep(const Keep& stays) {
        int64_t left = 0;
        for (int64_t i = 0; i < count; i++) {
            const bool is_kept = stays(i);
            ids[left] = ids[i];
            scores[left] = scores[i];
            left += is_kept;
        }
        count = left;
    }

    // The k-th largest maximum: as many tokens are as large. `lowest` where there are not as many groups.
    float bound_of_largest(const Maxima& maxima, int64_t k, float lowest) {
        if (k > maxima.count) return lowest;
        const float bound = kth_largest(maxima.of, maxima.count, k);
        return bound > lowest ? bound : lowest;
    }

    float kth_largest(const float* values, int64_t size, int64_t k) {
        for (int64_t i = 0; i < size; i++) {
            keys[i] = key_of(values[i]);
            weights[i] = 1;
        }
        return value_of(key_at_weight(keys, weights, size, static_cast<uint64_t>(k)));
    }
};

}  // namespace headrace::HEADRACE_ISA::sampling
