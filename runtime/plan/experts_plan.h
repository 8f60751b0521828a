// ExpertsPlan: layers whose mlp is one of several experts, chosen token by token (docs/experts.md). All of it decides
// bits, and none of it depends on the layout: an expert's capacity and the losses of the routing are counted by sample,
// or by aligned groups of samples that no rank and no micro-batch cuts.
#pragma once

#include <cstdint>

namespace seeksim::runtime {

struct ExpertsPlan {
  int count = 0;               // experts of a layer; 0: one mlp, as any token's
  int per_token = 2;           // that a token goes to
  int samples = 1;             // that are counted together: capacity, and shares of the balancing loss
  double capacity_factor = 0;  // an expert takes ceil(this * tokens * per_token / count) of their slots; 0: all
  bool normalized = true;      // a token's gates are divided by their sum
  double balance = 0;          // coefficient of the balancing loss
  double z = 0;                // coefficient of the z loss
  // As DeepSeek's models have them.
  bool sigmoid = false;  // a score is the sigmoid of a logit; else all of them are the softmax
  double scale = 1;      // of a token's gates, divided or not
  int shared = 0;        // experts that every token goes to, without a gate: one mlp as wide as they are together
  int dense_layers = 0;  // layers at the front that have one mlp,
  int dense_ffn = 0;     // so wide; 0: as the experts of a token, shared ones too
  bool slabs = false;    // an expert's width has 8 slabs, and what is summed over it goes by them: tensor
                         // parallelism can cut it

  static constexpr int kMost = 1024;
  static constexpr int kMostPerToken = 16;
  static constexpr int kMostShared = 64;
  static constexpr int kMostSamples = 4096;      // counted together
  static constexpr double kMostCapacity = 1024;  // of capacity_factor

  bool on() const { return count > 0; }
  // Has layer l experts? Those without have one mlp.
  bool in_layer(int l) const { return on() && l >= dense_layers; }
  // Has it a shared expert beside them?
  bool shared_in_layer(int l) const { return in_layer(l) && shared > 0; }
  int layers(int of_model) const { return on() ? of_model - dense_layers : 0; }
  // More than a Mixtral has: then parameters have the names of DeepSeek's files.
  bool deepseek() const { return on() && (sigmoid || scale != 1 || shared > 0 || dense_layers > 0); }
  bool has_losses() const { return on() && (balance > 0 || z > 0); }
  // Slots of so many tokens, counted together, that an expert takes; 0: all.
  std::int64_t capacity(std::int64_t tokens) const {
    const double exact = capacity_factor * double(tokens * per_token) / double(count);
    const auto whole = static_cast<std::int64_t>(exact);
    return whole + (double(whole) < exact ? 1 : 0);
  }
  friend bool operator==(const ExpertsPlan&, const ExpertsPlan&) = default;
};

}  // namespace seeksim::runtime
