// A backend in C++ over the C ABI: small, on the processor, weights of f32. See README.md.
//
// This file has the functions of `paceline.backend/1` that need an opened device, and the tables; the pure ones are in
// planning.hpp. No function lets an exception out: cold ones go through `guard`, which makes a status of it, hot ones
// return a code and keep the text in the handle.

#include "descriptor.hpp"
#include "planning.hpp"

namespace example {
namespace {

__attribute__((section(PACELINE_DESCRIPTOR_SECTION), used)) constexpr auto SECTION = make_section(DESCRIPTOR);

PacelineStatus *device_open(std::uint32_t index, const PacelineSettingText *settings, std::size_t setting_count,
                            PacelineDeviceHandle *out) noexcept {
    return guard([&] {
        if (index != 0) {
            fail_invalid("there is no device " + std::to_string(index));
        }
        if (setting_count != 0) {
            fail_invalid("the setting `" + std::string(to_cpp(settings[0].key)) + "` is not known: there are none");
        }
        write<void *>(out, new Device);
        log(PACELINE_LEVEL_DEBUG, "the device is open");
    });
}

void device_close(PacelineDeviceHandle device) noexcept {
    delete static_cast<Device *>(device);
}

PacelineStatus *device_memory(PacelineDeviceHandle device, PacelineMemoryInfo *out) noexcept {
    return guard([&] {
        with<Device>(device, [&](Device &) {
            write_sized(out, {0, memory_bytes(_SC_PHYS_PAGES), memory_bytes(_SC_AVPHYS_PAGES), ALIGNMENT});
        });
    });
}

PacelineStatus *device_counters(PacelineDeviceHandle device, PacelineCounters *out) noexcept {
    return guard([&] {
        with<Device>(device, [&](Device &opened) {
            PacelineCounters counters = {};
            counters.launches = opened.counts->launches;
            counters.waits = opened.counts->waits;
            counters.arena_bytes = opened.counts->arena_bytes;
            write_sized(out, counters);
        });
    });
}

PacelineStatus *arena_create(PacelineDeviceHandle device, std::uint32_t arena_class, std::uint64_t bytes,
                             PacelineArenaHandle *out) noexcept {
    return guard([&] {
        if (arena_class > PACELINE_ARENA_CLASS_IO) {
            fail_invalid("arena class " + std::to_string(arena_class) + " is not known");
        }
        with<Device>(device, [&](Device &opened) {
            write<void *>(out, new Arena(opened.counts, arena_class, bytes));
        });
    });
}

void arena_free(PacelineArenaHandle arena) noexcept {
    delete static_cast<Arena *>(arena);
}

PacelineStatus *arena_host(PacelineArenaHandle arena, std::uint8_t **out) noexcept {
    return guard([&] {
        with<Arena>(arena, [&](Arena &made) {
            if (made.arena_class() != PACELINE_ARENA_CLASS_IO) {
                fail_unsupported("only IO arenas have an address in host memory");
            }
            write(out, reinterpret_cast<std::uint8_t *>(made.memory()));
        });
    });
}

Point to_point(const PacelineSemaphorePoint &point) {
    return with<Semaphore>(point.semaphore, [&](Semaphore &made) { return Point{made.timeline, point.value}; });
}

PacelineStatus *weights_import(PacelineDeviceHandle device, const PacelineWeightImport *imports, std::size_t count,
                               const PacelineSemaphorePoint *signal) noexcept {
    return guard([&] {
        with<Device>(device, [&](Device &) {
            if (signal == nullptr) {
                fail_invalid("an import without a signal");
            }
            const auto done = to_point(*signal);
            for (std::size_t i = 0; i < count; ++i) {
                const auto &import = element(imports, i);
                const auto name = "weight `" + std::string(to_cpp(import.weight.name)) + "`";
                if (import.layout.layout != PLAIN_LAYOUT || import.source.len != import.layout.bytes) {
                    fail_invalid(name + " has another layout or length than it was given");
                }
                std::memcpy(address(import.target, import.layout.bytes, name), import.source.ptr, import.source.len);
            }
            done.timeline->signal(done.value);
        });
    });
}

// The address of blocks of which every slot needs `needed` bytes.
char *block_address(const PacelineArenaSpan &span, std::uint64_t stride, std::uint32_t slots, std::uint64_t needed,
                    const std::string &what) {
    if (slots == 0 || stride < needed || stride > UINT64_MAX / slots) {
        fail_invalid("the " + what + " need " + std::to_string(needed) + " bytes for each of at least one slot");
    }
    return address(span, stride * slots, what);
}

PacelineStatus *executable_load(PacelineDeviceHandle device, PacelinePlanHandle plan, const PacelineLoadArgs *args,
                                PacelineExecutableHandle *out) noexcept {
    return guard([&] {
        const auto &load = read_sized(args);
        auto made = std::make_unique<Executable>();
        made->device = with<Device>(device, [](Device &opened) { return &opened; });
        made->plan = with<PlanHandle>(plan, [](PlanHandle &handle) { return handle.plan; });
        const auto &graph = made->plan->graph;
        for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
            if (!made->plan->refusals[i].empty()) {
                fail_unsupported("node " + std::to_string(i) + " was refused: " + made->plan->refusals[i]);
            }
        }
        const auto weights = graph.ids(ValueKind::weight), states = graph.ids(ValueKind::state);
        if (load.weight_count != weights.size() || load.state_count != states.size()) {
            fail_invalid("another number of weights or states than the graph has");
        }
        made->places.resize(graph.values.size());
        const auto bind = [&](const std::vector<std::uint32_t> &ids, const PacelineArenaSpan *spans) {
            for (std::size_t i = 0; i < ids.size(); ++i) {
                const auto &value = graph.values[ids[i]];
                made->places[ids[i]] = address(spans[i], value.bytes(), "`" + value.name + "`");
            }
        };
        bind(weights, load.weights);
        bind(states, load.states);
        char *workspace = address(load.workspace, made->plan->workspace_bytes, "the workspace");
        for (const auto id : graph.ids(ValueKind::node)) {
            made->places[id] = workspace + made->plan->offsets[id];
        }
        made->slots = load.slots;
        made->parameter_stride = load.parameter_stride;
        made->result_stride = load.result_stride;
        made->parameters = block_address(load.parameters, load.parameter_stride, load.slots, graph.parameter_bytes(),
                                         "parameter blocks");
        made->results =
            block_address(load.results, load.result_stride, load.slots, graph.result_bytes(), "result blocks");
        write<void *>(out, made.get());
        made.release();
    });
}

void executable_free(PacelineExecutableHandle executable) noexcept {
    delete static_cast<Executable *>(executable);
}

std::int32_t launch(PacelineExecutableHandle executable, const PacelineLaunchArgs *args) noexcept {
    try {
        with<Executable>(executable, [&](Executable &loaded) {
            const auto &given = read_sized(args);
            if (given.slot >= loaded.slots || given.wait_count > MAX_POINTS || given.signal_count > MAX_POINTS) {
                fail_invalid("slot " + std::to_string(given.slot) + " does not exist, or more than 8 semaphores");
            }
            Launch launch;
            launch.executable = &loaded;
            launch.slot = given.slot;
            for (std::size_t i = 0; i < given.wait_count; ++i) {
                launch.waits[i] = to_point(given.waits[i]);
            }
            for (std::size_t i = 0; i < given.signal_count; ++i) {
                launch.signals[i] = to_point(given.signals[i]);
            }
            loaded.check(given.slot);
            loaded.device->queue(launch);
        });
        return PACELINE_CODE_OK;
    } catch (...) {
        const auto fault = current_fault();
        if (executable != nullptr) {
            static_cast<Executable *>(executable)->last_error = fault;
        }
        return fault.code;
    }
}

PacelineStatus *executable_error(PacelineExecutableHandle executable) noexcept {
    if (executable == nullptr) {
        return nullptr;
    }
    auto &last = static_cast<Executable *>(executable)->last_error;
    const auto fault = last;
    last = {};
    return fault.code == PACELINE_CODE_OK ? nullptr : to_status(fault);
}

// The bytes of some slots of a state.
char *state_slots(Executable &loaded, std::uint32_t index, std::uint32_t first, std::uint32_t count,
                  std::uint64_t bytes) {
    const auto &graph = loaded.plan->graph;
    const auto states = graph.ids(ValueKind::state);
    if (index >= states.size()) {
        fail_invalid("there is no state " + std::to_string(index));
    }
    const auto &state = graph.values[states[index]];
    const std::uint64_t slot_bytes = state.row_elements() * 4;
    if (std::uint64_t{first} + count > state.first() || bytes != count * slot_bytes) {
        fail_invalid("a range outside of `" + state.name + "`, or a buffer of another length");
    }
    return loaded.places[states[index]] + first * slot_bytes;
}

PacelineStatus *state_export(PacelineExecutableHandle executable, std::uint32_t index, std::uint32_t first,
                             std::uint32_t count, std::uint8_t *out, std::uint64_t bytes) noexcept {
    return guard([&] {
        with<Executable>(executable, [&](Executable &loaded) {
            std::memcpy(out, state_slots(loaded, index, first, count, bytes), bytes);
        });
    });
}

PacelineStatus *state_import(PacelineExecutableHandle executable, std::uint32_t index, std::uint32_t first,
                             std::uint32_t count, PacelineBytes source) noexcept {
    return guard([&] {
        with<Executable>(executable, [&](Executable &loaded) {
            std::memcpy(state_slots(loaded, index, first, count, source.len), source.ptr, source.len);
        });
    });
}

PacelineStatus *semaphore_create(PacelineDeviceHandle device, std::uint64_t initial,
                                 PacelineSemaphoreHandle *out) noexcept {
    return guard([&] {
        with<Device>(device, [&](Device &) { write<void *>(out, new Semaphore(initial)); });
    });
}

void semaphore_free(PacelineSemaphoreHandle semaphore) noexcept {
    delete static_cast<Semaphore *>(semaphore);
}

// A hot call on a semaphore, which keeps no text but the failure that it carries.
template <class Call> std::int32_t hot(PacelineSemaphoreHandle semaphore, Call &&call) noexcept {
    try {
        with<Semaphore>(semaphore, [&](Semaphore &made) { call(*made.timeline); });
        return PACELINE_CODE_OK;
    } catch (...) {
        return current_fault().code;
    }
}

std::int32_t semaphore_wait(PacelineSemaphoreHandle semaphore, std::uint64_t value,
                            std::uint64_t timeout_ns) noexcept {
    return hot(semaphore, [&](Timeline &timeline) { timeline.wait(value, timeout_ns); });
}

std::int32_t semaphore_value(PacelineSemaphoreHandle semaphore, std::uint64_t *out) noexcept {
    return hot(semaphore, [&](Timeline &timeline) { write(out, timeline.value()); });
}

std::int32_t semaphore_signal(PacelineSemaphoreHandle semaphore, std::uint64_t value) noexcept {
    return hot(semaphore, [&](Timeline &timeline) { timeline.signal(value); });
}

PacelineStatus *semaphore_failure(PacelineSemaphoreHandle semaphore) noexcept {
    if (semaphore == nullptr) {
        return nullptr;
    }
    const auto fault = static_cast<Semaphore *>(semaphore)->timeline->failure();
    return fault.code == PACELINE_CODE_OK ? nullptr : to_status(fault);
}

const PacelineBackendTable BACKEND = {
    sizeof(PacelineBackendTable),
    device_count,
    device_info,
    layout_weights,
    plan,
    plan_info,
    plan_node,
    plan_state,
    plan_free,
    device_open,
    device_close,
    device_memory,
    device_counters,
    arena_create,
    arena_free,
    arena_host,
    weights_import,
    executable_load,
    executable_free,
    launch,
    executable_error,
    state_export,
    state_import,
    semaphore_create,
    semaphore_free,
    semaphore_wait,
    semaphore_value,
    semaphore_signal,
    semaphore_failure,
};

const void *get_interface(PacelineStr id, std::uint32_t min_minor) noexcept {
    const bool is_backend = to_cpp(id) == PACELINE_BACKEND_INTERFACE && min_minor <= PACELINE_ABI_MINOR;
    return is_backend ? &BACKEND : nullptr;
}

const PacelinePluginTable PLUGIN = {
    sizeof(PacelinePluginTable),
    PACELINE_ABI_VERSION(1, 0),
    PACELINE_ABI_VERSION(PACELINE_ABI_MAJOR, PACELINE_ABI_MINOR),
    to_c("cpp-example"),
    to_c("0.1.0"),
    PACELINE_KIND_BACKEND,
    0,
    to_c(DESCRIPTOR),
    get_interface,
    nullptr,
};

} // namespace
} // namespace example

// The host compares the ranges of versions.
extern "C" const PacelinePluginTable *paceline_plugin_entry_v1(const PacelineHostTable *host) {
    example::host_table = host;
    return host == nullptr ? nullptr : &example::PLUGIN;
}
