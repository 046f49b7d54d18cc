// The C ABI of Paceline plugins, for C11 and C++17. Generated from plugin-api/src/abi by cbindgen; do not edit.
//
// A plugin is a shared library that exports `paceline_plugin_entry_v1`, declared at the end of this file. Rules:
//
// - Tables and argument structs begin with `size`, the number of bytes that their maker knows of, and only ever grow at
//   the end. A reader uses a field only if `size` covers it (`PACELINE_COVERS`).
// - What is optional is a separate interface, asked for by id and minor version.
// - Handles are opaque pointers. What allocates frees, by a function of its own table.
// - Strings and byte ranges cross as pointer and length; strings are UTF-8 and not terminated.
// - No `bool` and no enum by value: small integers, checked by their reader.
// - Cold calls return a `PacelineStatus` pointer (null is success); hot calls return a code and keep their text in the
//   handle.
// - An exception never crosses: a plugin turns it into a status, with code PACELINE_CODE_PANIC if it was not expected,
//   and then answers every later call on that handle with PACELINE_CODE_POISONED.

#ifndef PACELINE_PLUGIN_H
#define PACELINE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// Major version of this ABI. A new major is a new entry symbol.
#define PACELINE_ABI_MAJOR 1

// Minor version that this header was built with.
#define PACELINE_ABI_MINOR 0

// Oldest minor version of `PACELINE_ABI_MAJOR` that this header can talk to.
#define PACELINE_ABI_OLDEST_MINOR 0

// Weights in the backend's layout.
#define PACELINE_ARENA_CLASS_WEIGHTS 0

// KV caches and tables.
#define PACELINE_ARENA_CLASS_KV 1

// Recurrent and convolution state.
#define PACELINE_ARENA_CLASS_STATE 2

// Activations of executables.
#define PACELINE_ARENA_CLASS_WORKSPACE 3

// Parameter and result blocks; the host can read and write it.
#define PACELINE_ARENA_CLASS_IO 4

// The processor that runs the host.
#define PACELINE_DEVICE_KIND_CPU 0

// An accelerator with its own memory.
#define PACELINE_DEVICE_KIND_DISCRETE 1

// An accelerator that shares the host's memory.
#define PACELINE_DEVICE_KIND_INTEGRATED 2

// A software implementation of an accelerator.
#define PACELINE_DEVICE_KIND_SOFTWARE 3

// Rows are gathered (`embed`).
#define PACELINE_WEIGHT_USE_GATHER 1

// Multiplied with activations (`linear`).
#define PACELINE_WEIGHT_USE_PRODUCT 2

// Read element by element (norms, biases, convolution taps).
#define PACELINE_WEIGHT_USE_ELEMENTS 4

// Something failed.
#define PACELINE_LEVEL_ERROR 1

// Something is not as asked for.
#define PACELINE_LEVEL_WARN 2

// What a user wants to know.
#define PACELINE_LEVEL_INFO 3

// What an author wants to know.
#define PACELINE_LEVEL_DEBUG 4

// Everything.
#define PACELINE_LEVEL_TRACE 5

// A value that is imported once.
#define PACELINE_VALUE_WEIGHT 0

// A value that is persistent and mutable.
#define PACELINE_VALUE_STATE 1

// A value in the parameter block.
#define PACELINE_VALUE_PARAMETER 2

// A value that a node makes.
#define PACELINE_VALUE_NODE 3

// A state that is addressed by position, through a block table.
#define PACELINE_STATE_PER_POSITION 0

// A state that is addressed by sequence slot.
#define PACELINE_STATE_PER_SLOT 1

// A state that is addressed by position modulo a capacity.
#define PACELINE_STATE_RING 2

// A state without meaning between runs.
#define PACELINE_STATE_SCRATCH 3

// A table of indices that the host maintains.
#define PACELINE_STATE_TABLE 4

// An attribute that is an integer.
#define PACELINE_ATTRIBUTE_INTEGER 0

// An attribute that is a number.
#define PACELINE_ATTRIBUTE_FLOAT 1

// An attribute that is a word.
#define PACELINE_ATTRIBUTE_TEXT 2

// An attribute that is a list of integers.
#define PACELINE_ATTRIBUTE_INTEGERS 3

// 32-bit numbers; types have their GGUF ids, and the set is open.
#define PACELINE_TYPE_F32 0

// 16-bit numbers.
#define PACELINE_TYPE_F16 1

// Blocks of 32 in 18 bytes.
#define PACELINE_TYPE_Q4_0 2

// Blocks of 32 in 20 bytes.
#define PACELINE_TYPE_Q4_1 3

// Blocks of 32 in 22 bytes.
#define PACELINE_TYPE_Q5_0 6

// Blocks of 32 in 24 bytes.
#define PACELINE_TYPE_Q5_1 7

// Blocks of 32 in 34 bytes.
#define PACELINE_TYPE_Q8_0 8

// Blocks of 256 in 144 bytes.
#define PACELINE_TYPE_Q4_K 12

// Blocks of 256 in 176 bytes.
#define PACELINE_TYPE_Q5_K 13

// Blocks of 256 in 210 bytes.
#define PACELINE_TYPE_Q6_K 14

// Blocks of 32 in 18 bytes, with a table of levels.
#define PACELINE_TYPE_IQ4_NL 20

// 32-bit integers.
#define PACELINE_TYPE_I32 26

// 64-bit integers.
#define PACELINE_TYPE_I64 27

// The upper half of 32-bit numbers.
#define PACELINE_TYPE_BF16 30

// Blocks of 32 in 17 bytes: 4-bit floats with a power of two.
#define PACELINE_TYPE_MXFP4 39

// The first id that a plugin may declare for a weight type of its own; GGUF numbers its types below.
#define PACELINE_TYPE_FIRST_DECLARED 64

// Not by this backend: the host has to copy.
#define PACELINE_PEER_ROUTE_NONE 0

// One device reads or writes the memory of the other.
#define PACELINE_PEER_ROUTE_DIRECT 1

// The backend or its driver takes them through memory of the host.
#define PACELINE_PEER_ROUTE_STAGED 2

// In place of a layer: the normed output of the last one.
#define PACELINE_TAP_HIDDEN UINT32_MAX

// The model that is run.
#define PACELINE_SOURCE_TARGET 0

// The drafter's own file, if one was given.
#define PACELINE_SOURCE_DRAFT 1

// Certain tokens: no distribution.
#define PACELINE_DRAFT_KIND_POINT 0

// Every token comes with the distribution that it was drawn from.
#define PACELINE_DRAFT_KIND_DISTRIBUTION 1

// Next to nothing: it is asked first.
#define PACELINE_DRAFT_COST_FREE 0

// It runs programs.
#define PACELINE_DRAFT_COST_DEVICE 1

// Success.
#define PACELINE_CODE_OK 0

// The caller broke the contract of a function.
#define PACELINE_CODE_INVALID 1

// Something that was asked for is not known or not possible here.
#define PACELINE_CODE_UNSUPPORTED 2

// Memory of the device or the host is exhausted.
#define PACELINE_CODE_OUT_OF_MEMORY 3

// The device is gone; nothing of it can be used any more.
#define PACELINE_CODE_DEVICE_LOST 4

// A limit of time passed.
#define PACELINE_CODE_TIMEOUT 5

// The plugin panicked or threw during this call.
#define PACELINE_CODE_PANIC 6

// An earlier panic or failure made this handle unusable.
#define PACELINE_CODE_POISONED 7

// Anything else that went wrong inside the plugin.
#define PACELINE_CODE_INTERNAL 8

// Computes graphs on devices.
#define PACELINE_KIND_BACKEND 1

// Guesses ahead or rolls back; see the strategy interfaces.
#define PACELINE_KIND_STRATEGY 2

// Positions per block of a KV cache.
#define PACELINE_KV_BLOCK 256

// UTF-8 text, not terminated. A null pointer with length 0 is the empty string.
typedef struct PacelineStr {
    // First byte, or null.
    const uint8_t *ptr;
    // Length in bytes.
    size_t len;
} PacelineStr;

// A range of bytes.
typedef struct PacelineBytes {
    // First byte, or null.
    const uint8_t *ptr;
    // Length in bytes.
    size_t len;
} PacelineBytes;

// An error that crosses the ABI. Its maker frees it through `release`.
typedef struct PacelineStatus {
    // Size of this struct in bytes.
    size_t size;
    // One of `PACELINE_CODE_*`, never `PACELINE_CODE_OK`.
    int32_t code;
    // Reserved, zero.
    uint32_t flags;
    // What went wrong, for people; valid until `release`.
    struct PacelineStr message;
    // Frees this object. Any thread.
    void (*release)(struct PacelineStatus *status);
} PacelineStatus;

// What a plugin's entry symbol returns; valid for the life of the process.
typedef struct PacelinePluginTable {
    // Size of this struct in bytes.
    size_t size;
    // Oldest ABI version that the plugin can talk to.
    uint32_t abi_oldest;
    // ABI version that the plugin was built with.
    uint32_t abi_built;
    // Id, lower case with dashes.
    struct PacelineStr id;
    // Version of the plugin, semver.
    struct PacelineStr plugin_version;
    // One of `PACELINE_KIND_*`.
    uint32_t kind;
    // Reserved, zero.
    uint32_t reserved;
    // The whole descriptor, TOML.
    struct PacelineStr descriptor;
    // Returns an interface's table, or null if the plugin lacks it. Any thread.
    const void *(*get_interface)(struct PacelineStr id, uint32_t min_minor);
    // Called once before the process ends, after every handle was freed. May be absent.
    void (*shutdown)(void);
} PacelinePluginTable;

// One field of a log event or span, as text.
typedef struct PacelineLogField {
    // Name of the field.
    struct PacelineStr key;
    // Its value, formatted.
    struct PacelineStr value;
} PacelineLogField;

// Passed to the entry symbol; valid for the life of the process. All functions may be called from any thread.
typedef struct PacelineHostTable {
    // Size of this struct in bytes.
    size_t size;
    // Oldest ABI version that the host can talk to.
    uint32_t abi_oldest;
    // ABI version that the host was built with.
    uint32_t abi_current;
    // First argument of the functions below.
    void *context;
    // 1 if an event of this level and target would be recorded, else 0.
    uint32_t (*log_enabled)(void *context, uint32_t level, struct PacelineStr target);
    // Records an event.
    void (*log_event)(void *context,
                      uint32_t level,
                      struct PacelineStr target,
                      struct PacelineStr message,
                      const struct PacelineLogField *fields,
                      size_t field_count);
    // Opens a span under the current one and returns its id, 0 for none.
    uint64_t (*span_new)(void *context,
                         uint32_t level,
                         struct PacelineStr target,
                         struct PacelineStr name,
                         const struct PacelineLogField *fields,
                         size_t field_count);
    // Enters a span on this thread.
    void (*span_enter)(void *context, uint64_t span);
    // Leaves a span on this thread.
    void (*span_exit)(void *context, uint64_t span);
    // Ends a span.
    void (*span_close)(void *context, uint64_t span);
    // Returns an interface of the host, or null if it lacks it.
    const void *(*get_interface)(void *context, struct PacelineStr id, uint32_t min_minor);
} PacelineHostTable;

// Type of the entry symbol. Null means that the plugin refuses this host.
typedef const struct PacelinePluginTable *(*PacelineEntryFn)(const struct PacelineHostTable *host);

// An opened graph.
typedef void *PacelineGraphReaderHandle;

// A graph being built.
typedef void *PacelineGraphBuilderHandle;

// One value of a graph.
typedef struct PacelineGraphValue {
    // Size of this struct in bytes.
    size_t size;
    // One of `PACELINE_VALUE_WEIGHT`, `PACELINE_VALUE_STATE`, `PACELINE_VALUE_PARAMETER` and `PACELINE_VALUE_NODE`.
    uint32_t kind;
    // Data type, a GGUF type id such as `TYPE_F32`, or one that a plugin declares.
    uint32_t dtype;
    // Number of dimensions, at most 4.
    uint32_t rank;
    // Dimensions, outermost first.
    uint32_t dims[4];
    // Id of the parameter that holds the live count of axis 0, or `UINT32_MAX`.
    uint32_t live;
    // Offset in the parameter block, for parameters.
    uint32_t offset;
    // One of `PACELINE_STATE_PER_POSITION` and the like; for states.
    uint32_t state_kind;
    // Name, valid while the reader lives.
    struct PacelineStr name;
} PacelineGraphValue;

// One node of a graph.
typedef struct PacelineGraphNode {
    // Size of this struct in bytes.
    size_t size;
    // Version of the operation.
    uint32_t version;
    // Number of attributes.
    uint32_t attribute_count;
    // Name of the operation, valid while the reader lives.
    struct PacelineStr operation;
    // Ids of the inputs, valid while the reader lives.
    const uint32_t *inputs;
    // Number of inputs.
    size_t input_count;
    // Ids of the outputs, valid while the reader lives.
    const uint32_t *outputs;
    // Number of outputs.
    size_t output_count;
} PacelineGraphNode;

// One attribute of a node.
typedef struct PacelineGraphAttribute {
    // Size of this struct in bytes.
    size_t size;
    // Name.
    struct PacelineStr key;
    // One of `PACELINE_ATTRIBUTE_INTEGER` and the like.
    uint32_t kind;
    // Reserved, zero.
    uint32_t reserved;
    // Value of an integer attribute.
    int64_t integer;
    // Value of a float attribute.
    double float_;
    // Value of a text attribute.
    struct PacelineStr text;
    // Value of a list attribute, valid while the reader lives.
    const int64_t *list;
    // Length of the list.
    size_t list_count;
} PacelineGraphAttribute;

// Functions of `paceline.graph/1`. A handle is used by one thread at a time.
typedef struct PacelineGraphTable {
    // Size of this struct in bytes.
    size_t size;
    // Opens graph bytes after checking them.
    struct PacelineStatus *(*reader_open)(struct PacelineBytes bytes, PacelineGraphReaderHandle *out);
    // Frees a reader.
    void (*reader_free)(PacelineGraphReaderHandle reader);
    // Number of values.
    uint32_t (*value_count)(PacelineGraphReaderHandle reader);
    // Number of nodes.
    uint32_t (*node_count)(PacelineGraphReaderHandle reader);
    // Describes value `index`. The caller sets `out.size`.
    struct PacelineStatus *(*value)(PacelineGraphReaderHandle reader,
                                    uint32_t index,
                                    struct PacelineGraphValue *out);
    // Describes node `index`. The caller sets `out.size`.
    struct PacelineStatus *(*node)(PacelineGraphReaderHandle reader,
                                   uint32_t index,
                                   struct PacelineGraphNode *out);
    // Describes attribute `attribute` of node `node`. The caller sets `out.size`.
    struct PacelineStatus *(*attribute)(PacelineGraphReaderHandle reader,
                                        uint32_t node,
                                        uint32_t attribute,
                                        struct PacelineGraphAttribute *out);
    // Number of results.
    uint32_t (*result_count)(PacelineGraphReaderHandle reader);
    // Value id and offset of result `index`.
    struct PacelineStatus *(*result)(PacelineGraphReaderHandle reader,
                                     uint32_t index,
                                     uint32_t *value,
                                     uint32_t *offset);
    // Starts a graph.
    PacelineGraphBuilderHandle (*builder_new)(void);
    // Adds a weight, state or parameter and returns its id in `out`.
    struct PacelineStatus *(*builder_value)(PacelineGraphBuilderHandle builder,
                                            const struct PacelineGraphValue *value,
                                            uint32_t *out);
    // Adds a node; its outputs get the shapes that the operation defines and their ids come back in `outputs`.
    struct PacelineStatus *(*builder_node)(PacelineGraphBuilderHandle builder,
                                           struct PacelineStr operation,
                                           uint32_t version,
                                           const uint32_t *inputs,
                                           size_t input_count,
                                           const struct PacelineGraphAttribute *attributes,
                                           size_t attribute_count,
                                           uint32_t *outputs,
                                           size_t output_capacity,
                                           size_t *output_count);
    // Marks a node's output to appear in the result block.
    struct PacelineStatus *(*builder_result)(PacelineGraphBuilderHandle builder,
                                             struct PacelineStr name,
                                             uint32_t value);
    // Returns the canonical bytes, valid until the builder is freed or used again.
    struct PacelineStatus *(*builder_bytes)(PacelineGraphBuilderHandle builder, struct PacelineBytes *out);
    // Frees a builder.
    void (*builder_free)(PacelineGraphBuilderHandle builder);
} PacelineGraphTable;

// An opened device.
typedef void *PacelineDeviceHandle;

// A planned graph.
typedef void *PacelinePlanHandle;

// A contiguous range of device memory.
typedef void *PacelineArenaHandle;

// A plan bound to arenas.
typedef void *PacelineExecutableHandle;

// A timeline semaphore.
typedef void *PacelineSemaphoreHandle;

// One device.
typedef struct PacelineDeviceInfo {
    // Size of this struct in bytes, set by the caller.
    size_t size;
    // One of `PACELINE_DEVICE_KIND_*`.
    uint32_t kind;
    // Number of threads or compute units that work on a launch.
    uint32_t units;
    // Name for people; this and the other texts are valid for the life of the process.
    struct PacelineStr name;
    // PCI address or UUID of the hardware, or `cpu`.
    struct PacelineStr physical_id;
    // Architecture, such as `x86_64`, `gfx906`, `sm_90`.
    struct PacelineStr arch;
    // What `layout_weights` and `plan` need to know, in the backend's own words.
    struct PacelineStr capabilities;
    // Total memory in bytes.
    uint64_t memory_total;
} PacelineDeviceInfo;

// Memory of a device at this moment.
typedef struct PacelineMemoryInfo {
    // Size of this struct in bytes, set by the caller.
    size_t size;
    // Total bytes.
    uint64_t total;
    // Bytes that can still be allocated.
    uint64_t free;
    // Arenas are rounded up to multiples of this.
    uint64_t granularity;
} PacelineMemoryInfo;

// What a device did since it was opened; costs nothing to read.
typedef struct PacelineCounters {
    // Size of this struct in bytes, set by the caller.
    size_t size;
    // Launches.
    uint64_t launches;
    // Waits on semaphores that found the value not yet reached.
    uint64_t waits;
    // Copies from host memory to the device, parameters of launches included.
    uint64_t uploads;
    // Bytes of these copies.
    uint64_t upload_bytes;
    // Copies from the device to host memory.
    uint64_t downloads;
    // Bytes of these copies.
    uint64_t download_bytes;
    // Rows of activations that were quantised for products.
    uint64_t quantized_rows;
    // Bytes in arenas that exist now.
    uint64_t arena_bytes;
} PacelineCounters;

// A weight and all its uses in the graphs of one placement.
typedef struct PacelineWeightUse {
    // Size of this struct in bytes.
    size_t size;
    // Tensor name.
    struct PacelineStr name;
    // GGUF type id.
    uint32_t dtype;
    // Bit set of `PACELINE_WEIGHT_USE_*`.
    uint32_t uses;
    // Number of dimensions.
    uint32_t rank;
    // Weights with the same group that is not 0 read the same activations and may be fused.
    uint32_t group;
    // Dimensions, outermost first (rows, then columns).
    uint32_t dims[4];
} PacelineWeightUse;

// Where a weight lives on a device.
typedef struct PacelineWeightLayout {
    // The backend's name for the layout; 0 is never used.
    uint64_t layout;
    // Bytes on the device.
    uint64_t bytes;
    // Alignment of its first byte.
    uint64_t alignment;
} PacelineWeightLayout;

// Totals of a plan.
typedef struct PacelinePlanInfo {
    // Size of this struct in bytes, set by the caller.
    size_t size;
    // Bytes of workspace.
    uint64_t workspace_bytes;
    // Alignment of the workspace.
    uint64_t workspace_alignment;
    // Bytes of one parameter block, at least those that the graph's parameters take.
    uint64_t parameter_bytes;
    // Bytes of one result block, at least those that the graph's results take.
    uint64_t result_bytes;
    // Number of nodes.
    uint32_t node_count;
    // Number of nodes that were refused; such a plan cannot be loaded.
    uint32_t refused_count;
} PacelinePlanInfo;

// What a plan says about one node.
typedef struct PacelineNodePlan {
    // Size of this struct in bytes, set by the caller.
    size_t size;
    // 0 when the node was accepted, 1 when it was refused.
    uint32_t refused;
    // Rows up to which a row's bits do not depend on its company; `UINT32_MAX` is unlimited.
    uint32_t row_invariance;
    // Id of everything that affects the bits.
    uint64_t numerics;
    // Bytes of weights and state read, an estimate.
    uint64_t bytes_read;
    // Multiply-adds at the largest row count, an estimate.
    uint64_t operations;
    // Name of the kernel, or the reason of the refusal; valid while the plan lives.
    struct PacelineStr text;
} PacelineNodePlan;

// What a plan says about one state.
typedef struct PacelineStatePlan {
    // Bytes on the device.
    uint64_t bytes;
    // Alignment of its first byte.
    uint64_t alignment;
    // The backend's name for the physical layout: equal for all graphs that share the state.
    uint64_t layout;
} PacelineStatePlan;

// A range in an arena.
typedef struct PacelineArenaSpan {
    // The arena.
    PacelineArenaHandle arena;
    // First byte.
    uint64_t offset;
    // Length in bytes.
    uint64_t bytes;
} PacelineArenaSpan;

// A semaphore and a value on its timeline.
typedef struct PacelineSemaphorePoint {
    // The semaphore.
    PacelineSemaphoreHandle semaphore;
    // The value.
    uint64_t value;
} PacelineSemaphorePoint;

// One weight to import.
typedef struct PacelineWeightImport {
    // Size of this struct in bytes.
    size_t size;
    // The weight, as given to `layout_weights`.
    struct PacelineWeightUse weight;
    // The layout that was chosen for it.
    struct PacelineWeightLayout layout;
    // Where it goes.
    struct PacelineArenaSpan target;
    // Canonical GGUF bytes; they stay readable until the signal of the import.
    struct PacelineBytes source;
} PacelineWeightImport;

// Everything that a plan is bound to.
typedef struct PacelineLoadArgs {
    // Size of this struct in bytes.
    size_t size;
    // One span per weight of the graph, in the order of the values.
    const struct PacelineArenaSpan *weights;
    // Number of weights.
    size_t weight_count;
    // One span per state of the graph, in the order of the values.
    const struct PacelineArenaSpan *states;
    // Number of states.
    size_t state_count;
    // Workspace. Executables may share it: launches of one device run one after the other.
    struct PacelineArenaSpan workspace;
    // Parameter blocks, one per slot, `parameter_stride` apart, in an IO arena. Host and backend may rely on a
    // multiple of 256 for the offset and the stride of parameter and result blocks. Alignments of spans count from
    // the beginning of the arena, which is itself aligned for every layout of its backend.
    struct PacelineArenaSpan parameters;
    // Distance of parameter blocks.
    uint64_t parameter_stride;
    // Result blocks, one per slot, `result_stride` apart, in an IO arena.
    struct PacelineArenaSpan results;
    // Distance of result blocks.
    uint64_t result_stride;
    // Number of slots.
    uint32_t slots;
    // Reserved, zero.
    uint32_t reserved;
} PacelineLoadArgs;

// One launch.
typedef struct PacelineLaunchArgs {
    // Size of this struct in bytes.
    size_t size;
    // Slot of the parameter and the result block.
    uint32_t slot;
    // Reserved, zero.
    uint32_t reserved;
    // Points that must be reached before the launch begins.
    const struct PacelineSemaphorePoint *waits;
    // Number of waits.
    size_t wait_count;
    // Points that are reached when the launch is done.
    const struct PacelineSemaphorePoint *signals;
    // Number of signals.
    size_t signal_count;
} PacelineLaunchArgs;

// A setting of a device, as text.
typedef struct PacelineSettingText {
    // Key without the plugin's name.
    struct PacelineStr key;
    // Value.
    struct PacelineStr value;
} PacelineSettingText;

// Functions of `paceline.backend/1`.
typedef struct PacelineBackendTable {
    // Size of this struct in bytes.
    size_t size;
    // Number of devices now. May touch a driver.
    struct PacelineStatus *(*device_count)(uint32_t *out);
    // Describes a device.
    struct PacelineStatus *(*device_info)(uint32_t index, struct PacelineDeviceInfo *out);
    // Chooses layouts for all weights of a placement: `layouts` has room for `count`. Pure. A weight that the
    // backend cannot take is an error of code `PACELINE_CODE_UNSUPPORTED` that names it.
    struct PacelineStatus *(*layout_weights)(struct PacelineStr capabilities,
                                             const struct PacelineWeightUse *weights,
                                             size_t count,
                                             struct PacelineWeightLayout *layouts);
    // Plans a graph. `layouts` has one entry per weight of the graph, in the order of the values. Pure and total:
    // a node that cannot run is refused in the plan, not by an error.
    struct PacelineStatus *(*plan)(struct PacelineBytes graph,
                                   struct PacelineStr capabilities,
                                   const struct PacelineWeightLayout *layouts,
                                   size_t layout_count,
                                   PacelinePlanHandle *out);
    // Totals of a plan.
    struct PacelineStatus *(*plan_info)(PacelinePlanHandle plan, struct PacelinePlanInfo *out);
    // What the plan says about node `index`.
    struct PacelineStatus *(*plan_node)(PacelinePlanHandle plan, uint32_t index, struct PacelineNodePlan *out);
    // What the plan says about state `index`, counted among the states in the order of the values.
    struct PacelineStatus *(*plan_state)(PacelinePlanHandle plan,
                                         uint32_t index,
                                         struct PacelineStatePlan *out);
    // Frees a plan; executables made from it stay usable.
    void (*plan_free)(PacelinePlanHandle plan);
    // Opens a device.
    struct PacelineStatus *(*device_open)(uint32_t index,
                                          const struct PacelineSettingText *settings,
                                          size_t setting_count,
                                          PacelineDeviceHandle *out);
    // Closes a device after everything made from it was freed.
    void (*device_close)(PacelineDeviceHandle device);
    // Memory now. Any thread.
    struct PacelineStatus *(*device_memory)(PacelineDeviceHandle device, struct PacelineMemoryInfo *out);
    // Counters now. Any thread.
    struct PacelineStatus *(*device_counters)(PacelineDeviceHandle device, struct PacelineCounters *out);
    // Allocates and commits an arena of a class of `PACELINE_ARENA_CLASS_*`.
    struct PacelineStatus *(*arena_create)(PacelineDeviceHandle device,
                                           uint32_t arena_class,
                                           uint64_t bytes,
                                           PacelineArenaHandle *out);
    // Frees an arena after everything bound to it was freed.
    void (*arena_free)(PacelineArenaHandle arena);
    // The address of an IO arena in host memory.
    struct PacelineStatus *(*arena_host)(PacelineArenaHandle arena, uint8_t **out);
    // Imports weights in a batch; `signal` is reached when all are in place, or carries the failure.
    struct PacelineStatus *(*weights_import)(PacelineDeviceHandle device,
                                             const struct PacelineWeightImport *imports,
                                             size_t count,
                                             const struct PacelineSemaphorePoint *signal);
    // Binds a plan to arenas.
    struct PacelineStatus *(*executable_load)(PacelineDeviceHandle device,
                                              PacelinePlanHandle plan,
                                              const struct PacelineLoadArgs *args,
                                              PacelineExecutableHandle *out);
    // Frees an executable that has no launch pending.
    void (*executable_free)(PacelineExecutableHandle executable);
    // Queues a launch and returns; neither allocates nor waits. Launches of a device run in order.
    int32_t (*launch)(PacelineExecutableHandle executable, const struct PacelineLaunchArgs *args);
    // The text of the last failed hot call on this executable, or null. The caller releases it.
    struct PacelineStatus *(*executable_error)(PacelineExecutableHandle executable);
    // Copies slots or blocks `first..first+count` of state `index` out in canonical form: row-major elements of
    // the declared type. Without a launch pending.
    struct PacelineStatus *(*state_export)(PacelineExecutableHandle executable,
                                           uint32_t index,
                                           uint32_t first,
                                           uint32_t count,
                                           uint8_t *out,
                                           uint64_t bytes);
    // The reverse of `state_export`.
    struct PacelineStatus *(*state_import)(PacelineExecutableHandle executable,
                                           uint32_t index,
                                           uint32_t first,
                                           uint32_t count,
                                           struct PacelineBytes source);
    // Makes a timeline semaphore.
    struct PacelineStatus *(*semaphore_create)(PacelineDeviceHandle device,
                                               uint64_t initial,
                                               PacelineSemaphoreHandle *out);
    // Frees a semaphore that nothing pending refers to.
    void (*semaphore_free)(PacelineSemaphoreHandle semaphore);
    // Waits until the value is reached. `PACELINE_CODE_TIMEOUT` after `timeout_ns`; the failure's code if the
    // semaphore failed.
    int32_t (*semaphore_wait)(PacelineSemaphoreHandle semaphore, uint64_t value, uint64_t timeout_ns);
    // The value reached so far.
    int32_t (*semaphore_value)(PacelineSemaphoreHandle semaphore, uint64_t *out);
    // Sets the value from the host.
    int32_t (*semaphore_signal)(PacelineSemaphoreHandle semaphore, uint64_t value);
    // The failure that the semaphore carries, or null. The caller releases it. A failure is for good: every wait for
    // a value that was not reached before it fails, whatever is signalled later.
    struct PacelineStatus *(*semaphore_failure)(PacelineSemaphoreHandle semaphore);
} PacelineBackendTable;

// Functions of `paceline.weight_types/1`: the meaning of the weight types that the plugin's descriptor declares. Pure,
// any thread, slow if they like: the conformance suite measures the plugin's kernels with them.
typedef struct PacelineWeightTypesTable {
    // Size of this struct in bytes.
    size_t size;
    // Reads whole blocks into `count` values, which are as many as the bytes hold.
    struct PacelineStatus *(*dequantize)(uint32_t dtype, struct PacelineBytes bytes, float *out, size_t count);
    // Writes `count` finite values, whole blocks, into `out_bytes` bytes, which are as many as they take. The values
    // that come back need only be near. May be absent: the suite then takes random bytes.
    struct PacelineStatus *(*quantize)(uint32_t dtype,
                                       const float *values,
                                       size_t count,
                                       uint8_t *out,
                                       size_t out_bytes);
} PacelineWeightTypesTable;

// One copy between arenas of one backend.
typedef struct PacelinePeerCopyArgs {
    // Size of this struct in bytes.
    size_t size;
    // Where the bytes go, in an arena of the device that the copy is queued on. Neither range is in an IO arena.
    struct PacelineArenaSpan to;
    // Where they are, as many of them: in an arena of any device of this backend.
    struct PacelineArenaSpan from;
    // Points that must be reached before the copy begins, of any devices of this backend.
    const struct PacelineSemaphorePoint *waits;
    // Number of waits.
    size_t wait_count;
    // Points that are reached when the copy is done.
    const struct PacelineSemaphorePoint *signals;
    // Number of signals.
    size_t signal_count;
} PacelinePeerCopyArgs;

// Functions of `paceline.peer_copy/1`.
typedef struct PacelinePeerCopyTable {
    // Size of this struct in bytes.
    size_t size;
    // How copies from device `from` to device `to` would go, by their indices: one of `PACELINE_PEER_ROUTE_*`. They
    // need not be open. May touch a driver. Any thread.
    struct PacelineStatus *(*route)(uint32_t to, uint32_t from, uint32_t *out);
    // Queues a copy among the launches of `device` and returns; `route` becomes the way that it takes, one of
    // `PACELINE_PEER_ROUTE_*` but not `NONE`. Nothing was queued if it fails.
    struct PacelineStatus *(*copy)(PacelineDeviceHandle device,
                                   const struct PacelinePeerCopyArgs *args,
                                   uint32_t *route);
} PacelinePeerCopyTable;

// What a device, or an executable, captured since it was opened or loaded.
typedef struct PacelineCaptureInfo {
    // Size of this struct in bytes, set by the caller.
    size_t size;
    // 1 if launches replay captured steps, 0 if they do not.
    uint32_t is_captured;
    // Reserved, zero.
    uint32_t reserved;
    // Steps that were captured, one for each slot of an executable.
    uint64_t captures;
    // Launches that replayed one.
    uint64_t replays;
    // Captured steps that had to be made again.
    uint64_t rebuilds;
    // Why steps are not captured, or why the last one was made again; empty if there is nothing to say. Valid for
    // the life of the process.
    struct PacelineStr reason;
} PacelineCaptureInfo;

// Functions of `paceline.graph_capture/1`.
typedef struct PacelineGraphCaptureTable {
    // Size of this struct in bytes.
    size_t size;
    // All that a device captured. Any thread.
    struct PacelineStatus *(*device)(PacelineDeviceHandle device, struct PacelineCaptureInfo *out);
    // What an executable captured.
    struct PacelineStatus *(*executable)(PacelineExecutableHandle executable, struct PacelineCaptureInfo *out);
    // Does ahead of use what the first launch of each slot would do besides running: captures, and brings to the
    // device what was captured. No launch of the executable is pending.
    struct PacelineStatus *(*warm_up)(PacelineExecutableHandle executable);
} PacelineGraphCaptureTable;

// Opaque: a drafter for one context.
typedef void *PacelineDrafterHandle;

// Opaque: a rollback strategy for one context.
typedef void *PacelineRollbackHandle;

// Facts of the context that a strategy is made for.
typedef struct PacelineContextFacts {
    // Size of this struct in bytes.
    size_t size;
    // Tokens of the target's vocabulary.
    uint32_t vocabulary;
    // Width of the target's residual stream.
    uint32_t hidden;
    // Layers of the target's trunk.
    uint32_t layers;
    // Sequences at a time.
    uint32_t sequences;
    // Positions of a sequence.
    uint32_t positions;
    // Blocks of 256 positions that a sequence has.
    uint32_t blocks_per_sequence;
    // Type of cached keys.
    uint32_t key_type;
    // Type of cached values.
    uint32_t value_type;
    // Rows per sequence of a state that a tap fills.
    uint32_t staged_rows;
    // Rows that a sequence can be rolled back by: the longest draft that is verified in one run.
    uint32_t rollback_depth;
    // Most rows of the target's runs.
    uint32_t microbatch;
    // Reserved, zero.
    uint32_t reserved;
    // Id of the backend that runs the target's layers.
    struct PacelineStr backend;
    // Architecture of the target.
    struct PacelineStr architecture;
} PacelineContextFacts;

// Shape and type of a tensor.
typedef struct PacelineTensorFacts {
    // Size of this struct in bytes.
    size_t size;
    // Type id.
    uint32_t dtype;
    // Number of dimensions.
    uint32_t rank;
    // Dimensions, outermost first.
    uint32_t dims[4];
} PacelineTensorFacts;

// Rows of one group of a strategy's program: consecutive positions of the run's sequence.
typedef struct PacelineGroupRows {
    // Position of the first row.
    uint32_t position;
    // Number of rows.
    uint32_t count;
    // `count` token ids, or null where the graph makes them itself.
    const uint32_t *tokens;
} PacelineGroupRows;

// What the host offers to a strategy. Functions may only be called during the call that the table was given to. The
// `declare_` functions work while a strategy is made, `run` works afterwards.
typedef struct PacelineSessionTable {
    // Size of this struct in bytes.
    size_t size;
    // First argument of the functions below.
    void *context;
    // Entry `index` of a metadata key of whole numbers or switches, `PACELINE_CODE_UNSUPPORTED` if there is none. A
    // single number
    // has the entry 0.
    int32_t (*metadata_integer)(void *context,
                                uint32_t source,
                                struct PacelineStr key,
                                uint32_t index,
                                int64_t *out);
    // A metadata key that is a number, `PACELINE_CODE_UNSUPPORTED` if there is none.
    int32_t (*metadata_number)(void *context, uint32_t source, struct PacelineStr key, double *out);
    // A metadata key that is a text, valid during this call; `PACELINE_CODE_UNSUPPORTED` if there is none.
    int32_t (*metadata_text)(void *context, uint32_t source, struct PacelineStr key, struct PacelineStr *out);
    // Shape and type of a tensor, `PACELINE_CODE_UNSUPPORTED` if there is none.
    int32_t (*tensor)(void *context, uint32_t source, struct PacelineStr name, struct PacelineTensorFacts *out);
    // 1 if the target's family has the fragment.
    uint32_t (*has_fragment)(void *context, struct PacelineStr name);
    // Has a hidden state of the target copied to a state after every run: `layer` is the layer whose input is
    // wanted, or `PACELINE_TAP_HIDDEN`.
    struct PacelineStatus *(*declare_tap)(void *context, uint32_t layer);
    // Gives the strategy a ring of `blocks` blocks of 256 positions per sequence.
    struct PacelineStatus *(*declare_ring)(void *context, uint32_t blocks);
    // Declares a program; `out` is its number.
    struct PacelineStatus *(*declare_program)(void *context,
                                              struct PacelineStr name,
                                              struct PacelineBytes graph,
                                              uint32_t *out);
    // Runs a program for one sequence and waits for it. The result block stays readable until the next run.
    int32_t (*run)(void *context,
                   uint32_t program,
                   uint32_t sequence,
                   const struct PacelineGroupRows *groups,
                   size_t group_count,
                   struct PacelineBytes *results);
    // The error of the last failed call of `run`, or null. The caller releases it.
    struct PacelineStatus *(*error)(void *context);
} PacelineSessionTable;

// What a drafter says about itself.
typedef struct PacelineDrafterInfo {
    // Size of this struct in bytes.
    size_t size;
    // Longest draft that it makes.
    uint32_t most;
    // One of `PACELINE_DRAFT_KIND_*`.
    uint32_t kind;
    // One of `PACELINE_DRAFT_COST_*`.
    uint32_t cost;
    // 1 if a user fixed the length of drafts: the host does not adapt it.
    uint32_t fixed;
} PacelineDrafterInfo;

// What is asked for.
typedef struct PacelineProposeArgs {
    // Size of this struct in bytes.
    size_t size;
    // The sequence.
    uint32_t sequence;
    // Positions that are processed: the anchor's position.
    uint32_t frontier;
    // The last token of the text, which is not processed yet.
    uint32_t anchor;
    // Most tokens that are wanted, at least 1.
    uint32_t most;
    // Room for `most` tokens.
    uint32_t *tokens;
    // Room for a probability of each token, by which drafts may be cut; NaN where the drafter has none.
    float *confidence;
    // Room for `most` rows of the vocabulary's size, for drafters of the kind `DISTRIBUTION`; else null.
    float *distributions;
    // Set by the drafter: number of tokens.
    uint32_t count;
    // Reserved, zero.
    uint32_t reserved;
} PacelineProposeArgs;

// What became of a round.
typedef struct PacelineOutcome {
    // Size of this struct in bytes.
    size_t size;
    // The sequence.
    uint32_t sequence;
    // Tokens of this drafter's draft that were verified; 0 if another one's draft, or none, was.
    uint32_t verified;
    // How many of them were accepted.
    uint32_t accepted;
    // Tokens that this drafter proposed.
    uint32_t drafted;
    // Most tokens that were wanted.
    uint32_t wanted;
} PacelineOutcome;

// Functions of `paceline.drafter/1`. One thread at a time per handle.
typedef struct PacelineDrafterTable {
    // Size of this struct in bytes.
    size_t size;
    // Makes a drafter for a context: checks that it can work there and declares its needs.
    struct PacelineStatus *(*create)(const struct PacelineContextFacts *facts,
                                     const struct PacelineSettingText *settings,
                                     size_t setting_count,
                                     const struct PacelineSessionTable *session,
                                     PacelineDrafterHandle *out);
    // Frees a drafter.
    void (*free)(PacelineDrafterHandle drafter);
    // What the drafter is.
    struct PacelineStatus *(*info)(PacelineDrafterHandle drafter, struct PacelineDrafterInfo *out);
    // A sequence begins, empty.
    int32_t (*begin)(PacelineDrafterHandle drafter, uint32_t sequence);
    // The target has processed and kept `count` tokens at `position` and after.
    int32_t (*observe)(PacelineDrafterHandle drafter,
                       const struct PacelineSessionTable *session,
                       uint32_t sequence,
                       uint32_t position,
                       const uint32_t *tokens,
                       size_t count);
    // Guesses what follows.
    int32_t (*propose)(PacelineDrafterHandle drafter,
                       const struct PacelineSessionTable *session,
                       struct PacelineProposeArgs *args);
    // What became of a round, before the rows that were kept are observed.
    int32_t (*resolve)(PacelineDrafterHandle drafter, const struct PacelineOutcome *outcome);
    // Only the first `length` positions of the sequence remain.
    int32_t (*truncate)(PacelineDrafterHandle drafter, uint32_t sequence, uint32_t length);
    // What the drafter would tell a user about its choices; valid until the next call on the handle.
    struct PacelineStatus *(*explain)(PacelineDrafterHandle drafter, struct PacelineStr *out);
    // The text of the last failed call that returned a number, or null. The caller releases it.
    struct PacelineStatus *(*error)(PacelineDrafterHandle drafter);
    // What the drafter keeps of a sequence besides its states, valid until the next call on the handle. May be absent:
    // a restored sequence then begins anew for the drafter.
    struct PacelineStatus *(*save)(PacelineDrafterHandle drafter, uint32_t sequence, struct PacelineBytes *out);
    // The reverse of `save`, after the states were restored: the sequence holds `count` tokens. Without bytes, nothing
    // was
    // saved of it.
    int32_t (*restore)(PacelineDrafterHandle drafter,
                       uint32_t sequence,
                       const uint32_t *tokens,
                       size_t count,
                       struct PacelineBytes saved);
} PacelineDrafterTable;

// Sizes of a recurrent layer of the kind Gated DeltaNet.
typedef struct PacelineDeltaNetShape {
    // Size of this struct in bytes.
    size_t size;
    // Most rows of the graph.
    uint32_t rows;
    // Most sequences of the graph.
    uint32_t sequences;
    // State slots of the context.
    uint32_t slots;
    // Rows that can be rolled back.
    uint32_t depth;
    // Key heads.
    uint32_t key_heads;
    // Value heads.
    uint32_t value_heads;
    // Elements of a key head.
    uint32_t key_width;
    // Elements of a value head.
    uint32_t value_width;
    // What the output is multiplied by.
    float scale;
    // Reserved, zero.
    uint32_t reserved;
} PacelineDeltaNetShape;

// Functions of `paceline.rollback/1`. Any thread.
typedef struct PacelineRollbackTable {
    // Size of this struct in bytes.
    size_t size;
    // Makes a strategy for a context.
    struct PacelineStatus *(*create)(const struct PacelineContextFacts *facts,
                                     const struct PacelineSettingText *settings,
                                     size_t setting_count,
                                     const struct PacelineSessionTable *session,
                                     PacelineRollbackHandle *out);
    // Frees a strategy.
    void (*free)(PacelineRollbackHandle rollback);
    // The fragment of a Gated DeltaNet layer: a graph with the parameters `q`, `k`, `v`, `g`, `beta`, `sequences`
    // and `rollback`, states of its own, and the result `o`. The bytes are valid until the next call on the handle.
    struct PacelineStatus *(*delta_net)(PacelineRollbackHandle rollback,
                                        const struct PacelineDeltaNetShape *shape,
                                        struct PacelineBytes *out);
    // A graph with the parameters `sequences` and `rollback` and no rows that brings the state `delta` of a layer up to
    // the records that are kept, so that it can be saved. The bytes are valid until the next call on the handle.
    struct PacelineStatus *(*settle)(PacelineRollbackHandle rollback,
                                     const struct PacelineDeltaNetShape *shape,
                                     struct PacelineBytes *out);
} PacelineRollbackTable;

// A version of the ABI as one number.
#define PACELINE_ABI_VERSION(major, minor) (((uint32_t)(major) << 16) | (uint32_t)(minor))

// Name of the one symbol that a plugin exports.
#define PACELINE_ENTRY_SYMBOL "paceline_plugin_entry_v1"

// Interface id of `PacelineBackendTable`.
#define PACELINE_BACKEND_INTERFACE "paceline.backend/1"

// Interface id of `PacelineGraphTable`, which the host offers to plugins.
#define PACELINE_GRAPH_INTERFACE "paceline.graph/1"

// Interface id of `PacelineWeightTypesTable`, which a plugin may offer.
#define PACELINE_WEIGHT_TYPES_INTERFACE "paceline.weight_types/1"

// Interface ids of `PacelinePeerCopyTable` and `PacelineGraphCaptureTable`, which a backend may offer.
#define PACELINE_PEER_COPY_INTERFACE "paceline.peer_copy/1"
#define PACELINE_GRAPH_CAPTURE_INTERFACE "paceline.graph_capture/1"

// Interface ids of `PacelineDrafterTable` and `PacelineRollbackTable`, which a strategy offers.
#define PACELINE_DRAFTER_INTERFACE "paceline.drafter/1"
#define PACELINE_ROLLBACK_INTERFACE "paceline.rollback/1"

// `row_invariance` of a node whose rows never depend on their company.
#define PACELINE_UNLIMITED_ROWS UINT32_MAX

// 1 when the struct behind `pointer`, of `type`, is long enough to hold `field`, as stated by its maker.
#define PACELINE_COVERS(pointer, type, field) \
    ((pointer)->size >= offsetof(type, field) + sizeof(((const type *)0)->field))

// Section of a shared library that holds the descriptor: the 16 bytes of the magic, the length of the text as u64, its
// CRC-32 (IEEE 802.3) as u32, four zero bytes, then the text, TOML; numbers are little-endian.
#define PACELINE_DESCRIPTOR_SECTION ".paceline.plugin"
#define PACELINE_DESCRIPTOR_MAGIC "PACELINE-PLUGIN1"

#if defined(_WIN32)
#define PACELINE_EXPORT __declspec(dllexport)
#else
#define PACELINE_EXPORT __attribute__((visibility("default")))
#endif

// The entry: returns the plugin's table, which is valid for the life of the process. Null means that the plugin refuses
// this host; a plugin whose range of versions does not meet the host's returns its table, so that both can be named.
PACELINE_EXPORT const PacelinePluginTable *paceline_plugin_entry_v1(const PacelineHostTable *host);

#ifdef __cplusplus
}
#endif

#endif // PACELINE_PLUGIN_H
