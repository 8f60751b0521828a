#include "harness/loading/features/fp8.h"

#include <fmt/format.h>

#include "harness/loading/features/refusals.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::Fp8Format;
using runtime::Fp8Plan;
using runtime::Fp8Scaling;

const Words<Fp8Scaling> kScalings = {{Fp8Scaling::none, "none"},
                                     {Fp8Scaling::delayed, "delayed"},
                                     {Fp8Scaling::current, "current"},
                                     {Fp8Scaling::mx, "mx"}};
const Words<Fp8Format> kFormats = {{Fp8Format::hybrid, "hybrid"}, {Fp8Format::e4m3, "e4m3"}};
const Words<bool> kAmax = {{false, "max"}, {true, "most_recent"}};

bool has_histories(const Fp8Plan& plan) { return plan.scaling == Fp8Scaling::delayed; }
bool has_scales(const Fp8Plan& plan) { return plan.on() && plan.scaling != Fp8Scaling::mx; }

// A manifest of a checkpoint holds all of them.
constexpr std::int64_t kMagnitudesMax = 1'500'000;

void check_histories(const Reader& own, const Scenario& scenario) {
  const runtime::Definition& d = scenario.train.definition;
  const std::int64_t tensors = runtime::fp8_tensors(d.model.layers);
  if (!d.fp8.keeps_state() || tensors <= 0 || d.fp8.amax_history_len * tensors <= kMagnitudesMax) return;
  own.problem("amax_history_len",
              fmt::format("{} steps of {} tensors are more magnitudes than a checkpoint's manifest can hold",
                          d.fp8.amax_history_len, tensors),
              fmt::format("At most {}.", kMagnitudesMax / tensors));
}

void refuse_with_fp8(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::ParallelPlan& parallel = train.layout.parallel;
  const runtime::Definition& d = train.definition;
  const bool current = d.fp8.scaling == Fp8Scaling::current;
  refuse(top,
         {
             {d.model.experts.on(), "/model/experts", "not supported: fp8 with experts, whose products have no casts",
              "Remove one of the two."},
             {d.model.own != nullptr, "/model/family",
              "not supported: fp8 with a family of your own, whose products seeksim does not make", "Remove \"fp8\"."},
             {current && parallel.tensor > 1, "/world/tensor",
              "not supported: \"scaling\": \"current\" with tensor parallelism: a sample's scale would need a maximum "
              "over ranks inside each product",
              "Use \"delayed\" or \"mx\"."},
             {current && parallel.context > 1, "/world/context",
              "not supported: \"scaling\": \"current\" with context groups: a sample's scale would need a maximum over "
              "ranks inside each product",
              "Use \"delayed\" or \"mx\"."},
             {d.compression.on(), "/compression", "not supported: fp8 with compressed gradients",
              "Leave one of the two out."},
             {d.local_sgd.on(), "/local_sgd",
              "not supported: fp8 with local SGD: magnitudes are agreed on in each step, and workers send nothing then",
              "Leave one of the two out."},
             {d.quirks.any(), "/quirks", "not supported: fp8 with quirks", "Leave one of the two out."},
             {train.numerics == runtime::Numerics::fast, "/numerics",
              "not supported: fp8 in a run of fast arithmetic, whose bounds know no casts",
              "Use \"exact\" or \"shapes\"."},
         });
}

}  // namespace

const Keys<Fp8Plan>& fp8_keys() {
  static const Keys<Fp8Plan> keys = {
      {"scaling", in_words(kScalings, &Fp8Plan::scaling), choice(words_of(kScalings)).required(), kBits,
       "How values are scaled before they are cast: by the largest magnitudes of earlier steps; by those of the "
       "sample's "
       "own; or by a power of two for each 32 values along what is summed over."},
      {"format", in_words(kFormats, &Fp8Plan::format), choice(words_of(kFormats)), kBits,
       "hybrid: inputs and weights are E4M3, gradients E5M2; e4m3: all are. Transformer Engine's fp8_format."},
      {"amax_history_len", at(&Fp8Plan::amax_history_len).when(has_histories), integer(1, 65'536), kBits,
       "Steps whose largest magnitudes are kept, with delayed scaling."},
      {"amax_compute_algo", in_words(kAmax, &Fp8Plan::most_recent).when(has_histories), choice(words_of(kAmax)), kBits,
       "Which of them decides a scale."},
      {"margin", at(&Fp8Plan::margin).when(has_scales), integer(0, 30), kBits, "Scales are divided by 2^margin."},
      {"power_2_scale", at(&Fp8Plan::power_2_scale).when(has_scales), flag(), kBits,
       "Scales are rounded down to powers of two."},
  };
  return keys;
}

void read_fp8(const Reader& top, Scenario& scenario) {
  const Reader own = top.child("fp8");
  Fp8Plan& plan = scenario.train.definition.fp8;
  plan = {};
  fp8_keys().read(own, plan);
  if (!plan.on()) {
    plan = {};
    return;
  }
  check_histories(own, scenario);
  refuse_with_fp8(top, scenario);
}

}  // namespace seeksim::harness
