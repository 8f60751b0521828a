#include "harness/explain/flat.h"

#include <algorithm>
#include <cstring>

namespace seeksim::harness {
namespace {

using runtime::ElementType;

constexpr std::int64_t kLookAhead = 32;  // keys that are tried before a stretch counts as broken
constexpr std::int64_t kSureOfIt = 32;   // elements in a row that are no chance
constexpr std::size_t kCommon = 16;      // a key that stands in more places says nothing of where a part lies

template <class T>
T bits_at(const std::byte* at) {
  T bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

bool both_nan(const std::byte* a, const std::byte* b, ElementType type) {
  const auto nan = [type](const std::byte* at) {
    switch (type) {
      case ElementType::f32:
        return (bits_at<std::uint32_t>(at) & 0x7fffffffu) > 0x7f800000u;
      case ElementType::bf16:
        return (bits_at<std::uint16_t>(at) & 0x7fffu) > 0x7f80u;
      case ElementType::f16:
        return (bits_at<std::uint16_t>(at) & 0x7fffu) > 0x7c00u;
      default:
        return false;
    }
  };
  return nan(a) && nan(b);
}

}  // namespace

std::int64_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b, ElementType type) {
  const std::size_t width = size_of(type), bytes = std::min(a.size(), b.size());
  if (std::memcmp(a.data(), b.data(), bytes) == 0) return -1;
  for (std::size_t at = 0; at + width <= bytes; at += width) {
    if (std::memcmp(&a[at], &b[at], width) != 0 && !both_nan(&a[at], &b[at], type)) return std::int64_t(at / width);
  }
  return -1;
}

bool same_values(std::span<const std::byte> a, std::span<const std::byte> b, ElementType type) {
  return a.size() == b.size() && first_difference(a, b, type) < 0;
}

Flat::Flat(std::span<const std::byte> bytes, ElementType type)
    : bytes_(bytes.begin(), bytes.end()), width_(size_of(type)), run_(std::int64_t(8 / size_of(type))), type_(type) {}

bool Flat::holds_at(std::int64_t first, std::span<const std::byte> part) const {
  const std::size_t at = std::size_t(first) * width_;
  if (first < 0 || at + part.size() > bytes_.size()) return false;
  return same_values(std::span(bytes_).subspan(at, part.size()), part, type_);
}

std::uint64_t Flat::key_at(std::span<const std::byte> bytes, std::int64_t element) const {
  return bits_at<std::uint64_t>(&bytes[std::size_t(element) * width_]);
}

void Flat::make_index() const {
  if (!index_.empty() || size() < run_) return;
  index_.reserve(std::size_t(size()));
  for (std::int64_t i = 0; i + run_ <= size(); ++i) index_.emplace_back(key_at(bytes_, i), std::uint32_t(i));
  std::sort(index_.begin(), index_.end());
}

// Elements of `part` from `from` on that equal those here from `first` on.
std::int64_t Flat::stretch_at(std::span<const std::byte> part, std::int64_t from, std::int64_t first) const {
  const std::int64_t most = std::min(std::int64_t(part.size() / width_) - from, size() - first);
  if (first < 0 || most <= 0) return 0;
  const std::size_t bytes = std::size_t(most) * width_;
  const std::int64_t broken = first_difference(part.subspan(std::size_t(from) * width_, bytes),
                                               std::span(bytes_).subspan(std::size_t(first) * width_, bytes), type_);
  return broken < 0 ? most : broken;
}

// The most elements of one value side by side.
std::int64_t Flat::longest_run_of(std::span<const std::byte> value) const {
  std::int64_t longest = 0, run = 0;
  for (std::size_t at = 0; at + width_ <= bytes_.size(); at += width_) {
    run = std::memcmp(&bytes_[at], value.data(), width_) == 0 ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

// The part may go on from `from` at several places. This is the one where it goes on longest.
Flat::Stretch Flat::longest_stretch(std::span<const std::byte> part, std::int64_t from) const {
  const std::int64_t n = std::int64_t(part.size() / width_);
  std::int64_t tried = 0;
  Stretch longest{-1, 0};
  const auto try_at = [&](std::int64_t first) {
    const std::int64_t size = stretch_at(part, from, first);
    if (size > longest.size) longest = {first, size};
  };
  if (n - from < run_) {  // too short for a key: any place that has its elements
    for (std::int64_t first = 0; first < size(); ++first) try_at(first);
    return longest;
  }
  make_index();
  for (std::int64_t i = from; i + run_ <= n && tried < kLookAhead; ++i) {
    const std::uint64_t key = key_at(part, i);
    const auto [begin, end] = std::equal_range(index_.begin(), index_.end(), std::pair(key, std::uint32_t(0)),
                                               [](const auto& a, const auto& b) { return a.first < b.first; });
    if (std::size_t(end - begin) > kCommon) continue;
    ++tried;
    for (auto place = begin; place != end; ++place) try_at(std::int64_t(place->second) - (i - from));
    // A short one may be chance: another key finds a longer one, if there is one.
    if (longest.size == n - from || longest.size > i - from + kSureOfIt) return longest;
  }
  if (tried > 0) return longest;
  // Nothing but what is common, like zeros: it is here, or it is not. A part that is one value throughout must find
  // about as long a stretch of it.
  const std::span<const std::byte> rest = part.subspan(std::size_t(from) * width_);
  const bool one_value = std::memcmp(rest.data(), rest.data() + width_, rest.size() - width_) == 0;
  if (from == 0 && one_value && n > 2 * longest_run_of(rest.first(width_))) return {-1, 0};
  const std::uint64_t key = key_at(part, from);
  const auto at = std::lower_bound(index_.begin(), index_.end(), std::pair(key, std::uint32_t(0)));
  return {-1, at != index_.end() && at->first == key ? n - from : 0};
}

std::int64_t Flat::place_of(std::span<const std::byte> part) const {
  const std::int64_t n = std::int64_t(part.size() / width_);
  if (n < run_ || n > size()) return -1;
  const std::int64_t middle = n / 2 + run_ <= n ? n / 2 : 0;
  const std::uint64_t key = key_at(part, middle);
  std::size_t tried = 0;
  for (std::int64_t i = middle; i + (n - middle) <= size() && tried < kCommon; ++i) {
    if (key_at(bytes_, i) != key) continue;
    ++tried;
    if (holds_at(i - middle, part)) return i - middle;
  }
  return -1;
}

bool Flat::has(std::span<const std::byte> part, std::int64_t& broken) const {
  const std::int64_t n = std::int64_t(part.size() / width_), length = n == 0 ? 0 : longest_stretch(part, 0).size;
  if (length < n) broken = length;
  return length == n;
}

bool Flat::covers(std::span<const std::byte> part, std::int64_t& broken, std::vector<Stretch>* places) const {
  const std::int64_t n = std::int64_t(part.size() / width_);
  std::vector<Stretch> found;
  bool known = true;
  for (std::int64_t from = 0; from < n;) {
    const Stretch one = longest_stretch(part, from);
    // A stretch of one or two elements in the middle of a part is chance, and no part of this.
    if (one.size == 0 || (one.size < 2 * run_ && from + one.size < n)) {
      broken = from + one.size;
      return false;
    }
    known = known && one.first >= 0;
    found.push_back(one);
    from += one.size;
  }
  if (places != nullptr) *places = known ? std::move(found) : std::vector<Stretch>();
  return true;
}

bool Flat::holds(std::span<const Stretch> places, std::span<const std::byte> part) const {
  std::size_t at = 0;
  for (const Stretch& one : places) {
    const std::size_t bytes = std::size_t(one.size) * width_;
    if (at + bytes > part.size() || !holds_at(one.first, part.subspan(at, bytes))) return false;
    at += bytes;
  }
  return at == part.size() && at > 0;
}

}  // namespace seeksim::harness
