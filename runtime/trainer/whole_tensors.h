// WholeTensors: shards and parts of tensors, gathered into whole ones, one parameter at a time, for those who digest
// them or hand them out.
#pragma once

#include <functional>

#include "runtime/trainer/tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class WholeTensors {
 public:
  WholeTensors(Workbench& bench, Tensors& tensors, World& world) : bench_(bench), tensors_(tensors), world_(world) {}

  // Calls each(parameter, values) for every parameter of the whole model, in registration order; the host may read the
  // values until each() returns. flat: what is cut like trained parameters. frozen: the other parameters; null: they
  // are passed over. Collective.
  using Each = std::function<void(const ParameterInfo&, AnyVec)>;
  void for_each(AnyVec flat, const AnyVec* frozen, const char* what, const Each& each);
  // After a failure, with nothing pending.
  void give_up() { place_.reset(); }

 private:
  void bring_shards(Launcher& launch, const ParameterInfo& parameter, AnyVec held, AnyVec whole);

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  BufferPtr place_;  // where a tensor is gathered; a failure leaves it to be freed when nothing is pending
};

}  // namespace seeksim::runtime
