// Runs of scripts made by hand: records written as ranks write them, and read as the command reads them.
#pragma once

#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/torch/run_record.h"
#include "pytorch/core/record.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::torch::testing {

using pytorch::CallEntry;
using pytorch::CallState;
using pytorch::OpName;
using pytorch::RecordWriter;
using pytorch::StepPhase;

// A rank that trains: each step uses a weight, has a loss, sums a gradient and moves on.
class MadeRank {
 public:
  MadeRank(const std::string& folder, int rank, int world)
      : writer_(folder + "/rank-" + std::to_string(rank) + ".rec", {rank, world, 0, "2.15.0", "seeksim"}), rank_(rank) {
    std::string ranks;
    for (int i = 0; i < world; ++i) ranks += (i > 0 ? "," : "") + std::to_string(i);
    group_ = writer_.add(pytorch::GroupEntry{writer_.text("0"), writer_.text(ranks), world});
    sees(pytorch::SightKind::trains, "head.weight");
    sees(pytorch::SightKind::trains_on, "loader 0");
  }

  // What a step is made of; changed by a test before it is written.
  struct Step {
    std::string name = "head.weight";
    std::uint64_t weight = 0;  // hash
    pytorch::DType type = pytorch::DType::fp32;
    double weight_norm = 1, weight_probe = 0.5;
    std::uint64_t gradient = 0;  // hash, as the optimizer gets it
    double gradient_norm = 1;
    int micro_batches = 1;
    double loss = 1;
    std::string samples;  // of the batch, "index:digest"
    std::string epoch = "loader 0, epoch 0";
    bool call = true;
    CallEntry sum;
    bool done = true;  // the optimizer made its step
  };
  using Change = std::function<void(std::int64_t step, Step& made)>;

  void steps(int count, const Change& change = {}) {
    for (std::int64_t step = 0; step < count; ++step) {
      Step made;
      made.weight = 1000 + std::uint64_t(step);
      made.gradient = 2000 + std::uint64_t(step);
      made.loss = 4.0 - 0.25 * double(step);
      made.sum = sum_of(step);
      made.samples = std::to_string(100 * rank_ + batches_) + ":5";
      if (change) change(step, made);
      write(step, made);
    }
  }

  // A verdict on the last collective.
  void blames(pytorch::Blame blame, int culprit, double waited_s) {
    pytorch::VerdictEntry verdict;
    verdict.blame = blame;
    verdict.group = group_;
    verdict.rank = culprit;
    verdict.call = last_call_;
    verdict.seq = last_.seq;
    verdict.step = last_.step;
    verdict.text = writer_.text("seeksim: all_reduce: rank " + std::to_string(culprit));
    verdict.waited_ns = std::int64_t(waited_s * 1e9);
    verdict.time_ns = time_ += 1000;
    writer_.add(verdict);
  }
  void fires(int rule) {
    pytorch::FaultEntry fault;
    fault.rule = rule;
    fault.firing = 1;
    fault.call = last_call_;
    fault.time_ns = time_ += 10;
    writer_.add(fault);
  }
  // What a hook saw.
  void sees(pytorch::SightKind kind, const std::string& name, const std::string& text = "", std::int64_t step = 0) {
    pytorch::SightEntry sight;
    sight.kind = kind;
    sight.name = writer_.text(name);
    if (!text.empty()) sight.text = writer_.text(text);
    sight.step = step;
    writer_.add(sight);
  }
  RecordWriter& writer() { return writer_; }

 private:
  CallEntry sum_of(std::int64_t step) {
    CallEntry call;
    call.op = OpName::all_reduce;
    call.reduce = pytorch::ReduceName::sum;
    call.dtype = pytorch::DType::fp32;
    call.phase = StepPhase::backward;
    call.state = CallState::finished;
    call.group = group_;
    call.stack = writer_.text("/v/lib/python3.11/site-packages/torch/nn.py:12 backward\n/data/torch/train.py:51 main");
    call.seq = std::uint64_t(step) + 1;
    call.step = step;
    call.numel = 64;
    call.hash_in = 10 * std::uint64_t(step) + std::uint64_t(rank_);
    call.hash_out = 77 + std::uint64_t(step);
    return call;
  }

  void write(std::int64_t step, Step& made) {
    sees(pytorch::SightKind::batch, made.epoch, made.samples, batches_++);
    pytorch::TensorEntry weight;
    weight.step = step;
    weight.phase = StepPhase::forward;
    weight.dtype = made.type;
    weight.name = writer_.text(made.name);
    weight.module = writer_.text("Linear");
    weight.shape = writer_.text("[8,8]");
    weight.hash = made.weight;
    weight.measure = {made.weight_norm, made.weight_probe};
    writer_.add(weight);
    pytorch::LossEntry loss;
    loss.step = step;
    loss.bits = std::bit_cast<std::uint64_t>(made.loss);
    loss.time_ns = time_ += 10;
    writer_.add(loss);
    if (made.call) {
      made.sum.created_ns = made.sum.started_ns = time_ += 10;
      last_ = made.sum;
      last_call_ = writer_.add(made.sum);
    }
    if (!made.done) return;
    pytorch::TensorEntry gradient = weight;
    gradient.use = pytorch::TensorUse::gradient;
    gradient.phase = StepPhase::optimizer;
    gradient.hash = made.gradient;
    gradient.measure = {made.gradient_norm, 0.5};
    writer_.add(gradient);
    writer_.add(pytorch::StepEntry{step, made.micro_batches, time_ += 10});
  }

  RecordWriter writer_;
  int rank_;
  std::int64_t batches_ = 0;
  std::int32_t group_ = -1, last_call_ = -1;
  CallEntry last_;
  std::int64_t time_ = pytorch::monotonic_ns();
};

// A run of `ranks` ranks, each of which `write` fills.
struct MadeRun {
  harness::testing::TemporaryFolder folder;
  std::vector<std::unique_ptr<MadeRank>> made;

  explicit MadeRun(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) made.push_back(std::make_unique<MadeRank>(folder.path(), rank, ranks));
  }
  MadeRank& operator[](int rank) { return *made[std::size_t(rank)]; }

  // Closes the records and reads them, as after a job whose processes ended well.
  TorchRun run() {
    TorchRun run;
    run.scenario.name = "made";
    run.scenario.torch.ranks = int(made.size());
    run.folder = folder.path();
    run.command = {"train.py"};
    made.clear();
    run.ranks = read_ranks(folder.path(), run.scenario.torch.ranks);
    for (int rank = 0; rank < run.scenario.torch.ranks; ++rank) {
      ProcessRun process;
      process.rank = rank;
      process.ending.over = true;
      run.job.processes.push_back(process);
    }
    return run;
  }
};

// Four good steps on each of `ranks` ranks; `change` is applied on the rank `of` only, -1: on none.
inline TorchRun made_run(int ranks, int of = -1, const MadeRank::Change& change = {}) {
  MadeRun run(ranks);
  for (int rank = 0; rank < ranks; ++rank) run[rank].steps(4, rank == of ? change : MadeRank::Change());
  return run.run();
}

}  // namespace seeksim::harness::torch::testing
