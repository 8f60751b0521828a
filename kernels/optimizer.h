// The optimizers' steps as written sequences of fp32 operations: AdamW (Loshchilov and Hutter, decoupled decay), Lion
// (Chen et al., "Symbolic Discovery of Optimization Algorithms") and SGD with momentum, as torch.optim.SGD defines it.
// The exact order is in optimizer_body.h. What Muon does to a whole matrix before its step stands below.
#pragma once

#include <cstdint>

#include "kernels/view.h"

namespace seeksim::kernels {

// adamw: m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g*g; p = p - lr*weight_decay*p;
//        p = p - lr * (m * inverse_bias1) / (sqrt(v) * inverse_sqrt_bias2 + eps).
// lion:  c = beta1*m + (1-beta1)*g; p = p - lr*weight_decay*p; p = p - lr * sign(c); m = beta2*m + (1-beta2)*g.
//        sign is 1, -1, or +0 of both zeros; of a NaN it is that NaN. Lion has no v: it is empty.
// In both g = grad * grad_factor.
// given: p = p - lr*weight_decay*p; p = p - lr * (grad * grad_factor). It has neither m nor v: both are empty.
// sgd:   g = grad * grad_factor + weight_decay*p; p = p - lr * g. It has neither m nor v.
// momentum: g as there; m = beta1*m + (1-beta1)*g; p = p - lr * m. It has no v. beta1 is the momentum, and what stands
//        for 1-beta1 is 1 - dampening, or 1 in the first step, whose m is the gradient.
// nesterov: m as there; p = p - lr * (g + beta1*m).
// frozen: as adamw, but grad is what m becomes, and v stays as it is (1-bit Adam, docs/compressed-optimizers.md).
enum class OptimizerRule : std::uint8_t { adamw, lion, given, sgd, momentum, nesterov, frozen };

// Arrays that a rule keeps beside the parameters: m, and v.
constexpr int moments_of(OptimizerRule rule) {
  switch (rule) {
    case OptimizerRule::given:
    case OptimizerRule::sgd:
      return 0;
    case OptimizerRule::lion:
    case OptimizerRule::momentum:
    case OptimizerRule::nesterov:
      return 1;
    case OptimizerRule::adamw:
    case OptimizerRule::frozen:
      break;
  }
  return 2;
}

// bf16 parameters without masters: rounded up or down at random, so that on average nothing is lost. Element i of an
// array is element first + i of its parameter, modulo 2^32; its 16 random bits are a pure function of the rest (R7).
struct StochasticRounding {
  bool on = false;
  std::uint64_t key = 0;        // the training seed
  std::uint32_t parameter = 0;  // its number
  std::uint32_t step = 0;       // of the optimizer
  std::uint64_t first = 0;
};

// One step's constants, computed once on the host in double by our own code (R6) and rounded to fp32.
struct OptimizerStep {
  OptimizerRule rule = OptimizerRule::adamw;
  float lr = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float one_minus_beta1 = 0.1f;
  float one_minus_beta2 = 0.001f;
  float eps = 1e-8f;                 // of AdamW, as the next two
  float weight_decay = 0;            // 0 for parameters that are not decayed
  float inverse_bias1 = 1;           // 1 / (1 - beta1^t)
  float inverse_sqrt_bias2 = 1;      // 1 / sqrt(1 - beta2^t)
  float grad_factor = 1;             // clip coefficient; 1 when not clipped (then not multiplied)
  bool decoupled = true;             // false: L2 added to the gradient (plain Adam, SGD)
  StochasticRounding rounding = {};  // of a step without masters
};

// Applies the step's rule to each element.
void optimize(Lane lane, const OptimizerStep& step, Vec<const float> grad, Vec<float> param, Vec<float> m,
              Vec<float> v);

// The same on fp32 masters. Then copy = masters rounded to T (bf16, fp16), the parameters to compute with. G is the
// type in which gradients are held: float, or T.
template <class T, class G = float>
void optimize_copying(Lane lane, const OptimizerStep& step, InVec<G> grad, Vec<float> master, Vec<float> m,
                      Vec<float> v, OutVec<T> copy);

// What rounding to 16 bits does to a step without masters.
struct Stagnation {
  std::int64_t changes = 0;  // elements that fp32 arithmetic would move: lr * update, or the decay, is not zero
  std::int64_t lost = 0;     // those of them whose stored bits did not change
};

// A step without masters: parameters are stored as T (bf16, fp16), widened, updated by the same sequence and rounded;
// moments are fp32. Adds to out[0]. step.rounding: at random, which only bf16 can.
template <class T, class G = float>
void optimize_rounding(Lane lane, const OptimizerStep& step, InVec<G> grad, OutVec<T> param, Vec<float> m, Vec<float> v,
                       Vec<Stagnation> out);

// A running mean of weights: mean = fma(weight, x - mean, mean).
template <class T = float>
void move_mean(Lane lane, float weight, InVec<T> x, Vec<float> mean);

// ---- Muon ----------------------------------------------------------------------------------------------------------
// (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"), for a whole matrix of weights, in
// fp32: momentum with Nesterov's look ahead, then a Newton-Schulz iteration, which brings all singular values of the
// direction near 1. The products between are gemm's; the step itself is OptimizerRule::given. See docs/muon.md.

// The iteration X <- a X + (b A + c A A) X, A = X X^T, begins with X of norm 1: at least kMuonLeast is divided by.
inline constexpr int kMuonRounds = 5;
inline constexpr float kMuonA = 3.4445F, kMuonB = -4.7750F, kMuonC = 2.0315F;
inline constexpr float kMuonLeast = 1e-7F;

// One step's constants.
struct MuonStep {
  float momentum = 0.95F;
  float one_minus_momentum = 0.05F;  // rounded from double (R6)
  float factor = 1;                  // times the gradient: the clip coefficient
};

// x holds the gradient. s = (1 - momentum) * (x * factor); m = fma(momentum, m, s); x = fma(momentum, m, s).
void muon_direction(Lane lane, const MuonStep& step, Vec<float> m, Vec<float> x);

// x *= 1 / max(sqrt(norm2[0]), least).
void scale_to_norm(Lane lane, Vec<const float> norm2, float least, Vec<float> x);

// y = fma(b, y, a * x).
void weighted_sum(Lane lane, float a, Vec<const float> x, float b, Vec<float> y);

}  // namespace seeksim::kernels
