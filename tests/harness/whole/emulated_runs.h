// Runs of a small model from which tests emulate what groups of samples, or workers, do with their gradients: with a
// learning rate of 0 the gradient of each is what a plain run has whose batch is the group.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "runtime/model/weights.h"

namespace seeksim::harness::testing {

using Floats = std::vector<float>;
using ByStep = std::map<std::int64_t, Floats>;

inline constexpr int kParts = 4, kPartsBatch = 16, kPartsSteps = 4;

inline std::string emulated_text(int batch, int steps, int ranks, int stage, const std::string& compression,
                                 double rate = 0) {
  return fmt::format(
      R"({{ "name": "emulated",
  "model": {{ "layers": 1, "width": 34, "heads": 2, "context": 8, "vocab": 61 }},
  "data": {{ "synthetic": true }}, "world": {{ "nodes": 1, "ranks_per_node": {} }},
  "deepspeed": {{ "train_batch_size": {}, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {{ "stage": {} }},
                 "optimizer": {{ "type": "AdamW", "params": {{ "lr": {}, "weight_decay": 0 }} }},
                 "gradient_clipping": 0 }},
  "batch_arithmetic": "by_samples", {} "steps": {} }})",
      ranks, batch, stage, rate, compression, steps);
}

struct Trained {
  ByStep gradients;  // reduced
  Floats weights;    // the last ones
};

// In the order in which parameters are stored here.
inline Trained trained(const std::string& text) {
  const Scenario scenario = load_scenario_text(text, "emulated.json");
  const runtime::ModelPlan& model = scenario.train.definition.model;
  const runtime::Parameters parameters(model, false);
  Floats places(std::size_t(parameters.trainable_size()));
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = float(i);
  const std::vector<runtime::NamedTensor> where = runtime::gradients_to_hugging_face(parameters, model, places);
  const auto flat = [&](const std::vector<runtime::NamedTensor>& tensors) {
    Floats values(places.size());
    for (std::size_t t = 0; t < tensors.size(); ++t)
      for (std::size_t i = 0; i < tensors[t].values.size(); ++i)
        values[std::size_t(where[t].values[i])] = tensors[t].values[i];
    return values;
  };
  Trained all;
  SimulationOptions options;
  options.keep_final_weights = true;
  options.on_gradients = [&](int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients) {
    if (rank == 0) all.gradients[step] = flat(gradients);
  };
  Simulation simulation(scenario, options);
  const RunRecord run = simulation.run();
  EXPECT_EQ(run.ranks[0].how, RankRecord::How::finished) << run.ranks[0].why;
  if (!run.training.final_weights.empty()) all.weights = flat(run.training.final_weights);
  return all;
}

inline ByStep reduced_in(const std::string& text) { return trained(text).gradients; }

}  // namespace seeksim::harness::testing
