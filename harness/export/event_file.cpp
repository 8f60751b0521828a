// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
// Summary { repeated Value value = 1; }   Value { string tag = 1; float simple_value = 2; }
#include "harness/export/event_file.h"

#include <array>
#include <bit>

namespace seeksim::harness {
namespace {

enum class WireType { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void little_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i));
}

void varint(std::string& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out += char(value | 128);
  out += char(value);
}

void key(std::string& out, int field, WireType type) { varint(out, std::uint64_t(field) << 3 | std::uint64_t(type)); }

void put(std::string& out, int field, double value) {
  key(out, field, WireType::fixed64);
  little_endian(out, std::bit_cast<std::uint64_t>(value), 8);
}

void put(std::string& out, int field, float value) {
  key(out, field, WireType::fixed32);
  little_endian(out, std::bit_cast<std::uint32_t>(value), 4);
}

void put(std::string& out, int field, std::int64_t value) {
  key(out, field, WireType::varint);
  varint(out, std::uint64_t(value));
}

void put(std::string& out, int field, std::string_view bytes) {
  key(out, field, WireType::bytes);
  varint(out, bytes.size());
  out += bytes;
}

constexpr std::array<std::uint32_t, 256> crc_table() {
  constexpr std::uint32_t kCastagnoli = 0x82f63b78u;  // reflected
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1u ? kCastagnoli : 0);
    table[i] = crc;
  }
  return table;
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ std::uint8_t(byte)) & 255];
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

EventFile::EventFile() {
  std::string event;
  put(event, 1, 0.0);
  put(event, 3, std::string_view("brain.Event:2"));
  frame(event);
}

void EventFile::scalar(const std::string& tag, std::int64_t step, double time_s, float number) {
  std::string value, summary, event;
  put(value, 1, std::string_view(tag));
  put(value, 2, number);
  put(summary, 1, std::string_view(value));
  put(event, 1, time_s);
  put(event, 2, step);
  put(event, 5, std::string_view(summary));
  frame(event);
}

// Length, its checksum, the message, its checksum.
void EventFile::frame(std::string_view message) {
  std::string length;
  little_endian(length, message.size(), 8);
  bytes_ += length;
  little_endian(bytes_, masked_crc32c(length), 4);
  bytes_ += message;
  little_endian(bytes_, masked_crc32c(message), 4);
}

}  // namespace seeksim::harness
