#include "harness/calibration/platform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
namespace {

struct GpuRow {
  const char* name;
  double tflops, memory_gbytes, nvlink_gbytes;
};
constexpr std::array<GpuRow, 2> kGpus = {{{"h100", 989, 3350, 450}, {"a100", 312, 2039, 300}}};

struct NetworkRow {
  const char* name;
  double gbytes;  // of the adapters of 8 GPUs, one direction
  double Constants::*hop;
  double Constants::*wire;
  double Constants::*ramp;
};
constexpr std::array<NetworkRow, 5> kNetworks = {
    {{"ib", 400, &Constants::net_ib_us, &Constants::wire_ib, &Constants::ramp_net_us},
     {"hdr8", 200, &Constants::net_ib_us, &Constants::wire_ib, &Constants::ramp_net_us},
     {"hdr4", 100, &Constants::net_ib_us, &Constants::wire_ib, &Constants::ramp_net_us},
     {"efa32", 400, &Constants::net_efa32_us, &Constants::wire_efa32, &Constants::ramp_net_us},
     {"efa4", 50, &Constants::net_efa4_us, &Constants::wire_efa4, &Constants::ramp_efa4_us}}};

constexpr double kGpusOfAdapters = 8;
constexpr std::array<const char*, 4> kStacks = {"fused", "compiled", "plain", "eager"};
constexpr double kMega = 1e6, kKilo = 1e3;  // TFLOP/s and GB/s a microsecond

template <typename Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) {
    if constexpr (requires { row.name; })
      names.emplace_back(row.name);
    else
      names.emplace_back(row);
  }
  return names;
}

// The place of a word among names; says what is known where it is not there.
std::size_t choice(const std::string& word, const std::vector<std::string>& names, const std::string& place,
                   const char* what) {
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end())
    throw BadInput(place, fmt::format("there is no {} {}", what, in_quotes(word)), did_you_mean(word, names));
  return std::size_t(found - names.begin());
}

double number(const std::string& word, double least, double most, const std::string& place) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !(value >= least && value <= most))
    throw BadInput(place, fmt::format("{} is no number from {} to {}", in_quotes(word), least, most), "");
  return value;
}

}  // namespace

const std::vector<ConstantRow>& constant_rows() {
  static const std::vector<ConstantRow> kRows = {
#define SEEKSIM_FIXED(name, value, text) {#name, &Constants::name, false, value, text},
#define SEEKSIM_FITTED(name, value, start, text) {#name, &Constants::name, true, start, text},
#include "harness/calibration/constants.inl"
#undef SEEKSIM_FIXED
#undef SEEKSIM_FITTED
  };
  return kRows;
}

const char* name(Gpu gpu) { return kGpus[std::size_t(gpu)].name; }
const char* name(Network network) { return kNetworks[std::size_t(network)].name; }
const char* name(Stack stack) { return kStacks[std::size_t(stack)]; }

double Platform::peak_flops_per_us() const {
  return kGpus[std::size_t(gpu)].tflops * kMega * (watts < 700 ? constants.at_500_w : 1);
}
double Platform::memory_bytes_per_us() const { return kGpus[std::size_t(gpu)].memory_gbytes * kKilo; }
double Platform::nvlink_bytes_per_us() const { return kGpus[std::size_t(gpu)].nvlink_gbytes * kKilo; }
double Platform::ring_bytes_per_us() const {
  return nvlink_bytes_per_us() * (gpu == Gpu::h100 ? constants.nvlink_h100 : constants.nvlink_a100);
}
double Platform::wire_bytes_per_us(int nodes) const {
  const NetworkRow& row = kNetworks[std::size_t(network)];
  return row.gbytes * kKilo * node / kGpusOfAdapters * (constants.*row.wire) / (nodes > leaf ? oversubscription : 1);
}
double Platform::hop_us() const { return constants.*kNetworks[std::size_t(network)].hop; }

double Platform::ramp_us() const { return constants.*kNetworks[std::size_t(network)].ramp; }

Platform platform_of(const std::string& text, const std::string& option) {
  Platform platform;
  std::istringstream parts(text);
  std::string part;
  std::getline(parts, part, ',');
  platform.gpu = Gpu(choice(part, names_of(kGpus), option, "platform"));
  while (std::getline(parts, part, ',')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string value = part.substr(std::min(equals + 1, part.size()));
    const std::vector<std::string> keys = {"network", "stack", "node", "oversubscription", "leaf", "watts"};
    switch (choice(part.substr(0, equals), keys, option, "key")) {
      case 0:
        platform.network = Network(choice(value, names_of(kNetworks), option, "network"));
        break;
      case 1:
        platform.stack = Stack(choice(value, names_of(kStacks), option, "stack"));
        platform.stack_named = true;
        break;
      case 2:
        platform.node = int(number(value, 1, 1024, option));
        platform.node_named = true;
        break;
      case 3:
        platform.oversubscription = number(value, 1, 100, option);
        break;
      case 4:
        platform.leaf = int(number(value, 1, 100'000, option));
        break;
      default:
        platform.watts = choice(value, {"500", "700"}, option, "power") == 0 ? 500 : 700;
    }
  }
  return platform;
}

std::string text(const Platform& p) {
  std::string all = fmt::format("{},network={},stack={}", name(p.gpu), name(p.network), name(p.stack));
  if (p.node != 8) all += fmt::format(",node={}", p.node);
  if (p.oversubscription != 1) all += fmt::format(",oversubscription={},leaf={}", p.oversubscription, p.leaf);
  if (p.watts != 700) all += fmt::format(",watts={}", p.watts);
  return all;
}

}  // namespace seeksim::harness::calibration
