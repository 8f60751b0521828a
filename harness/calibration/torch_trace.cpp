#include "harness/calibration/torch_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
namespace {

constexpr int kDepthMost = 64;

// torch's names. A gather's size is what it gives out, as in nccl-tests.
struct Named {
  const char* name;
  Collective what;
};
constexpr std::array<Named, 9> kNames = {{{"allreduce", Collective::all_reduce},
                                          {"allreduce_coalesced", Collective::all_reduce},
                                          {"allgather", Collective::all_gather},
                                          {"_allgather_base", Collective::all_gather},
                                          {"allgather_into_tensor_coalesced", Collective::all_gather},
                                          {"all_gather_into_tensor_coalesced", Collective::all_gather},
                                          {"reduce_scatter", Collective::reduce_scatter},
                                          {"_reduce_scatter_base", Collective::reduce_scatter},
                                          {"reduce_scatter_tensor_coalesced", Collective::reduce_scatter}}};

struct TypeBytes {
  const char* name;
  double bytes;
};
constexpr std::array<TypeBytes, 12> kTypes = {{{"Float", 4},
                                               {"BFloat16", 2},
                                               {"Half", 2},
                                               {"Double", 8},
                                               {"Int", 4},
                                               {"Long", 8},
                                               {"Byte", 1},
                                               {"Char", 1},
                                               {"Bool", 1},
                                               {"Float8_e4m3fn", 1},
                                               {"Float8_e5m2", 1},
                                               {"Short", 2}}};

// What an event says, as far as it matters here.
struct Kernel {
  std::string category, collective, type, ranks;
  double us = 0, in = 0, out = 0, group = 0;
};

// "[0, 8, 16, ...]": of long lists torch writes the beginning. Then two ranks say how far apart all of them are.
std::optional<std::vector<int>> ranks_of(const Kernel& kernel) {
  std::vector<int> listed;
  const char* at = kernel.ranks.data();
  const char* const end = at + kernel.ranks.size();
  for (at = std::find_if(at, end, [](char c) { return c >= '0' && c <= '9'; }); at != end;
       at = std::find_if(at, end, [](char c) { return c >= '0' && c <= '9'; })) {
    int rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error != std::errc()) return std::nullopt;
    listed.push_back(rank);
    at = next;
  }
  if (!(kernel.group >= 2 && kernel.group <= kRanksMost) || kernel.group != std::floor(kernel.group))
    return std::nullopt;
  const auto count = std::size_t(kernel.group);
  if (listed.size() == count) {
    std::sort(listed.begin(), listed.end());
    return listed;
  }
  const int first = listed.empty() ? 0 : listed[0];
  const std::int64_t stride = listed.size() > 1 ? std::int64_t(listed[1]) - first : 1;
  if (stride < 1 || first + stride * std::int64_t(count - 1) > INT32_MAX) return std::nullopt;
  std::vector<int> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(int(first + stride * std::int64_t(i)));
  return all;
}

// Hands on the events of a trace, one by one.
template <class OnKernel>
class Events final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Events(OnKernel on_kernel) : on_kernel_(std::move(on_kernel)) {}
  std::string problem;  // why it ended before its time

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(double(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(double(value)); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& value) override {
    if (depth_ == event_) {
      if (key_ == "cat") now_.category = value;
    } else if (in_args()) {
      if (key_ == "Collective name") now_.collective = value;
      if (key_ == "dtype") now_.type = value;
      if (key_ == "Process Group Ranks") now_.ranks = value;
    }
    return true;
  }
  bool key(string_t& value) override {
    key_ = value;
    return true;
  }
  bool start_object(std::size_t) override {
    args_ = depth_ == event_ && event_ > 0 && key_ == "args";
    if (!deeper()) return false;
    if (list_ > 0 && depth_ == list_ + 1) {
      event_ = depth_;
      now_ = {};
    }
    return true;
  }
  bool end_object() override {
    if (depth_ == event_ && event_ > 0) {
      on_kernel_(now_);
      event_ = 0;
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (!deeper()) return false;
    if (list_ == 0 && (depth_ == 1 || (depth_ == 2 && key_ == "traceEvents"))) list_ = depth_;
    return true;
  }
  bool end_array() override {
    if (depth_ == list_) list_ = 0;
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    problem = fmt::format("it is no JSON at byte {}", position);
    return false;
  }

 private:
  bool in_args() const { return args_ && event_ > 0 && depth_ == event_ + 1; }
  bool deeper() {
    if (++depth_ <= kDepthMost) return true;
    problem = fmt::format("it is nested deeper than {} levels", kDepthMost);
    return false;
  }
  bool number(double value) {
    if (depth_ == event_) {
      if (key_ == "dur") now_.us = value;
    } else if (in_args()) {
      if (key_ == "In msg nelems") now_.in = value;
      if (key_ == "Out msg nelems") now_.out = value;
      if (key_ == "Group size") now_.group = value;
    }
    return true;
  }

  OnKernel on_kernel_;
  std::string key_;
  Kernel now_;
  int depth_ = 0;
  int list_ = 0, event_ = 0;  // at which depth the events are, and the one at hand; 0: in none
  bool args_ = false;
};

struct Measured {
  Collective what;
  std::vector<int> ranks;
  double bytes = 0, us = 0;
};

std::optional<Measured> measured(const Kernel& kernel) {
  if (kernel.category != "kernel" || kernel.collective.empty()) return std::nullopt;
  const auto named =
      std::find_if(kNames.begin(), kNames.end(), [&](const Named& one) { return kernel.collective == one.name; });
  const auto type =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeBytes& one) { return kernel.type == one.name; });
  if (named == kNames.end() || type == kTypes.end()) return std::nullopt;
  const double elements = named->what == Collective::all_gather ? kernel.out : kernel.in;
  const bool sane = elements >= 1 && elements * type->bytes <= kBytesMost && kernel.us >= kMicrosecondsLeast &&
                    kernel.us <= kMicrosecondsMost;
  std::optional<std::vector<int>> ranks = ranks_of(kernel);
  if (!sane || !ranks) return std::nullopt;
  return Measured{named->what, std::move(*ranks), elements * type->bytes, kernel.us};
}

}  // namespace

void TraceCurves::read(std::string_view trace, const std::string& file) {
  if (trace.starts_with("\x1f\x8b")) throw BadInput(file, "this trace is packed", "gunzip it.");
  const std::size_t before = kernels_;
  std::size_t collectives = 0;
  Events events([&](const Kernel& kernel) {
    collectives += kernel.category == "kernel" && !kernel.collective.empty();
    std::optional<Measured> one = measured(kernel);
    if (!one) return;
    ++kernels_;
    double& us = shortest_us_[{one->what, std::move(one->ranks)}].try_emplace(one->bytes, one->us).first->second;
    us = std::min(us, one->us);
  });
  if (!nlohmann::json::sax_parse(trace.begin(), trace.end(), &events))
    throw BadInput(file, "this is no trace of torch.profiler: " + events.problem,
                   "Give what export_chrome_trace() or tensorboard_trace_handler() wrote.");
  if (kernels_ > before) return;
  if (collectives > 0)
    throw BadInput(
        file, "no collective of this trace has a curve: only sums, gathers and scatters of two ranks or more do", "");
  throw BadInput(file, "no kernel of this trace says which collective it is",
                 "Profile CPU and CUDA activities of a job on NCCL, with PyTorch 2.3 or newer.");
}

std::vector<Curve> TraceCurves::curves(int domain) const {
  std::map<std::tuple<Collective, int, int>, std::map<double, double>> all;
  for (const auto& [key, times] : shortest_us_) {
    const auto& [what, ranks] = key;
    std::set<int> nodes;
    for (const int rank : ranks) nodes.insert(rank / std::max(1, domain));
    auto& merged = all[{what, int(ranks.size()), int(nodes.size())}];
    for (const auto& [bytes, us] : times) {
      double& shortest = merged.try_emplace(bytes, us).first->second;
      shortest = std::min(shortest, us);
    }
  }
  std::vector<Curve> curves;
  for (const auto& [group, times] : all) {
    Curve curve = {std::get<0>(group), std::get<1>(group), std::get<2>(group), {}};
    for (const auto& [bytes, us] : times) curve.points.push_back({bytes, us});
    curves.push_back(std::move(curve));
  }
  return curves;
}

}  // namespace seeksim::harness::calibration
