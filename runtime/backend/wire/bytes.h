// What processes tell each other, as bytes and back: numbers, texts, lists, and aggregates of these, whose members
// travel one after the other as they are declared (Boost.PFR lists them), so that a new member travels by itself. A
// ByteReader believes nothing: what ends too early, is longer than what is left or is no value of its enumeration
// throws Malformed.
#pragma once

#include <array>
#include <boost/pfr/core.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace seeksim::runtime {

struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A copy of a text that lives as long as the process: structs hold names of tensors and call sites as pointers.
const char* kept_text(std::string_view text);

class ByteWriter {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void raw(const void* from, std::size_t n) {
    const auto* bytes = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + n);
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      raw(&value, sizeof value);
    } else {
      boost::pfr::for_each_field(value, [this](const auto& member) { put(member); });
    }
  }
  void put(const char* const& text) { put(std::string(text)); }
  void put(const std::string& text) {
    put(std::uint32_t(text.size()));
    raw(text.data(), text.size());
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put(std::uint32_t(list.size()));
    for (const T& one : list) put(one);
  }
  template <class T, std::size_t n>
  void put(const std::array<T, n>& list) {
    for (const T& one : list) put(one);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& both) {
    put(both.first);
    put(both.second);
  }
  // Of a rule that somebody added: every process has its own.
  template <class T>
  void put(const std::shared_ptr<const T>&) {}
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }

  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool at_end() const { return left_.empty(); }
  std::size_t left() const { return left_.size(); }

 private:
  void raw(void* to, std::size_t n) {
    if (n > left_.size()) throw Malformed("ends too early");
    std::memcpy(to, left_.data(), n);
    left_ = left_.subspan(n);
  }
  // No element is smaller than a byte, so a list cannot be longer than what is left.
  std::size_t length() {
    std::uint32_t n = 0;
    get(n);
    if (n > left_.size()) throw Malformed("a list is longer than its message");
    return n;
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      raw(&byte, 1);
      if (byte > 1) throw Malformed("neither true nor false");
      value = byte != 0;
    } else if constexpr (std::is_enum_v<T>) {
      raw(&value, sizeof value);
      if constexpr (requires { T::count_; }) {
        if (value > T::count_) throw Malformed("no value of its enumeration");
      }
    } else if constexpr (std::is_arithmetic_v<T>) {
      raw(&value, sizeof value);
    } else {
      boost::pfr::for_each_field(value, [this](auto& member) { get(member); });
    }
  }
  void get(const char*& text) {
    std::string read;
    get(read);
    text = kept_text(read);
  }
  void get(std::string& text) {
    text.resize(length());
    raw(text.data(), text.size());
  }
  template <class T>
  void get(std::vector<T>& list) {
    list.clear();
    for (std::size_t n = length(); n > 0; --n) get(list.emplace_back());
  }
  template <class T, std::size_t n>
  void get(std::array<T, n>& list) {
    for (T& one : list) get(one);
  }
  template <class A, class B>
  void get(std::pair<A, B>& both) {
    get(both.first);
    get(both.second);
  }
  template <class T>
  void get(std::shared_ptr<const T>&) {}
  template <class T>
  void get(std::optional<T>& value) {
    bool there = false;
    get(there);
    value.reset();
    if (there) get(value.emplace());
  }

  std::span<const std::byte> left_;
};

template <class... T>
std::vector<std::byte> to_bytes(const T&... values) {
  ByteWriter writer;
  writer(values...);
  return writer.take();
}

// All of it, and nothing behind it.
template <class... T>
void from_bytes(std::span<const std::byte> bytes, T&... values) {
  ByteReader reader(bytes);
  reader(values...);
  if (!reader.at_end()) throw Malformed("goes on behind its end");
}

}  // namespace seeksim::runtime
