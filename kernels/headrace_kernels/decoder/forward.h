// A step, or some parts of it, on several threads: embedding, layers, head. One parallel region, a few barriers a layer.
#pragma once

#include <ctime>

#include "../cpu/team.h"
#include "../quantized_linear/activations.h"
#include "../quantized_linear/multiply.h"
#include "../rms_norm/normalise.h"
#include "../rotary_embedding/rotate.h"
#include "../silu_and_mul/gated.h"
#include "../store_kv/store.h"
#include "../store_kv/store_eight_bits.h"
#include "workspace.h"

namespace headrace::HEADRACE_ISA {

template <class T>
inline Weights weights_of(const LinearLayer& layer) {
    return {static_cast<const char*>(layer.panels), layer.num_panels, panel_lines<T>(layer.in_features)};
}

// What all threads of a step share, and what each does.
template <class T>
class Forward {
public:
    Forward(const Decoder& model, const DecoderStep& step, const Workspace<T>& space, const Batch& batch,
            const AttentionPlan* plans, const int32_t* plan_of_layer, Team& team)
        : model_(model),
          step_(step),
          space_(space),
          batch_(batch),
          plans_(plans),
          plan_of_layer_(plan_of_layer),
          team_(team),
          head_panels_(round_up(model.head_dim, kPanelColumns) / kPanelColumns) {}

    // What one thread does of the parts [first, end).
    void run(int thread, int threads, int64_t first, int64_t end) const {
        const Products products;
        Place place{thread, threads};
        for (int64_t part = first; part < end; part++) {
            const int64_t layer = (part - 1) / 2;
            if (part == 0) {
                embed(place);
            } else if (layer == model_.num_layers) {
                head(place);
            } else if (part % 2 == 1) {
                attention(place, model_.layers[layer], plans_[plan_of_layer_[layer]]);
            } else {
                feed_forward(place, model_.layers[layer]);
            }
        }
    }

    // After all threads have returned: the best of their bests.
    void merge_best(int threads) const {
        for (int64_t s = 0; s < step_.num_sampled; s++) {
            float best = space_.threads[0].best[s];
            int64_t id = space_.threads[0].best_ids[s];
            for (int t = 1; t < threads; t++) {
                take_better(space_.threads[t].best[s], space_.threads[t].best_ids[s], best, id);
            }
            step_.best_logits[s] = best;
            step_.best_ids[s] = id;
        }
    }

private:
    // Who computes, and how many phases it has been through.
    struct Place {
        int thread, threads;
        int64_t phases = 0;
    };

    template <class Prepare, class Body>
    void phase(Place& place, Operation operation, int64_t count, const Prepare& prepare, const Body& body) const {
        if (step_.times == nullptr) {
            team_.phase(place.thread, place.threads, place.phases++, count, prepare, body);
            return;
        }
        const int64_t came = now();
        int64_t began = 0;
        const auto prepare_timed = [&] {
            began = now();
            prepare();
        };
        team_.phase(place.thread, place.threads, place.phases++, count, prepare_timed, body);
        __atomic_fetch_add(&step_.times->waiting[operation], began - came, __ATOMIC_RELAXED);
        __atomic_fetch_add(&step_.times->work[operation], now() - began, __ATOMIC_RELAXED);
    }

    template <class Body>
    void phase(Place& place, Operation operation, int64_t count, const Body& body) const {
        phase(place, operation, count, [] {}, body);
    }

    static int64_t now() {
        timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
    }

    int64_t tokens() const { return step_.num_tokens; }
    bool few() const { return tokens() <= kOwnRows; }

    float* residual(int64_t token) const { return space_.residual + token * model_.hidden_size; }

    void embed(Place& place) const {
        const auto look_up = [&](int64_t token, int64_t) {
            float* to = residual(token);
            const int64_t from = (step_.token_ids[token] - model_.first_token) * model_.hidden_size;
            if (model_.embedding_dtype == kBFloat16) {
                widen_row(static_cast<const BFloat16*>(model_.embedding) + from, to);
            } else {
                widen_row(static_cast<const float*>(model_.embedding) + from, to);
            }
        };
        if (model_.end_token - model_.first_token == model_.vocab_size) {
            phase(place, kEmbedding, tokens(), look_up);
            return;
        }
        phase(place, kEmbedding, tokens(), [&](int64_t token, int64_t next) {
            const int64_t id = step_.token_ids[token];
            if (id >= model_.first_token && id < model_.end_token) {
                look_up(token, next);
            } else {
                clear(token);
            }
        });
    }

    // A token whose residual stream another rank has.
    void clear(int64_t token) const {
        __builtin_memset(residual(token), 0, model_.hidden_size * sizeof(float));
    }

    template <class E>
    void widen_row(const E* from, float* to) const {
        for_each_vector(
            model_.hidden_size, [&](int64_t i) { store(to + i, load(from + i)); },
            [&](int64_t i, int64_t count) { store_part(to + i, load_part(from + i, count), count); });
    }

    // x / rms(x) * weight of a row of the residual stream, as row m of `to`.
    void normalise_row(int64_t token, const float* weight, const RowTiles<T>& to, int64_t m) const {
        const float* from = residual(token);
        const Vec scale = broadcast(inverse_rms(from, model_.hidden_size, model_.eps));
        for_each_vector(
            model_.hidden_size,
            [&](int64_t i) { store(to.at(m, i), load(from + i) * scale * load(weight + i)); },
            [&](int64_t i, int64_t count) {
                store_part(to.at(m, i), load_part(from + i, count) * scale * load_part(weight + i, count), count);
            });
    }

    // A linear layer of the normalised residual stream. Many rows are normalised by all threads together, a phase
    // before; few by each for itself, which costs less than a barrier.
    template <class Epilogue>
    void linear_of_normed(Place& place, Operation operation, const float* norm, const LinearLayer& layer, int64_t group,
                          const char* afterwards, const Epilogue& epilogue) const {
        if (few()) {
            const RowTiles<T>& own = space_.threads[place.thread].normed;
            const auto normalise_own = [&] {
                for (int64_t token = 0; token < tokens(); token++) normalise_row(token, norm, own, token);
            };
            linear(place, operation, own, tokens(), layer, group, afterwards, normalise_own, epilogue);
        } else {
            phase(place, kNorm, tokens(),
                  [&](int64_t token, int64_t) { normalise_row(token, norm, space_.normed, token); });
            linear(place, operation, space_.normed, tokens(), layer, group, afterwards, [] {}, epilogue);
        }
    }

    // A linear layer whose pieces are `group` panels for a block of rows: epilogue(panel, m, rows, out, stride).
    // `afterwards` is what this thread will read when it has done its share.
    template <class Prepare, class Epilogue>
    void linear(Place& place, Operation operation, const RowTiles<T>& x, int64_t rows, const LinearLayer& layer,
                int64_t group, const char* afterwards, const Prepare& prepare, const Epilogue& epilogue) const {
        const int64_t groups = (layer.num_panels + group - 1) / group;
        const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
        float* scratch = space_.threads[place.thread].scratch;
        const auto pieces = [&](const auto& prepare_input, const auto& multiply) {
            phase(place, operation, blocks * groups, prepare_input, [&](int64_t piece, int64_t next) {
                const int64_t first = piece % groups * group, begin = piece / groups * kBlockRows;
                const int64_t end = rows - begin < kBlockRows ? rows : begin + kBlockRows;
                const int64_t count = layer.num_panels - first < group ? layer.num_panels - first : group;
                multiply(begin, end, first, count, next, [&](int64_t m, int64_t some, float* out, int64_t stride) {
                    if (layer.bias != nullptr) add_bias(layer.bias + first * kPanelColumns, some, out, stride);
                    epilogue(first, m, some, out, stride);
                });
            });
        };
        if (layer.kind == kDense) {
            const Weights weights = weights_of<T>(layer);
            pieces(prepare, [&](int64_t begin, int64_t end, int64_t first, int64_t count, int64_t next,
                                const auto& finish) {
                const char* ahead = next < 0 ? afterwards : weights.panel(next % groups * group);
                multiply_panels(x, begin, end, weights, first, count, ahead, scratch, finish);
            });
            return;
        }
        const quantized::Weight weights = quantized_weights_of(layer);
        const quantized::TileGroup* input = space_.quantized;
        const auto multiply = [&](int64_t begin, int64_t end, int64_t first, int64_t count, int64_t, const auto& finish) {
            const int64_t stride = count * kPanelColumns;
            const EightBitProducts products(end - begin);
            for (int64_t m = begin; m < end; m += kTileRows) {
                const int64_t some = end - m < kTileRows ? end - m : kTileRows;
                quantized::multiply_quantized(weights, first, count, input + m / kTileRows * weights.groups, some,
                                              scratch, stride);
                finish(m, some, scratch, stride);
            }
        };
        if (rows <= kOwnQuantizedRows) {
            input = space_.threads[place.thread].quantized;
            const auto prepare_and_quantize = [&] {
                prepare();
                for (int64_t m = 0; m < rows; m++) {
                    quantize_row(x, m, layer.in_features, space_.threads[place.thread].quantized);
                }
            };
            pieces(prepare_and_quantize, multiply);
        } else {
            phase(place, kQuantize, rows, prepare, [&](int64_t m, int64_t) {
                quantize_row(x, m, layer.in_features, space_.quantized + m / kTileRows * weights.groups);
            });
            pieces([] {}, multiply);
        }
    }

    // Row m of x as row m % 16 of a tile.
    static void quantize_row(const RowTiles<T>& x, int64_t m, int64_t size, quantized::TileGroup* tile) {
        for (int64_t k = 0; k < size; k += quantized::kGroup) {
            alignas(kLineBytes) float values[quantized::kGroup] = {};
            // Rows are padded with zeros to whole lines, which may end before the group does.
            const int64_t there = round_up(size - k, kTileK<T>);
            for (int64_t i = 0; i < quantized::kGroup && i < there; i += kLanes) store(values + i, load(x.at(m, k + i)));
            quantized::quantize_group(values, tile[k / quantized::kGroup], m % kTileRows);
        }
    }

    static quantized::Weight quantized_weights_of(const LinearLayer& layer) {
        return {static_cast<const uint8_t*>(layer.panels), static_cast<quantized::Kind>(layer.kind), layer.num_panels,
                quantized::ceil_div(layer.in_features, quantized::kGroup)};
    }

    // Where a thread begins to read a layer's panels.
    const char* share(const LinearLayer& layer, const Place& place, int64_t group) const {
        const int64_t groups = (layer.num_panels + group - 1) / group;
        const int64_t first = groups * place.thread / place.threads * group;
        const int64_t stride = layer.kind == kDense ? weights_of<T>(layer).stride() : quantized_weights_of(layer).stride();
        return static_cast<const char*>(layer.panels) + first * stride;
    }

    static void add_bias(const float* bias, int64_t rows, float* out, int64_t stride) {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t n = 0; n < stride; n += kLanes) {
                store(out + r * stride + n, load(out + r * stride + n) + load(bias + n));
            }
        }
    }

    void attention(Place& place, const DecoderLayer& layer, const AttentionPlan& plan) const {
        if (model_.num_heads == 0) {
            if (model_.carries_residual == 0) {
                phase(place, kOutput, tokens(), [&](int64_t token, int64_t) { clear(token); });
            }
            return;
        }
        // Nobody is in the attention of the layer before any more, nor in this layer's yet.
        if (place.thread == 0) plan.rewind();
        linear_of_normed(place, kQkv, layer.input_norm, layer.qkv, head_panels_, share(layer.output, place, kPair),
                         [&](int64_t panel, int64_t m, int64_t rows, float* out, int64_t stride) {
                             for (int64_t r = 0; r < rows; r++) {
                                 finish_head(layer, panel / head_panels_, m + r, out + r * stride);
                             }
                         });
        attend(place, layer, plan);
        linear_to_residual(place, kOutput, space_.attended, layer.output, share(layer.gate_up, place, kPair));
    }

    void feed_forward(Place& place, const DecoderLayer& layer) const {
        linear_of_normed(place, kGateUp, layer.mlp_norm, layer.gate_up, kPair, share(layer.down, place, kPair),
                         [&](int64_t panel, int64_t m, int64_t rows, const float* out, int64_t stride) {
                             gate(panel / kPair * kPanelColumns, m, rows, out, stride);
                         });
        const DecoderLayer* following = &layer + 1 < model_.layers + model_.num_layers ? &layer + 1 : nullptr;
        const char* afterwards = following != nullptr ? share(following->qkv, place, head_panels_)
                                                      : share(model_.head, place, kPair);
        linear_to_residual(place, kDown, space_.gated, layer.down, afterwards);
    }

    // A linear layer that is added to the residual stream, or is what is left of it.
    void linear_to_residual(Place& place, Operation operation, const RowTiles<T>& x, const LinearLayer& layer,
                            const char* afterwards) const {
        linear(place, operation, x, tokens(), layer, kPair, afterwards, [] {},
               [&](int64_t panel, int64_t m, int64_t rows, const float* out, int64_t stride) {
                   if (model_.carries_residual != 0) {
                       put_in_residual(panel, m, rows, out, stride, [](Vec old, Vec more) { return old + more; });
                   } else {
                       put_in_residual(panel, m, rows, out, stride, [](Vec, Vec more) { return more; });
                   }
               });
    }

    // A panel of gates and one of up: silu(gate) * up is 16 columns of what `down` reads.
    void gate(int64_t column, int64_t m, int64_t rows, const float* out, int64_t stride) const {
        for (int64_t r = 0; r < rows; r++) {
            const float* from = out + r * stride;
            for (int64_t n = 0; n < kPanelColumns; n += kLanes) {
                store(space_.gated.at(m + r, column + n), gated(load(from + n), load(from + kPanelColumns + n)));
            }
        }
    }

    template <class Join>
    void put_in_residual(int64_t panel, int64_t m, int64_t rows, const float* out, int64_t stride,
                         const Join& join) const {
        const int64_t column = panel * kPanelColumns, left = model_.hidden_size - column;
        const int64_t columns = left < stride ? left : stride;
        for (int64_t r = 0; r < rows; r++) {
            float* to = residual(m + r) + column;
            const float* from = out + r * stride;
            for_each_vector(
                columns, [&](int64_t n) { store(to + n, join(load(to + n), load(from + n))); },
                [&](int64_t n, int64_t count) {
                    store_part(to + n, join(load_part(to + n, count), load_part(from + n, count)), count);
                });
        }
    }

    // Normalises, rotates, and brings a token's head to where attention reads it. `head` counts heads of queries,
    // keys and values.
    void finish_head(const DecoderLayer& layer, int64_t head, int64_t token, float* values) const {
        const int64_t key = head - model_.num_heads, value = key - model_.num_kv_heads;
        if (value < 0) {
            const float* norm = key < 0 ? layer.query_norm : layer.key_norm;
            if (norm != nullptr) normalise(values, norm, values, model_.head_dim, model_.eps);
            if (layer.rotary != 0) {
                const float* angles = model_.cos_sin + space_.positions[token] * model_.rotary_dim;
                const int64_t half = model_.rotary_dim / 2;
                rotate(values, values + half, angles, angles + half, half);
            }
        }
        if (key < 0) {
            narrow(values, space_.queries + (token * model_.num_heads + head) * model_.head_dim);
            return;
        }
        const int64_t row = space_.row_of_token[token], position = space_.positions[token];
        const int64_t block = step_.block_tables[row * step_.max_blocks + position / model_.block_size];
        if (model_.eight_bit_cache != 0) {
            for (int64_t d = model_.head_dim; d < head_panels_ * kPanelColumns; d++) values[d] = 0.0f;
            void* to = value < 0 ? layer.keys : layer.values;
            const EightBitBlock<T> target = eight_bit_block<T>(to, batch_, block, value < 0 ? key : value);
            value < 0 ? target.store_key(position % model_.block_size, values)
                      : target.store_value(position % model_.block_size, values);
            return;
        }
        alignas(kLineBytes) T narrowed[kMostHeadDim];
        narrow(values, narrowed);
        for (int64_t d = model_.head_dim; d < head_panels_ * kPanelColumns; d++) narrowed[d] = T{};
        const KvCache<T> cache{static_cast<T*>(layer.keys), static_cast<T*>(layer.values), model_.num_kv_heads,
                               model_.block_size, model_.head_dim};
        if (value < 0) {
            cache.store_key(block, position, key, narrowed);
        } else {
            cache.store_value(block, position, position == step_.context_lengths[row] - 1, value, narrowed);
        }
    }

    void narrow(const float* from, T* to) const {
        for_each_vector(
            model_.head_dim, [&](int64_t d) { store(to + d, load(from + d)); },
            [&](int64_t d, int64_t count) { store_part(to + d, load_part(from + d, count), count); });
    }

    void attend(Place& place, const DecoderLayer& layer, const AttentionPlan& plan) const {
        Batch batch = batch_;
        batch.k_cache = layer.keys;
        batch.v_cache = layer.values;
        batch.window = layer.window;
        const auto write = [&](int64_t token, int64_t head, const float* values) {
            const int64_t first = head * model_.head_dim;
            if (model_.head_dim % kPanelColumns == 0) {
                for (int64_t d = 0; d < model_.head_dim; d += kLanes) {
                    store(space_.attended.at(token, first + d), load(values + d));
                }
            } else {
                for (int64_t d = 0; d < model_.head_dim; d++) {
                    store_part(space_.attended.at(token, first + d), load_part(values + d, 1), 1);
                }
            }
        };
        Worker<T, decltype(write)> worker(batch, plan.most_rows(), space_.threads[place.thread].attention, write);
        phase(place, kAttention, plan.num_tasks(), [&](int64_t task, int64_t) { plan.run(worker, task); });
    }

    void head(Place& place) const {
        const ThreadSpace<T>& own = space_.threads[place.thread];
        const int64_t width = model_.end_token - model_.first_token;
        for (int64_t s = 0; s < step_.num_sampled; s++) {
            own.best[s] = -INFINITY;
            own.best_ids[s] = model_.end_token;
        }
        phase(place, kNorm, step_.num_sampled,
              [&](int64_t s, int64_t) { normalise_row(step_.sampled[s], model_.norm, space_.heads, s); });
        if (step_.num_sampled == 0) return;
        linear(place, kHead, space_.heads, step_.num_sampled, model_.head, kPair, nullptr, [] {},
               [&](int64_t panel, int64_t m, int64_t rows, const float* out, int64_t stride) {
                   const int64_t first = panel * kPanelColumns, left = width - first;
                   const int64_t columns = left < stride ? left : stride;
                   for (int64_t r = 0; r < rows; r++) {
                       const float* logits = out + r * stride;
                       keep_best(logits, model_.first_token + first, columns, own.best[m + r], own.best_ids[m + r]);
                       const int64_t row = step_.logits_rows[m + r];
                       if (row < 0) continue;
                       __builtin_memcpy(step_.logits + row * width + first, logits, columns * sizeof(float));
                   }
               });
    }

    // Largest first, NaN above all; the lowest id among equals. An order, so it makes no difference who asks first.
    static void take_better(float value, int64_t id, float& best, int64_t& best_id) {
        const bool nan = value != value, best_nan = best != best;
        const bool better = nan != best_nan ? nan : value > best || ((nan || value == best) && id < best_id);
        if (!better) return;
        best = value;
        best_id = id;
    }

    static void keep_best(const float* logits, int64_t first, int64_t columns, float& best, int64_t& best_id) {
        if (columns % kLanes == 0) {
            Vec most = load(logits), odd = most - most;
            for (int64_t n = kLanes; n < columns; n += kLanes) {
                const Vec more = load(logits + n);
                most = max(most, more);
                odd = odd + (more - more);
            }
            // `odd` is 0 unless a logit is NaN or infinite.
            if (sum(odd) == 0.0f && largest(most) < best) return;
        }
        for (int64_t n = 0; n < columns; n++) take_better(logits[n], first + n, best, best_id);
    }

    // Of so few rows every thread quantizes its own copy.
    static constexpr int64_t kOwnQuantizedRows = 2;
    static constexpr int64_t kPair = 2;  // panels of a piece of work: a gate and its up

    const Decoder& model_;
    const DecoderStep& step_;
    const Workspace<T>& space_;
    const Batch& batch_;
    const AttentionPlan* plans_;
    const int32_t* plan_of_layer_;
    Team& team_;
    const int64_t head_panels_;
};

}  // namespace headrace::HEADRACE_ISA
