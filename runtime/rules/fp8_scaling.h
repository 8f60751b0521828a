// Fp8Scales: by what the operands of linear layers are multiplied before they are cast to 8 bits. With delayed scaling
// it follows from the largest magnitudes of earlier steps: a pure function of them, which all ranks agree on before the
// vote, so that a step which is redone before its commit moves nothing (docs/fp8.md). Names, defaults and formulas are
// those of NVIDIA's Transformer Engine, DelayedScaling and Float8CurrentScaling.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "kernels/fp8.h"

namespace seeksim::runtime {

enum class Fp8Scaling : std::uint8_t {
  none,     // no fp8
  delayed,  // of a tensor, by its magnitudes in earlier steps
  current,  // of a sample's rows of a tensor, or a weight, by what is in it now
  mx,       // of each 32 elements along what is summed over: a power of two
};

enum class Fp8Format : std::uint8_t {
  hybrid,  // e4m3; gradients e5m2
  e4m3,
};

struct Fp8Plan {
  Fp8Scaling scaling = Fp8Scaling::none;
  Fp8Format format = Fp8Format::hybrid;
  int amax_history_len = 1024;  // steps whose magnitudes are kept
  bool most_recent = false;     // the last one decides; false: the largest
  int margin = 0;               // scales are divided by 2^margin
  bool power_2_scale = false;   // and rounded down to a power of two

  bool on() const { return scaling != Fp8Scaling::none; }
  bool keeps_state() const { return scaling == Fp8Scaling::delayed; }
  friend bool operator==(const Fp8Plan&, const Fp8Plan&) = default;
};

// What of a linear layer is cast: its input, its weight, the gradient of its output.
enum class Fp8Use : std::uint8_t { input, weight, gradient, count_ };
std::string_view name(Fp8Use use);  // "input"

// Linear layers of a layer of the model: qkv, what follows attention, into the mlp, out of it.
inline constexpr int kFp8Linears = 4;
inline constexpr int kFp8Uses = int(Fp8Use::count_);
// Tensors of a model of so many layers, and the number of one; the same on every rank.
constexpr int fp8_tensors(int layers) { return layers * kFp8Linears * kFp8Uses; }
constexpr int fp8_tensor(int layer, int linear, Fp8Use use) {
  return (layer * kFp8Linears + linear) * kFp8Uses + int(use);
}
constexpr Fp8Use fp8_use(int tensor) { return Fp8Use(tensor % kFp8Uses); }

kernels::Fp8 fp8_format(const Fp8Plan& plan, Fp8Use use);
kernels::Fp8Rule fp8_rule(const Fp8Plan& plan, Fp8Use use);

// Of one tensor, all that a checkpoint must hold.
struct Fp8State {
  float scale = 1;                 // of the next step
  std::deque<float> amax_history;  // largest magnitude of each committed step, the last one first; at most as many as
                                   // the plan has
  friend bool operator==(const Fp8State&, const Fp8State&) = default;
};

// The state after a step whose largest magnitude was amax. One that is not finite counts as 0, as none: Transformer
// Engine keeps it, and with it the scale, until it has left the history.
void move_on(const Fp8Plan& plan, Fp8Use use, float amax, Fp8State& state);

class Fp8Scales {
 public:
  // Of a model of so many layers; empty where the plan keeps no state.
  Fp8Scales(const Fp8Plan& plan, int layers);

  float scale(int tensor) const { return states_.empty() ? 1 : states_[std::size_t(tensor)].scale; }
  // At the commit, once a step, applied or skipped: of each tensor, over all samples of the step. Empty: nothing moves.
  void update(std::span<const float> amaxes);
  const std::vector<Fp8State>& states() const { return states_; }
  // Empty: as at the beginning.
  void restore(const std::vector<Fp8State>& states);
  std::uint64_t digest() const;

 private:
  Fp8Plan plan_;
  std::size_t count_;
  std::vector<Fp8State> states_;
};

}  // namespace seeksim::runtime
