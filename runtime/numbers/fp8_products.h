// Products of linear layers in fp8: each operand is cast as the plan has it, and what the casts are worth is multiplied
// by the contract's product in fp32. Forward casts input and weight; backward the gradient of the output, and weight
// and input once more, from the same values by the same scales.
#pragma once

#include "kernels/gemm.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/parameters.h"
#include "runtime/numbers/fp8_amaxes.h"

namespace seeksim::runtime {

// The layers of a model whose products these are, by their weight; -1: it is none.
int fp8_linear(const ParameterInfo& weight, int layers);
// Of a tensor: "h.0.attn.c_attn.weight/input", by its number.
std::vector<std::string> fp8_tensor_names(const ModelPlan& model);

// Memory for the operands of one product, and for its result where that is rounded to 16 bits.
struct Fp8Work {
  BufferPtr a, b, c;  // of floats
};
// rows: of a micro-batch, at most; parameters: of this rank.
Fp8Work make_fp8_work(Device& device, const TrainPlan& plan, const Parameters& parameters, Index rows);
// Floats of a, b and c together.
Index fp8_work_elements(const TrainPlan& plan, const Parameters& parameters, Index rows);

// c (M, N) = op(a) op(b) + bias, summed in segments of K. Of the layer whose weight is `weight`.
struct Fp8Product {
  const Fp8Pass& pass;
  Fp8Work& work;
  const ParameterInfo& weight;
  const char* site;
  int layers;  // of the model
  Index rows_of_sample;
  PlantedBug bug;
};

template <class S>
struct Fp8Operand {
  Fp8Use use;
  kernels::Trans turned;
  MatView<const S> values;
  bool records = false;  // its largest magnitude
};

// S: how operands are held; So: how the result is: S, or float.
template <class S, class So>
void fp8_product(Launcher& launch, const Fp8Product& of, const Fp8Operand<S>& a, const Fp8Operand<S>& b,
                 VecView<const S> bias, MatView<So> c, Index segment);

}  // namespace seeksim::runtime
