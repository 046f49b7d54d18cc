// A backend that can only add, for the tests of versions: as small as one can be that computes something. It is
// compiled against headers of other versions, and uses from each what is there. A launch is done when `launch` returns.
//
// Before it is included: PLUGIN_ID, its versions OLDEST and BUILT, and the same as texts, "1.0", in OLDEST_TEXT and
// BUILT_TEXT.
#pragma once

#include "paceline_plugin.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace {

#define DESCRIPTOR                                                         \
    "id = \"" PLUGIN_ID "\"\nkind = \"backend\"\nversion = \"1.0.0\"\n" \
    "abi = { oldest = \"" OLDEST_TEXT "\", built = \"" BUILT_TEXT "\" }\n"

// CRC-32 (IEEE 802.3, reflected).
constexpr std::uint32_t crc32(const char *bytes, std::size_t count) {
    std::uint32_t crc = 0xFFFFFFFFu;
    for (std::size_t i = 0; i < count; ++i) {
        crc ^= static_cast<std::uint8_t>(bytes[i]);
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc & 1u) != 0 ? (crc >> 1) ^ 0xEDB88320u : crc >> 1;
        }
    }
    return ~crc;
}

struct Section {
    char magic[sizeof PACELINE_DESCRIPTOR_MAGIC - 1];
    std::uint64_t length;
    std::uint32_t checksum, zero;
    char text[sizeof DESCRIPTOR];
};

constexpr Section make_section() {
    Section section = {};
    for (std::size_t i = 0; i < sizeof section.magic; ++i) {
        section.magic[i] = PACELINE_DESCRIPTOR_MAGIC[i];
    }
    section.length = sizeof DESCRIPTOR - 1;
    section.checksum = crc32(DESCRIPTOR, section.length);
    for (std::size_t i = 0; i < section.length; ++i) {
        section.text[i] = DESCRIPTOR[i];
    }
    return section;
}

__attribute__((section(PACELINE_DESCRIPTOR_SECTION), used)) constexpr Section SECTION = make_section();

struct Value {
    std::uint32_t kind;
    // In the parameter block or in the workspace.
    std::uint64_t offset;
    std::size_t elements;
};

struct Node {
    bool is_add;
    std::uint32_t x, y, out;
};

struct Plan {
    std::vector<Value> values;
    std::vector<Node> nodes;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> results;
    std::uint64_t workspace_bytes = 0, parameter_bytes = 0, result_bytes = 0;
};

struct Arena {
    std::vector<std::uint64_t> words;
    char *memory() { return reinterpret_cast<char *>(words.data()); }
};

struct Executable {
    Plan plan;
    char *workspace, *parameters, *results;
    std::uint64_t parameter_stride, result_stride;
    std::uint64_t deadline_ns = 0;
};

const PacelineHostTable *host_table = nullptr;
std::uint64_t launches = 0;

PacelineStr text_of(const char *text) {
    return {reinterpret_cast<const std::uint8_t *>(text), std::strlen(text)};
}

bool is_text(PacelineStr text, const char *expected) {
    return text.len == std::strlen(expected) && std::memcmp(text.ptr, expected, text.len) == 0;
}

// A status whose text is a constant.
PacelineStatus *failed(std::int32_t code, const char *text) {
    auto *status = static_cast<PacelineStatus *>(std::calloc(1, sizeof(PacelineStatus)));
    if (status != nullptr) {
        status->size = sizeof *status;
        status->code = code;
        status->message = text_of(text);
        status->release = [](PacelineStatus *made) { std::free(made); };
    }
    return status;
}

// Writes as much as the caller knows, and leaves its size alone.
template <class Struct> PacelineStatus *give(Struct *out, Struct value) {
    value.size = out->size;
    std::memcpy(out, &value, out->size < sizeof value ? out->size : sizeof value);
    return nullptr;
}

PacelineStatus *device_count(std::uint32_t *out) {
    *out = 1;
    return nullptr;
}

PacelineStatus *device_info(std::uint32_t, PacelineDeviceInfo *out) {
    PacelineDeviceInfo info = {};
    info.kind = PACELINE_DEVICE_KIND_CPU;
    info.units = 1;
    info.name = text_of(PLUGIN_ID);
    info.physical_id = text_of("cpu");
    info.arch = text_of("generic");
    info.capabilities = text_of("add");
#if PACELINE_ABI_MINOR >= 7
    info.memory_total = 1 << 20;
    info.memory_node = 7;
    const bool has_clock = PACELINE_COVERS(host_table, PacelineHostTable, clock_ns) && host_table->clock_ns != nullptr;
    info.name = text_of(has_clock && host_table->clock_ns(host_table->context) == 1234 ? PLUGIN_ID ", with the clock"
                                                                                       : PLUGIN_ID ", without a clock");
#endif
    return give(out, info);
}

PacelineStatus *layout_weights(PacelineStr, const PacelineWeightUse *, std::size_t count, PacelineWeightLayout *) {
    return count == 0 ? nullptr : failed(PACELINE_CODE_UNSUPPORTED, "there are no weights to add");
}

const PacelineGraphTable *graph_table() {
    const bool has_interfaces = PACELINE_COVERS(host_table, PacelineHostTable, get_interface);
    if (!has_interfaces || host_table->get_interface == nullptr) {
        return nullptr;
    }
    const auto *table = host_table->get_interface(host_table->context, text_of(PACELINE_GRAPH_INTERFACE), 0);
    return static_cast<const PacelineGraphTable *>(table);
}

// Reads a graph that the host has checked. A status of the host is handed on to it.
PacelineStatus *read_graph(const PacelineGraphTable &table, PacelineGraphReaderHandle reader, Plan &plan) {
    for (std::uint32_t i = 0; i < table.value_count(reader); ++i) {
        PacelineGraphValue raw = {};
        raw.size = sizeof raw;
        if (auto *status = table.value(reader, i, &raw)) {
            return status;
        }
        Value value = {raw.kind, raw.offset, 1};
        for (std::uint32_t axis = 0; axis < raw.rank; ++axis) {
            value.elements *= raw.dims[axis];
        }
        if (raw.kind == 2) {
            plan.parameter_bytes = std::max(plan.parameter_bytes, value.offset + value.elements * 4);
        } else {
            value.offset = plan.workspace_bytes;
            plan.workspace_bytes += value.elements * 4;
        }
        plan.values.push_back(value);
    }
    for (std::uint32_t i = 0; i < table.node_count(reader); ++i) {
        PacelineGraphNode raw = {};
        raw.size = sizeof raw;
        if (auto *status = table.node(reader, i, &raw)) {
            return status;
        }
        const bool is_add = is_text(raw.operation, "add") && raw.version == 1;
        plan.nodes.push_back(is_add ? Node{true, raw.inputs[0], raw.inputs[1], raw.outputs[0]} : Node{});
    }
    for (std::uint32_t i = 0; i < table.result_count(reader); ++i) {
        std::uint32_t value = 0, offset = 0;
        if (auto *status = table.result(reader, i, &value, &offset)) {
            return status;
        }
        plan.results.emplace_back(value, offset);
        plan.result_bytes = std::max(plan.result_bytes, std::uint64_t{offset} + plan.values[value].elements * 4);
    }
    return nullptr;
}

PacelineStatus *plan_graph(PacelineBytes graph, PacelineStr, const PacelineWeightLayout *, std::size_t,
                           PacelinePlanHandle *out) {
    const auto *table = graph_table();
    if (table == nullptr) {
        return failed(PACELINE_CODE_UNSUPPORTED, "the host has no interface " PACELINE_GRAPH_INTERFACE);
    }
    PacelineGraphReaderHandle reader = nullptr;
    if (auto *status = table->reader_open(graph, &reader)) {
        return status;
    }
    auto *plan = new Plan;
    auto *status = read_graph(*table, reader, *plan);
    table->reader_free(reader);
    *out = plan;
    return status;
}

PacelineStatus *plan_info(PacelinePlanHandle handle, PacelinePlanInfo *out) {
    const auto &plan = *static_cast<Plan *>(handle);
    PacelinePlanInfo info = {};
    info.workspace_bytes = plan.workspace_bytes;
    info.workspace_alignment = 4;
    info.parameter_bytes = plan.parameter_bytes;
    info.result_bytes = plan.result_bytes;
    info.node_count = static_cast<std::uint32_t>(plan.nodes.size());
    for (const auto &node : plan.nodes) {
        info.refused_count += node.is_add ? 0 : 1;
    }
    return give(out, info);
}

PacelineStatus *plan_node(PacelinePlanHandle handle, std::uint32_t index, PacelineNodePlan *out) {
    PacelineNodePlan info = {};
    info.refused = static_cast<Plan *>(handle)->nodes[index].is_add ? 0 : 1;
    info.row_invariance = PACELINE_UNLIMITED_ROWS;
    info.text = text_of(info.refused == 0 ? "add" : "this backend can only add");
    return give(out, info);
}

void plan_free(PacelinePlanHandle plan) {
    delete static_cast<Plan *>(plan);
}

PacelineStatus *device_open(std::uint32_t, const PacelineSettingText *, std::size_t setting_count,
                            PacelineDeviceHandle *out) {
    static char device;
    *out = &device;
    return setting_count == 0 ? nullptr : failed(PACELINE_CODE_INVALID, "there are no settings");
}

PacelineStatus *device_counters(PacelineDeviceHandle, PacelineCounters *out) {
    PacelineCounters counters = {};
    counters.launches = launches;
    return give(out, counters);
}

PacelineStatus *arena_create(PacelineDeviceHandle, std::uint32_t, std::uint64_t bytes, PacelineArenaHandle *out) {
    *out = new Arena{std::vector<std::uint64_t>((bytes + 7) / 8)};
    return nullptr;
}

void arena_free(PacelineArenaHandle arena) {
    delete static_cast<Arena *>(arena);
}

char *address(const PacelineArenaSpan &span) {
    return static_cast<Arena *>(span.arena)->memory() + span.offset;
}

PacelineStatus *arena_host(PacelineArenaHandle arena, std::uint8_t **out) {
    *out = reinterpret_cast<std::uint8_t *>(static_cast<Arena *>(arena)->memory());
    return nullptr;
}

PacelineStatus *executable_load(PacelineDeviceHandle, PacelinePlanHandle plan, const PacelineLoadArgs *args,
                                PacelineExecutableHandle *out) {
    // `slots` is the last field that every version has.
    if (!PACELINE_COVERS(args, PacelineLoadArgs, slots)) {
        return failed(PACELINE_CODE_INVALID, "the arguments are too short");
    }
    *out = new Executable{*static_cast<Plan *>(plan), address(args->workspace),  address(args->parameters),
                          address(args->results),     args->parameter_stride, args->result_stride};
    return nullptr;
}

void executable_free(PacelineExecutableHandle executable) {
    delete static_cast<Executable *>(executable);
}

float *floats(const Executable &loaded, std::uint32_t slot, std::uint32_t id) {
    const auto &value = loaded.plan.values[id];
    char *base = value.kind == 2 ? loaded.parameters + slot * loaded.parameter_stride : loaded.workspace;
    return reinterpret_cast<float *>(base + value.offset);
}

void signal(PacelineSemaphoreHandle semaphore, std::uint64_t value) {
    *static_cast<std::uint64_t *>(semaphore) = value;
}

std::int32_t launch(PacelineExecutableHandle executable, const PacelineLaunchArgs *args) {
    auto &loaded = *static_cast<Executable *>(executable);
    if (!PACELINE_COVERS(args, PacelineLaunchArgs, signal_count) || args->wait_count != 0) {
        return PACELINE_CODE_INVALID;
    }
#if PACELINE_ABI_MINOR >= 7
    // A host of an earlier version has no deadline, and nothing of it is there to be read.
    loaded.deadline_ns = PACELINE_COVERS(args, PacelineLaunchArgs, deadline_ns) ? args->deadline_ns : 0;
#endif
    ++launches;
    for (const auto &node : loaded.plan.nodes) {
        const auto &values = loaded.plan.values;
        for (std::size_t i = 0; i < values[node.out].elements; ++i) {
            const float y = floats(loaded, args->slot, node.y)[i % values[node.y].elements];
            floats(loaded, args->slot, node.out)[i] = floats(loaded, args->slot, node.x)[i] + y;
        }
    }
    for (const auto &result : loaded.plan.results) {
        std::memcpy(loaded.results + args->slot * loaded.result_stride + result.second,
                    floats(loaded, args->slot, result.first), loaded.plan.values[result.first].elements * 4);
    }
    for (std::size_t i = 0; i < args->signal_count; ++i) {
        signal(args->signals[i].semaphore, args->signals[i].value);
    }
    return PACELINE_CODE_OK;
}

PacelineStatus *semaphore_create(PacelineDeviceHandle, std::uint64_t initial, PacelineSemaphoreHandle *out) {
    *out = new std::uint64_t(initial);
    return nullptr;
}

void semaphore_free(PacelineSemaphoreHandle semaphore) {
    delete static_cast<std::uint64_t *>(semaphore);
}

std::int32_t semaphore_wait(PacelineSemaphoreHandle semaphore, std::uint64_t value, std::uint64_t) {
    return *static_cast<std::uint64_t *>(semaphore) >= value ? PACELINE_CODE_OK : PACELINE_CODE_TIMEOUT;
}

#if PACELINE_ABI_MINOR >= 7
std::int32_t launch_cancel(PacelineExecutableHandle, std::uint32_t) {
    return PACELINE_CODE_UNSUPPORTED;
}
#endif

// Functions that are not set are absent.
PacelineBackendTable make_backend() {
    PacelineBackendTable table = {};
    table.size = sizeof table;
    table.device_count = device_count;
    table.device_info = device_info;
    table.layout_weights = layout_weights;
    table.plan = plan_graph;
    table.plan_info = plan_info;
    table.plan_node = plan_node;
    table.plan_free = plan_free;
    table.device_open = device_open;
    table.device_counters = device_counters;
    table.arena_create = arena_create;
    table.arena_free = arena_free;
    table.arena_host = arena_host;
    table.executable_load = executable_load;
    table.executable_free = executable_free;
    table.launch = launch;
    table.semaphore_create = semaphore_create;
    table.semaphore_free = semaphore_free;
    table.semaphore_wait = semaphore_wait;
#if PACELINE_ABI_MINOR >= 7
    table.launch_cancel = launch_cancel;
#endif
    return table;
}

const void *get_interface(PacelineStr id, std::uint32_t min_minor) {
    static const PacelineBackendTable backend = make_backend();
    return is_text(id, PACELINE_BACKEND_INTERFACE) && min_minor <= PACELINE_ABI_MINOR ? &backend : nullptr;
}

PacelinePluginTable make_plugin() {
    PacelinePluginTable table = {};
    table.size = sizeof table;
    table.abi_oldest = OLDEST;
    table.abi_built = BUILT;
    table.id = text_of(PLUGIN_ID);
    table.plugin_version = text_of("1.0.0");
    table.kind = PACELINE_KIND_BACKEND;
    table.descriptor = text_of(DESCRIPTOR);
    table.get_interface = get_interface;
#if PACELINE_ABI_MINOR >= 7
    table.build = text_of("by hand");
#endif
    return table;
}

} // namespace

extern "C" const PacelinePluginTable *paceline_plugin_entry_v1(const PacelineHostTable *host) {
    static const PacelinePluginTable plugin = make_plugin();
    host_table = host;
    return &plugin;
}
