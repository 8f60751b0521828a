#include "harness/calibration/step_times.h"

#include <algorithm>
#include <cmath>

namespace seeksim::harness::calibration {
namespace {

constexpr double kBackward = 2;             // a product backward, in products forward
constexpr double kAttentionBackward = 2.5;  // fused attention computes its scores again
constexpr double kCausal = 0.5;             // of the pairs of positions that a causal mask leaves
constexpr double kSelective = 0.3;          // of a layer's products that selective recomputation makes again
constexpr double kLossPasses = 3;           // over fp32 logits, read and written

class Step {
 public:
  Step(const ModelShape& model, const StepLayout& layout, const Platform& platform, StepMistake mistake)
      : m_(model), l_(layout), p_(platform), c_(platform.constants), mistake_(mistake) {
    tokens_ = double(l_.micro_batch) * m_.sequence / l_.context;
    scattered_ = l_.sequence_parallel || p_.stack == Stack::fused || p_.stack == Stack::compiled;
  }

  StepTime time() const {
    const Passes compute = layer();
    const Passes ways = tensor_ways();
    const Passes whole = sharded({compute.forward + ways.forward, compute.backward + ways.backward});
    const double layers = double(m_.layers) / l_.pipeline, count = l_.micro_batches();
    StepTime t;
    t.layers_us = layers * compute.both() * count;
    t.tensor_us = layers * ways.both() * count;
    if (l_.shards == Shards::parameters) t.sharded_us = layers * (whole.both() - compute.both() - ways.both()) * count;
    t.head_us = head() * count;
    if (l_.pipeline > 1) {
      const double sends = p_.stack == Stack::fused ? 0 : 2 * l_.chunks * send();
      t.sends_us = sends * count;
      if (mistake_ != StepMistake::no_bubbles)
        t.bubble_us = double(l_.pipeline - 1) / l_.chunks * (layers * whole.both() + sends);
    }
    const double members = l_.shards == Shards::none ? 1 : double(l_.data()) * l_.context;
    t.exchange_us = exchange();
    const double update_bytes = c_.update_bytes - 2 * kFp32 * (2 - l_.moments);
    t.update_us = held() / members * update_bytes / memory_rate();
    if (p_.stack == Stack::plain) t.other_us = c_.step_s * 1e6;
    return t;
  }

  std::vector<StepCollective> collectives() const {
    std::vector<StepCollective> all;
    const double activations = tokens_ * m_.width * kBf16;
    if (l_.tensor > 1 && scattered_) {
      all.push_back({"tensor-parallel activations", Collective::all_gather, activations, ways_group()});
      all.push_back({"tensor-parallel activations", Collective::reduce_scatter, activations, ways_group()});
    } else if (l_.tensor > 1) {
      all.push_back({"tensor-parallel activations", Collective::all_reduce, activations, ways_group()});
    }
    for (const StepCollective& one : data_collectives()) all.push_back(one);
    return all;
  }

 private:
  struct Passes {
    double forward = 0, backward = 0;
    double both() const { return forward + backward; }
  };

  double memory_rate() const { return p_.memory_bytes_per_us() * c_.memory; }
  double gradient_bytes() const { return p_.stack == Stack::fused ? kFp32 : kBf16; }

  // rows x columns x depth: a small side leaves the device's units empty.
  double product(double rows, double columns, double depth) const {
    double rate = p_.peak_flops_per_us() * (p_.gpu == Gpu::h100 ? c_.gemm_h100 : c_.gemm_a100);
    if (mistake_ != StepMistake::products_of_any_shape_alike)
      for (const double side : {rows, columns, depth}) rate *= side / (side + c_.half);
    return 2 * rows * columns * depth / rate;
  }

  double attention() const {
    double rate = p_.peak_flops_per_us() * (p_.gpu == Gpu::h100 ? c_.attention_h100 : c_.attention_a100);
    if (p_.stack == Stack::eager) rate *= c_.attention_eager;
    return 4 * kCausal * tokens_ * m_.sequence * m_.width / l_.tensor / rate;
  }

  double products() const {
    const double keys = double(m_.width) / m_.heads * m_.key_heads, t = l_.tensor;
    return product(tokens_, (m_.width + 2 * keys) / t, m_.width) + product(tokens_, m_.width, m_.width / t) +
           product(tokens_, (m_.gated ? 2 : 1) * m_.hidden / t, m_.width) + product(tokens_, m_.width, m_.hidden / t);
  }

  double moved() const {
    const double values = p_.stack == Stack::plain   ? c_.moved_plain
                          : p_.stack == Stack::eager ? c_.moved_eager
                                                     : c_.moved_fused;
    const double part = scattered_ ? 1.0 / l_.tensor : (1 + 1.0 / l_.tensor) / 2;  // half of it lies in no way alone
    return values * tokens_ * m_.width * kBf16 * part / memory_rate();
  }

  Passes layer() const {
    const double matrix = products(), pairs = attention(), bytes = moved();
    Passes pass = {matrix + pairs + bytes, kBackward * matrix + kAttentionBackward * pairs + kBackward * bytes};
    if (l_.recompute == Recompute::full) pass.backward += pass.forward;
    if (l_.recompute == Recompute::selective) pass.backward += pairs + bytes + kSelective * matrix;
    return pass;
  }

  Group ways_group() const { return {l_.tensor, std::min(l_.tensor, p_.node), 1, 1}; }
  // Data-parallel ranks are as far apart as tensor ways are many; groups beside each other share a node's adapters.
  Group data_group() const {
    const int beside = std::min(l_.tensor, p_.node);
    const int ranks = l_.data() * (l_.shards == Shards::parameters ? 1 : l_.context);
    return {ranks, std::max(1, p_.node / beside), 1, 1.0 / beside};
  }

  // Of a layer: two exchanges forward, two backward, two more where forward is made again.
  Passes tensor_ways() const {
    Passes pass;
    if (l_.tensor > 1) {
      const double bytes = tokens_ * m_.width * kBf16;
      const double gather = collective_time(Collective::all_gather, bytes, ways_group(), p_).us;
      const double one = scattered_ ? gather + collective_time(Collective::reduce_scatter, bytes, ways_group(), p_).us
                                    : collective_time(Collective::all_reduce, bytes, ways_group(), p_).us;
      const double left = p_.stack == Stack::fused ? c_.tensor_fused : c_.tensor_other;
      pass.forward = 2 * one * left;
      pass.backward = 2 * one * left * (l_.recompute == Recompute::full ? 2 : 1) + (scattered_ ? one * left : 0);
    }
    if (l_.context > 1) {
      const double keys = double(m_.width) / m_.heads * m_.key_heads;
      const double bytes = 2 * tokens_ * keys * kBf16 * (l_.context - 1) / l_.tensor;
      const bool inside = l_.tensor * l_.context <= p_.node;
      const double us = bytes / (inside ? p_.ring_bytes_per_us() : p_.wire_bytes_per_us(1) / p_.node);
      pass.forward += std::max(0.0, us - attention());
      pass.backward += std::max(0.0, 2 * us - kAttentionBackward * attention());
    }
    return pass;
  }

  // Parameters are gathered while the layer before is at work: what is longer decides, and the two slow each other.
  Passes sharded(Passes pass) const {
    const Group data = data_group();
    if (l_.shards != Shards::parameters || data.ranks < 2) return pass;
    const std::vector<StepCollective> two = data_collectives();
    const double gather = collective_time(two[0].what, two[0].bytes, data, p_).us;
    const double back = gather + collective_time(two[1].what, two[1].bytes, data, p_).us;
    const auto slowed = [&](double compute, double wait) {
      return std::max(compute + c_.contention * std::min(compute, wait), wait);
    };
    const double gap = p_.stack == Stack::eager ? c_.gap_us : 0;
    return {slowed(pass.forward, gather) + gap, slowed(pass.backward, back) + 2 * gap};
  }

  double head() const {
    return (1 + kBackward) * product(tokens_, double(m_.vocab) / l_.tensor, m_.width) +
           kLossPasses * 2 * kFp32 * tokens_ * m_.vocab / l_.tensor / memory_rate();
  }

  double send() const {
    const double bytes = tokens_ * m_.width * kBf16 / (scattered_ ? l_.tensor : 1);
    return bytes / (l_.gpus > p_.node ? p_.wire_bytes_per_us(1) / p_.node : p_.ring_bytes_per_us()) + c_.send_us;
  }

  // Parameters that a rank holds before sharding: its stage's, and a vocabulary.
  double held() const {
    return (m_.layers * m_.layer_parameters() / l_.pipeline + double(m_.vocab) * m_.width) / l_.tensor;
  }

  std::vector<StepCollective> data_collectives() const {
    const Group data = data_group();
    if (data.ranks < 2) return {};
    const double layer = m_.layer_parameters() / l_.tensor;
    if (l_.shards == Shards::parameters)
      return {{"a layer's parameters", Collective::all_gather, layer * kBf16, data},
              {"a layer's gradients", Collective::reduce_scatter, layer * kFp32, data}};
    if (l_.shards == Shards::optimizer)
      return {{"gradients", Collective::reduce_scatter, held() * gradient_bytes(), data},
              {"parameters", Collective::all_gather, held() * kBf16, data}};
    return {{"gradients", Collective::all_reduce, held() * gradient_bytes(), data}};
  }

  double exchange() const {
    if (l_.shards == Shards::parameters) return 0;
    double us = 0;
    for (const StepCollective& one : data_collectives()) us += collective_time(one.what, one.bytes, one.group, p_).us;
    if (p_.stack == Stack::fused) return us * c_.exchange_fused;
    return us * (p_.stack == Stack::plain && data_group().nodes() > 1 ? c_.exchange_plain : 1);
  }

  const ModelShape& m_;
  const StepLayout& l_;
  const Platform& p_;
  const Constants& c_;
  StepMistake mistake_;
  double tokens_ = 0;       // of a rank's micro-batch
  bool scattered_ = false;  // over tensor ways, between their products
};

}  // namespace

double ModelShape::layer_parameters() const {
  const double keys = double(width) / heads * key_heads;
  return double(width) * (width + 2 * keys) + double(width) * width + (gated ? 3.0 : 2.0) * width * hidden;
}

double ModelShape::sample_flops() const {
  constexpr double kPasses = 3, kProduct = 2;
  return kPasses * kProduct * sequence *
         (layers * (layer_parameters() + 2.0 * sequence * width) + double(vocab) * width);
}

double StepTime::us() const {
  return layers_us + tensor_us + sharded_us + head_us + sends_us + bubble_us + exchange_us + update_us + other_us;
}

StepTime step_time(const ModelShape& model, const StepLayout& layout, const Platform& platform, StepMistake mistake) {
  return Step(model, layout, platform, mistake).time();
}

std::vector<StepCollective> step_collectives(const ModelShape& model, const StepLayout& layout,
                                             const Platform& platform) {
  return Step(model, layout, platform, StepMistake::none).collectives();
}

double mfu(const ModelShape& model, const StepLayout& layout, const Platform& platform, double step_us) {
  Platform full = platform;
  full.watts = 700;
  return model.sample_flops() * layout.batch / (step_us * full.peak_flops_per_us() * layout.gpus);
}

}  // namespace seeksim::harness::calibration
