#include "harness/calibration/step_memory.h"

#include <algorithm>

namespace seeksim::harness::calibration {
namespace {

constexpr double kGatheredLayers = 2;  // the one at work, and the next

class Held {
 public:
  Held(const ModelShape& model, const StepLayout& layout, Stack stack, const Constants& constants, const Stage& stage,
       MemoryMistake mistake)
      : m_(model), l_(layout), stack_(stack), c_(constants), s_(stage), mistake_(mistake) {
    tokens_ = double(l_.micro_batch) * m_.sequence / l_.context;
    ways_ = l_.tensor;
    torch_ = stack == Stack::eager || stack == Stack::compiled;
    scattered_ = l_.sequence_parallel || torch_;
  }

  StepMemory memory() const {
    StepMemory held;
    held.states = states();
    if (l_.shards == Shards::parameters && members() > 1) held.gathered = gathered();
    const double under_way = mistake_ == MemoryMistake::one_micro_batch_under_way ? 1 : s_.under_way;
    held.activations = s_.layers * under_way * kept_of_layer();
    const double again = l_.recompute == Recompute::none ? 0 : whole_layer();
    held.head = std::max(head(), again + passing());  // logits are gone when the first layer goes backward
    held.reserved = (reserved_share() - 1) * held.allocated();
    return held;
  }

 private:
  double members() const {
    const double all = double(l_.data()) * l_.context;
    return l_.shard_group > 0 ? std::min(all, double(l_.shard_group)) : all;
  }
  double vocabulary() const { return double(m_.vocab) * m_.width; }
  double embeddings() const {
    const double uses = double(s_.first) + double(s_.last);
    return vocabulary() * (m_.tied ? std::min(uses, 1.0) : uses);
  }
  double parameters() const { return (s_.layers * m_.layer_parameters() + embeddings()) / ways_; }

  double states() const {
    const double moments = kFp32 * l_.moments, gradients = l_.gradients_in_16_bits ? kBf16 : kFp32;
    const double sharing = mistake_ == MemoryMistake::moments_not_shared ? 1 : members();
    const double of_optimizer = moments + (torch_ ? 0 : kFp32);  // with masters, where parameters have 16 bits
    const bool all_shared = l_.shards == Shards::parameters;
    const double each = of_optimizer / (l_.shards == Shards::none ? 1 : sharing) +
                        (torch_ ? kFp32 : kBf16) / (all_shared ? members() : 1) +
                        (torch_ ? kFp32 : gradients) / (all_shared || l_.gradients_shared ? members() : 1);
    return each * parameters();
  }

  // Without a pipeline layers come and go, and what is outside of them stays. With one all stay, with fp32 gradients.
  double gathered() const {
    if (l_.pipeline > 1) return (kBf16 + kFp32) * parameters();
    const double second = l_.second_shards > 1 ? kBf16 * parameters() / l_.second_shards : 0;
    if (l_.stays_whole) return kBf16 * parameters() + second;
    return second + kBf16 * (embeddings() + kGatheredLayers * m_.layer_parameters()) / ways_;
  }

  // What travels while a layer goes backward: the next one's parameters, and gradients in fp32.
  double passing() const {
    if (!torch_ || l_.shards != Shards::parameters || members() < 2 || l_.pipeline > 1) return 0;
    return (kBf16 + kFp32) * m_.layer_parameters() / ways_;
  }

  double keys() const { return double(m_.width) / m_.heads * m_.key_heads; }

  // Bytes that backward reads of a layer: the stream in front of both branches and the norms' outputs; queries, keys,
  // values and what attention gives; the mlp's. Kernels that are not fused keep more: of a norm its input and itself
  // in fp32, keys and values repeated for each head, and the gate before and behind its SiLU.
  double whole_layer() const {
    const bool apart = stack_ == Stack::eager;
    const double stream = (apart ? 10.0 : 4.0) * m_.width;
    const double attention = 2.0 * m_.width + 2 * (apart ? double(m_.width) : keys());
    const double mlp = (m_.gated ? (apart ? 4.0 : 3.0) : 2.0) * m_.hidden;
    const double values = (scattered_ ? stream / ways_ : stream) + (attention + mlp) / ways_;
    // A product's input that was gathered over tensor ways is kept as it was gathered; Megatron gathers it again.
    const double inputs = scattered_ && stack_ != Stack::fused ? 2.0 * m_.width * (1 - 1 / ways_) : 0;
    return kBf16 * tokens_ * (values * (stack_ == Stack::plain ? c_.kept_plain : 1) + inputs);
  }

  double kept_of_layer() const {
    const double input = kBf16 * tokens_ * m_.width / (scattered_ ? ways_ : 1);
    if (l_.recompute == Recompute::full) return input;
    // torch keeps attention's output and every second product's: of the queries, the values, and two of the mlp's.
    if (l_.recompute == Recompute::selective && torch_)
      return input + kBf16 * tokens_ * (3.0 * m_.width + keys() + m_.hidden) / ways_;
    return whole_layer();  // elsewhere selective recomputation is of attention's probabilities, which nobody keeps
  }

  double head() const {
    if (!s_.last || mistake_ == MemoryMistake::logits_are_free) return 0;
    const double bytes = !torch_            ? c_.logit_plain
                         : l_.compiled_loss ? c_.logit_compiled
                         : ways_ > 1        ? c_.logit_parallel
                                            : c_.logit_eager;
    return bytes * tokens_ * m_.vocab / ways_;
  }

  double reserved_share() const {
    return stack_ == Stack::eager      ? c_.reserved_eager
           : stack_ == Stack::compiled ? c_.reserved_compiled
                                       : c_.reserved_plain;
  }

  const ModelShape& m_;
  const StepLayout& l_;
  Stack stack_;
  const Constants& c_;
  const Stage& s_;
  MemoryMistake mistake_;
  double tokens_ = 0, ways_ = 1;
  bool scattered_ = false, torch_ = false;
};

}  // namespace

StepMemory stage_memory(const ModelShape& model, const StepLayout& layout, Stack stack, const Constants& constants,
                        const Stage& stage, MemoryMistake mistake) {
  return Held(model, layout, stack, constants, stage, mistake).memory();
}

double under_way(const StepLayout& layout, int stage) {
  const double behind = layout.pipeline - stage - 1, chunks = layout.chunks;
  // 1F1B; with several chunks each stage begins those of further micro-batches before the first comes back (Narayanan
  // et al. 2021).
  const double begun = layout.chunks > 1 ? (2 * behind + (chunks - 1) * layout.pipeline + 1) / chunks : behind + 1;
  return std::min(begun, std::max(1.0, layout.micro_batches()));
}

StepMemory step_memory(const ModelShape& model, const StepLayout& layout, Stack stack, const Constants& constants,
                       MemoryMistake mistake) {
  StepMemory most;
  const double stages = layout.pipeline;
  for (int i = 0; i < layout.pipeline; ++i) {
    const Stage stage = {model.layers / stages, i == 0, i + 1 == layout.pipeline, under_way(layout, i)};
    const StepMemory one = stage_memory(model, layout, stack, constants, stage, mistake);
    if (one.bytes() > most.bytes()) most = one;
  }
  return most;
}

}  // namespace seeksim::harness::calibration
