// GPT-2's loss in double precision, over Hugging Face's names and layouts, written as the formulas stand in papers:
// nothing of it is shared with runtime/ or kernels/ but the random words that decide what is dropped.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "kernels/random.h"
#include "runtime/detect/observer.h"
#include "runtime/plan/plan.h"

namespace seeksim::test {

class DoubleGpt2 {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  // seed: of the training, for dropout.
  DoubleGpt2(const runtime::ModelPlan& plan, const std::vector<runtime::NamedTensor>& weights, std::uint64_t seed = 0)
      : plan_(plan), seed_(seed) {
    for (const auto& t : weights) {
      tensors_[t.name] = Row(t.values.begin(), t.values.end());
      shapes_[t.name] = t.shape;
    }
  }
  double& at(const std::string& name, std::size_t i) { return tensors_.at(name)[i]; }

  // Mean over all tokens of samples of context + 1 tokens, in step 0.
  double loss(const std::vector<std::int32_t>& tokens) const {
    const std::size_t row = std::size_t(plan_.context) + 1;
    double sum = 0;
    for (std::size_t s = 0; s < tokens.size() / row; ++s) sum += sample_loss(s, tokens.data() + s * row);
    return sum / (double(tokens.size() / row) * plan_.context);
  }

 private:
  // Element `element` of a sample at place number `place` of layer l, after dropout.
  double dropped(double rate, std::size_t sample, int l, int place, std::size_t element, double x) const {
    const auto block = std::uint32_t(element / 64 * 16 + element % 16);
    const auto words =
        kernels::philox({block, std::uint32_t(sample), 0xd0000000U + std::uint32_t(4 * l + place), 0}, seed_);
    const double uniform = double(words[element % 64 / 16] >> 8) / double(1 << 24);
    return uniform >= rate ? x / (1 - rate) : 0;
  }
  Row dropped(double rate, std::size_t sample, int l, int place, std::size_t token, Row x) const {
    for (std::size_t c = 0; c < x.size(); ++c) x[c] = dropped(rate, sample, l, place, token * x.size() + c, x[c]);
    return x;
  }
  Row norm(const Row& x, const std::string& name) const {
    double mean = 0, variance = 0;
    for (double v : x) mean += v / double(x.size());
    for (double v : x) variance += (v - mean) * (v - mean) / double(x.size());
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = (x[i] - mean) / std::sqrt(variance + plan_.norm_eps) * tensors_.at(name + ".weight")[i] +
             tensors_.at(name + ".bias")[i];
    }
    return y;
  }
  Row conv1d(const Row& x, const std::string& name) const {
    const Row &w = tensors_.at(name + ".weight"), &b = tensors_.at(name + ".bias");
    Row y = b;
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < y.size(); ++j) y[j] += x[i] * w[i * y.size() + j];
    }
    return y;
  }
  static double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

  Rows attention(std::size_t sample, int l, const Rows& qkv) const {
    const int C = plan_.width, D = C / plan_.heads;
    Rows out(qkv.size(), Row(std::size_t(C), 0.0));
    for (int h = 0; h < plan_.heads; ++h) {
      for (std::size_t t = 0; t < qkv.size(); ++t) {
        Row p(t + 1);
        double total = 0;
        for (std::size_t u = 0; u <= t; ++u) {
          double dot = 0;
          for (int d = 0; d < D; ++d) dot += qkv[t][std::size_t(h * D + d)] * qkv[u][std::size_t(C + h * D + d)];
          total += p[u] = std::exp(dot / std::sqrt(double(D)));
        }
        for (std::size_t u = 0; u <= t; ++u) {
          const std::size_t element = (std::size_t(h) * qkv.size() + t) * qkv.size() + u;
          const double kept = dropped(plan_.dropout.attention, sample, l, 1, element, p[u] / total);
          for (int d = 0; d < D; ++d) out[t][std::size_t(h * D + d)] += kept * qkv[u][std::size_t(2 * C + h * D + d)];
        }
      }
    }
    return out;
  }

  double sample_loss(std::size_t sample, const std::int32_t* tokens) const {
    const runtime::DropoutPlan& rates = plan_.dropout;
    const std::size_t C = std::size_t(plan_.width), T = std::size_t(plan_.context);
    Rows x(T, Row(C));
    for (std::size_t t = 0; t < T; ++t) {
      for (std::size_t c = 0; c < C; ++c)
        x[t][c] = tensors_.at("wte.weight")[std::size_t(tokens[t]) * C + c] + tensors_.at("wpe.weight")[t * C + c];
      x[t] = dropped(rates.embedding, sample, 0, 0, t, x[t]);
    }
    for (int l = 0; l < plan_.layers; ++l) {
      const std::string h = "h." + std::to_string(l);
      Rows qkv;
      for (const Row& row : x) qkv.push_back(conv1d(norm(row, h + ".ln_1"), h + ".attn.c_attn"));
      const Rows att = attention(sample, l, qkv);
      for (std::size_t t = 0; t < T; ++t) {
        add(x[t], dropped(rates.residual, sample, l, 2, t, conv1d(att[t], h + ".attn.c_proj")));
        Row up = conv1d(norm(x[t], h + ".ln_2"), h + ".mlp.c_fc");
        for (double& v : up) v = gelu(v);
        add(x[t], dropped(rates.residual, sample, l, 3, t, conv1d(up, h + ".mlp.c_proj")));
      }
    }
    const double scale = plan_.logit_scale ? tensors_.at("logit_scale")[0] : 1;
    const Row& head = tensors_.at(plan_.tied ? "wte.weight" : "lm_head.weight");
    double sum = 0;
    for (std::size_t t = 0; t < T; ++t) {
      const Row y = norm(x[t], "ln_f");
      double total = 0, target = 0;
      for (std::size_t v = 0; v < std::size_t(plan_.vocab); ++v) {
        double logit = 0;
        for (std::size_t c = 0; c < C; ++c) logit += y[c] * head[v * C + c];
        logit *= scale;
        total += std::exp(logit);
        if (std::int32_t(v) == tokens[t + 1]) target = logit;
      }
      sum += std::log(total) - target;
    }
    return sum;
  }
  static void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  runtime::ModelPlan plan_;
  std::uint64_t seed_;
  std::map<std::string, Row> tensors_;
  std::map<std::string, std::vector<runtime::Index>> shapes_;
};

}  // namespace seeksim::test
