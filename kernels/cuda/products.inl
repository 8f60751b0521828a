// Matrix products and attention, and their table. Included after rows.inl.

#include "kernels/cuda/gemm.inl"

#include "kernels/cuda/attention.inl"

#include "kernels/cuda/fused_attention.inl"

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
  static DeviceProducts<T> table() {
    return {product<T>, product<float>, forward, backward, fused_forward, fused_backward};
  }
};
