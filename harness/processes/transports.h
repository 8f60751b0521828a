// Transports that a user adds in C++: how the processes of `run --backend NAME` meet, and what carries what their ranks
// send. Added once, before the command line is read; not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend/wire/process_world.h"

namespace seeksim::harness {

// Called once in each process; returns when all of them have met, and throws std::runtime_error with the reason where
// they do not.
using MakeTransport = std::function<std::unique_ptr<runtime::ProcessWorld>()>;

// Throws std::invalid_argument where the name is taken or is not letters, digits and _, or `make` is empty.
void add_transport(const std::string& name, MakeTransport make);
// Null: there is none of this name.
const MakeTransport* own_transport(const std::string& name);
std::vector<std::string> own_transport_names();

}  // namespace seeksim::harness
