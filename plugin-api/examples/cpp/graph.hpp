// A graph as C++ values, read through the host's interface `paceline.graph/1`, which has checked it: every operation
// that the host knows has the inputs, attributes and shapes that it must have.
#pragma once

#include "edge.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace example {

constexpr std::uint32_t TYPE_F32 = 0;
constexpr std::uint32_t TYPE_I32 = 26;
constexpr std::uint32_t NO_LIVE_COUNT = UINT32_MAX;

enum class ValueKind : std::uint32_t { weight = 0, state = 1, parameter = 2, node = 3 };

struct Value {
    ValueKind kind;
    std::uint32_t dtype;
    std::vector<std::uint32_t> dims;
    std::uint32_t live;
    std::uint32_t offset;
    std::string name;

    bool is_plain() const { return dtype == TYPE_F32 || dtype == TYPE_I32; }
    std::uint32_t first() const { return dims.empty() ? 1 : dims.front(); }
    std::uint32_t last() const { return dims.empty() ? 1 : dims.back(); }
    std::size_t elements() const {
        std::size_t count = 1;
        for (const auto dim : dims) {
            count *= dim;
        }
        return count;
    }
    std::size_t row_elements() const { return elements() / first(); }
    // f32 and i32 both have four bytes.
    std::size_t bytes() const { return elements() * 4; }
};

struct Node {
    std::string operation;
    std::uint32_t version;
    std::vector<std::uint32_t> inputs;
    std::vector<std::uint32_t> outputs;
    std::map<std::string, std::int64_t> integers;
    std::map<std::string, double> floats;
    std::map<std::string, std::string> texts;

    // An attribute that is left out is at the operation's default.
    std::int64_t integer(const std::string &key, std::int64_t standard) const {
        const auto found = integers.find(key);
        return found == integers.end() ? standard : found->second;
    }
    double number(const std::string &key, double standard) const {
        const auto found = floats.find(key);
        return found == floats.end() ? standard : found->second;
    }
    std::string text(const std::string &key, const std::string &standard) const {
        const auto found = texts.find(key);
        return found == texts.end() ? standard : found->second;
    }
};

struct Result {
    std::uint32_t value;
    std::uint32_t offset;
};

struct Graph {
    std::vector<Value> values;
    std::vector<Node> nodes;
    std::vector<Result> results;

    // Ids of all values of a kind: weights and states are given in this order.
    std::vector<std::uint32_t> ids(ValueKind kind) const {
        std::vector<std::uint32_t> found;
        for (std::uint32_t id = 0; id < values.size(); ++id) {
            if (values[id].kind == kind) {
                found.push_back(id);
            }
        }
        return found;
    }
    std::size_t parameter_bytes() const {
        std::size_t end = 0;
        for (const auto id : ids(ValueKind::parameter)) {
            end = std::max(end, values[id].offset + values[id].bytes());
        }
        return end;
    }
    std::size_t result_bytes() const {
        std::size_t end = 0;
        for (const auto &result : results) {
            end = std::max(end, result.offset + values[result.value].bytes());
        }
        return end;
    }
};

inline Value read_value(const PacelineGraphTable &table, void *reader, std::uint32_t index) {
    PacelineGraphValue raw = {};
    raw.size = sizeof raw;
    take(table.value(reader, index, &raw));
    const auto rank = std::min<std::uint32_t>(raw.rank, 4);
    return {static_cast<ValueKind>(raw.kind), raw.dtype,  {raw.dims, raw.dims + rank},
            raw.live,                         raw.offset, std::string(to_cpp(raw.name))};
}

inline Node read_node(const PacelineGraphTable &table, void *reader, std::uint32_t index) {
    PacelineGraphNode raw = {};
    raw.size = sizeof raw;
    take(table.node(reader, index, &raw));
    Node node = {};
    node.operation = to_cpp(raw.operation);
    node.version = raw.version;
    node.inputs.assign(raw.inputs, raw.inputs + raw.input_count);
    node.outputs.assign(raw.outputs, raw.outputs + raw.output_count);
    for (std::uint32_t i = 0; i < raw.attribute_count; ++i) {
        PacelineGraphAttribute attribute = {};
        attribute.size = sizeof attribute;
        take(table.attribute(reader, index, i, &attribute));
        const std::string key(to_cpp(attribute.key));
        switch (attribute.kind) {
        case 0:
            node.integers[key] = attribute.integer;
            break;
        case 1:
            node.floats[key] = attribute.float_;
            break;
        case 2:
            node.texts[key] = to_cpp(attribute.text);
            break;
        default:
            // Lists: no operation of this backend has one.
            break;
        }
    }
    return node;
}

inline Graph read_graph(const PacelineGraphTable &table, PacelineBytes bytes) {
    PacelineGraphReaderHandle handle = nullptr;
    take(table.reader_open(bytes, &handle));
    const std::unique_ptr<void, decltype(table.reader_free)> reader(handle, table.reader_free);
    Graph graph;
    for (std::uint32_t i = 0; i < table.value_count(handle); ++i) {
        graph.values.push_back(read_value(table, handle, i));
    }
    for (std::uint32_t i = 0; i < table.node_count(handle); ++i) {
        graph.nodes.push_back(read_node(table, handle, i));
    }
    for (std::uint32_t i = 0; i < table.result_count(handle); ++i) {
        Result result = {};
        take(table.result(handle, i, &result.value, &result.offset));
        graph.results.push_back(result);
    }
    return graph;
}

} // namespace example
