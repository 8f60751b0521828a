// Matrix products and attention, and their table. Included after rows.inl.

#include "kernels/cuda/gemm.inl"

#include "kernels/cuda/attention.inl"

#include "kernels/cuda/fused_attention.inl"

#include "kernels/cuda/fused_parts.inl"

// ---- the table (device_table.h) ----

template <class Launch, class T>
struct Products {
  template <class To>
  static void product(Lane lane, bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<To> c, Index segment,
                      const T* bias) {
    Launch launch(lane);
    gemm(launch, ta, tb, a, b, c, segment, bias);
  }
  static void forward(Lane lane, const AttentionShape& s, const Dropout& drop, Mat<const T> qkv, Mat<T> probs,
                      Mat<T> out) {
    Launch launch(lane);
    attention_forward(launch, s, drop, qkv, probs, out);
  }
  static void backward(Lane lane, const AttentionShape& s, const Dropout& drop, Mat<const T> dout, Mat<const T> qkv,
                       Mat<const T> probs, Mat<T> dqkv) {
    Launch launch(lane);
    attention_backward(launch, s, drop, dout, qkv, probs, dqkv);
  }
  static void fused_forward(Lane lane, const AttentionShape& s, const Dropout& drop, Mat<const T> qkv, Mat<float> stats,
                            Mat<T> out) {
    Launch launch(lane);
    fused_attention_forward(launch, s, drop, qkv, stats, out);
  }
  static void fused_backward(Lane lane, const AttentionShape& s, const Dropout& drop, Mat<const T> dout,
                             Mat<const T> qkv, Mat<const T> out, Mat<const float> stats, Mat<T> dqkv) {
    Launch launch(lane);
    fused_attention_backward(launch, s, drop, dout, qkv, out, stats, dqkv);
  }
  static void part_forward(Lane lane, const AttentionShape& s, const FusedPlace& place, const Dropout& drop,
                           Mat<const T> qkv, Mat<const T> kv, Mat<float> state) {
    Launch launch(lane);
    if (place.before)
      fused_part_forward<true>(launch, s, place, drop, qkv, kv, state);
    else
      fused_part_forward<false>(launch, s, place, drop, qkv, kv, state);
  }
  static void join(Lane lane, Mat<const float> newer, Mat<float> older) {
    Launch launch(lane);
    by_warps(launch, older.rows, FusedJoin{newer, older});
  }
  static void root(Lane lane, const AttentionShape& s, Mat<const float> state, Mat<float> stats, Mat<T> out) {
    Launch launch(lane);
    each(launch, state.rows, s.head_dim, FusedRoot<T>{s, state, stats, out});
  }
  static void part_backward(Lane lane, const AttentionShape& s, const FusedPlace& place, const Dropout& drop,
                            Mat<const T> dout, Mat<const T> qkv, Mat<const T> kv, Mat<const T> out,
                            Mat<const float> stats, Mat<float> dq, Mat<float> dkv) {
    Launch launch(lane);
    if (place.before)
      fused_part_backward<true>(launch, s, place, drop, dout, qkv, kv, out, stats, dq, dkv);
    else
      fused_part_backward<false>(launch, s, place, drop, dout, qkv, kv, out, stats, dq, dkv);
  }
  static DeviceProducts<T> table() {
    return {product<T>,     product<float>, forward, backward, fused_forward,
            fused_backward, part_forward,   join,    root,     part_backward};
  }
};
