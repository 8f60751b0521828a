#include "runtime/numbers/fp8_products.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/check.h"
#include "kernels/host_access.h"
#include "kernels/slabs.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/layout/gpt2_parameters.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Trans;
using kernels::Vec;

namespace {

constexpr std::array kLinears = {LayerPart::c_attn_weight, LayerPart::c_proj_weight, LayerPart::c_fc_weight,
                                 LayerPart::mlp_proj_weight};

struct WorkSizes {
  Index a = 0, b = 0, c = 0;
};

// Rows of an operand are tokens, or those of a weight.
WorkSizes work_sizes(const TrainPlan& plan, const Parameters& parameters, Index rows) {
  WorkSizes sizes;
  for (const ParameterInfo& p : parameters.all()) {
    if (fp8_linear(p, parameters.layers()) < 0) continue;
    const Index tokens = rows * std::max(p.rows(), p.cols());
    sizes.a = std::max(sizes.a, tokens);
    sizes.b = std::max(sizes.b, std::max(tokens, p.size));
    if (is_16_bit(plan.definition.precision.compute)) sizes.c = std::max(sizes.c, tokens);
  }
  return sizes;
}

}  // namespace

int fp8_linear(const ParameterInfo& weight, int layers) {
  if (weight.module < 1 || weight.module > layers) return -1;
  const auto found = std::find(kLinears.begin(), kLinears.end(), LayerPart(weight.part));
  return found == kLinears.end() ? -1 : int(found - kLinears.begin());
}

std::vector<std::string> fp8_tensor_names(const ModelPlan& model) {
  std::vector<std::string> names(std::size_t(fp8_tensors(model.layers)));
  for (const ParameterInfo& p : whole_model(model, false)) {
    const int linear = fp8_linear(p, model.layers);
    for (int use = 0; use < kFp8Uses && linear >= 0; ++use)
      names[std::size_t(fp8_tensor(p.module - 1, linear, Fp8Use(use)))] =
          std::string(p.name) + '/' + std::string(name(Fp8Use(use)));
  }
  return names;
}

Index fp8_work_elements(const TrainPlan& plan, const Parameters& parameters, Index rows) {
  const WorkSizes sizes = work_sizes(plan, parameters, rows);
  return sizes.a + sizes.b + sizes.c;
}

Fp8Work make_fp8_work(Device& device, const TrainPlan& plan, const Parameters& parameters, Index rows) {
  const WorkSizes sizes = work_sizes(plan, parameters, rows);
  const auto floats = [&](const char* name, Index n) {
    return n == 0 ? BufferPtr() : device.allocate(std::size_t(n) * sizeof(float), MemoryTag::activations, name);
  };
  return {floats("fp8 operand", sizes.a), floats("fp8 operand of the right", sizes.b), floats("fp8 product", sizes.c)};
}

namespace {

template <class S>
void record_magnitude(Launcher& launch, const Fp8Product& of, int tensor, MatView<const S> values) {
  const bool last_one_only = of.bug.is(Bug::fp8_amax_of_last_micro_batch);
  launch(
      of.weight.name, of.site, memory_cost(values.rows * values.cols),
      [last_one_only](Lane lane, Mat<const S> x, Vec<float> most) {
        if (last_one_only) kernels::clear(lane, most);
        kernels::fold_magnitude<S>(lane, x, most);
      },
      values, vec<float>(*of.pass.amaxes, tensor, 1));
}

// A sample's rows of an input or a gradient have a scale; a weight has one.
template <class S>
Index rows_of_scale(const Fp8Product& of, const Fp8Operand<S>& operand) {
  return operand.use == Fp8Use::weight ? operand.values.rows : of.rows_of_sample;
}

// What the operand is worth, in `into`. down: what is summed over runs down its columns.
template <class S>
MatView<const float> cast_operand(Launcher& launch, const Fp8Product& of, const Fp8Operand<S>& operand, bool down,
                                  Index segment, Buffer& into) {
  const MatView<const S>& x = operand.values;
  const MatView<float> y = mat<float>(into, 0, x.rows, x.cols);
  if (x.rows * x.cols == 0) return y;
  const Fp8Plan& plan = *of.pass.plan;
  const int tensor = fp8_tensor(of.weight.module - 1, fp8_linear(of.weight, of.layers), operand.use);
  const kernels::Fp8Rule rule = fp8_rule(plan, operand.use);
  const Cost cost = memory_cost(2 * x.rows * x.cols, 8);
  if (plan.scaling == Fp8Scaling::mx) {
    launch(
        of.weight.name, of.site, cost,
        [format = rule.format, down, segment](Lane lane, Mat<const S> in, Mat<float> out) {
          kernels::mx_cast<S>(lane, format, down, segment, in, out);
        },
        x, y);
    return y;
  }
  const bool records = operand.records && of.pass.amaxes != nullptr && plan.keeps_state();
  if (records) record_magnitude(launch, of, tensor, x);
  if (plan.scaling == Fp8Scaling::current || of.bug.is(Bug::fp8_scale_of_this_step)) {
    const Index rows = plan.scaling == Fp8Scaling::current ? rows_of_scale(of, operand) : x.rows;
    launch(
        of.weight.name, of.site, cost,
        [rule, rows](Lane lane, Mat<const S> in, Mat<float> out) {
          kernels::fp8_cast_samples<S>(lane, rule, rows, in, out);
        },
        x, y);
    return y;
  }
  const bool saturates = !of.bug.is(Bug::fp8_unsaturated) || operand.use != Fp8Use::gradient;
  const kernels::Fp8Cast cast{rule.format, of.pass.scales->scale(tensor) * of.pass.times, saturates};
  launch(
      of.weight.name, of.site, cost,
      [cast](Lane lane, Mat<const S> in, Mat<float> out) { kernels::fp8_cast<S>(lane, cast, in, out); }, x, y);
  return y;
}

}  // namespace

template <class S, class So>
void fp8_product(Launcher& launch, const Fp8Product& of, const Fp8Operand<S>& a, const Fp8Operand<S>& b,
                 VecView<const S> bias, MatView<So> c, Index segment) {
  const Trans ta = a.turned, tb = b.turned;
  const Index k = ta == Trans::no ? a.values.cols : a.values.rows;
  const MatView<const float> x = cast_operand(launch, of, a, ta == Trans::yes, segment, *of.work.a);
  const MatView<const float> y = cast_operand(launch, of, b, tb == Trans::no, segment, *of.work.b);
  const auto multiply = [&](MatView<float> sums) {
    launch(
        of.weight.name, of.site, gemm_cost(c.rows, c.cols, k),
        [ta, tb, segment](Lane lane, Mat<const float> left, Mat<const float> right, Mat<float> z) {
          kernels::gemm<float>(lane, ta, tb, left, right, z, segment);
        },
        x, y, sums);
  };
  if constexpr (std::is_same_v<So, float>) {
    if (bias.n == 0) return multiply(c);
    if constexpr (std::is_same_v<S, float>) {
      launch(
          of.weight.name, of.site, gemm_cost(c.rows, c.cols, k),
          [ta, tb, segment](Lane lane, Mat<const float> left, Mat<const float> right, Vec<const float> add,
                            Mat<float> z) { kernels::gemm<float>(lane, ta, tb, left, right, z, segment, add); },
          x, y, bias, c);
    } else {
      SEEKSIM_CHECK(false, "a bias of %lld is added before a sum over ranks", static_cast<long long>(bias.n));
    }
  } else {
    const MatView<float> sums = mat<float>(*of.work.c, 0, c.rows, c.cols);
    multiply(sums);
    const Cost cost = memory_cost(2 * c.rows * c.cols, 0.5);
    if (bias.n == 0) {
      launch(
          of.weight.name, of.site, cost,
          [](Lane lane, Mat<const float> z, Mat<So> out) {
            kernels::add_ways<So>(lane, {z.data, 1, z.rows * z.cols, z.rows * z.cols}, {}, out);
          },
          reads(sums), c);
      return;
    }
    launch(
        of.weight.name, of.site, cost,
        [](Lane lane, Mat<const float> z, Vec<const S> add, Mat<So> out) {
          kernels::add_ways<So>(lane, {z.data, 1, z.rows * z.cols, z.rows * z.cols}, add, out);
        },
        reads(sums), bias, c);
  }
}

#define SEEKSIM_INSTANTIATE(S, So)                                                                           \
  template void fp8_product<S, So>(Launcher&, const Fp8Product&, const Fp8Operand<S>&, const Fp8Operand<S>&, \
                                   VecView<const S>, MatView<So>, Index);
SEEKSIM_INSTANTIATE(float, float)
SEEKSIM_INSTANTIATE(kernels::bf16, float)
SEEKSIM_INSTANTIATE(kernels::bf16, kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16, float)
SEEKSIM_INSTANTIATE(kernels::fp16, kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
