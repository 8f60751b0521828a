// RoundedWeights: quantised weights where a rank has all of them. Nothing is gathered, so each module's are rounded
// when it is used. It is what the golden of one rank computes with; GatheredWeights does the same to what travels.
#pragma once

#include "runtime/model/model.h"
#include "runtime/zero/code_wire.h"

namespace seeksim::runtime {

class RoundedWeights final : public Weights {
 public:
  // flat: the parameters as the optimizer leaves them.
  RoundedWeights(Device& device, Launcher& compute, const Parameters& parameters, const TrainPlan& plan, AnyVec flat);
  void fetch(int module) override;
  void release(int) override {}
  AnyVec of(const ParameterInfo& parameter) override;

 private:
  Launcher& compute_;
  const Parameters& parameters_;
  kernels::CodeForm form_;
  AnyVec flat_;
  BufferPtr rounded_;
};

}  // namespace seeksim::runtime
