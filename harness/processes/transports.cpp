#include "harness/processes/transports.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "harness/input/problem.h"
#include "harness/loading/extensions.h"

namespace seeksim::harness {
namespace {

std::map<std::string, MakeTransport>& transports() {
  static std::map<std::string, MakeTransport> all;
  return all;
}

}  // namespace

void add_transport(const std::string& name, MakeTransport make) {
  const bool built_in = name == "sim" || name == "mpi" || name == "tcp" || name == "nccl";
  refuse_name("transport", name, built_in || transports().contains(name));
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
