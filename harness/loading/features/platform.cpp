#include "harness/loading/features/platform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/calibration/collective_times.h"
#include "harness/calibration/torch_trace.h"
#include "harness/input/files.h"
#include "runtime/seams/bounded.h"
#include "sim/links.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using calibration::Collective;
using calibration::Curve;

constexpr int kGpusOfADomain = 8;
constexpr std::uint64_t kOutputBytesMax = 32 << 20;

// What seeksim plan says of the same group on the same platform.
class MeasuredTimes final : public sim::CollectiveTimes {
 public:
  explicit MeasuredTimes(calibration::Platform platform) : platform_(std::move(platform)) {}

  runtime::TimeNs time(What what, std::size_t bytes, int ranks, int /*nodes*/, int per_node) const override {
    if (ranks < 2 || bytes == 0) return 0;
    const int domain = std::clamp(per_node, 1, platform_.node);
    const calibration::Group group = {ranks, domain, 1, double(domain) / platform_.node};
    const double us = collective_time(of(what), double(bytes), group, platform_).us;
    return runtime::to_time_ns(std::round(us * 1e3));
  }

 private:
  static Collective of(What what) {
    return what == What::all_reduce   ? Collective::all_reduce
           : what == What::all_gather ? Collective::all_gather
                                      : Collective::reduce_scatter;
  }

  calibration::Platform platform_;
};

void add_all(const BadInput& bad, Findings& findings) {
  for (const Problem& problem : bad.problems()) findings.add(problem);
}

// A second curve of one group would never be looked at.
void add_curve(const Reader& section, const std::string& at, const std::string& name, Curve curve,
               calibration::Platform& platform) {
  const auto same = [&](const Curve& c) {
    return c.what == curve.what && c.ranks == curve.ranks && c.nodes == curve.nodes;
  };
  if (std::any_of(platform.curves.begin(), platform.curves.end(), same))
    section.findings().add(at,
                           fmt::format("{} is a second curve of {} on {} ranks and {} nodes", in_quotes(name),
                                       calibration::name(curve.what), curve.ranks, curve.nodes),
                           "Keep one of the two.");
  else
    platform.curves.push_back(std::move(curve));
}

// Each file's own problem, so that all are told at once.
template <class Read>
void read_each(const Reader& section, const char* key, const std::vector<std::string>& names, const Read& read) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string at = fmt::format("{}/{}", section.at(key), i);
    try {
      read(at, names[i]);
    } catch (const BadInput& bad) {
      add_all(bad, section.findings());
    }
  }
}

void read_curves(const Reader& section, const Scenario& scenario, calibration::Platform& platform) {
  const auto content = [&](const std::string& at, const std::string& name, std::uint64_t bytes_max) {
    const std::string place = section.findings().place(at), path = resolve(name, scenario.file, place);
    return std::pair(path, read_file(path, bytes_max, place));
  };
  read_each(section, "nccl_tests", scenario.platform.nccl_tests, [&](const std::string& at, const std::string& name) {
    const auto [path, text] = content(at, name, kOutputBytesMax);
    add_curve(section, at, name, calibration::read_nccl_tests(text, path), platform);
  });
  calibration::TraceCurves traces;  // the shortest of all counts
  read_each(section, "torch_traces", scenario.platform.torch_traces,
            [&](const std::string& at, const std::string& name) {
              const auto [path, text] = content(at, name, calibration::kTraceBytesMax);
              traces.read(text, path);
            });
  const int domain = std::min(platform.node, scenario.world.ranks_per_node);
  for (Curve& curve : traces.curves(domain))
    add_curve(section, section.at("torch_traces"), "the trace's", std::move(curve), platform);
}

std::string nodes_text(int nodes) { return nodes == 1 ? "1 node" : fmt::format("{} nodes", nodes); }

std::vector<std::string> assumptions(const Scenario& scenario, const calibration::Platform& platform) {
  const sim::WorldPlan& world = scenario.world;
  const int domain = std::min(world.ranks_per_node, platform.node), ranks = world.ranks();
  const int nodes = (ranks + domain - 1) / domain;
  std::vector<std::string> measured, modelled;
  for (const Collective what : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    const auto is_it = [&](const Curve& c) { return c.what == what && c.ranks == ranks && c.nodes == nodes; };
    const bool known = std::any_of(platform.curves.begin(), platform.curves.end(), is_it);
    (known ? measured : modelled).emplace_back(calibration::name(what));
  }
  std::vector<std::string> notes;
  const std::string group = fmt::format("{} ranks on {}", ranks, nodes_text(nodes));
  if (!measured.empty())
    notes.push_back(fmt::format("world.platform: {} of {} take what was measured, interpolated by size",
                                fmt::join(measured, ", "), group));
  notes.push_back(
      fmt::format("world.platform: {} take what the calibrated model of {}, network {} says (docs/calibration.md)",
                  modelled.empty() ? std::string("groups of other sizes")
                                   : fmt::format("{} of {}, and other groups,", fmt::join(modelled, ", "), group),
                  calibration::name(platform.gpu), calibration::name(platform.network)));
  for (const Curve& c : platform.curves) {
    if (c.ranks != ranks || c.nodes != nodes)
      notes.push_back(fmt::format("world.platform: the curve of {} on {} ranks and {} is not of all ranks here",
                                  calibration::name(c.what), c.ranks, nodes_text(c.nodes)));
  }
  notes.emplace_back(
      "world.platform: kernels, single messages, and collectives that a fault takes apart keep the times of "
      "world.device and world.network");
  return notes;
}

}  // namespace

const Keys<PlatformPlan>& platform_keys() {
  static const Keys<PlatformPlan> keys = {
      {"gpu", at(&PlatformPlan::gpu), choice({"h100", "a100"}).required(), kNoBit,
       "The GPU whose calibrated model of collectives is used."},
      {"network", at(&PlatformPlan::network), choice({"ib", "hdr8", "hdr4", "efa32", "efa4"}), kNoBit,
       "The adapters of 8 GPUs, as --platform of seeksim plan names them."},
      {"nccl_tests", at(&PlatformPlan::nccl_tests).unless_standard(), list(text().length(1)), kNoBit,
       "Outputs of all_reduce_perf, all_gather_perf and reduce_scatter_perf. Each replaces the model for its "
       "collective "
       "in groups of as many ranks on as many nodes."},
      {"torch_traces", at(&PlatformPlan::torch_traces).unless_standard(), list(text().length(1)), kNoBit,
       "Traces of torch.profiler of a job on NCCL. The shortest kernel of each collective, group and size does the "
       "same."},
  };
  return keys;
}

void read_platform(const Reader& world, Scenario& scenario) {
  scenario.world.collective_times = nullptr;
  if (!scenario.platform.any()) return;
  const Reader section = world.child("platform");
  calibration::Platform platform;
  try {
    platform = calibration::platform_of(fmt::format("{},network={}", scenario.platform.gpu, scenario.platform.network),
                                        section.pointer());
  } catch (const BadInput&) {  // the schema said so
    return;
  }
  platform.node = std::clamp(scenario.world.ranks_per_node, 1, kGpusOfADomain);
  read_curves(section, scenario, platform);
  for (std::string& note : assumptions(scenario, platform)) scenario.notes.push_back(std::move(note));
  scenario.world.collective_times = std::make_shared<const MeasuredTimes>(std::move(platform));
}

}  // namespace seeksim::harness
