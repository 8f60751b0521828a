// torch 2.15: torch/nn/parallel/distributed.py; torch/csrc/distributed/c10d/reducer.cpp for how buckets are filled.
#include "harness/loading/ddp.h"

#include <cmath>

#include "harness/loading/features/refusals.h"

namespace seeksim::harness {
namespace {

using namespace shapes;
using runtime::ZeroPlan;

constexpr double kMiB = 1 << 20;
constexpr double kCapMiB = 25, kFirstMiB = 1;

// Gradients are summed in fp32, whatever they are held in.
std::int64_t elements_in(double mib) { return std::max<std::int64_t>(std::int64_t(mib * kMiB / sizeof(float)), 1); }

Binding<ZeroPlan> in_mib(std::int64_t ZeroPlan::*elements) {
  return {[=](const Reader& own, const char* key, ZeroPlan& plan) {
            if (const double mib = own.number(key, 0); mib > 0) plan.*elements = elements_in(mib);
          },
          [=](const ZeroPlan& plan) { return double(plan.*elements) * sizeof(float) / kMiB; },
          {}};
}

void refuse_with_ddp(const Reader& top, const Scenario& scenario) {
  const runtime::TrainPlan& train = scenario.train;
  const runtime::Definition& d = train.definition;
  refuse(top, {{train.layout.zero.stage > 0, "/deepspeed/zero_optimization/stage",
                "ddp: buckets of DDP are of gradients that every rank has, and ZeRO has buckets of its own",
                "Use stage 0, or reduce_bucket_size."},
               {top.has("fsdp"), "/fsdp", "a layout is of DDP or of FSDP", "Keep one of the two."},
               {train.layout.parallel.expert > 1, "/world/expert",
                "not supported: buckets of DDP with experts that are divided among ranks", "Leave one of the two out."},
               {d.compression.on(), "/compression", "not supported: buckets of DDP with compression",
                "Leave one of the two out."},
               {d.local_sgd.on(), "/local_sgd", "ddp: with local SGD no gradients travel", "Leave one of the two out."},
               {d.staleness.on(), "/staleness", "not supported: buckets of DDP with late gradients",
                "Leave one of the two out."},
               {d.quirks.any(), "/quirks", "not supported: buckets of DDP with quirks", "Leave one of the two out."},
               {train.recovery.memory_ladder, "/recovery/memory_ladder",
                "not supported: buckets of DDP with the memory ladder, which changes the ZeRO stage",
                "Turn one of them off."}});
}

}  // namespace

const Keys<ZeroPlan>& ddp_keys() {
  static const Keys<ZeroPlan> keys = {
      {"bucket_cap_mb", in_mib(&ZeroPlan::ddp_bucket_elements), number().above(0).most(1'000'000).standard(kCapMiB),
       kNoBit, "MiB of gradients, in fp32, at which a bucket is full."},
      {"first_bucket_mb", in_mib(&ZeroPlan::ddp_first_bucket_elements),
       number().above(0).most(1'000'000).standard(kFirstMiB), kNoBit,
       "The same of the bucket that backward fills first; torch's is 1 MiB."},
  };
  return keys;
}

void read_ddp(const Reader& top, Scenario& scenario) {
  ZeroPlan& plan = scenario.train.layout.zero;
  plan.ddp_bucket_elements = plan.ddp_first_bucket_elements = 0;
  if (!top.has("ddp")) return;
  plan.ddp_bucket_elements = elements_in(kCapMiB);
  plan.ddp_first_bucket_elements = elements_in(kFirstMiB);
  ddp_keys().read(top.child("ddp"), plan);
  refuse_with_ddp(top, scenario);
}

}  // namespace seeksim::harness
