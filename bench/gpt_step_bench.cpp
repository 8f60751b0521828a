// One training step of a small GPT, end to end: trainer, queues, trace, commit, optimizer. By default the model of the
// usual PyTorch comparison (4 layers, width 256, 4 heads, 128 tokens, 8 samples, vocabulary 512) on one rank; with more
// ranks on this one core, the price of simulating them.
//
//   bench_gpt_step [ranks] [micro_batch] [steps] [layers] [width] [heads] [context] [batch] [vocab] [ZeRO stage]
//   [copies] [layers a recomputed segment] [dropout in %] [1: fused attention]
//
// The cost of sharding on one core: compare N ranks at a stage with one rank and N micro-batches of the same size.
// copies 0: a lost owner stops the run, but no rank updates a second shard.
//
// The cost of recomputing activations: set the layers of a segment (0: all activations are kept).
//
// Prints the median, least and most milliseconds of CPU time a step (steps after the second).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "kernels/isa.h"
#include "runtime/recovery/train.h"
#include "sim/world.h"

namespace {

using namespace seeksim;

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Notes the CPU time at which the first rank commits each step.
class StepClock : public runtime::Observer {
 public:
  void step_committed(int rank, const runtime::StepRecord& record) override {
    if (rank != 0) return;
    at_.push_back(cpu_seconds());
    loss_ = record.loss;
  }
  void recovering(int, const runtime::RecoveryRecord&) override {}
  void recovered(int, const runtime::RecoveryRecord&) override {}
  bool wants_gradients(int, std::int64_t) override { return false; }
  void gradients(int, std::int64_t, std::vector<runtime::NamedTensor>) override {}

  std::vector<double> step_ms() const {
    std::vector<double> ms;
    for (std::size_t i = 2; i < at_.size(); ++i) ms.push_back(1e3 * (at_[i] - at_[i - 1]));
    std::sort(ms.begin(), ms.end());
    return ms;
  }
  float loss() const { return loss_; }

 private:
  std::vector<double> at_;
  float loss_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int number[] = {1, 8, 12, 4, 256, 4, 128, 8, 512, 0, 1, 0, 0, 0};
  for (int i = 1; i < argc && i <= 14; ++i) number[i - 1] = std::atoi(argv[i]);

  runtime::TrainPlan plan;
  runtime::ModelPlan& model = plan.definition.model;
  model.layers = number[3];
  model.width = number[4];
  model.heads = number[5];
  model.context = number[6];
  model.vocab = number[8];
  model.tied = false;
  model.fused_attention = number[13] != 0;
  plan.definition.data.synthetic = true;
  plan.definition.optimizer = {.lr = 3e-4, .betas = {0.9, 0.95}, .weight_decay = 0.1, .decay_all = true};
  plan.definition.global_batch = number[7];
  plan.definition.steps = number[2];
  plan.layout.micro_batch = number[1];
  plan.layout.zero = runtime::zero_plan(number[9]);
  plan.layout.checkpointing.every = number[11];
  const double dropout = number[12] / 100.0;
  model.dropout = {dropout, dropout, dropout};
  plan.recovery.peer_copies = number[10] != 0;

  sim::WorldPlan world_plan;
  world_plan.ranks_per_node = number[0];
  sim::World world(world_plan);
  StepClock clock;
  const sim::WorldResult result = world.run([&](runtime::Rank& rank) { runtime::train(rank, plan, clock); });
  const std::vector<double> ms = clock.step_ms();
  if (result.end != sim::WorldEnd::finished || ms.empty()) {
    std::fprintf(stderr, "bench_gpt_step: the run did not finish, or had fewer than 3 steps\n");
    return 1;
  }
  std::printf("ranks %d micro_batch %d stage %d isa %s  step %.1f ms [min %.1f max %.1f] of CPU time, loss %.7f\n",
              number[0], number[1], number[9], kernels::name(kernels::active_isa()), ms[ms.size() / 2], ms.front(),
              ms.back(), double(clock.loss()));
  return 0;
}
