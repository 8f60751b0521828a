#include "runtime/files/bounded_files.h"

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>

namespace seeksim::runtime {
namespace {

constexpr std::uint64_t kOffsetMax = std::uint64_t(std::numeric_limits<std::int64_t>::max());

bool has_byte(Storage& storage, const std::string& path, std::uint64_t at) {
  std::byte byte{};
  return at <= kOffsetMax && storage.read_at(path, at, {&byte, 1}) == 1;
}

// The error for a file that is shorter than that.
std::uint64_t size_below(Storage& storage, const std::string& path, std::uint64_t bytes) {
  std::uint64_t there = 0,
                missing = std::min(bytes, kOffsetMax);  // it has `there` bytes, and not one more than `missing`
  while (there < missing) {
    const std::uint64_t middle = there + (missing - there) / 2;
    if (has_byte(storage, path, middle))
      there = middle + 1;
    else
      missing = middle;
  }
  return there;
}

}  // namespace

std::string not_of_size(Storage& storage, const std::string& path, std::uint64_t bytes) {
  if (bytes > 0 && !has_byte(storage, path, bytes - 1))
    return "has " + std::to_string(size_below(storage, path, bytes)) + " bytes, not " + std::to_string(bytes);
  if (has_byte(storage, path, bytes)) return "has more than " + std::to_string(bytes) + " bytes";
  return {};
}

std::string read_of_size(Storage& storage, const std::string& path, std::uint64_t bytes) {
  if (const std::string wrong = not_of_size(storage, path, bytes); !wrong.empty()) throw std::runtime_error(wrong);
  return storage.read(path);
}

std::string read_front(Storage& storage, const std::string& path, std::uint64_t bytes) {
  if (bytes > 0 && !has_byte(storage, path, bytes - 1))
    throw std::runtime_error("has fewer than " + std::to_string(bytes) + " bytes");
  std::string front(std::size_t(bytes), '\0');
  for (std::uint64_t came = 0; came < bytes;) {
    const std::size_t n =
        storage.read_at(path, came, std::as_writable_bytes(std::span(front.data() + came, std::size_t(bytes - came))));
    if (n == 0) throw std::runtime_error("ends at byte " + std::to_string(came));
    came += n;
  }
  return front;
}

std::string read_at_most(Storage& storage, const std::string& path, std::uint64_t bytes_max) {
  if (has_byte(storage, path, bytes_max))
    throw std::runtime_error("has more than the " + std::to_string(bytes_max) + " bytes that are read at most");
  return storage.read(path);
}

}  // namespace seeksim::runtime
