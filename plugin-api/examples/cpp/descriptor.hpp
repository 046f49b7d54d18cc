// What the plugin says about itself, in a section of the file where it can be read without running it.
#pragma once

#include "paceline_plugin.h"

#include <cstddef>
#include <cstdint>

namespace example {

constexpr char DESCRIPTOR[] = R"toml(id = "cpp-example"
kind = "backend"
version = "0.1.0"
abi = { oldest = "1.0", built = "1.0" }
license = "MIT OR Apache-2.0"
summary = "A small backend in C++: f32 weights, one thread."
needs = []
)toml";

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

template <std::size_t Length> struct Section {
    char magic[16];
    std::uint64_t length;
    std::uint32_t checksum;
    std::uint32_t zero;
    char text[Length];
};

// The section's bytes, made by the compiler; numbers are little-endian on every machine that this is built for.
template <std::size_t Size> constexpr auto make_section(const char (&text)[Size]) {
    Section<Size - 1> section = {};
    for (std::size_t i = 0; i < sizeof section.magic; ++i) {
        section.magic[i] = PACELINE_DESCRIPTOR_MAGIC[i];
    }
    section.length = Size - 1;
    section.checksum = crc32(text, Size - 1);
    for (std::size_t i = 0; i < Size - 1; ++i) {
        section.text[i] = text[i];
    }
    return section;
}

} // namespace example
