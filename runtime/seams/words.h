// Words: structs as lists of 64-bit words and back, which is what ballots carry. The order is that in which a struct's
// fields(archive, value) names its members, as with bytes (backend/wire/bytes.h): one function a struct serves both
// directions. A number is a word, a list its length and then its elements.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/check.h"

namespace seeksim::runtime {

class WordWriter {
 public:
  static constexpr bool kReads = false;

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  std::vector<std::int64_t> take() { return std::move(words_); }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      words_.push_back(std::bit_cast<std::int64_t>(double(value)));
    } else if constexpr (std::is_integral_v<T>) {
      words_.push_back(std::int64_t(value));
    } else {
      fields(*this, const_cast<T&>(value));  // which only reads it
    }
  }
  template <class T>
  void put(const std::vector<T>& list) {
    put_list(list);
  }
  template <class T>
  void put(const std::deque<T>& list) {
    put_list(list);
  }
  template <class Key, class T>
  void put(const std::map<Key, T>& list) {
    put_list(list);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& both) {
    put(both.first);
    put(both.second);
  }
  template <class T, std::size_t n>
  void put(const std::array<T, n>& list) {
    for (const T& one : list) put(one);
  }
  template <class List>
  void put_list(const List& list) {
    put(list.size());
    for (const auto& one : list) put(one);
  }

  std::vector<std::int64_t> words_;
};

// The writer of the words runs the same program, so a list that ends too early is a bug.
class WordReader {
 public:
  static constexpr bool kReads = true;

  explicit WordReader(std::span<const std::int64_t> words) : words_(words) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }

 private:
  std::int64_t next() {
    SEEKSIM_CHECK(at_ < words_.size(), "%zu words are handed over, and more are read", words_.size());
    return words_[at_++];
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      value = T(std::bit_cast<double>(next()));
    } else if constexpr (std::is_integral_v<T>) {
      value = T(next());
    } else {
      fields(*this, value);
    }
  }
  template <class T>
  void get(std::vector<T>& list) {
    for (std::int64_t left = next(); left > 0; --left) get(list.emplace_back());
  }
  template <class T>
  void get(std::deque<T>& list) {
    for (std::int64_t left = next(); left > 0; --left) get(list.emplace_back());
  }
  template <class Key, class T>
  void get(std::map<Key, T>& list) {
    for (std::int64_t left = next(); left > 0; --left) {
      Key key{};
      get(key);
      get(list[key]);
    }
  }
  template <class T, std::size_t n>
  void get(std::array<T, n>& list) {
    for (T& one : list) get(one);
  }

  std::span<const std::int64_t> words_;
  std::size_t at_ = 0;
};

}  // namespace seeksim::runtime
