// Training data: sample g of the run is a pure function of the definition and g, so that any rank can fetch any sample
// at any time, again after a fault included (docs/numerics.md#r1).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/view.h"
#include "runtime/launch/launcher.h"
#include "runtime/plan/plan.h"
#include "runtime/rules/mutants.h"
#include "runtime/samples/sampler.h"

namespace seeksim::runtime {

// What a launch captures to draw samples: values only. `text` and `given` point into the plan, which outlives the run.
struct DataSource {
  const char* text = nullptr;  // null: given or synthetic
  kernels::Index text_bytes = 0;
  const std::int32_t* given = nullptr;  // rows of context + 1 tokens; null: none
  std::int64_t given_rows = 0;
  std::uint64_t seed = 0;
  std::int32_t context = 0;
  std::int32_t vocab = 0;
  Sampler sampler;        // which of them, where they are those of a data set
  bool held_out = false;  // what no step reads: the end of the text, in order, or a random stream of its own

  // Which sample of the data set is the training's sample `g`; g itself, where there is none.
  std::int64_t row(std::int64_t g) const { return sampler.on() && !held_out ? sampler.row(g) : g; }
  // The context + 1 tokens of sample `g`, counted over the run; the last `context` of them are the targets.
  void sample(std::int64_t g, std::int32_t* tokens) const;

 private:
  kernels::Index place_in_text(std::int64_t g, std::int64_t row) const;
};

// Throws std::runtime_error when the text is too short for the context or given tokens are not whole samples. A token
// beyond the vocabulary is found when it is drawn.
DataSource data_source(const Definition& definition);
// Samples that no step trains on, for evaluations: the same ones each time. Not of given tokens.
DataSource held_out_source(const Definition& definition);

// Enqueues the loading of samples [first, first + count): their tokens and the next ones, each where it is wanted (a
// view of no elements: nowhere).
void launch_tokens(Launcher& launch, const char* site, const DataSource& data, std::int64_t first, kernels::Index count,
                   Mutant mutant, VecView<std::int32_t> inputs, VecView<std::int32_t> targets);

// The global batch that a step uses: the step-th of those that are not dropped. dropped: ascending, each once.
std::int64_t batch_of_step(std::span<const std::int64_t> dropped, std::int64_t step);

}  // namespace seeksim::runtime
