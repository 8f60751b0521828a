// What a training is, in plain values: all that the reference is told. Sizes, rates and seeds; no layout, no rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace seeksim::reference {

// In the letters that shapes use: V vocabulary, T tokens of a sample, C width, H query heads, K key heads of H / K
// queries each, D = C / H, F width inside the mlp, or an expert.
struct Model {
  bool llama = false;  // else GPT-2
  int L = 0, C = 0, H = 0, K = 0, T = 0, V = 0, F = 0;
  bool tied = true;
  std::vector<std::string> frozen;  // names of parameters as they stand in files
  double init_stddev = 0.02;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  double drop_embedding = 0, drop_attention = 0, drop_residual = 0;
  bool fused_attention = false;  // probabilities are not stored, and so not rounded to 16 bits

  // Experts in place of the mlp: E of them, k for a token. 0: none.
  int E = 0, k = 1;
  int counted = 1;             // samples whose choices are counted together
  double capacity_factor = 0;  // an expert takes ceil(this * counted * T k / E) of their choices; 0: all
  bool gates_normalized = true;
  double balance = 0, z = 0;  // coefficients of the router's two losses
  // DeepSeek's.
  bool sigmoid = false;   // gates are sigmoids of logits, not their softmax
  double gate_scale = 1;  // of the gates, divided by their sum or not
  int shared = 0;         // experts of every token: one mlp of so many F
  int dense_layers = 0;   // the first so many layers have one mlp in place of experts
  int dense_F = 0;        // and this is its width
  bool routed(int l) const { return E > 0 && l >= dense_layers; }
  bool deepseek() const { return E > 0 && (sigmoid || gate_scale != 1 || shared > 0 || dense_layers > 0); }

  int D() const { return C / H; }
  int G() const { return H / K; }
};

// The order of a set of samples.
struct Sampler {
  bool on = false, shuffled = false, drop_last = false;
  std::uint64_t seed = 0;
  std::int64_t samples = 0;
};

struct Data {
  std::string text;                  // bytes are tokens; or
  std::vector<std::int32_t> tokens;  // samples of T + 1 tokens, over and over; neither: drawn
  Sampler sampler;
  std::int32_t separator = -1;  // ends a document; -1: a sample is one
};

// Tokens of a sample that a step learns, by DeepSpeed's schedules.
struct Curriculum {
  bool on = false, discrete = false;
  std::int64_t least = 0, most = 0, total = 1, each = 1;
  double root = 1;
  std::vector<std::int64_t> difficulties, max_steps;
};

// Samples that no step trains on.
struct HeldOut {
  int samples = 0;   // of one evaluation; 0: there is none
  std::string text;  // the end of it; empty: drawn
};

struct Optimizer {
  bool decoupled = true;  // AdamW; false: Adam, with the decay in the gradient
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool decay_all = false;       // else matrices only
  bool bias_correction = true;  // of both moments
  bool lion = false;            // one moment, and steps by a sign; else AdamW or Adam
  bool muon = false;            // matrices of layers are taken as wholes (muon.h), and the rest by AdamW
  double momentum = 0.95;       // of those matrices
  double adamw_rate = 1;        // the rate of the rest, over theirs
  bool sgd = false;             // with `momentum`: one moment where it is not 0, else none
  double dampening = 0;
  bool nesterov = false;
};

struct Schedule {
  std::string type;  // WarmupLR, WarmupDecayLR, WarmupCosineLR, table; empty: the optimizer's lr
  double min_lr = 0, max_lr = 0;
  std::int64_t warmup = 0, total = 0;
  bool linear = false;  // else by the logarithm
  double warmup_min_ratio = 0, cos_min_ratio = 0;
  std::vector<double> table;
};

enum class Type : std::uint8_t { f32, bf16, f16, f64 };  // f64: nothing is rounded

struct Scaler {
  enum class Kind : std::uint8_t { none, fixed, deepspeed, torch } kind = Kind::none;
  double scale = 1;  // at the beginning
  std::int64_t window = 1000, hysteresis = 2;
  bool consecutive = false;
  double least = 1;
  double growth = 2, backoff = 0.5;
};

// From this step's update on.
struct Change {
  std::int64_t step = 0;
  std::optional<double> rate_scale, clipping;
};

struct Training {
  std::uint64_t seed = 1;
  Model model;
  Data data;
  Curriculum curriculum;
  Optimizer optimizer;
  Schedule schedule;
  Type compute = Type::f32, gradients = Type::f32;
  bool masters = true;            // fp32 weights that the optimizer updates; false: it rounds them to `compute`
  bool rounds_at_random = false;  // and that up or down, not to the nearest
  Scaler scaler;
  double clipping = 0;          // 0: off
  std::vector<Change> changes;  // by step
  HeldOut held_out;
  int batch = 1;  // samples a step
  std::int64_t steps = 0;
  bool drawn = true;                          // weights begin with values drawn from the seed; false: they are given
  std::vector<std::int64_t> skipped_steps;    // that are not applied
  std::vector<std::int64_t> dropped_batches;  // ascending: no step uses them
};

}  // namespace seeksim::reference
