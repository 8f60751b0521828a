// The forward pass of samples whose tokens are counted together (one, without experts), layer by layer, then the
// backward pass of each, in the order of the model. What is stored between operations is
// rounded to the type to compute in; inside an operation arithmetic is fp32. Shapes stand beside tensors: T tokens,
// C channels, D of a head, F inside the mlp, V words.
#include "reference/model.h"

#include <algorithm>
#include <cmath>

#include "reference/attention.h"
#include "reference/experts.h"
#include "reference/operations.h"
#include "reference/random.h"

namespace seeksim::reference {
namespace {

template <class R>
class Sample {
 public:
  Sample(const Training& training, const std::vector<Parameter>& list, const std::vector<std::vector<double>>& rounded,
         std::vector<Sums<R>>& sums, Store<R>& storing)
      : t(training), m(training.model), parameters(list), weights(rounded), gradients(sums), store(storing) {}

  // tokens (T + 1).
  void begin(const std::int32_t* tokens, std::int64_t step_number, std::int64_t number) {
    step = step_number, sample = number;
    find_documents(tokens);
    embed(tokens);
    layers.resize(std::size_t(m.L));
  }
  // A layer up to its mlp, or to where its tokens want to go.
  void go_to_mlp(int l) {
    Layer& a = layers[std::size_t(l)];
    attention_forward(a, l);
    if (m.routed(l)) expert_layer(l).route(a.norm2.y, a.routed);
  }
  Routed<R>* routed(int l) { return &layers[std::size_t(l)].routed; }
  void go_through_mlp(int l) {
    Layer& a = layers[std::size_t(l)];
    Tensor<R> branch = m.routed(l) ? expert_layer(l).forward(a.norm2.y, a.routed) : mlp_forward(a, a.mlp, l, one_mlp());
    if (m.routed(l) && m.shared > 0) branch = store.added(branch, mlp_forward(a, a.shared, l, shared_expert()));
    drop(branch, m.drop_residual, Site::mlp_branch, l, m.C);
    x = store.added(x, branch);
  }
  // Returns the sum of the tokens' losses. routing, unsettled: of all samples so far.
  R end(const std::int32_t* tokens, double loss_factor, std::uint64_t& routing, bool& unsettled) {
    R loss = head(tokens + 1, loss_factor);
    for (int l = 0; l < m.L; ++l) {
      if (!m.routed(l)) continue;
      const Routed<R>& from = layers[std::size_t(l)].routed;
      loss = loss + from.loss;
      unsettled = unsettled || from.unsettled;
      for (const int e : from.chosen) routing = routing * 0x9e3779b97f4a7c15ULL + std::uint64_t(e + 1);
    }
    factor = loss_factor;
    backward(tokens);
    return loss;
  }

 private:
  struct Layer {
    Norm<R> norm1, norm2;
    Heads<R> heads;
    struct Mlp {
      Tensor<R> up, gate, active;  // (T, F)
    } mlp, shared;
    Routed<R> routed;
  };
  // Of one mlp: its parts, and its width.
  struct MlpParts {
    Part up, gate, down;
    int F;
  };
  MlpParts one_mlp() const { return {Part::up, Part::gate, Part::down, m.E > 0 ? m.dense_F : m.F}; }
  MlpParts shared_expert() const { return {Part::shared_up, Part::shared_gate, Part::shared_down, m.shared * m.F}; }

  // ---- what all lines use
  int number(Part part, int l = -1, int e = -1) const { return find(parameters, part, l, e); }
  const double* weight(Part part, int l = -1, int e = -1) const {
    const int i = number(part, l, e);
    return i < 0 ? nullptr : weights[std::size_t(i)].data();
  }
  Matrix matrix(Part part, int l, int in, int out) const { return {weight(part, l), in, out, m.llama}; }
  Sums<R>* gradient(Part part, int l = -1, int e = -1) {
    const int i = number(part, l, e);
    return i < 0 || parameters[std::size_t(i)].frozen ? nullptr : &gradients[std::size_t(i)];
  }
  ExpertLayer<R> expert_layer(int l) {
    ExpertLayer<R> x{m, store, {weight(Part::router, l), m.C, m.E, true}, gradient(Part::router, l), {}};
    for (int e = 0; e < m.E; ++e) {
      x.experts.push_back({{weight(Part::expert_gate, l, e), m.C, m.F, true},
                           {weight(Part::expert_up, l, e), m.C, m.F, true},
                           {weight(Part::expert_down, l, e), m.F, m.C, true},
                           gradient(Part::expert_gate, l, e),
                           gradient(Part::expert_up, l, e),
                           gradient(Part::expert_down, l, e)});
    }
    return x;
  }
  // In place; rows (T, cols).
  void drop(Tensor<R>& x, double rate, Site site, int l, int cols) {
    if (rate == 0) return;
    for (std::size_t i = 0; i < std::size_t(m.T * cols); ++i)
      x[i] = store(x[i] * R(dropout_factor(t, rate, site, l, step, sample, i)));
  }
  // ---- documents, and the tokens that are learned
  void find_documents(const std::int32_t* tokens) {
    first.assign(std::size_t(m.T), 0);
    learned.assign(std::size_t(m.T), true);
    const std::int64_t most = learned_tokens(t, step);
    for (int i = 0; i < m.T; ++i) {
      const bool ends = tokens[i] == t.data.separator;
      if (i + 1 < m.T) first[std::size_t(i + 1)] = ends ? i + 1 : first[std::size_t(i)];
      learned[std::size_t(i)] = i < most && !ends;
    }
  }
  // ---- the passes
  void embed(const std::int32_t* tokens) {
    const double *const words = weight(Part::tokens), *const places = weight(Part::positions);
    x.assign(std::size_t(m.T * m.C), R{});
    for (int i = 0; i < m.T; ++i) {
      for (int c = 0; c < m.C; ++c) {
        const R word(words[at(tokens[i], m.C, c)]);
        x[at(i, m.C, c)] = store(places != nullptr ? word + R(places[at(i - first[std::size_t(i)], m.C, c)]) : word);
      }
    }
    drop(x, m.drop_embedding, Site::embedding, 0, m.C);
  }

  // To the stream behind the attention, and its norm.
  void attention_forward(Layer& a, int l) {
    const int A = m.H * m.D();
    a.norm1.forward(m, store, x, weight(Part::norm1, l), weight(Part::norm1_bias, l));
    Attention<R> attention(t, store, step, sample, first);
    a.heads.qkv = project(a, l);
    if (m.llama) attention.rotate(a.heads.qkv, 1);
    attention.attend(a.heads, l);
    Tensor<R> branch =
        linear(m.T, store, a.heads.att, matrix(Part::attention_out, l, A, m.C), weight(Part::attention_out_bias, l));
    drop(branch, m.drop_residual, Site::attention_branch, l, m.C);
    x = store.added(x, branch);  // (T, C)
    a.norm2.forward(m, store, x, weight(Part::norm2, l), weight(Part::norm2_bias, l));
  }

  Tensor<R> mlp_forward(const Layer& a, typename Layer::Mlp& to, int l, const MlpParts& of) {
    to.up = linear(m.T, store, a.norm2.y, matrix(of.up, l, m.C, of.F), weight(Part::up_bias, l));
    if (m.llama) to.gate = linear(m.T, store, a.norm2.y, matrix(of.gate, l, m.C, of.F), nullptr);
    to.active.resize(to.up.size());
    for (std::size_t i = 0; i < to.up.size(); ++i)
      to.active[i] = store(m.llama ? silu_of(to.gate[i]) * to.up[i] : gelu_of(to.up[i]));
    return linear(m.T, store, to.active, matrix(of.down, l, of.F, m.C), weight(Part::down_bias, l));
  }

  Tensor<R> project(const Layer& a, int l) {
    if (!m.llama) return linear(m.T, store, a.norm1.y, matrix(Part::qkv, l, m.C, width()), weight(Part::qkv_bias, l));
    Tensor<R> all(std::size_t(m.T * width()));
    int first = 0;
    for (const auto& [part, heads] : {std::pair(Part::q, m.H), std::pair(Part::k, m.K), std::pair(Part::v, m.K)}) {
      const int cols = heads * m.D();
      const Tensor<R> y = linear(m.T, store, a.norm1.y, matrix(part, l, m.C, cols), nullptr);
      for (int i = 0; i < m.T; ++i)
        for (int c = 0; c < cols; ++c) all[at(i, width(), first + c)] = y[at(i, cols, c)];
      first += cols;
    }
    return all;
  }

  int width() const { return (m.H + 2 * m.K) * m.D(); }
  Tensor<R> norm_backward(const Norm<R>& norm, Part gamma, Part beta, int l, const Tensor<R>& dy,
                          const Tensor<R>* residual) {
    return norm.backward(m, store, weight(gamma, l), dy, residual, gradient(gamma, l),
                         m.llama ? nullptr : gradient(beta, l));
  }

  // The losses, and the gradient of the logits, which carries the loss's factor.
  R head(const std::int32_t* targets, double loss_factor) {
    last.forward(m, store, x, weight(Part::norm), weight(Part::norm_bias));
    const Matrix w{head_weight(), m.C, m.V, true};
    dlogits = linear(m.T, store, last.y, w, nullptr);
    Sum<R> losses;
    for (int i = 0; i < m.T; ++i) {
      R* const row = dlogits.data() + at(i, m.V, 0);
      double most = -INFINITY;
      for (int n = 0; n < m.V; ++n) most = std::max(most, value_of(row[n]));
      const R target = row[targets[i]];
      Sum<R> sum;
      for (int n = 0; n < m.V; ++n) {
        row[n] = exp_of(row[n] - R(most));
        sum.add(row[n]);
      }
      const R all = sum.value();
      if (learned[std::size_t(i)]) losses.add(log_of(all) + R(most) - target);
      for (int n = 0; n < m.V; ++n) {
        if (!learned[std::size_t(i)]) {
          row[n] = R{};
          continue;
        }
        const R p = row[n] / all;
        row[n] = store((n == targets[i] ? p - R(1.0) : p) * R(loss_factor));
      }
    }
    return losses.value();
  }
  const double* head_weight() const { return m.tied ? weight(Part::tokens) : weight(Part::head); }

  void backward(const std::int32_t* tokens) {
    Sums<R>* const dhead = gradient(m.tied ? Part::tokens : Part::head);
    Tensor<R> d = linear_backward<R>(m.T, last.y, dlogits, {head_weight(), m.C, m.V, true}, dhead, nullptr);
    store.all(d);
    Tensor<R> dx = norm_backward(last, Part::norm, Part::norm_bias, -1, d, nullptr);
    for (int l = m.L - 1; l >= 0; --l) dx = layer_backward(layers[std::size_t(l)], l, std::move(dx));
    drop(dx, m.drop_embedding, Site::embedding, 0, m.C);
    Sums<R>*const dwords = gradient(Part::tokens), *const dplaces = gradient(Part::positions);
    for (int i = 0; i < m.T; ++i) {
      for (int c = 0; c < m.C; ++c) {
        if (dwords != nullptr) (*dwords)[at(tokens[i], m.C, c)].add(dx[at(i, m.C, c)]);
        if (dplaces != nullptr) (*dplaces)[at(i - first[std::size_t(i)], m.C, c)].add(dx[at(i, m.C, c)]);
      }
    }
  }

  // dx: out of the layer; returns it into the layer.
  Tensor<R> layer_backward(const Layer& a, int l, Tensor<R> dx) {
    Tensor<R> branch = dx;
    drop(branch, m.drop_residual, Site::mlp_branch, l, m.C);
    Tensor<R> d = m.routed(l) ? expert_layer(l).backward(a.norm2.y, a.routed, branch, factor)
                              : mlp_backward(a, a.mlp, l, branch, one_mlp());
    if (m.routed(l) && m.shared > 0) {
      const Tensor<R> more = mlp_backward(a, a.shared, l, branch, shared_expert());
      for (std::size_t i = 0; i < d.size(); ++i) d[i] = d[i] + more[i];
    }
    store.all(d);
    const Tensor<R> dmid = norm_backward(a.norm2, Part::norm2, Part::norm2_bias, l, d, &dx);

    branch = dmid;
    drop(branch, m.drop_residual, Site::attention_branch, l, m.C);
    Tensor<R> datt =
        linear_backward<R>(m.T, a.heads.att, branch, matrix(Part::attention_out, l, m.H * m.D(), m.C),
                           gradient(Part::attention_out, l), m.llama ? nullptr : gradient(Part::attention_out_bias, l));
    store.all(datt);
    Attention<R> attention(t, store, step, sample, first);
    Tensor<R> dqkv = attention.attend_backward(a.heads, l, datt);
    if (m.llama) attention.rotate(dqkv, -1);
    d = project_backward(a, l, dqkv);
    store.all(d);
    return norm_backward(a.norm1, Part::norm1, Part::norm1_bias, l, d, &dmid);
  }
  // Not yet stored.
  Tensor<R> mlp_backward(const Layer& a, const typename Layer::Mlp& from, int l, const Tensor<R>& branch,
                         const MlpParts& of) {
    Tensor<R> dactive = linear_backward<R>(m.T, from.active, branch, matrix(of.down, l, of.F, m.C),
                                           gradient(of.down, l), m.llama ? nullptr : gradient(Part::down_bias, l));
    store.all(dactive);
    Tensor<R> dup(dactive.size()), dgate(m.llama ? dactive.size() : 0);
    for (std::size_t i = 0; i < dactive.size(); ++i) {
      dup[i] = store(dactive[i] * (m.llama ? silu_of(from.gate[i]) : gelu_slope(from.up[i])));
      if (m.llama) dgate[i] = store(dactive[i] * from.up[i] * silu_slope(from.gate[i]));
    }
    Tensor<R> d = linear_backward<R>(m.T, a.norm2.y, dup, matrix(of.up, l, m.C, of.F), gradient(of.up, l),
                                     m.llama ? nullptr : gradient(Part::up_bias, l));
    if (m.llama) {
      const Tensor<R> more =
          linear_backward<R>(m.T, a.norm2.y, dgate, matrix(of.gate, l, m.C, of.F), gradient(of.gate, l), nullptr);
      for (std::size_t i = 0; i < d.size(); ++i) d[i] = d[i] + more[i];
    }
    return d;
  }
  Tensor<R> project_backward(const Layer& a, int l, const Tensor<R>& dqkv) {
    if (!m.llama)
      return linear_backward<R>(m.T, a.norm1.y, dqkv, matrix(Part::qkv, l, m.C, width()), gradient(Part::qkv, l),
                                gradient(Part::qkv_bias, l));
    Tensor<R> d;
    int first = 0;
    for (const auto& [part, heads] : {std::pair(Part::q, m.H), std::pair(Part::k, m.K), std::pair(Part::v, m.K)}) {
      const int cols = heads * m.D();
      Tensor<R> dy(std::size_t(m.T * cols));
      for (int i = 0; i < m.T; ++i)
        for (int c = 0; c < cols; ++c) dy[at(i, cols, c)] = dqkv[at(i, width(), first + c)];
      const Tensor<R> more =
          linear_backward<R>(m.T, a.norm1.y, dy, matrix(part, l, m.C, cols), gradient(part, l), nullptr);
      if (first == 0) d.assign(more.size(), R{});
      for (std::size_t i = 0; i < d.size(); ++i) d[i] = d[i] + more[i];
      first += cols;
    }
    return d;
  }

  const Training& t;
  const Model& m;
  const std::vector<Parameter>& parameters;
  const std::vector<std::vector<double>>& weights;
  std::vector<Sums<R>>& gradients;
  Store<R>& store;
  std::int64_t step = 0, sample = 0;
  std::vector<int> first;     // (T)  the first token of its document
  std::vector<bool> learned;  // (T)  it has a loss
  double factor = 1;          // of the loss
  Tensor<R> x;                // (T, C)  residual stream
  std::vector<Layer> layers;
  Norm<R> last;
  Tensor<R> dlogits;  // (T, V)
};

// Samples that are counted together meet at each router.
template <class R>
void forward(const Model& m, std::vector<Sample<R>>& samples) {
  for (int l = 0; l < m.L; ++l) {
    std::vector<Routed<R>*> routed;
    for (Sample<R>& sample : samples) {
      sample.go_to_mlp(l);
      routed.push_back(sample.routed(l));
    }
    if (m.routed(l)) take_choices(m, routed);
    for (Sample<R>& sample : samples) sample.go_through_mlp(l);
  }
}

std::int64_t tokens_with_loss(const Training& t, const std::vector<std::int32_t>& tokens, std::int64_t step) {
  const std::int64_t most = learned_tokens(t, step);
  std::int64_t all = 0;
  for (int b = 0; b < t.batch; ++b)
    for (std::int64_t i = 0; i < most; ++i)
      all += tokens[std::size_t(b) * std::size_t(t.model.T + 1) + std::size_t(i)] != t.data.separator ? 1 : 0;
  return all;
}

}  // namespace

template <class R>
StepValues<R> losses_and_gradients(const Training& t, const std::vector<Parameter>& parameters,
                                   const std::vector<std::vector<double>>& weights,
                                   const std::vector<std::int32_t>& tokens, std::int64_t step, double scale) {
  StepValues<R> values;
  std::vector<std::vector<double>> rounded = weights;
  std::vector<Sums<R>> sums(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (double& w : rounded[i]) w = nearest(w, t.compute);
    if (!parameters[i].frozen) sums[i].resize(parameters[i].size());
  }
  // One over the step's tokens, as a power of two at the loss and the rest at the root (R2).
  const double all = double(std::max<std::int64_t>(1, tokens_with_loss(t, tokens, step))),
               power = std::exp2(std::ceil(std::log2(all)));
  const double at_root = double(static_cast<float>(power / all));
  Sum<R> losses;
  Store<R> store(t.compute);
  const int together = t.model.counted;
  std::vector<Sample<R>> samples(std::size_t(together), Sample<R>(t, parameters, rounded, sums, store));
  const auto tokens_of = [&](int b) { return tokens.data() + std::size_t(b) * std::size_t(t.model.T + 1); };
  for (int b = 0; b < t.batch; b += together) {
    for (int i = 0; i < together; ++i) samples[std::size_t(i)].begin(tokens_of(b + i), step, b + i);
    forward(t.model, samples);
    for (int i = 0; i < together; ++i)
      losses.add(samples[std::size_t(i)].end(tokens_of(b + i), scale / power, values.routing, values.unsettled));
  }
  values.loss = losses.value() * R(1 / power) * R(at_root);
  values.gradients.resize(parameters.size());
  values.overflows = store.overflows, values.may_overflow = store.may_overflow;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const Sum<R>& sum : sums[i]) {
      R g = sum.value() * R(at_root);
      if (!(std::abs(value_of(g)) + bound_of(g) < largest_of(t.gradients))) values.may_overflow = true;
      if constexpr (std::is_same_v<R, Noisy>) {
        const double relative = unit_of(t.gradients) * g.v, absolute = tiny_of(t.gradients);
        g = {g.v / scale, (g.s + (relative * relative + absolute * absolute) / 3) / (scale * scale)};
      } else {
        g /= scale;
      }
      values.gradients[i].push_back(g);
    }
  }
  return values;
}

template StepValues<double> losses_and_gradients(const Training&, const std::vector<Parameter>&,
                                                 const std::vector<std::vector<double>>&,
                                                 const std::vector<std::int32_t>&, std::int64_t, double);
template StepValues<Noisy> losses_and_gradients(const Training&, const std::vector<Parameter>&,
                                                const std::vector<std::vector<double>>&,
                                                const std::vector<std::int32_t>&, std::int64_t, double);

}  // namespace seeksim::reference
