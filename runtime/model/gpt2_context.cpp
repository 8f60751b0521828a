// Where the ranks of a context group share the tokens of each sample: which rows are here, and attention, for which
// rows go to the ranks of their heads and back (comm/context_group.h).
#include "kernels/host_access.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/model/gpt2.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Stretch;
using kernels::Vec;

Gpt2Way::Gpt2Way(const ModelShape& shape, bool segments, const ModelPart& part, const TensorAxis* tensor,
                 ContextGroup* group)
    : context(group) {
  const int ways = part.tensor_ways();
  const bool splits = ways > 1;
  SEEKSIM_CHECK(splits == (tensor != nullptr), "%d ways", part.ways);
  SEEKSIM_CHECK((part.ways > 1 && part.by_tokens) == (group != nullptr), "%d ways", part.ways);
  const auto of = [&](Index n) { return splits ? kernels::stretch_of_way(n, ways, part.tensor_way()) : Stretch{0, n}; };
  V = of(shape.V).size, first_vocabulary = of(shape.V).first;
  const Stretch keys = of(shape.K);
  H = keys.size * shape.G, first_head = keys.first * shape.G;
  A = H * shape.D, Q = keys.size * (shape.G + 2) * shape.D;
  F = of(shape.F).size, U = shape.U / shape.F * F;
  const auto mlp = [&](const MlpShape& all) {
    const Index own = of(all.F).size;
    return MlpShape{.F = own, .U = shape.U / shape.F * own};
  };
  dense = mlp(shape.dense), shared = mlp(shape.shared);
  const Stretch stream = tensor != nullptr ? tensor->tokens() : Stretch{0, shape.T};
  tokens = stream.size, first_token = stream.first;
  rows = block = shape.T, segment = segments ? kernels::slab_size(shape.T) : shape.T;
  attended = A, attended_q = Q;
  if (group == nullptr) return;
  const int ranks = group->ranks();
  SEEKSIM_CHECK(segments && (!by_heads() || shape.K % ranks == 0), "%lld key heads over %d ranks",
                static_cast<long long>(shape.K), ranks);
  tokens = rows = group->cut().size(), block = group->cut().chunk_size();
  if (!by_heads()) return;
  H /= ranks, first_head = group->me() * H;
  attended /= ranks, attended_q /= ranks;
}

template <class S>
typename Gpt2<S>::Chunk Gpt2<S>::chunk(Index samples, int i) const {
  if (way_.context == nullptr) return {0, samples * way_.tokens, way_.tokens, way_.first_token};
  const Index rows = samples * way_.block;
  return {i * rows, rows, way_.block, way_.context->first_token(i)};
}

template <class S>
Index Gpt2<S>::first_token(int i, bool miscounts) const {
  if (way_.context == nullptr) return way_.first_token;
  return miscounts ? 0 : way_.context->first_token(i);
}

template <class S>
VecView<const std::int32_t> Gpt2<S>::ids_here(Index samples, bool targets) const {
  if (way_.context == nullptr) return reads(targets ? this->targets(samples) : inputs(samples));
  return vec<const std::int32_t>(*(targets ? ids_.own_targets : ids_.own_inputs), 0, samples * way_.rows);
}

template <class S>
void Gpt2<S>::take_own_ids(const Pass& p) {
  const Index n = p.batch.samples, T = s_.T, size = way_.block;
  for (const bool targets : {false, true}) {
    const VecView<const std::int32_t> all = targets ? this->targets(n) : inputs(n);
    if (all.n == 0) continue;
    for (int i = 0; i < chunk_count(); ++i) {
      const Chunk c = chunk(n, i);
      p.launch(
          targets ? "targets" : "inputs", SEEKSIM_SITE, memory_cost(2 * c.rows, 0),
          [T, size, first = c.first_token](Lane lane, Vec<const std::int32_t> ids, Vec<std::int32_t> own) {
            for (Index sample = 0; sample < own.n / size; ++sample)
              kernels::copy_bytes(lane, ids.data + sample * T + first, own.data + sample * size,
                                  std::size_t(size) * sizeof(std::int32_t));
          },
          all, vec<std::int32_t>(*(targets ? ids_.own_targets : ids_.own_inputs), c.first_row, c.rows));
    }
  }
}

template <class S>
VecView<const float> Gpt2<S>::losses_of_all(Launcher& launch, Index samples) {
  const VecView<float> all = vec<float>(*work_->context.losses, 0, samples * s_.T);
  way_.context->gather_values(launch, "losses of tokens", SEEKSIM_SITE, samples,
                              reads(row_values(head_.token_losses, samples)), all);
  return all;
}

template <class S>
void Gpt2<S>::attend_in_group(const Pass& p, int l, MatView<const S> qkv, MatView<S> att) {
  const Index n = p.batch.samples;
  const LayerStore& kept = store(l);
  if (RingAttention* const ring = way_.context->ring()) {
    const auto drop = dropout_at(drop_.attention, DropoutSite::attention, dropout_layer(l), p.batch);
    return ring->forward<S>(way_.context->link(), p.launch, n, drop, qkv, attention_stats(kept, n, slot(l)), att);
  }
  const MatView<S> by_heads = fused_ ? attended(kept.heads, n, way_.attended, slot(l))
                                     : attended(work_->context.heads, n, way_.attended);  // (Rt, A / ranks)
  way_.context->to_heads<S>(p.launch, "queries, keys and values", SEEKSIM_SITE, n, qkv,
                            attended(kept.qkv, n, way_.attended_q, slot(l)));
  attend(p, l, by_heads);
  way_.context->to_rows<S>(p.launch, "attention", SEEKSIM_SITE, n, reads(by_heads), att);
}

template <class S>
void Gpt2<S>::attend_backward_in_group(const Pass& p, int l, MatView<const S> datt, MatView<S> din) {
  const Index n = p.batch.samples;
  if (RingAttention* const ring = way_.context->ring()) {
    const LayerStore& kept = store(l);
    const auto drop = dropout_at(drop_.attention, DropoutSite::attention, dropout_layer(l), p.batch);
    return ring->backward<S>(way_.context->link(), p.launch, n, drop, datt, reads(act(kept.qkv, n, way_.Q, slot(l))),
                             reads(act(kept.att, n, way_.A, slot(l))), reads(attention_stats(kept, n, slot(l))), din);
  }
  const MatView<S> by_heads = attended(work_->context.heads, n, way_.attended),
                   dqkv = attended(work_->context.dqkv, n, way_.attended_q);
  way_.context->to_heads<S>(p.launch, "d attention", SEEKSIM_SITE, n, datt, by_heads);
  attend_backward(p, l, reads(by_heads), dqkv);
  way_.context->to_rows<S>(p.launch, "d queries, keys and values", SEEKSIM_SITE, n, reads(dqkv), din);
}

#define SEEKSIM_INSTANTIATE(S)                                                            \
  template typename Gpt2<S>::Chunk Gpt2<S>::chunk(Index, int) const;                      \
  template Index Gpt2<S>::first_token(int, bool) const;                                   \
  template VecView<const std::int32_t> Gpt2<S>::ids_here(Index, bool) const;              \
  template void Gpt2<S>::take_own_ids(const Pass&);                                       \
  template VecView<const float> Gpt2<S>::losses_of_all(Launcher&, Index);                 \
  template void Gpt2<S>::attend_in_group(const Pass&, int, MatView<const S>, MatView<S>); \
  template void Gpt2<S>::attend_backward_in_group(const Pass&, int, MatView<const S>, MatView<S>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
