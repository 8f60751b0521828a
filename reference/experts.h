// A layer of experts: the router's choice for a sample; which choices of several samples find room; then for each
// sample what the chosen experts make of a token, both losses of the router, and all of it backwards. T tokens, E
// experts, k choices of a token, C width, F width inside an expert.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/operations.h"

namespace seeksim::reference {

// What a layer leaves for its backward pass. Choice j of token i is slot i k + j.
template <class R>
struct Routed {
  Tensor<R> probs, spread;                     // (T, E), (T)  softmax, and the log of the sum of exp(logit)
  Tensor<R> scores, all;                       // (T, E), (T)  of sigmoid gates: each sigmoid, and the sum of a token's
  std::vector<int> chosen;                     // (T k)  -1 - e where expert e had no room left
  Tensor<R> gates, total;                      // (T k), (T)  total: what a token's gates were divided by
  std::vector<double> shares;                  // (E)
  std::vector<Tensor<R>> gate, up, active, y;  // of a slot: (F), (F), (F), (C); empty where it was not taken
  R loss{};                                    // of the router, summed over tokens
  bool unsettled = false;                      // two logits are so near that rounding may have decided
};

template <class R>
struct Expert {
  Matrix gate, up, down;
  Sums<R>*dgate, *dup, *ddown;
};

template <class R>
struct ExpertLayer {
  const Model& m;
  Store<R>& store;
  Matrix router;
  Sums<R>* drouter;
  std::vector<Expert<R>> experts;

  // Softmax, the k largest logits in turn (of equal ones the first), and their gates.
  void route(const Tensor<R>& x, Routed<R>& to) const {
    to = {};
    to.probs.resize(std::size_t(m.T * m.E)), to.spread.resize(std::size_t(m.T)), to.total.resize(std::size_t(m.T));
    for (int i = 0; i < m.T; ++i) {
      Tensor<R> logits;
      for (int e = 0; e < m.E; ++e) {
        Sum<R> sum;
        for (int c = 0; c < m.C; ++c) sum.add(x[at(i, m.C, c)], R(router.data[router.place(c, e)]));
        logits.push_back(sum.value());
      }
      softmax(logits, i, to);
      if (m.sigmoid) sigmoids(logits, to);
      std::vector<int> order(std::size_t(m.E));
      for (int e = 0; e < m.E; ++e) order[std::size_t(e)] = e;
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return value_of(logits[std::size_t(a)]) > value_of(logits[std::size_t(b)]);
      });
      for (int j = 0; j < m.k; ++j) {
        const bool last = j + 1 == m.k;
        if (j + 1 < m.E && (last || m.capacity_factor > 0))
          look_at(to, logits[std::size_t(order[std::size_t(j)])], logits[std::size_t(order[std::size_t(j + 1)])]);
        to.chosen.push_back(order[std::size_t(j)]);
        to.gates.push_back((m.sigmoid ? to.scores : to.probs)[at(i, m.E, order[std::size_t(j)])]);
      }
      if (m.gates_normalized) divide_by_sum(i, to);
      for (int j = 0; j < m.k; ++j) to.gates[at(i, m.k, j)] = scaled(to.gates[at(i, m.k, j)]);
    }
  }
  // x (T, C), and what route() and take_choices() have made of it. Returns what the experts add to the stream.
  Tensor<R> forward(const Tensor<R>& x, Routed<R>& to) {
    const std::size_t slots = std::size_t(m.T * m.k);
    to.gate.resize(slots), to.up.resize(slots), to.active.resize(slots), to.y.resize(slots);
    Tensor<R> out(std::size_t(m.T * m.C));
    for (int i = 0; i < m.T; ++i) {
      std::vector<Sum<R>> sums(std::size_t(m.C));
      for (int j = 0; j < m.k; ++j) {
        const std::size_t s = at(i, m.k, j);
        if (to.chosen[s] < 0) continue;
        const Expert<R>& e = experts[std::size_t(to.chosen[s])];
        const Tensor<R> row = row_of(x, i);
        to.gate[s] = linear(1, store, row, e.gate, nullptr);
        to.up[s] = linear(1, store, row, e.up, nullptr);
        for (int f = 0; f < m.F; ++f)
          to.active[s].push_back(store(silu_of(to.gate[s][std::size_t(f)]) * to.up[s][std::size_t(f)]));
        to.y[s] = linear(1, store, to.active[s], e.down, nullptr);
        for (int c = 0; c < m.C; ++c) sums[std::size_t(c)].add(to.gates[s], to.y[s][std::size_t(c)]);
      }
      for (int c = 0; c < m.C; ++c) out[at(i, m.C, c)] = store(sums[std::size_t(c)].value());
    }
    add_losses(to);
    return out;
  }

  // dx (T, C), not yet stored, from dout (T, C). factor: what the loss is multiplied by.
  Tensor<R> backward(const Tensor<R>& x, const Routed<R>& from, const Tensor<R>& dout, double factor) {
    Tensor<R> dx(x.size()), dgates(from.gates.size());
    for (int i = 0; i < m.T; ++i) {
      for (int j = 0; j < m.k; ++j) {
        const std::size_t s = at(i, m.k, j);
        if (from.chosen[s] < 0) continue;
        Sum<R> dot;
        for (int c = 0; c < m.C; ++c) dot.add(dout[at(i, m.C, c)], from.y[s][std::size_t(c)]);
        dgates[s] = dot.value();
        const Tensor<R> d = expert_backward(row_of(x, i), from, s, row_of(dout, i));
        for (int c = 0; c < m.C; ++c) dx[at(i, m.C, c)] = dx[at(i, m.C, c)] + d[std::size_t(c)];
      }
    }
    Tensor<R> dlogits(std::size_t(m.T * m.E));
    for (int i = 0; i < m.T; ++i) logits_backward(from, dgates, factor, i, dlogits);
    const Tensor<R> more = linear_backward<R>(m.T, x, dlogits, router, drouter, nullptr);
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dx[i] + more[i];
    return dx;
  }

 private:
  Tensor<R> row_of(const Tensor<R>& x, int i) const {
    return Tensor<R>(x.begin() + i * m.C, x.begin() + (i + 1) * m.C);
  }
  // Rounding might have put b before a.
  void look_at(Routed<R>& to, const R& a, const R& b) const {
    const double noise = variance_of(a) + variance_of(b);
    if (noise > 0 && value_of(a) - value_of(b) <= deviations(store.type) * std::sqrt(noise)) to.unsettled = true;
  }

  void divide_by_sum(int i, Routed<R>& to) const {
    Sum<R> total;
    for (int j = 0; j < m.k; ++j) total.add(to.gates[at(i, m.k, j)]);
    to.total[std::size_t(i)] = m.sigmoid ? total.value() + R(1e-20) : total.value();
    for (int j = 0; j < m.k; ++j) to.gates[at(i, m.k, j)] = to.gates[at(i, m.k, j)] / to.total[std::size_t(i)];
  }
  R scaled(const R& x) const { return m.gate_scale == 1 ? x : R(double(static_cast<float>(m.gate_scale))) * x; }
  void sigmoids(const Tensor<R>& logits, Routed<R>& to) const {
    Sum<R> all;
    for (const R& one : logits) {
      to.scores.push_back(sigmoid_of(one));
      all.add(to.scores.back());
    }
    to.all.push_back(all.value() + R(1e-20));
  }
  void softmax(const Tensor<R>& logits, int i, Routed<R>& to) const {
    double most = -INFINITY;
    for (const R& one : logits) most = std::max(most, value_of(one));
    Sum<R> sum;
    for (int e = 0; e < m.E; ++e) {
      R& p = to.probs[at(i, m.E, e)];
      p = exp_of(logits[std::size_t(e)] - R(most));
      sum.add(p);
    }
    const R all = sum.value();
    for (int e = 0; e < m.E; ++e) to.probs[at(i, m.E, e)] = to.probs[at(i, m.E, e)] / all;
    to.spread[std::size_t(i)] = log_of(all) + R(most);
  }

  double balance() const { return m.balance * m.E; }
  R mean_share(const Routed<R>& to, int i) const {
    Sum<R> sum;
    for (int e = 0; e < m.E; ++e)
      sum.add(R(to.shares[std::size_t(e)]), (m.sigmoid ? to.scores : to.probs)[at(i, m.E, e)]);
    return m.sigmoid ? sum.value() / to.all[std::size_t(i)] : sum.value();
  }
  void add_losses(Routed<R>& to) const {
    Sum<R> sum;
    for (int i = 0; i < m.T; ++i) {
      const R& spread = to.spread[std::size_t(i)];
      sum.add(R(balance()) * mean_share(to, i) + R(m.z) * (spread * spread));
    }
    to.loss = sum.value();
  }

  Tensor<R> expert_backward(const Tensor<R>& x, const Routed<R>& from, std::size_t s, Tensor<R> dy) {
    const Expert<R>& e = experts[std::size_t(from.chosen[s])];
    for (R& one : dy) one = store(one * from.gates[s]);
    Tensor<R> dactive = linear_backward<R>(1, from.active[s], dy, e.down, e.ddown, nullptr);
    store.all(dactive);
    Tensor<R> dgate, dup;
    for (std::size_t f = 0; f < dactive.size(); ++f) {
      dup.push_back(store(dactive[f] * silu_of(from.gate[s][f])));
      dgate.push_back(store(dactive[f] * from.up[s][f] * silu_slope(from.gate[s][f])));
    }
    Tensor<R> d = linear_backward<R>(1, x, dup, e.up, e.dup, nullptr);
    const Tensor<R> more = linear_backward<R>(1, x, dgate, e.gate, e.dgate, nullptr);
    for (std::size_t c = 0; c < d.size(); ++c) d[c] = d[c] + more[c];
    store.all(d);
    return d;
  }

  // Through the gates and both losses to the probabilities, and through the softmax.
  void logits_backward(const Routed<R>& from, const Tensor<R>& dgates, double factor, int i, Tensor<R>& dlogits) {
    Tensor<R> dprobs(std::size_t(m.E));
    Sum<R> mean;
    for (int j = 0; j < m.k; ++j) mean.add(dgates[at(i, m.k, j)], from.gates[at(i, m.k, j)]);
    for (int j = 0; j < m.k; ++j) {
      const int slot = from.chosen[at(i, m.k, j)];
      R& d = dprobs[std::size_t(slot < 0 ? -1 - slot : slot)];
      d = scaled(dgates[at(i, m.k, j)]);
      if (m.gates_normalized) d = (d - mean.value()) / from.total[std::size_t(i)];
    }
    if (m.sigmoid) return sigmoids_backward(from, dprobs, factor, i, dlogits);
    for (int e = 0; e < m.E; ++e)
      dprobs[std::size_t(e)] = dprobs[std::size_t(e)] + R(factor * balance() * from.shares[std::size_t(e)]);
    Sum<R> dots;
    for (int e = 0; e < m.E; ++e) dots.add(dprobs[std::size_t(e)], from.probs[at(i, m.E, e)]);
    for (int e = 0; e < m.E; ++e) {
      const R& p = from.probs[at(i, m.E, e)];
      const R of_z = R(2 * m.z * factor) * from.spread[std::size_t(i)] * p;
      dlogits[at(i, m.E, e)] = store(p * (dprobs[std::size_t(e)] - dots.value()) + of_z);
    }
  }
  // dscores: through the gates.
  void sigmoids_backward(const Routed<R>& from, const Tensor<R>& dscores, double factor, int i, Tensor<R>& dlogits) {
    const R mean = mean_share(from, i);
    for (int e = 0; e < m.E; ++e) {
      const R& s = from.scores[at(i, m.E, e)];
      const R of_balance = R(factor * balance()) * (R(from.shares[std::size_t(e)]) - mean) / from.all[std::size_t(i)];
      const R of_z = R(2 * m.z * factor) * from.spread[std::size_t(i)] * from.probs[at(i, m.E, e)];
      dlogits[at(i, m.E, e)] = store((dscores[std::size_t(e)] + of_balance) * s * (R(1.0) - s) + of_z);
    }
  }
};

// Shares of the choices of samples that are counted together; and which of them find room: all first ones in the order
// of tokens, then all second ones.
template <class R>
void take_choices(const Model& m, const std::vector<Routed<R>*>& together) {
  const double all = double(together.size()) * double(m.T * m.k);
  const double most = std::ceil(m.capacity_factor * all / double(m.E));
  std::vector<int> count(std::size_t(m.E));
  for (int j = 0; j < m.k; ++j) {
    for (Routed<R>* const to : together) {
      for (int i = 0; i < m.T; ++i) {
        int& e = to->chosen[at(i, m.k, j)];
        int& so_far = count[std::size_t(e)];
        if (m.capacity_factor > 0 && so_far >= most) e = -1 - e;
        ++so_far;
      }
    }
  }
  for (Routed<R>* const to : together)
    for (const int n : count) to->shares.push_back(double(n) / all);
}

}  // namespace seeksim::reference
