// Proof that two processes of a job know the same secret, without sending it: HMAC with SHA-256 (RFC 2104, FIPS 180-4)
// over numbers that each side has drawn for this one connection. Written out here because it is eighty lines, and a
// cryptography library would be one more package for every program that only simulates.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace seeksim::runtime {

using Digest256 = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 16>;

Digest256 sha256(std::span<const std::byte> bytes);
Digest256 hmac_sha256(std::string_view key, std::span<const std::byte> bytes);

// Compares every byte whatever it finds, so that the time it takes reveals nothing.
bool same_digest(const Digest256& a, const Digest256& b);

// From the system's random bytes. Throws std::runtime_error where the system gives none.
Nonce new_nonce();

}  // namespace seeksim::runtime
