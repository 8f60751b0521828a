// What is sent between hosts has checksums of its own. TCP's has 16 bits, is made anew by whatever takes packets apart
// on their way, and says nothing of what a host's memory or network card does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace seeksim::runtime {

// It finds damage, not forgery.
std::uint64_t checksum(std::span<const std::byte> bytes);

// Part of what stands before a message. A damaged head or payload is one message less; of a stream in which this is
// damaged itself, nobody knows where it goes on.
struct Checks {
  std::uint64_t head = 0;
  std::uint64_t payload = 0;
  std::uint64_t prefix = 0;  // of the prefix, but for these eight bytes
};

// Prefix: a trivial struct without gaps that ends in `Checks checks`.
template <class Prefix>
std::uint64_t checksum_of_prefix(const Prefix& prefix) {
  return checksum(std::as_bytes(std::span(&prefix, 1)).first(sizeof prefix - sizeof prefix.checks.prefix));
}
template <class Prefix>
void seal(Prefix& prefix, std::span<const std::byte> head, std::span<const std::byte> payload) {
  prefix.checks.head = checksum(head);
  prefix.checks.payload = checksum(payload);
  prefix.checks.prefix = checksum_of_prefix(prefix);
}

}  // namespace seeksim::runtime
