// The sums of pytorch/core/sums.h once more, with torch's operations, for tensors that lie on a device: F3, the aligned
// binary tree over the rank's place in the group. Each operation of torch used here rounds each element once.
#include <ATen/MemoryOverlap.h>

#include "pytorch/backend/seeksim_backend.h"

namespace seeksim::pytorch {
namespace {

constexpr double kLargestE4M3 = 448;

using Combine = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

at::Tensor add(const at::Tensor& a, const at::Tensor& b) { return at::add(a, b); }
// As written: a library's own product of complex numbers may contract or look for infinities.
at::Tensor multiply(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_complex()) return at::mul(a, b);
  const at::Tensor x = at::view_as_real(a), y = at::view_as_real(b);
  const at::Tensor ar = x.select(-1, 0), ai = x.select(-1, 1), br = y.select(-1, 0), bi = y.select(-1, 1);
  return at::complex(at::sub(at::mul(ar, br), at::mul(ai, bi)), at::add(at::mul(ar, bi), at::mul(ai, br)));
}
at::Tensor least(const at::Tensor& a, const at::Tensor& b) { return at::minimum(a, b); }
at::Tensor most(const at::Tensor& a, const at::Tensor& b) { return at::maximum(a, b); }
at::Tensor all_bits(const at::Tensor& a, const at::Tensor& b) { return at::bitwise_and(a, b); }
at::Tensor any_bits(const at::Tensor& a, const at::Tensor& b) { return at::bitwise_or(a, b); }
at::Tensor odd_bits(const at::Tensor& a, const at::Tensor& b) { return at::bitwise_xor(a, b); }

Combine combination(ReduceName name, bool of_truth) {
  switch (name) {
    case ReduceName::product:
      return of_truth ? all_bits : multiply;
    case ReduceName::min:
      return of_truth ? all_bits : least;
    case ReduceName::max:
      return of_truth ? any_bits : most;
    case ReduceName::band:
      return all_bits;
    case ReduceName::bor:
      return any_bits;
    case ReduceName::bxor:
      return odd_bits;
    default:
      return of_truth ? any_bits : add;
  }
}

// A binary counter of partial results: its low bits tell which are there.
at::Tensor tree(const Tensors& leaves, Combine combine) {
  Tensors stack;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    at::Tensor value = leaves[i];
    for (std::size_t count = i; (count & 1) != 0; count >>= 1) {
      value = combine(stack.back(), value);
      stack.pop_back();
    }
    stack.push_back(value);
  }
  at::Tensor value = stack.back();
  for (std::size_t i = stack.size() - 1; i-- > 0;) value = combine(stack[i], value);
  return value;
}

at::Tensor chain(const Tensors& leaves, Combine combine) {
  at::Tensor value = leaves.front();
  for (std::size_t i = 1; i < leaves.size(); ++i) value = combine(value, leaves[i]);
  return value;
}

// A number as a tensor beside the others: on a device torch multiplies by the inverse of a plain one.
at::Tensor beside(const at::Tensor& t, double number) { return at::full({}, number, t.options()); }

at::Tensor scaled_by(const at::Tensor& t, double factor) { return at::mul(t, beside(t, factor)); }

}  // namespace

at::Tensor fold(const Tensors& from_ranks, const Reduction& how) {
  TORCH_CHECK_VALUE(how.order <= SumOrder::rotated, "seeksim: sums of another backend have no order ",
                    std::string(name(how.order)));
  const at::ScalarType type = from_ranks.at(0).scalar_type();
  const bool narrow = how.dtype == DType::bf16 || how.dtype == DType::fp16 || how.dtype == DType::fp8_e4m3 ||
                      how.dtype == DType::fp8_e5m2;
  const bool sums = how.op == ReduceName::sum || how.op == ReduceName::avg || how.op == ReduceName::premul_sum;
  const bool whole = !from_ranks[0].is_floating_point() && !from_ranks[0].is_complex() && type != at::kBool;
  const auto scaled = [&](const at::Tensor& t) {
    if (how.op != ReduceName::premul_sum) return t;
    return t.is_complex() ? at::view_as_complex(scaled_by(at::view_as_real(t), how.factor)) : scaled_by(t, how.factor);
  };
  Tensors leaves;
  for (const at::Tensor& t : from_ranks)
    leaves.push_back(scaled(narrow ? t.to(at::kFloat) : whole ? t.to(at::kLong) : t));
  const bool ordered = sums && from_ranks[0].is_floating_point();
  if (ordered && how.order == SumOrder::reversed) std::reverse(leaves.begin(), leaves.end());
  if (ordered && how.order == SumOrder::rotated) std::rotate(leaves.begin(), leaves.begin() + 1, leaves.end());
  const Combine combine = combination(how.op, type == at::kBool);
  at::Tensor sum = ordered && how.order == SumOrder::reversed ? chain(leaves, combine) : tree(leaves, combine);
  if (how.op == ReduceName::avg) {
    const at::Tensor parts = sum.is_complex() ? at::view_as_real(sum) : sum;
    const at::Tensor n = beside(parts, double(from_ranks.size()));
    const at::Tensor mean = whole ? at::div(parts, n, "trunc") : at::div(parts, n);
    sum = sum.is_complex() ? at::view_as_complex(mean) : mean;
  }
  // As our own sums round (pytorch/core/number_formats.h); torch before 2.15 makes NaN of what is too large.
  if (how.dtype == DType::fp8_e4m3) sum = at::clamp(sum, -kLargestE4M3, kLargestE4M3);
  return sum.to(type);
}

std::string strike_tensor(const faults::Rule& rule, const at::Tensor& t) {
  at::NoGradGuard no_grad;
  const at::Tensor values = t.variable_data();                             // with a version counter of its own
  if (at::has_internal_overlap(values) == at::MemOverlap::Yes) return "";  // one number stands for several
  const bool plain = values.device().is_cpu() && values.is_contiguous();
  const at::Tensor flat = plain ? values : values.cpu().contiguous().clone();
  std::string what = strike(rule, dtype_of(flat.scalar_type()), static_cast<std::byte*>(flat.data_ptr()), flat.numel());
  if (!what.empty() && !plain) values.copy_(flat);
  return what;
}

}  // namespace seeksim::pytorch
