#include "harness/processes/transports.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

std::map<std::string, MakeTransport>& transports() {
  static std::map<std::string, MakeTransport> all;
  return all;
}

bool is_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

void add_transport(const std::string& name, MakeTransport make) {
  if (!is_name(name))
    throw std::invalid_argument(fmt::format("transport {}: use letters, digits and _", in_quotes(name)));
  const bool built_in = name == "sim" || name == "mpi" || name == "tcp" || name == "nccl";
  if (built_in || transports().contains(name))
    throw std::invalid_argument(fmt::format("there is a transport {} already", in_quotes(name)));
  if (!make) throw std::invalid_argument(fmt::format("transport {} makes nothing", in_quotes(name)));
  transports().emplace(name, std::move(make));
}

const MakeTransport* own_transport(const std::string& name) {
  const auto found = transports().find(name);
  return found == transports().end() ? nullptr : &found->second;
}

std::vector<std::string> own_transport_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : transports()) names.push_back(name);
  return names;
}

}  // namespace seeksim::harness
