// The functions of `paceline.backend/1` that work without an opened device: what there is, what weights need, what a
// graph would cost.
#pragma once

#include "device.hpp"

#include <unistd.h>

namespace example {

constexpr std::string_view CAPABILITIES = "f32";

// Given at the entry, valid for the life of the process.
inline const PacelineHostTable *host_table = nullptr;

inline const PacelineGraphTable &graph_table() {
    const void *table = nullptr;
    if (host_table != nullptr && PACELINE_COVERS(host_table, PacelineHostTable, get_interface) &&
        host_table->get_interface != nullptr) {
        table = host_table->get_interface(host_table->context, to_c(PACELINE_GRAPH_INTERFACE), 0);
    }
    if (table == nullptr) {
        fail_unsupported("the host has no interface " PACELINE_GRAPH_INTERFACE);
    }
    return *static_cast<const PacelineGraphTable *>(table);
}

inline void log(std::uint32_t level, const std::string &text) noexcept {
    if (PACELINE_COVERS(host_table, PacelineHostTable, log_event) && host_table->log_event != nullptr) {
        host_table->log_event(host_table->context, level, to_c("cpp-example"), to_c(text), nullptr, 0);
    }
}

inline std::uint64_t memory_bytes(int pages) {
    return static_cast<std::uint64_t>(sysconf(pages)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

inline PacelineStatus *device_count(std::uint32_t *out) noexcept {
    return guard([&] { write(out, 1u); });
}

inline PacelineStatus *device_info(std::uint32_t index, PacelineDeviceInfo *out) noexcept {
    return guard([&] {
        if (index != 0) {
            fail_invalid("there is no device " + std::to_string(index));
        }
        PacelineDeviceInfo info = {};
        info.kind = PACELINE_DEVICE_KIND_CPU;
        info.units = 1;
        info.name = to_c("C++ example");
        info.physical_id = to_c("cpu");
        info.arch = to_c("generic");
        info.capabilities = to_c(CAPABILITIES);
        info.memory_total = memory_bytes(_SC_PHYS_PAGES);
        write_sized(out, info);
    });
}

inline PacelineStatus *layout_weights(PacelineStr, const PacelineWeightUse *weights, std::size_t count,
                                      PacelineWeightLayout *layouts) noexcept {
    return guard([&] {
        for (std::size_t i = 0; i < count; ++i) {
            const auto &weight = element(weights, i);
            if (weight.dtype != TYPE_F32 || weight.rank > 4) {
                fail_unsupported("weight `" + std::string(to_cpp(weight.name)) + "` is of type " +
                                 std::to_string(weight.dtype) + ": only f32 is supported");
            }
            std::uint64_t bytes = 4;
            for (std::uint32_t axis = 0; axis < weight.rank; ++axis) {
                bytes *= weight.dims[axis];
            }
            layouts[i] = {PLAIN_LAYOUT, bytes, ALIGNMENT};
        }
    });
}

// Plans are shared with executables, so that either may be freed first.
using PlanOwner = std::shared_ptr<const Plan>;

struct PlanHandle : Handle {
    PlanOwner plan;
};

inline PlanOwner make_plan(Graph graph) {
    auto plan = std::make_shared<Plan>();
    for (const auto &node : graph.nodes) {
        plan->refusals.push_back(refusal(graph, node));
        plan->operations.push_back(find_operation(node));
    }
    for (const auto &value : graph.values) {
        plan->offsets.push_back(plan->workspace_bytes);
        if (value.kind == ValueKind::node) {
            plan->workspace_bytes += (value.bytes() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
    }
    plan->graph = std::move(graph);
    return plan;
}

inline PacelineStatus *plan(PacelineBytes bytes, PacelineStr capabilities, const PacelineWeightLayout *layouts,
                            std::size_t layout_count, PacelinePlanHandle *out) noexcept {
    return guard([&] {
        if (to_cpp(capabilities) != CAPABILITIES) {
            fail_invalid("these capabilities are not this backend's");
        }
        auto graph = read_graph(graph_table(), bytes);
        if (layout_count != graph.ids(ValueKind::weight).size()) {
            fail_invalid(std::to_string(layout_count) + " layouts are not one per weight");
        }
        for (std::size_t i = 0; i < layout_count; ++i) {
            if (layouts[i].layout != PLAIN_LAYOUT) {
                fail_invalid("layout " + std::to_string(layouts[i].layout) + " is not this backend's");
            }
        }
        auto handle = std::make_unique<PlanHandle>();
        handle->plan = make_plan(std::move(graph));
        write<void *>(out, handle.get());
        handle.release();
    });
}

inline PacelineStatus *plan_info(PacelinePlanHandle plan, PacelinePlanInfo *out) noexcept {
    return guard([&] {
        with<PlanHandle>(plan, [&](PlanHandle &handle) {
            const auto &planned = *handle.plan;
            PacelinePlanInfo info = {};
            info.workspace_bytes = planned.workspace_bytes;
            info.workspace_alignment = ALIGNMENT;
            info.parameter_bytes = planned.graph.parameter_bytes();
            info.result_bytes = planned.graph.result_bytes();
            info.node_count = static_cast<std::uint32_t>(planned.graph.nodes.size());
            for (const auto &reason : planned.refusals) {
                info.refused_count += reason.empty() ? 0 : 1;
            }
            write_sized(out, info);
        });
    });
}

// FNV-1a: what an operation computes is its name and the version of this file's arithmetic.
inline std::uint64_t numerics_of(const std::string &operation) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char byte : "cpp-example 1 " + operation) {
        hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3u;
    }
    return hash;
}

inline PacelineStatus *plan_node(PacelinePlanHandle plan, std::uint32_t index, PacelineNodePlan *out) noexcept {
    return guard([&] {
        with<PlanHandle>(plan, [&](PlanHandle &handle) {
            const auto &graph = handle.plan->graph;
            if (index >= graph.nodes.size()) {
                fail_invalid("there is no node " + std::to_string(index));
            }
            const auto &node = graph.nodes[index];
            const auto &reason = handle.plan->refusals[index];
            PacelineNodePlan info = {};
            info.refused = reason.empty() ? 0 : 1;
            info.text = to_c(reason.empty() ? node.operation : reason);
            if (reason.empty()) {
                info.row_invariance = PACELINE_UNLIMITED_ROWS;
                info.numerics = numerics_of(node.operation);
                info.operations = graph.values[node.outputs[0]].elements();
                for (const auto id : node.inputs) {
                    const auto kind = graph.values[id].kind;
                    const bool is_read = kind == ValueKind::weight || kind == ValueKind::state;
                    info.bytes_read += is_read ? graph.values[id].bytes() : 0;
                }
                if (node.operation == "linear") {
                    info.operations *= graph.values[node.inputs[1]].last();
                }
            }
            write_sized(out, info);
        });
    });
}

inline PacelineStatus *plan_state(PacelinePlanHandle plan, std::uint32_t index, PacelineStatePlan *out) noexcept {
    return guard([&] {
        with<PlanHandle>(plan, [&](PlanHandle &handle) {
            const auto states = handle.plan->graph.ids(ValueKind::state);
            if (index >= states.size()) {
                fail_invalid("there is no state " + std::to_string(index));
            }
            // A state of another type belongs to a node that is refused.
            write(out, PacelineStatePlan{handle.plan->graph.values[states[index]].bytes(), ALIGNMENT, PLAIN_LAYOUT});
        });
    });
}

inline void plan_free(PacelinePlanHandle plan) noexcept {
    delete static_cast<PlanHandle *>(plan);
}

} // namespace example
