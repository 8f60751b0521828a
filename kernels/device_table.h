// The seam between the public functions, which check shapes, and a device's launchers of the same operations. cuda/ has
// one text of them, compiled for GPUs and, for tests without one, for the host (cuda/emulated.h). A Lane names the
// table; a Lane without one computes here and now, through isa/table.h.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "kernels/arithmetic.h"
#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/dropout.h"
#include "kernels/experts.h"
#include "kernels/fp8.h"
#include "kernels/fused_attention.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "kernels/range.h"
#include "kernels/tree.h"
#include "kernels/view.h"

namespace seeksim::kernels {

// A device refused a launch, a copy or working memory, or reports a failure of an earlier one.
struct DeviceError : std::runtime_error {
  DeviceError(const std::string& what, bool memory) : std::runtime_error(what), out_of_memory(memory) {}
  bool out_of_memory = false;
};

// Tensors are stored as T. Arguments are already checked; they point to the device's memory. Indices that a kernel
// reads (tokens, targets) are checked by the kernel.
template <class T>
struct DeviceProducts {
  void (*gemm)(Lane, bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<T> c, Index segment, const T* bias);
  void (*gemm_to_float)(Lane, bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<float> c, Index segment,
                        const T* bias);
  void (*attention_forward)(Lane, const AttentionShape&, const Dropout&, Mat<const T> qkv, Mat<T> probs, Mat<T> out);
  void (*attention_backward)(Lane, const AttentionShape&, const Dropout&, Mat<const T> dout, Mat<const T> qkv,
                             Mat<const T> probs, Mat<T> dqkv);
  void (*fused_attention_forward)(Lane, const AttentionShape&, const Dropout&, Mat<const T> qkv, Mat<float> stats,
                                  Mat<T> out);
  void (*fused_attention_backward)(Lane, const AttentionShape&, const Dropout&, Mat<const T> dout, Mat<const T> qkv,
                                   Mat<const T> out, Mat<const float> stats, Mat<T> dqkv);
  void (*fused_part_forward)(Lane, const AttentionShape&, const FusedPlace&, const Dropout&, Mat<const T> qkv,
                             Mat<const T> kv, Mat<float> state);
  void (*fused_join)(Lane, Mat<const float> newer, Mat<float> older);
  void (*fused_root)(Lane, const AttentionShape&, Mat<const float> state, Mat<float> stats, Mat<T> out);
  void (*fused_part_backward)(Lane, const AttentionShape&, const FusedPlace&, const Dropout&, Mat<const T> dout,
                              Mat<const T> qkv, Mat<const T> kv, Mat<const T> out, Mat<const float> stats,
                              Mat<float> dq, Mat<float> dkv);
};

template <class T>
struct DeviceRows {
  void (*layer_norm_forward)(Lane, Mat<const T> x, Vec<const T> gamma, Vec<const T> beta, float eps, Mat<T> y,
                             Vec<float> mean, Vec<float> rstd);
  void (*layer_norm_backward)(Lane, Mat<const T> dy, Mat<const T> x, Vec<const T> gamma, Vec<const float> mean,
                              Vec<const float> rstd, Mat<const T> residual, Mat<T> dx);
  void (*rms_norm_forward)(Lane, Mat<const T> x, Vec<const T> gamma, float eps, Mat<T> y, Vec<float> rstd);
  void (*rms_norm_backward)(Lane, Mat<const T> dy, Mat<const T> x, Vec<const T> gamma, Vec<const float> rstd,
                            Mat<const T> residual, Mat<T> dx);
  // Column sums over tokens, in segments: of dy; of dy and dy * xhat for layer norm; of dy * xhat for rms norm. Row s
  // of a sum is over the s-th part of the samples; there are as many parts as rows.
  void (*plain_sums)(Lane, Mat<const T> dy, Index tokens, Index segment, Mat<float> plain);
  void (*centred_sums)(Lane, Mat<const T> dy, Mat<const T> x, const float* mean, const float* rstd, Index tokens,
                       Index segment, Mat<float> plain, Mat<float> scaled);
  void (*scaled_sums)(Lane, Mat<const T> dy, Mat<const T> x, const float* rstd, Index tokens, Index segment,
                      Mat<float> scaled);
  void (*softmax_cross_entropy)(Lane, Mat<const T> logits, const std::int32_t* targets, float scale, float* losses,
                                Mat<T> dlogits);
  void (*slice_maxima)(Lane, Mat<const T> logits, Index vocabulary, Index first, const std::int32_t* targets,
                       float* maxima, float* at_target);
  void (*slice_sums)(Lane, Mat<const T> logits, Index segment, const float* maxima, float* sums);
  void (*slice_cross_entropy)(Lane, Mat<const T> logits, Index vocabulary, Index first, const std::int32_t* targets,
                              float scale, const float* maxima, const float* sums, const float* at_target,
                              float* losses, Mat<T> dlogits);
  void (*embedding_backward)(Lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                             Index first, Mat<const T> dx, Mat<float> dwte);
  void (*position_backward)(Lane, Mat<const T> dx, Index tokens_per_sample, Mat<float> dwpe);
  void (*norm2_blocks)(Lane, Vec<const T> x, Vec<float> out);
  void (*norm2_of_slabs)(Lane, Vec<const T> x, Index slab, Vec<float> blocks, float* out);
  void (*count_nonfinite)(Lane, Vec<const T> x, std::int64_t* out);
  void (*range)(Lane, Mat<const T> x, TensorRange* out);
  void (*first_nonfinite)(Lane, Mat<const T> x, std::int64_t* out);
};

template <class T>
struct DeviceElements {
  void (*gelu_forward)(Lane, Mat<const T> x, Mat<T> y);
  void (*gelu_backward)(Lane, Mat<const T> dy, Mat<const T> x, Mat<T> dx);
  void (*swiglu_forward)(Lane, Index slab, Mat<const T> gate_up, Mat<T> y);
  void (*swiglu_backward)(Lane, Index slab, Mat<const T> dy, Mat<const T> gate_up, Mat<T> dgate_up);
  void (*rotate)(Lane, const AttentionShape&, Mat<const float> angles, float turn, Mat<T> qkv);
  void (*add)(Lane, Mat<const T> a, Mat<const T> b, Mat<T> y);
  void (*dropout)(Lane, const Dropout&, Index tokens, Mat<const T> x, Mat<T> y, Index first_token);
  void (*embedding_forward)(Lane, Vec<const std::int32_t> tokens, Index tokens_per_sample, Index vocabulary,
                            Index first, Mat<const T> wte, Mat<const T> wpe, Mat<T> x);
  void (*select_rows)(Lane, Vec<const std::int32_t> tokens, Index vocabulary, Index rows_of_way, Mat<const T> rows,
                      Mat<T> out);
  void (*add_ways)(Lane, Mat<const float> nodes, Vec<const T> bias, Mat<T> y);
  void (*narrow)(Lane, Vec<const float> x, Vec<T> y);
  void (*widen)(Lane, Vec<const T> x, Vec<float> y);
  void (*round_through)(Lane, Vec<float> x);
  void (*scale)(Lane, Vec<T> x, float factor);
  void (*move_mean)(Lane, float weight, Vec<const T> x, Vec<float> mean);
  // copy: the masters, rounded; not touched where T is float. Gradients are floats, or stored as T.
  void (*optimize)(Lane, const OptimizerStep&, const float* grad, float* p, float* m, float* v, T* copy, Index n);
  void (*optimize_of_stored)(Lane, const OptimizerStep&, const T* grad, float* p, float* m, float* v, T* copy, Index n);
  void (*optimize_rounding)(Lane, const OptimizerStep&, const float* grad, T* p, float* m, float* v, Index n,
                            Stagnation* out);
  void (*optimize_rounding_of_stored)(Lane, const OptimizerStep&, const T* grad, T* p, float* m, float* v, Index n,
                                      Stagnation* out);
};

// Layers of experts (experts.h); segment > 0.
template <class T>
struct DeviceExperts {
  void (*product)(Lane, const std::int32_t* slots, Index choices, Mat<const T> x, RowOf of, Mat<const T> w,
                  bool transposed, Index segment, Mat<T> y);
  void (*node)(Lane, const std::int32_t* slots, Index choices, Mat<const T> x, RowOf of, Mat<const T> w,
               bool transposed, Index segment, Mat<float> y);
  void (*weight_grad)(Lane, Vec<const std::int32_t> slots, Index choices, Index tokens, Mat<const T> a, Mat<const T> b,
                      RowOf b_of, Mat<float> dw);
  void (*combine)(Lane, const std::int32_t* slots, const float* gates, Mat<const T> y, Mat<T> out);
  void (*combine_backward)(Lane, const std::int32_t* slots, const float* gates, Mat<const T> dout, Mat<const T> act,
                           Mat<T> dact, Vec<float> dgates, Mat<T> dy, Index segment);
  void (*collect)(Lane, const std::int32_t* slots, Mat<const T> dx, Mat<const T> router, Mat<T> out);
  void (*route_backward)(Lane, const Router&, Mat<const float> probs, const std::int32_t* slots, const float* gates,
                         Mat<const float> shares, const float* spreads, const float* dgates, float scale,
                         Mat<T> dlogits);
  void (*pack)(Lane, const std::int32_t* sources, Index choices, Mat<const T> x, RowOf of, Mat<T> out);
  void (*unpack)(Lane, const std::int32_t* sources, Mat<const T> rows, Mat<T> out);
};

// Casts to 8 bits (fp8.h).
template <class T>
struct DeviceCasts {
  void (*cast)(Lane, const Fp8Cast&, Mat<const T> x, Mat<float> y);
  void (*cast_samples)(Lane, const Fp8Rule&, Index rows, Mat<const T> x, Mat<float> y);
  void (*cast_mx)(Lane, Fp8, bool down, Index segment, Mat<const T> x, Mat<float> y);
  void (*fold_magnitude)(Lane, Mat<const T> x, Vec<float> out);
};

struct DeviceCommon {
  void (*unary)(Lane, Unary, Vec<const float> x, Vec<float> y);
  void (*fill_bits)(Lane, Vec<float> x, std::uint32_t bits);
  void (*fill_normal)(Lane, Vec<float> out, std::uint32_t op, std::uint64_t first, float stddev, std::uint64_t key);
  void (*logit_scale_forward)(Lane, Mat<const float> raw, Vec<const float> scale, Mat<float> logits);
  void (*logit_scale_backward)(Lane, Mat<const float> raw, Vec<const float> scale, Mat<float> dlogits, Vec<float> dots,
                               Index segment);
  void (*route)(Lane, const Router&, Mat<const float> logits, const Routes& out);
  void (*expert_places)(Lane, Vec<const std::int32_t> slots, Index of_sample, int own, Index places,
                        Vec<std::int32_t> sources, Vec<std::int32_t> experts);
  void (*expert_accept)(Lane, int own, Vec<std::int32_t> experts);
  void (*count_choices)(Lane, Vec<const std::int32_t> slots, Vec<std::int32_t> counts);
  void (*add_token_losses)(Lane, Mat<const float> more, Vec<float> losses);
  void (*add_samples)(Lane, Mat<const float> nodes, Vec<float> out);
  void (*max_over_ways)(Lane, Mat<const float> values, Vec<float> out);
  void (*muon_direction)(Lane, const MuonStep&, Vec<float> m, Vec<float> x);
  void (*scale_to_norm)(Lane, Vec<const float> norm2, float least, Vec<float> x);
  void (*weighted_sum)(Lane, float a, Vec<const float> x, float b, Vec<float> y);
  void (*tree_add)(Lane, Vec<const float> left, Vec<const float> right, Vec<float> out);
  // Parts in ascending order of leaves. After part p is pushed, the two topmost operands are added adds_after[p] times.
  void (*tree_parts)(Lane, const float* const* parts, const int* adds_after, Index count, float* out, Index n,
                     float factor);
  // Row r of values to out[r]: F3 in segments, F3 over them, times factor.
  void (*tree_fold)(Lane, Mat<const float> values, Index segment, float factor, float* out);
  // Copies between memory of the device and of the host, in any direction, in the order of the lane. On return what is
  // read from the host has been read, and what is written to it is there.
  void (*copy)(Lane, const void* from, void* to, std::size_t bytes);
  void (*clear)(Lane, void* to, std::size_t bytes);  // zero bytes
};

struct DeviceTable {
  const char* name = "";
  DeviceProducts<float> products_float{};
  DeviceProducts<bf16> products_bf16{};
  DeviceProducts<fp16> products_fp16{};
  DeviceRows<float> rows_float{};
  DeviceRows<bf16> rows_bf16{};
  DeviceRows<fp16> rows_fp16{};
  DeviceElements<float> elements_float{};
  DeviceElements<bf16> elements_bf16{};
  DeviceElements<fp16> elements_fp16{};
  DeviceExperts<float> experts_float{};
  DeviceExperts<bf16> experts_bf16{};
  DeviceExperts<fp16> experts_fp16{};
  DeviceCasts<float> casts_float{};
  DeviceCasts<bf16> casts_bf16{};
  DeviceCasts<fp16> casts_fp16{};
  DeviceCommon common{};
  // Products of the device's vendor, for `fast` (fast.h). Returns false if it does not offer this one. Null: has none.
  bool (*vendor_gemm)(Lane, const AnyGemm&, bool tf32) = nullptr;

  template <class T>
  const DeviceProducts<T>& products() const {
    return of<T>(products_float, products_bf16, products_fp16);
  }
  template <class T>
  const DeviceRows<T>& rows() const {
    return of<T>(rows_float, rows_bf16, rows_fp16);
  }
  template <class T>
  const DeviceElements<T>& elements() const {
    return of<T>(elements_float, elements_bf16, elements_fp16);
  }
  template <class T>
  const DeviceExperts<T>& experts() const {
    return of<T>(experts_float, experts_bf16, experts_fp16);
  }
  template <class T>
  const DeviceCasts<T>& casts() const {
    return of<T>(casts_float, casts_bf16, casts_fp16);
  }

 private:
  template <class T, class F, class B, class H>
  static const auto& of(const F& in_float, const B& in_bf16, const H& in_fp16) {
    if constexpr (std::is_same_v<T, bf16>) {
      return in_bf16;
    } else if constexpr (std::is_same_v<T, fp16>) {
      return in_fp16;
    } else {
      return in_float;
    }
  }
};

// The table of a lane; null: the CPU's.
const DeviceTable* device_of(const Lane& lane);
// Of a kernel that exists for the CPU alone: the lane names no device. what: "lets gradients wait".
void check_on_cpu(const Lane& lane, const char* what);
// For tests: the table that a Lane without one uses from here on; null: the CPU's.
void force_device(const DeviceTable* table);

}  // namespace seeksim::kernels
