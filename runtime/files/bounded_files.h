// Files of a Storage whose size somebody else has claimed: the claim is held against the file before any memory is
// taken for it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// What is wrong with a file that is said to have so many bytes; empty: it has them, and no more. Asks the storage for
// its last byte and for the one behind it. Throws SeamError{io} where the storage does.
std::string not_of_size(Storage& storage, const std::string& path, std::uint64_t bytes);

// All of such a file. Throws std::runtime_error saying what not_of_size() says; SeamError{io}.
std::string read_of_size(Storage& storage, const std::string& path, std::uint64_t bytes);

// The first bytes of a file. Throws std::runtime_error where it has fewer; SeamError{io}.
std::string read_front(Storage& storage, const std::string& path, std::uint64_t bytes);

// All of a file that has at most so many bytes. Throws std::runtime_error where it has more; SeamError{io}.
std::string read_at_most(Storage& storage, const std::string& path, std::uint64_t bytes_max);

}  // namespace seeksim::runtime
