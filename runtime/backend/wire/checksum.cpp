#include "runtime/backend/wire/checksum.h"

#include <xxhash.h>

namespace seeksim::runtime {

std::uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace seeksim::runtime
