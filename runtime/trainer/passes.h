// Passes: the forward and backward passes of a step's micro-batches, in the order of the schedule: without a pipeline
// F0 B0 F1 B1 ... Which micro-batch goes through which piece of the model when, what is sent before and after, how many
// are in flight, and, where each is run twice, whether both runs had the same bits.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/launch/provenance.h"
#include "runtime/model/edited_gradients.h"
#include "runtime/model/model.h"
#include "runtime/model/packing.h"
#include "runtime/rules/mutants.h"
#include "runtime/samples/data.h"
#include "runtime/trainer/pipeline_links.h"
#include "runtime/trainer/reduction.h"
#include "runtime/trainer/rerun.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class Passes {
 public:
  Passes(Workbench& bench, Tensors& tensors, World& world, Reduction& reduction)
      : bench_(bench), tensors_(tensors), world_(world), reduction_(reduction), data_(data_source(bench.definition())) {
    data_.seed = data_seed(bench.plan.bug.mutant, data_.seed);
    data_.sampler = bench.planted->sampler(data_.sampler);
  }

  // This rank's micro-batches and instructions, in the world that was seated.
  void schedule();
  // What watches launches, and room for activations.
  void allocate();
  // Room for as many micro-batches as the schedule holds. Nothing may be pending.
  void make_room();
  bool has_room() const { return !models_.empty(); }
  // Fewer activations would leave more memory: some were made, or failed to be.
  bool holds_activations() const { return holds_activations_; }
  void free_activations();
  // In a world that is connected: room, weights of micro-batches, and the reruns. Returns how many nodes of the
  // gradient tree a micro-batch fills at most.
  Index connect();
  void tell_pipeline();

  // Where the step's samples are, and of how many tokens its loss is the mean. Before gradients are reduced.
  void look_at_batch();
  // All of a step; enqueued.
  void run();
  // Between steps, for passes that are no step's: a place for a micro-batch in a piece.
  InFlight& free_flight(std::size_t piece) { return flights_[piece].front(); }
  // Whether what launches write is scanned, where the plan asks for it.
  void watch(bool on) { bench_.compute.watched_by(on && provenance_ ? &*provenance_ : nullptr); }
  // The magnitudes of what is cast to 8 bits; null: scales do not follow from them.
  Fp8Amaxes* amaxes() { return amaxes_ ? &*amaxes_ : nullptr; }
  // How operands are cast, and whether magnitudes are recorded.
  Fp8Pass fp8(bool records) const {
    const Fp8Plan& plan = bench_.definition().fp8;
    if (!plan.on()) return {};
    return {&plan, &bench_.progress.fp8(), records && amaxes_ ? amaxes_->recorded() : nullptr};
  }
  // (own micro-batches, layers, 2 E), where choices of experts are counted and there are samples; null: else.
  Buffer* choices() const { return micro_batches_.empty() ? nullptr : choices_.get(); }
  const std::vector<SampleRange>& micro_batches() const { return micro_batches_; }
  // The step is done: reports the ranges of values to the observer, where they are recorded.
  void tell_ranges();
  // Where each micro-batch is run twice: which range of gradients had other bits the second time.
  std::optional<RerunFound> compare_runs();
  // After a failure, with nothing pending.
  void forget();

 private:
  void begin_step();
  void carry_out(const Instruction& instruction);
  void fetch(InFlight& flight);
  void forward(InFlight& flight, std::size_t piece);
  void backward(InFlight& flight, std::size_t piece, InstructionKind kind, GradientSink* sink);
  void backward_to(GradientSink& sink, InFlight& flight, std::size_t piece, InstructionKind kind);
  void reduce_backward(InFlight& flight, std::size_t piece, InstructionKind kind);
  void run_again(InFlight& flight);
  std::vector<int> most_in_flight() const;
  InFlight& flight_of(const Instruction& instruction);
  const SampleRange& samples_of(const InFlight& flight) const {
    return micro_batches_[std::size_t(flight.micro_batch)];
  }
  std::vector<GradientBlock> blocks_of(const SampleRange& samples) const;
  Batch batch(const InFlight& flight, bool backward = false) const;
  std::int64_t first_of(const SampleRange& samples) const;
  // What is edited of a range of gradients that begins there.
  std::vector<EditedBlock> edited_blocks(const SampleRange& samples, const GradientEdit& edit, Index gradient) const;
  void begin_group(int micro_batch);
  GradientEdit gradient_edit(const SampleRange& samples, int micro_batch) const;
  float loss_scale(const InFlight& flight) const;
  float packed_weight(const InFlight& flight) const;
  void weigh_tokens();
  bool in_two_parts() const;

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  Reduction& reduction_;
  DataSource data_;
  std::int64_t position_ = 0;                                // of the step's first sample
  Index learned_ = 0;                                        // tokens of each sample that have a loss; 0: all
  Index tokens_ = 0;                                         // of the step that have one, where not all do
  std::vector<std::vector<std::unique_ptr<Model>>> models_;  // by piece, one a micro-batch in flight
  std::vector<std::vector<InFlight>> flights_;               // likewise
  bool holds_activations_ = false;
  std::vector<SampleRange> micro_batches_;          // of this rank, in samples of the step
  std::vector<std::vector<SampleRange>> of_group_;  // those of the ranks of its expert group
  std::vector<Instruction> instructions_;           // of a step, up to the reduction of gradients
  std::vector<float> token_weights_;                // of each: as a multiple of one over the step's tokens
  std::optional<Provenance> provenance_;
  std::optional<Fp8Amaxes> amaxes_;  // where scales follow from them
  BufferPtr choices_;                // where they are counted
  std::optional<Rerun> rerun_;       // where each micro-batch is run twice
};

}  // namespace seeksim::runtime
