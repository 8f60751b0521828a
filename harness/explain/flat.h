// Flat: the values of a whole tensor, or of all parameters one behind the other, as the golden had them; and whether
// what a rank holds of them, a shard, a slab or a bucket, is a part of it, bit for bit. Where a part lies is found by
// its content, so that layouts need not be known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/seams/buffer.h"

namespace seeksim::harness {

class Flat {
 public:
  Flat() = default;
  Flat(std::span<const std::byte> bytes, runtime::ElementType type);

  std::span<const std::byte> bytes() const { return bytes_; }
  runtime::ElementType type() const { return type_; }
  std::int64_t size() const { return std::int64_t(bytes_.size() / width_); }  // elements
  friend bool operator==(const Flat& a, const Flat& b) { return a.type_ == b.type_ && a.bytes_ == b.bytes_; }

  // Elements [first, first + of part) are `part`. Every NaN is one NaN.
  bool holds_at(std::int64_t first, std::span<const std::byte> part) const;
  // Where a stretch of a part lies, and how many elements it has.
  struct Stretch {
    std::int64_t first = 0, size = 0;
  };
  // `part` is made of stretches of this, one behind the other. Else false, and `broken` is the first of its elements
  // that fits nowhere. places: where they lie, if somebody asks; empty where that is not known for each.
  bool covers(std::span<const std::byte> part, std::int64_t& broken, std::vector<Stretch>* places = nullptr) const;
  // Where `part` lies in one stretch; -1: it may all the same lie here, in several or among what is common. Cheap.
  std::int64_t place_of(std::span<const std::byte> part) const;
  // The same as covers(), where the places are known already.
  bool holds(std::span<const Stretch> places, std::span<const std::byte> part) const;
  // The same of one stretch.
  bool has(std::span<const std::byte> part, std::int64_t& broken) const;

 private:
  std::uint64_t key_at(std::span<const std::byte> bytes, std::int64_t element) const;
  void make_index() const;
  std::int64_t stretch_at(std::span<const std::byte> part, std::int64_t from, std::int64_t first) const;
  std::int64_t longest_run_of(std::span<const std::byte> value) const;
  Stretch longest_stretch(std::span<const std::byte> part, std::int64_t from) const;  // first -1: anywhere

  std::vector<std::byte> bytes_;
  std::size_t width_ = 4;
  std::int64_t run_ = 2;  // elements that a key is made of
  runtime::ElementType type_ = runtime::ElementType::f32;
  mutable std::vector<std::pair<std::uint64_t, std::uint32_t>> index_;  // by the bits of `run_` elements: where
};

// Equal bits, every NaN being one. Of elements of one type, as many of each.
bool same_values(std::span<const std::byte> a, std::span<const std::byte> b, runtime::ElementType type);
// The first element that differs; -1: none.
std::int64_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b, runtime::ElementType type);

}  // namespace seeksim::harness
