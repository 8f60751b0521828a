// A model of one's own: a residual MLP over the present token alone.
//   x = wte[token];  x = x + gelu(x w_l) for each layer;  logits = x wte^T
// All that ZeRO, schedules, faults and oracles do works on it, since sums over samples are made block by block with the
// kernels' forms.
#pragma once

#include "runtime/layout/family.h"
#include "runtime/model/model.h"

class MlpFamily final : public seeksim::runtime::ModelFamily {
 public:
  // mistaken: a layer's gradient is summed in one chain over all rows of a block, as one would without thinking of it.
  // Then its bits depend on how the batch was cut, and the golden must tell.
  explicit MlpFamily(bool mistaken) : mistaken_(mistaken) {}

  std::vector<seeksim::runtime::ParameterInfo> parameters(const seeksim::runtime::ModelPlan& plan,
                                                          bool decay_all) const override;
  std::vector<std::unique_ptr<seeksim::runtime::Model>> models(seeksim::runtime::Device& device,
                                                               const seeksim::runtime::TrainPlan& plan,
                                                               const seeksim::runtime::Parameters& parameters,
                                                               std::size_t piece, seeksim::kernels::Index samples_max,
                                                               int count,
                                                               seeksim::runtime::TensorAxis* tensor) const override;
  std::string problem(const seeksim::runtime::TrainPlan& plan) const override;

 private:
  bool mistaken_;
};
