// Attention between the product that makes queries, keys and values and the one that takes what comes out of the heads:
// rotary positions, and the heads themselves, which keep their probabilities or, fused, two numbers a row.
#include "kernels/attention.h"

#include <type_traits>
#include <vector>

#include "kernels/fused_attention.h"
#include "kernels/rotary.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/gpt2_ops.h"
#include "runtime/model/mutated_ops.h"
#include "runtime/model/packing.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

// Rotates queries and keys in place; does nothing where positions are learned. Each document has positions of its own.
template <class S>
void Gpt2<S>::rotate(const Pass& p, bool backward, MatView<S> qkv) {
  if (!work_->angles) return;
  const MatView<const float> angles = reads(mat<float>(*work_->angles, 0, s_.T, s_.D));
  const auto turn = [&](kernels::AttentionShape shape, MatView<const float> turns, MatView<S> rows) {
    p.launch(
        "rotary", SEEKSIM_SITE, memory_cost(2 * rows.rows * rows.cols, 2),
        [shape, backward](Lane lane, Mat<const float> by, Mat<S> in_place) {
          (backward ? kernels::rotary_backward<S> : kernels::rotary_forward<S>)(lane, shape, by, in_place);
        },
        turns, rows);
  };
  kernels::AttentionShape shape = attention_shape(p.batch.samples);
  if (way_.context == nullptr) {
    for (const AttentionPart& part : attention_parts(documents(p.batch, Bug::packing_positions_go_on), shape))
      turn(part.shape, angles, part.rows(qkv));
    return;
  }
  shape.heads = s_.H;
  for (int i = 0; i < chunk_count(); ++i) {
    const Chunk c = chunk(p.batch.samples, i);
    shape.tokens = c.tokens;
    const Index first = first_token(i, bug_.is(Bug::context_positions_of_chunk));
    turn(shape, angles.row_range(first, c.tokens), qkv.row_range(c.first_row, c.rows));
  }
}

template <class S>
void Gpt2<S>::attend(const Pass& p, int l, MatView<S> att) {
  for (const AttentionPart& part :
       attention_parts(documents(p.batch, Bug::packing_sees_others), attention_shape(p.batch.samples)))
    attend(p, l, att, part);
}

template <class S>
void Gpt2<S>::attend(const Pass& p, int l, MatView<S> all, const AttentionPart& part) {
  const Index n = p.batch.samples;
  const LayerStore& kept = store(l);
  const MatView<S> qkv = part.rows(attended(kept.qkv, n, way_.attended_q, slot(l)));  // (Rt, Q)
  const MatView<S> att = part.rows(all);                                              // (Rt, A)
  const kernels::AttentionShape& shape = part.shape;
  const auto drop = dropout_at(drop_.attention, DropoutSite::attention, dropout_layer(l), p.batch);
  const Mutant mutant = replaces_mask(bug_.mutant) ? bug_.mutant : Mutant::none;
  const double rows = double(qkv.rows), products = 2.0 * rows * double(shape.tokens * way_.attended);
  if (fused_) {
    const MatView<float> stats = part.of_heads(attention_stats(kept, n, slot(l)), 2);
    p.launch(
        "attention", SEEKSIM_SITE, {products, 4.0 * rows * double(way_.attended_q + way_.attended + 2 * way_.H)},
        [shape = part.shape, drop, mutant](Lane lane, Mat<const S> in, Mat<float> row_stats, Mat<S> y) {
          kernels::fused_attention_forward<S>(lane, shape, in, row_stats, y, drop);
          if constexpr (std::is_same_v<S, float>) {
            if (mutant == Mutant::none || lane.device != nullptr) return;
            const Index entries = row_stats.rows * shape.tokens;
            std::vector<float> probs(static_cast<std::size_t>(entries));
            mutated_attention(mutant, shape, in, {probs.data(), row_stats.rows, shape.tokens, shape.tokens}, y);
          }
        },
        reads(qkv), stats, att);
    return;
  }
  const MatView<S> probs = part.of_heads(attention_probs(kept, n, slot(l)), shape.tokens);
  p.launch(
      "attention", SEEKSIM_SITE,
      {products, 4.0 * (rows * double(way_.attended_q + way_.attended) + double(probs.rows * probs.cols))},
      [shape = part.shape, drop, mutant](Lane lane, Mat<const S> in, Mat<S> pr, Mat<S> y) {
        if constexpr (std::is_same_v<S, float>) {
          if (mutant != Mutant::none && lane.device == nullptr) return mutated_attention(mutant, shape, in, pr, y);
        }
        kernels::attention_forward<S>(lane, shape, in, pr, y, drop);
      },
      reads(qkv), probs, att);
}

// Fused attention computes the scores once more.
template <class S>
void Gpt2<S>::attend_backward(const Pass& p, int l, MatView<const S> datt, MatView<S> din) {
  for (const AttentionPart& part :
       attention_parts(documents(p.batch, Bug::packing_sees_others), attention_shape(p.batch.samples)))
    attend_backward(p, l, datt, din, part);
}

template <class S>
void Gpt2<S>::attend_backward(const Pass& p, int l, MatView<const S> all, MatView<S> all_in,
                              const AttentionPart& part) {
  const Index n = p.batch.samples;
  const LayerStore& kept = store(l);
  const MatView<const S> datt = part.rows(all);
  const MatView<S> qkv = part.rows(attended(kept.qkv, n, way_.attended_q, slot(l)));  // (Rt, Q)
  const MatView<S> din = part.rows(all_in);                                           // (Rt, Q)
  const kernels::AttentionShape& shape = part.shape;
  const auto drop = dropout_at(drop_.attention, DropoutSite::attention, dropout_layer(l), p.batch);
  const double rows = double(qkv.rows), product = rows * double(shape.tokens * way_.attended);
  if (fused_) {
    const MatView<S> whole = attended(way_.context != nullptr ? kept.heads : kept.att, n, way_.attended, slot(l));
    const MatView<S> att = part.rows(whole);
    const MatView<float> stats = part.of_heads(attention_stats(kept, n, slot(l)), 2);
    p.launch(
        "attention", SEEKSIM_SITE,
        {6.0 * product, 4.0 * rows * double(2 * way_.attended_q + 2 * way_.attended + 2 * way_.H)},
        [shape = part.shape, drop](Lane lane, Mat<const S> dout, Mat<const S> in, Mat<const S> y,
                                   Mat<const float> row_stats, Mat<S> d) {
          kernels::fused_attention_backward<S>(lane, shape, dout, in, y, row_stats, d, drop);
        },
        datt, reads(qkv), reads(att), reads(stats), din);
    return;
  }
  const MatView<S> probs = part.of_heads(attention_probs(kept, n, slot(l)), shape.tokens);
  p.launch(
      "attention", SEEKSIM_SITE,
      {5.0 * product, 4.0 * (rows * double(2 * way_.attended_q + way_.attended) + double(probs.rows * probs.cols))},
      [shape = part.shape, drop](Lane lane, Mat<const S> dout, Mat<const S> in, Mat<const S> pr, Mat<float> work,
                                 Mat<S> d) {
        kernels::attention_backward<S>(lane, shape, dout, in, pr, work, d, drop);
      },
      datt, reads(qkv), reads(probs), mat<float>(*work_->scratch, 0, 2 * s_.T, s_.T), din);
}

template <class S>
void Gpt2<S>::mutate_queries(const Pass& p, bool back, MatView<S> qkv) const {
  if (!changes_queries(bug_.mutant)) return;
  if constexpr (std::is_same_v<S, float>) {
    p.launch(
        "queries", SEEKSIM_SITE, memory_cost(2 * qkv.rows * qkv.cols),
        [mutant = bug_.mutant, shape = attention_shape(p.batch.samples), width = s_.C, back](Lane lane, Mat<float> x) {
          if (lane.device == nullptr) runtime::mutate_queries(mutant, shape, width, back, x);
        },
        qkv);
  }
}

template <class S>
void Gpt2<S>::mutate_heads(const Pass& p, bool back, MatView<S> heads) const {
  if (!changes_queries(bug_.mutant)) return;
  if constexpr (std::is_same_v<S, float>) {
    p.launch(
        "heads", SEEKSIM_SITE, memory_cost(2 * heads.rows * heads.cols),
        [mutant = bug_.mutant, shape = attention_shape(p.batch.samples), back](Lane lane, Mat<float> x) {
          if (lane.device == nullptr) runtime::mutate_heads(mutant, shape, back, x);
        },
        heads);
  }
}

#define SEEKSIM_INSTANTIATE(S)                                                                                  \
  template void Gpt2<S>::rotate(const Pass&, bool, MatView<S>);                                                 \
  template void Gpt2<S>::attend(const Pass&, int, MatView<S>);                                                  \
  template void Gpt2<S>::attend(const Pass&, int, MatView<S>, const AttentionPart&);                            \
  template void Gpt2<S>::attend_backward(const Pass&, int, MatView<const S>, MatView<S>);                       \
  template void Gpt2<S>::attend_backward(const Pass&, int, MatView<const S>, MatView<S>, const AttentionPart&); \
  template void Gpt2<S>::mutate_queries(const Pass&, bool, MatView<S>) const;                                   \
  template void Gpt2<S>::mutate_heads(const Pass&, bool, MatView<S>) const;
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(kernels::bf16)
SEEKSIM_INSTANTIATE(kernels::fp16)
#undef SEEKSIM_INSTANTIATE

}  // namespace seeksim::runtime
