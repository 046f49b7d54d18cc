// The edge of the plugin: from C to C++ and back. Texts, structs that state their size, exceptions that become
// statuses, handles that an unexpected exception poisons.
#pragma once

#include "paceline_plugin.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

// Text that crosses; it must outlive the call, or whatever the other side was promised.
inline PacelineStr to_c(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t *>(text.data()), text.size()};
}

inline std::string_view to_cpp(PacelineStr text) {
    return text.len == 0 ? std::string_view() : std::string_view(reinterpret_cast<const char *>(text.ptr), text.len);
}

// An expected error: a caller that broke the contract, something that is not possible here.
class Failure : public std::runtime_error {
  public:
    Failure(std::int32_t code, const std::string &text) : std::runtime_error(text), code_(code) {}
    std::int32_t code() const { return code_; }

  private:
    std::int32_t code_;
};

[[noreturn]] inline void fail_invalid(const std::string &text) {
    throw Failure(PACELINE_CODE_INVALID, text);
}

[[noreturn]] inline void fail_unsupported(const std::string &text) {
    throw Failure(PACELINE_CODE_UNSUPPORTED, text);
}

// An error at rest. It has no memory of its own, so that keeping one cannot fail.
struct Fault {
    std::int32_t code = PACELINE_CODE_OK;
    char text[400] = "";

    Fault() = default;
    Fault(std::int32_t code_, const char *text_) noexcept : code(code_) {
        std::snprintf(text, sizeof text, "%s", text_);
    }
};

// The exception that is being handled, as a fault. Unexpected ones are what a panic is in Rust.
inline Fault current_fault() noexcept {
    try {
        throw;
    } catch (const Failure &failure) {
        return {failure.code(), failure.what()};
    } catch (const std::bad_alloc &) {
        return {PACELINE_CODE_OUT_OF_MEMORY, "the host's memory is exhausted"};
    } catch (const std::exception &error) {
        Fault fault(PACELINE_CODE_PANIC, "the plugin threw: ");
        std::strncat(fault.text, error.what(), sizeof fault.text - std::strlen(fault.text) - 1);
        return fault;
    } catch (...) {
        return {PACELINE_CODE_PANIC, "the plugin threw something that is no std::exception"};
    }
}

// A status object with its text; the host frees it through `release`.
inline PacelineStatus *to_status(const Fault &fault) noexcept {
    struct Owner {
        PacelineStatus status;
        Fault fault;
    };
    static PacelineStatus no_memory = {sizeof(PacelineStatus), PACELINE_CODE_OUT_OF_MEMORY, 0, {nullptr, 0},
                                       [](PacelineStatus *) {}};
    auto *owner = new (std::nothrow) Owner{{}, fault};
    if (owner == nullptr) {
        return &no_memory;
    }
    owner->status.size = sizeof owner->status;
    owner->status.code = fault.code;
    owner->status.message = to_c(owner->fault.text);
    // The status is the first member, so both have one address.
    owner->status.release = [](PacelineStatus *status) { delete reinterpret_cast<Owner *>(status); };
    return &owner->status;
}

// Runs a call at the edge: null on success, otherwise a status.
template <class Call> PacelineStatus *guard(Call &&call) noexcept {
    try {
        call();
        return nullptr;
    } catch (...) {
        return to_status(current_fault());
    }
}

// Takes over a status of the host and throws what it says.
inline void take(PacelineStatus *status) {
    if (status == nullptr) {
        return;
    }
    Failure failure(status->code, std::string(to_cpp(status->message)));
    if (status->release != nullptr) {
        status->release(status);
    }
    throw failure;
}

// What the host holds as an opaque pointer.
struct Handle {
    std::atomic<bool> is_poisoned{false};
};

// Calls `call` with the object behind a handle.
template <class Object, class Call> auto with(void *handle, Call &&call) {
    if (handle == nullptr) {
        fail_invalid("a null handle");
    }
    auto &object = *static_cast<Object *>(handle);
    if (object.is_poisoned.load()) {
        throw Failure(PACELINE_CODE_POISONED, "an earlier exception made this handle unusable");
    }
    try {
        return call(object);
    } catch (const Failure &) {
        throw;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (...) {
        object.is_poisoned.store(true);
        throw;
    }
}

// Writes as much of a struct as the caller knows; its own size stays.
template <class Struct> void write_sized(Struct *out, Struct value) {
    if (out == nullptr) {
        fail_invalid("a place for a result is null");
    }
    value.size = out->size;
    std::memcpy(out, &value, std::min(out->size, sizeof value));
}

template <class Value> void write(Value *out, Value value) {
    if (out == nullptr) {
        fail_invalid("a place for a result is null");
    }
    *out = value;
}

// A struct of the caller that is at least as long as version 1.0 has it.
template <class Struct> const Struct &read_sized(const Struct *args) {
    if (args == nullptr || args->size < sizeof(Struct)) {
        fail_invalid("a struct is null or shorter than version 1.0 of the ABI has it");
    }
    return *args;
}

// Element `index` of an array of structs that begin with their size: a newer caller's may lie farther apart.
template <class Struct> const Struct &element(const Struct *list, std::size_t index) {
    const std::size_t stride = read_sized(list).size;
    return *reinterpret_cast<const Struct *>(reinterpret_cast<const char *>(list) + index * stride);
}

} // namespace example
