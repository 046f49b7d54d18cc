// The operations that this backend has. Sums are kept in double precision and in a fixed order, so the bits of a row
// do not depend on the rows beside it.
#pragma once

#include "graph.hpp"

#include <cmath>
#include <limits>

namespace example {

// Where the values of one launch are.
class Run {
  public:
    // `places` has the address of every value but the parameters.
    Run(const Graph &graph, const std::vector<char *> &places, char *parameters)
        : graph_(graph), places_(places), parameters_(parameters) {}

    const Value &value(std::uint32_t id) const { return graph_.values[id]; }
    char *bytes(std::uint32_t id) const {
        return value(id).kind == ValueKind::parameter ? parameters_ + value(id).offset : places_[id];
    }
    float *floats(std::uint32_t id) const { return reinterpret_cast<float *>(bytes(id)); }
    std::int32_t *integers(std::uint32_t id) const { return reinterpret_cast<std::int32_t *>(bytes(id)); }
    // Entries of axis 0 that are live in this launch.
    std::size_t rows(std::uint32_t id) const {
        const auto live = value(id).live;
        return live == NO_LIVE_COUNT ? value(id).first() : static_cast<std::size_t>(integers(live)[0]);
    }
    std::size_t live_elements(std::uint32_t id) const { return rows(id) * value(id).row_elements(); }
    void check_live_counts() const;

  private:
    const Graph &graph_;
    const std::vector<char *> &places_;
    char *parameters_;
};

inline void Run::check_live_counts() const {
    for (const auto &value : graph_.values) {
        if (value.live == NO_LIVE_COUNT) {
            continue;
        }
        const auto count = integers(value.live)[0];
        if (count < 0 || static_cast<std::uint32_t>(count) > value.first()) {
            fail_invalid("the live count `" + graph_.values[value.live].name + "` is " + std::to_string(count) +
                         ", outside of 0..=" + std::to_string(value.first()));
        }
    }
}

using Function = double (*)(double);

inline double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

inline double silu(double x) {
    return std::isinf(x) && x < 0.0 ? 0.0 : x * sigmoid(x);
}

// The function of an attribute `kind`; null for one that is not known here.
inline Function function_of(const std::string &kind) {
    static const std::map<std::string, Function> functions = {
        {"silu", silu},
        {"sigmoid", sigmoid},
        {"gelu", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
        {"gelu_tanh",
         [](double x) {
             const double inner = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
             return 0.5 * x * (1.0 + std::tanh(inner));
         }},
        {"softplus", [](double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }},
        {"tanh", [](double x) { return std::tanh(x); }},
        {"exp", [](double x) { return std::exp(x); }},
    };
    const auto found = functions.find(kind);
    return found == functions.end() ? nullptr : found->second;
}

inline void embed(const Run &run, const Node &node) {
    const auto ids = node.inputs[0], table = node.inputs[1];
    const std::size_t width = run.value(table).last();
    float *out = run.floats(node.outputs[0]);
    std::int32_t faults = 0;
    for (std::size_t row = 0; row < run.rows(ids); ++row, out += width) {
        const auto id = run.integers(ids)[row];
        if (id >= 0 && static_cast<std::uint32_t>(id) < run.value(table).first()) {
            std::copy_n(run.floats(table) + static_cast<std::size_t>(id) * width, width, out);
        } else {
            std::fill_n(out, width, 0.0f);
            ++faults;
        }
    }
    run.integers(node.outputs[1])[0] = faults;
}

inline void rms_norm(const Run &run, const Node &node) {
    const bool has_weight = node.integer("weight", 1) != 0, has_gate = node.integer("gate", 0) != 0;
    const std::size_t width = run.value(node.inputs[0]).last();
    const float *x = run.floats(node.inputs[0]);
    const float *weight = has_weight ? run.floats(node.inputs[1]) : nullptr;
    const float *gate = has_gate ? run.floats(node.inputs[has_weight ? 2 : 1]) : nullptr;
    float *out = run.floats(node.outputs[0]);
    for (std::size_t at = 0; at < run.live_elements(node.inputs[0]); at += width) {
        double squares = 0.0;
        for (std::size_t i = 0; i < width; ++i) {
            squares += static_cast<double>(x[at + i]) * x[at + i];
        }
        const double root = std::sqrt(squares / static_cast<double>(width) + node.number("eps", 0.0));
        for (std::size_t i = 0; i < width; ++i) {
            const double factor = weight != nullptr ? weight[i] : 1.0;
            const double gated = gate != nullptr ? silu(gate[at + i]) : 1.0;
            out[at + i] = static_cast<float>(factor * x[at + i] / root * gated);
        }
    }
}

inline void linear(const Run &run, const Node &node) {
    const auto weight = node.inputs[1];
    const std::size_t width = run.value(weight).last(), columns = run.value(weight).first();
    const float *bias = node.integer("bias", 0) != 0 ? run.floats(node.inputs[2]) : nullptr;
    for (std::size_t row = 0; row < run.rows(node.inputs[0]); ++row) {
        const float *x = run.floats(node.inputs[0]) + row * width;
        for (std::size_t column = 0; column < columns; ++column) {
            const float *w = run.floats(weight) + column * width;
            double sum = bias != nullptr ? bias[column] : 0.0;
            for (std::size_t i = 0; i < width; ++i) {
                sum += static_cast<double>(x[i]) * w[i];
            }
            run.floats(node.outputs[0])[row * columns + column] = static_cast<float>(sum);
        }
    }
}

// y has the trailing dimensions of x and is repeated over the leading ones.
template <class Combine> void broadcast(const Run &run, const Node &node, Combine combine) {
    const float *x = run.floats(node.inputs[0]), *y = run.floats(node.inputs[1]);
    const std::size_t period = run.value(node.inputs[1]).elements();
    for (std::size_t i = 0; i < run.live_elements(node.inputs[0]); ++i) {
        run.floats(node.outputs[0])[i] = combine(x[i], y[i % period]);
    }
}

inline void add(const Run &run, const Node &node) {
    broadcast(run, node, [](float x, float y) { return x + y; });
}

inline void mul(const Run &run, const Node &node) {
    broadcast(run, node, [](float x, float y) { return x * y; });
}

inline void activation(const Run &run, const Node &node) {
    const auto function = function_of(node.text("kind", ""));
    const double cap = node.number("softcap", 0.0);
    for (std::size_t i = 0; i < run.live_elements(node.inputs[0]); ++i) {
        const double x = run.floats(node.inputs[0])[i];
        run.floats(node.outputs[0])[i] = static_cast<float>(cap == 0.0 ? function(x) : cap * function(x / cap));
    }
}

inline void glu(const Run &run, const Node &node) {
    const auto function = function_of(node.text("kind", ""));
    const float *gate = run.floats(node.inputs[0]), *up = run.floats(node.inputs[1]);
    for (std::size_t i = 0; i < run.live_elements(node.inputs[0]); ++i) {
        run.floats(node.outputs[0])[i] = static_cast<float>(function(gate[i]) * up[i]);
    }
}

inline void softmax(const Run &run, const Node &node) {
    const std::size_t width = run.value(node.inputs[0]).last();
    for (std::size_t at = 0; at < run.live_elements(node.inputs[0]); at += width) {
        const float *x = run.floats(node.inputs[0]) + at;
        float *out = run.floats(node.outputs[0]) + at;
        const double largest = *std::max_element(x, x + width);
        double sum = 0.0;
        for (std::size_t i = 0; i < width; ++i) {
            sum += std::exp(x[i] - largest);
        }
        for (std::size_t i = 0; i < width; ++i) {
            out[i] = static_cast<float>(std::exp(x[i] - largest) / sum);
        }
    }
}

inline void argmax(const Run &run, const Node &node) {
    const std::size_t width = run.value(node.inputs[0]).last();
    std::int32_t faults = 0;
    for (std::size_t row = 0; row < run.rows(node.inputs[0]); ++row) {
        const float *x = run.floats(node.inputs[0]) + row * width;
        std::int32_t best = 0;
        for (std::size_t i = 1; i < width; ++i) {
            best = x[i] > x[best] ? static_cast<std::int32_t>(i) : best;
        }
        if (std::any_of(x, x + width, [](float value) { return std::isnan(value); })) {
            best = -1;
            ++faults;
        }
        run.integers(node.outputs[0])[row] = best;
    }
    run.integers(node.outputs[1])[0] = faults;
}

inline void check_select_rows(const Run &run, const Node &node) {
    for (std::size_t i = 0; i < run.rows(node.inputs[1]); ++i) {
        const auto row = run.integers(node.inputs[1])[i];
        if (row < 0 || static_cast<std::size_t>(row) >= run.rows(node.inputs[0])) {
            fail_invalid("select_rows: row " + std::to_string(row) + " is not live");
        }
    }
}

inline void select_rows(const Run &run, const Node &node) {
    const std::size_t width = run.value(node.inputs[0]).row_elements();
    for (std::size_t i = 0; i < run.rows(node.inputs[1]); ++i) {
        const auto row = static_cast<std::size_t>(run.integers(node.inputs[1])[i]);
        std::copy_n(run.floats(node.inputs[0]) + row * width, width, run.floats(node.outputs[0]) + i * width);
    }
}

// One entry of a sequences parameter.
struct Sequence {
    std::int32_t first, rows, length, slot;
};

inline void check_conv_causal(const Run &run, const Node &node) {
    const auto *list = reinterpret_cast<const Sequence *>(run.bytes(node.inputs[3]));
    const auto rows = static_cast<std::int64_t>(run.rows(node.inputs[0]));
    const auto planes = node.integer("planes", 1);
    const auto slots = static_cast<std::int64_t>(run.value(node.inputs[2]).first()) / planes;
    for (std::size_t i = 0; i < run.rows(node.inputs[3]); ++i) {
        const auto &one = list[i];
        if (one.first < 0 || one.rows < 0 || one.length < 0 || one.slot < 0 || one.slot >= slots ||
            std::int64_t{one.first} + one.rows > rows) {
            fail_invalid("conv_causal: sequence " + std::to_string(i) + " is outside of the live rows or the slots");
        }
        if (planes > 1) {
            const auto plane = run.integers(node.inputs[4])[i * 3];
            if (plane < 0 || plane >= planes) {
                fail_invalid("conv_causal: there is no plane " + std::to_string(plane));
            }
        }
        for (std::size_t j = 0; j < i; ++j) {
            const auto &other = list[j];
            const bool is_shared = one.first < other.first + other.rows && other.first < one.first + one.rows;
            if (one.rows > 0 && other.rows > 0 && (is_shared || one.slot == other.slot)) {
                fail_invalid("conv_causal: two sequences have a row or a slot in common");
            }
        }
    }
}

inline void conv_causal(const Run &run, const Node &node) {
    const std::size_t channels = run.value(node.inputs[1]).first(), taps = run.value(node.inputs[1]).last();
    const std::size_t kept = taps - 1;
    const auto planes = static_cast<std::size_t>(node.integer("planes", 1));
    const bool has_silu = node.text("activation", "none") == "silu";
    const float *weight = run.floats(node.inputs[1]);
    // Rows that belong to no sequence are zeros.
    std::fill_n(run.floats(node.outputs[0]), run.live_elements(node.outputs[0]), 0.0f);
    const auto *list = reinterpret_cast<const Sequence *>(run.bytes(node.inputs[3]));
    for (std::size_t i = 0; i < run.rows(node.inputs[3]); ++i) {
        const auto rows = static_cast<std::size_t>(list[i].rows);
        if (rows == 0) {
            continue;
        }
        const float *x = run.floats(node.inputs[0]) + static_cast<std::size_t>(list[i].first) * channels;
        float *out = run.floats(node.outputs[0]) + static_cast<std::size_t>(list[i].first) * channels;
        // A window is the last inputs of the sequence, the oldest first. A slot has one in each plane; a new sequence
        // starts from zeros, whatever its slot holds.
        const auto slot = static_cast<std::size_t>(list[i].slot);
        const auto first = planes == 1 ? 0 : static_cast<std::size_t>(run.integers(node.inputs[4])[i * 3]);
        const auto window = [&](std::size_t plane) {
            return run.floats(node.inputs[2]) + (slot * planes + plane) * kept * channels;
        };
        const auto input = [&](std::size_t at, std::size_t channel) {
            if (at >= kept) {
                return x[(at - kept) * channels + channel];
            }
            return list[i].length == 0 ? 0.0f : window(first)[at * channels + channel];
        };
        for (std::size_t row = 0; row < rows; ++row) {
            for (std::size_t channel = 0; channel < channels; ++channel) {
                double sum = 0.0;
                for (std::size_t tap = 0; tap < taps; ++tap) {
                    sum += static_cast<double>(weight[channel * taps + tap]) * input(row + tap, channel);
                }
                out[row * channels + channel] = static_cast<float>(has_silu ? silu(sum) : sum);
            }
        }
        // The window after each of the last rows. The plane that the others are read from is written last, and upwards.
        for (const bool is_first : {false, true}) {
            for (std::size_t row = rows > planes ? rows - planes : 0; row < rows; ++row) {
                const std::size_t plane = (first + 1 + row) % planes;
                for (std::size_t at = 0; at < kept * channels && is_first == (plane == first); ++at) {
                    window(plane)[at] = input(row + 1 + at / channels, at % channels);
                }
            }
        }
    }
}

struct Operation {
    const char *name;
    void (*run)(const Run &, const Node &);
    // Checks indices that stand in the parameter block, before a launch is queued; may be null.
    void (*check)(const Run &, const Node &);
    // The input that has these indices.
    std::size_t index_input;
};

inline const Operation *find_operation(const Node &node) {
    static const Operation operations[] = {
        {"embed", embed, nullptr, 0},
        {"rms_norm", rms_norm, nullptr, 0},
        {"linear", linear, nullptr, 0},
        {"add", add, nullptr, 0},
        {"mul", mul, nullptr, 0},
        {"activation", activation, nullptr, 0},
        {"glu", glu, nullptr, 0},
        {"softmax", softmax, nullptr, 0},
        {"argmax", argmax, nullptr, 0},
        {"select_rows", select_rows, check_select_rows, 1},
        {"conv_causal", conv_causal, check_conv_causal, 3},
    };
    for (const auto &operation : operations) {
        if (node.operation == operation.name && node.version == 1) {
            return &operation;
        }
    }
    return nullptr;
}

// Why a node cannot run here; empty if it can.
inline std::string refusal(const Graph &graph, const Node &node) {
    const auto name = node.operation + "/" + std::to_string(node.version);
    const auto *operation = find_operation(node);
    if (operation == nullptr) {
        return name + " is not one of this backend's operations";
    }
    for (const auto id : node.inputs) {
        const auto &input = graph.values[id];
        if (!input.is_plain()) {
            return name + ": `" + input.name + "` is of type " + std::to_string(input.dtype) + ", not f32 or i32";
        }
    }
    if (operation->check != nullptr &&
        graph.values[node.inputs[operation->index_input]].kind != ValueKind::parameter) {
        return name + ": indices that another node makes are not supported";
    }
    const auto kind = node.text("kind", "silu");
    return function_of(kind) != nullptr ? std::string() : name + ": the function `" + kind + "` is not known";
}

} // namespace example
