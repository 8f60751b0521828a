// Elementwise kernels. Included after block.inl.

// One thread for each element (r, c) of a matrix. Matrices whose rows lie end to end are treated as one row.
template <class Body>
struct Each {
  static constexpr int kThreads = 256;
  Index rows, cols;
  Body body;

  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    for (Index r = block.y(); r < rows; r += block.blocks_y()) {
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index c = block.x() * kThreads + t;
        if (c < cols) body(r, c);
      });
    }
  }
};
template <class Launch, class Body>
void each(Launch& launch, Index rows, Index cols, const Body& body) {
  if (rows == 0 || cols == 0) return;
  launch({blocks_for(cols, Each<Body>::kThreads), least(rows, kMostBlocksY)}, Each<Body>{rows, cols, body});
}
// For several matrices of one shape.
template <class Launch, class Body, class M, class... More>
void each_of(Launch& launch, const Body& body, const M& m, const More&... more) {
  const bool dense = m.stride == m.cols && (... && (more.stride == more.cols));
  if (dense) return each(launch, 1, m.rows * m.cols, body);
  each(launch, m.rows, m.cols, body);
}

struct UnaryOf {
  Unary f;
  Vec<const float> x;
  Vec<float> y;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    using V = FloatOps;
    const float a = x[i];
    switch (f) {
      case Unary::exp:
        y[i] = math::exp<V>(a);
        break;
      case Unary::tanh:
        y[i] = math::tanh<V>(a);
        break;
      case Unary::log:
        y[i] = math::log<V>(a);
        break;
      case Unary::inverse_sqrt:
        y[i] = math::inverse_sqrt<V>(a);
        break;
      case Unary::gelu:
        y[i] = math::gelu<V>(a);
        break;
      case Unary::gelu_grad:
        y[i] = math::gelu_grad<V>(a);
        break;
      case Unary::silu:
        y[i] = math::silu<V>(a);
        break;
      case Unary::silu_grad:
        y[i] = math::silu_grad<V>(a);
        break;
    }
  }
};

template <class T>
struct GeluForward {
  Mat<const T> x;
  Mat<T> y;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    y(r, c) = from_float<T>(math::gelu<FloatOps>(as_float(x(r, c))));
  }
};
template <class T>
struct GeluBackward {
  Mat<const T> dy, x;
  Mat<T> dx;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    const float slope = math::gelu_grad<FloatOps>(as_float(x(r, c)));
    dx(r, c) = from_float<T>(FloatOps::mul(as_float(dy(r, c)), slope));
  }
};

// Columns [begin, begin + n) of y come from gate and up at columns 2 begin and on; n is the columns of this slab.
struct SlabColumn {
  Index gate, up;
  SEEKSIM_BODY static SlabColumn of(Index c, Index slab, Index cols) {
    const Index begin = c / slab * slab, n = least(slab, cols - begin), gate = 2 * begin + (c - begin);
    return {gate, gate + n};
  }
};
template <class T>
struct SwigluForward {
  Index slab;
  Mat<const T> gate_up;
  Mat<T> y;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    const SlabColumn at = SlabColumn::of(c, slab, y.cols);
    const float g = math::silu<FloatOps>(as_float(gate_up(r, at.gate)));
    y(r, c) = from_float<T>(FloatOps::mul(g, as_float(gate_up(r, at.up))));
  }
};
template <class T>
struct SwigluBackward {
  Index slab;
  Mat<const T> dy, gate_up;
  Mat<T> dgate_up;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    const SlabColumn at = SlabColumn::of(c, slab, dy.cols);
    const float d = as_float(dy(r, c)), g = as_float(gate_up(r, at.gate)), u = as_float(gate_up(r, at.up));
    dgate_up(r, at.gate) = from_float<T>(FloatOps::mul(FloatOps::mul(d, u), math::silu_grad<FloatOps>(g)));
    dgate_up(r, at.up) = from_float<T>(FloatOps::mul(d, math::silu<FloatOps>(g)));
  }
};

// Pair c of row r: one of the head_dim / 2 pairs of a head that is rotated, that is a query or the key of a group.
template <class T>
struct Rotate {
  AttentionShape shape;
  Mat<const float> angles;
  float turn;
  Mat<T> qkv;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    using V = FloatOps;
    const Index half = shape.head_dim / 2, head = c / half, i = c % half;
    const Index key_head = head / (shape.group + 1), h = head % (shape.group + 1);
    const float* const cosines = angles.row(r % shape.tokens);
    T* const first = qkv.row(r) + key_head * (shape.group + 2) * shape.head_dim + h * shape.head_dim + i;
    T* const second = first + half;
    const float cosine = cosines[i], sine = V::mul(cosines[half + i], turn);
    const float a = as_float(*first), b = as_float(*second);
    *first = from_float<T>(V::fma(a, cosine, math::negate<V>(V::mul(b, sine))));
    *second = from_float<T>(V::fma(b, cosine, V::mul(a, sine)));
  }
};

template <class T>
struct Add {
  Mat<const T> a, b;
  Mat<T> y;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    y(r, c) = from_float<T>(FloatOps::add(as_float(a(r, c)), as_float(b(r, c))));
  }
};
struct Scale {
  Vec<float> x;
  float factor;
  SEEKSIM_BODY void operator()(Index, Index i) const { x[i] = FloatOps::mul(x[i], factor); }
};
// For values in 16 bits: widened, multiplied, rounded.
template <class T>
struct ScaleStored {
  Vec<T> x;
  float factor;
  SEEKSIM_BODY void operator()(Index, Index i) const { x[i] = from_float<T>(FloatOps::mul(as_float(x[i]), factor)); }
};
struct FillBits {
  Vec<float> x;
  std::uint32_t bits;
  SEEKSIM_BODY void operator()(Index, Index i) const { reinterpret_cast<std::uint32_t*>(x.data)[i] = bits; }
};
template <class From, class To>
struct Convert {
  Vec<const From> x;
  Vec<To> y;
  SEEKSIM_BODY void operator()(Index, Index i) const { y[i] = from_float<To>(as_float(x[i])); }
};
template <class T>
struct RoundThrough {
  Vec<float> x;
  SEEKSIM_BODY void operator()(Index, Index i) const { x[i] = rounded_to<T>(x[i]); }
};
struct LogitScale {
  Mat<const float> raw;
  Vec<const float> scale;
  Mat<float> logits;
  SEEKSIM_BODY void operator()(Index r, Index c) const { logits(r, c) = FloatOps::mul(raw(r, c), scale[0]); }
};

// ---- random numbers ----

SEEKSIM_HD std::uint32_t philox_word(std::uint32_t element, std::uint32_t sample, std::uint32_t op, std::uint32_t step,
                                     std::uint64_t key, int word) {
  std::uint32_t c[4] = {element, sample, op, step};
  philox_body<OneCounter>(c, static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
  const std::uint32_t low = word == 0 ? c[0] : c[1], high = word == 2 ? c[2] : c[3];
  return word < 2 ? low : high;
}
// Element e of a sample after dropout (dropout.h has the numbering).
SEEKSIM_HD float dropped_out(const Dropout& drop, std::uint32_t sample, Index e, float x) {
  const std::uint32_t block = static_cast<std::uint32_t>(e / 64 * 16 + e % 16);
  const std::uint32_t word =
      philox_word(block, sample, drop.op, drop.step, drop.key, static_cast<int>(e % 64 / 16)) >> 8;
  const float value = FloatOps::mul(x, drop.factor);
  return word >= drop.threshold ? value : 0.0F;
}
template <class T>
struct DropOut {
  Dropout drop;
  Index tokens, first_token;
  Mat<const T> x;
  Mat<T> y;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    const auto sample = drop.first_sample + static_cast<std::uint32_t>(r / tokens);
    const Index e = (first_token + r % tokens) * x.cols + c;
    y(r, c) = from_float<T>(dropped_out(drop, sample, e, as_float(x(r, c))));
  }
};
struct FillNormal {
  Vec<float> out;
  std::uint32_t op;
  std::uint64_t first;
  float stddev;
  std::uint64_t key;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    const std::uint64_t element = first + static_cast<std::uint64_t>(i), block = element / 4;
    const std::uint32_t word = philox_word(static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                           op, kBeforeTraining, key, static_cast<int>(element % 4));
    out[i] = FloatOps::mul(math::normal_quantile<FloatOps>(word >> 8), stddev);
  }
};

#include "kernels/cuda/optimizers.inl"

// ---- selections and small sums, an element a thread ----

template <class T>
struct EmbeddingForward {
  Vec<const std::int32_t> tokens;
  Index tokens_per_sample, vocabulary, first;
  Mat<const T> wte, wpe;
  Mat<T> x;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    for (Index r = block.y(); r < x.rows; r += block.blocks_y()) {
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index c = block.x() * kThreads + t;
        if (c >= x.cols) return;
        const Index token = tokens[r], row = token - first;
        Block::demand(token >= 0 && token < vocabulary);
        if (row < 0 || row >= wte.rows) {
          x(r, c) = from_float<T>(not_a_number());
        } else if (wpe.data != nullptr) {
          x(r, c) = from_float<T>(FloatOps::add(as_float(wte(row, c)), as_float(wpe(r % tokens_per_sample, c))));
        } else {
          x(r, c) = wte(row, c);
        }
      });
    }
  }
  static constexpr int kThreads = 256;
};

template <class T>
struct SelectRows {
  static constexpr int kThreads = 256;
  Vec<const std::int32_t> tokens;
  Index vocabulary, rows_of_way;
  Mat<const T> rows;
  Mat<T> out;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    for (Index r = block.y(); r < out.rows; r += block.blocks_y()) {
      block.threads([&](int t) SEEKSIM_PHASE {
        const Index c = block.x() * kThreads + t;
        if (c >= out.cols) return;
        Block::demand(tokens[r] >= 0 && tokens[r] < vocabulary);
        out(r, c) = rows(tokens[r] / rows_of_way, r * out.cols + c);
      });
    }
  }
};

template <class T>
struct AddWays {
  Mat<const float> nodes;
  Vec<const T> bias;
  Mat<T> y;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    Counter<4> ways;
    for (Index w = 0; w < nodes.rows; ++w) ways.push(nodes(w, r * y.cols + c));
    float sum = ways.finish();
    if (bias.n > 0) sum = FloatOps::add(sum, as_float(bias[c]));
    y(r, c) = from_float<T>(sum);
  }
};
struct AddSamples {
  Mat<const float> nodes;
  Index samples;
  Vec<float> out;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    Counter<kDeep> all;
    for (Index s = 0; s < samples; ++s) {
      Counter<4> ways;
      for (Index w = 0; w < nodes.rows; ++w) ways.push(nodes(w, s * out.n + i));
      all.push(ways.finish());
    }
    out[i] = all.finish();
  }
};
struct MaxOverWays {
  Mat<const float> values;
  Vec<float> out;
  SEEKSIM_BODY void operator()(Index, Index r) const {
    float max = values(0, r);
    for (Index w = 1; w < values.rows; ++w) max = values(w, r) > max ? values(w, r) : max;
    out[r] = max;
  }
};

// ---- trees ----

struct TreeAdd {
  Vec<const float> left, right;
  Vec<float> out;
  SEEKSIM_BODY void operator()(Index, Index i) const { out[i] = FloatOps::add(left[i], right[i]); }
};

// A whole binary tree over parts, all of it in registers: TreeParts keeps its stack in memory, which takes as long as
// reading the parts does.
template <int kParts>
struct WholeTree {
  const float* parts[kParts];
  Vec<float> out;
  float factor;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    float v[kParts];
    SEEKSIM_UNROLLED
    for (int p = 0; p < kParts; ++p) v[p] = parts[p][i];
    SEEKSIM_UNROLLED
    for (int w = 1; w < kParts; w *= 2) {
      SEEKSIM_UNROLLED
      for (int p = 0; p + w < kParts; p += 2 * w) v[p] = FloatOps::add(v[p], v[p + w]);
    }
    out[i] = factor == 1.0F ? v[0] : FloatOps::mul(v[0], factor);
  }
};

// Parts in ascending order of leaves. After part p is pushed, the two topmost operands are added adds[p] times. The
// arrays are passed by value, as kernels take their arguments, so there are at most kMost parts.
template <int kMost>
struct TreeParts {
  const float* parts[kMost];
  std::uint8_t adds[kMost];
  Index count;
  Vec<float> out;
  float factor;
  SEEKSIM_BODY void operator()(Index, Index i) const {
    float stack[kDeep];
    int top = 0;
    for (Index p = 0; p < count; ++p) {
      float v = parts[p][i];
      for (int a = 0; a < adds[p]; ++a) v = FloatOps::add(stack[--top], v);
      stack[top++] = v;
    }
    out[i] = factor == 1.0F ? stack[0] : FloatOps::mul(stack[0], factor);
  }
};
