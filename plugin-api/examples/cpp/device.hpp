// What exists on the device: semaphores, arenas, plans, executables, and the thread that works off launches in order.
#pragma once

#include "operations.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace example {

constexpr std::uint64_t ALIGNMENT = 64;
// The one layout of weights and of states: elements of four bytes, row by row.
constexpr std::uint64_t PLAIN_LAYOUT = 1;
constexpr std::size_t MAX_POINTS = 8;
constexpr std::size_t MAX_PENDING = 64;

// A value that rises, and that a failure stops for good. Launches share it, so that the host may free its semaphore as
// soon as the last wait ended.
class Timeline {
  public:
    explicit Timeline(std::uint64_t initial) : value_(initial) {}

    // True if the value was reached at once.
    bool wait(std::uint64_t value, std::uint64_t timeout_ns) {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto is_done = [&] { return value_ >= value || failure_.code != PACELINE_CODE_OK; };
        const bool was_done = is_done();
        // Longer than this is for ever, and would overflow the clock.
        if (timeout_ns > static_cast<std::uint64_t>(INT64_MAX) / 4) {
            changed_.wait(lock, is_done);
        } else if (!changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), is_done)) {
            throw Failure(PACELINE_CODE_TIMEOUT, "the wait timed out");
        }
        if (value_ < value) {
            throw Failure(failure_.code, failure_.text);
        }
        return was_done;
    }
    std::uint64_t value() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return value_;
    }
    Fault failure() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return failure_;
    }
    void signal(std::uint64_t value) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (failure_.code == PACELINE_CODE_OK) {
            value_ = std::max(value_, value);
        }
        changed_.notify_all();
    }
    void fail(const Fault &fault) {
        const std::lock_guard<std::mutex> lock(mutex_);
        failure_ = failure_.code == PACELINE_CODE_OK ? fault : failure_;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t value_;
    Fault failure_;
};

struct Semaphore : Handle {
    explicit Semaphore(std::uint64_t initial) : timeline(std::make_shared<Timeline>(initial)) {}
    std::shared_ptr<Timeline> timeline;
};

struct Plan : Handle {
    Graph graph;
    std::vector<std::string> refusals;
    std::vector<const Operation *> operations;
    // Places in the workspace, by value.
    std::vector<std::uint64_t> offsets;
    std::uint64_t workspace_bytes = 0;
};

class Device;

struct Executable : Handle {
    Device *device = nullptr;
    // The host may free its plan before this.
    std::shared_ptr<const Plan> plan;
    std::vector<char *> places;
    char *parameters = nullptr, *results = nullptr;
    std::uint64_t parameter_stride = 0, result_stride = 0;
    std::uint32_t slots = 0;
    Fault last_error;

    Run run_of(std::uint32_t slot) const { return Run(plan->graph, places, parameters + slot * parameter_stride); }

    // Everything that can be wrong with the parameters of a slot; nothing was queued then.
    void check(std::uint32_t slot) const {
        const auto run = run_of(slot);
        run.check_live_counts();
        for (std::size_t i = 0; i < plan->operations.size(); ++i) {
            if (plan->operations[i]->check != nullptr) {
                plan->operations[i]->check(run, plan->graph.nodes[i]);
            }
        }
    }
    void execute(std::uint32_t slot) const {
        const auto run = run_of(slot);
        for (std::size_t i = 0; i < plan->operations.size(); ++i) {
            plan->operations[i]->run(run, plan->graph.nodes[i]);
        }
        for (const auto &result : plan->graph.results) {
            char *out = results + slot * result_stride + result.offset;
            std::memcpy(out, run.bytes(result.value), run.live_elements(result.value) * 4);
        }
    }
};

struct Point {
    std::shared_ptr<Timeline> timeline;
    std::uint64_t value = 0;
};

struct Launch {
    const Executable *executable = nullptr;
    std::uint32_t slot = 0;
    std::array<Point, MAX_POINTS> waits, signals;
};

struct Counts {
    std::atomic<std::uint64_t> launches{0}, waits{0}, arena_bytes{0};
};

// The device has one thread of its own; launches wait for it in a ring that was made when the device was opened.
class Device : public Handle {
  public:
    Device() : worker_([this] { work(); }) {}
    ~Device() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            is_closed_ = true;
        }
        changed_.notify_all();
        worker_.join();
    }

    void queue(const Launch &launch) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (pending_ == MAX_PENDING) {
            throw Failure(PACELINE_CODE_OUT_OF_MEMORY, "too many launches are pending");
        }
        ring_[(next_ + pending_) % MAX_PENDING] = launch;
        ++pending_;
        ++counts->launches;
        changed_.notify_all();
    }

    // Arenas share the counts, since they are freed on their own.
    const std::shared_ptr<Counts> counts = std::make_shared<Counts>();

  private:
    void work() {
        for (;;) {
            Launch launch;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                changed_.wait(lock, [this] { return pending_ > 0 || is_closed_; });
                if (pending_ == 0) {
                    return;
                }
                launch = std::move(ring_[next_]);
                ring_[next_] = {};
                next_ = (next_ + 1) % MAX_PENDING;
                --pending_;
            }
            run(launch);
        }
    }

    // What fails here travels with the semaphores: the call that queued the launch has long returned.
    void run(const Launch &launch) noexcept {
        Fault fault;
        try {
            for (const auto &point : launch.waits) {
                if (point.timeline != nullptr && !point.timeline->wait(point.value, UINT64_MAX)) {
                    ++counts->waits;
                }
            }
            launch.executable->execute(launch.slot);
        } catch (...) {
            fault = current_fault();
        }
        // From the first signal on, the host may free the executable.
        for (const auto &point : launch.signals) {
            if (point.timeline != nullptr && fault.code == PACELINE_CODE_OK) {
                point.timeline->signal(point.value);
            } else if (point.timeline != nullptr) {
                point.timeline->fail(fault);
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::array<Launch, MAX_PENDING> ring_;
    std::size_t next_ = 0, pending_ = 0;
    bool is_closed_ = false;
    // Last, so that everything above exists when the thread begins.
    std::thread worker_;
};

// Zeroed memory.
class Arena : public Handle {
  public:
    Arena(std::shared_ptr<Counts> counts, std::uint32_t arena_class, std::uint64_t bytes)
        : counts_(std::move(counts)), class_(arena_class), bytes_(bytes) {
        const auto alignment = std::align_val_t{256};
        // Beyond half of the address space no size can be had, and rounding up could overflow.
        if (bytes < static_cast<std::uint64_t>(PTRDIFF_MAX)) {
            memory_ = static_cast<char *>(::operator new(bytes, alignment, std::nothrow));
        }
        if (memory_ == nullptr) {
            throw Failure(PACELINE_CODE_OUT_OF_MEMORY, "no memory for an arena of " + std::to_string(bytes) + " bytes");
        }
        std::memset(memory_, 0, bytes);
        counts_->arena_bytes += bytes_;
    }
    ~Arena() {
        counts_->arena_bytes -= bytes_;
        ::operator delete(memory_, std::align_val_t{256});
    }
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    std::uint32_t arena_class() const { return class_; }
    char *memory() const { return memory_; }
    std::uint64_t bytes() const { return bytes_; }

  private:
    std::shared_ptr<Counts> counts_;
    std::uint32_t class_;
    std::uint64_t bytes_;
    char *memory_ = nullptr;
};

// The address of a span that holds at least `needed` bytes.
inline char *address(const PacelineArenaSpan &span, std::uint64_t needed, const std::string &what) {
    return with<Arena>(span.arena, [&](Arena &arena) {
        if (span.offset > arena.bytes() || span.bytes > arena.bytes() - span.offset) {
            fail_invalid("the span of " + what + " reaches beyond its arena");
        }
        if (span.bytes < needed) {
            fail_invalid("the span of " + what + " has " + std::to_string(span.bytes) + " bytes, " +
                         std::to_string(needed) + " are needed");
        }
        return arena.memory() + span.offset;
    });
}

} // namespace example
