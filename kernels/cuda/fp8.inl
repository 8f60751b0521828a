// Casts to 8-bit formats (fp8.h), in isa/fp8.inl's arithmetic. Included after tables.inl.

struct Fp8Bits {
  std::uint32_t least_normal, up;
  float largest;
  static SEEKSIM_BODY Fp8Bits of(Fp8 format) {
    return format == Fp8::e4m3 ? Fp8Bits{(127U - 6U) << 23, 20U << 23, 448.0F}
                               : Fp8Bits{(127U - 14U) << 23, 21U << 23, 57344.0F};
  }
};
constexpr std::uint32_t kInfinityBits = 0x7f800000U, kNanBits = 0x7fffffffU;

SEEKSIM_BODY std::uint32_t magnitude_bits(float x) { return FloatOps::bits(x) & 0x7fffffffU; }

// x, times scale, rounded to the format.
SEEKSIM_BODY float fp8_rounded(const Fp8Bits& f, float x, float scale, bool saturates) {
  using V = FloatOps;
  if (magnitude_bits(x) >= kInfinityBits) return V::from_bits(kNanBits);
  const float scaled = V::from_bits(magnitude_bits(V::mul(x, scale)));
  const float a = saturates && scaled > f.largest ? f.largest : scaled;
  const std::uint32_t power = V::bits(a) & kInfinityBits;
  const float up = V::from_bits((power > f.least_normal ? power : f.least_normal) + f.up);
  const float rounded = V::sub(V::add(a, up), up);
  if (rounded > f.largest) return V::from_bits(kNanBits);
  return V::from_bits(V::bits(rounded) | (V::bits(x) & 0x80000000U));
}

template <class T>
struct CastFp8 {
  Fp8Cast cast;
  float inverse;
  Mat<const T> x;
  Mat<float> y;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    const float q = fp8_rounded(Fp8Bits::of(cast.format), as_float(x(r, c)), cast.scale, cast.saturates);
    y(r, c) = FloatOps::mul(q, inverse);
  }
};

// Bits of the largest of a block's threads, to thread 0; those of NaN are above infinity's.
template <class Block, int kThreads>
SEEKSIM_BODY void fold_found(Block& block, std::uint32_t* found) {
  for (int w = kThreads / 2; w > 0; w /= 2) {
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t < w) found[t] = found[t] > found[t + w] ? found[t] : found[t + w];
    });
  }
}
// Largest magnitudes, as bits: of so many rows, a block each.
template <class T>
struct Magnitudes {
  static constexpr int kThreads = 256;
  Mat<const T> x;
  Index rows;
  std::uint32_t* out;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    std::uint32_t* const found = block.template shared<std::uint32_t, kThreads>();
    const Index first = block.x() * rows, n = least(rows, x.rows - first) * x.cols;
    block.threads([&](int t) SEEKSIM_PHASE {
      std::uint32_t most = 0;
      for (Index i = t; i < n; i += kThreads) {
        const std::uint32_t a = magnitude_bits(as_float(x(first + i / x.cols, i % x.cols)));
        most = a > most ? a : most;
      }
      found[t] = most;
    });
    fold_found<Block, kThreads>(block, found);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t == 0) out[block.x()] = found[0];
    });
  }
};
// The largest of all parts and of what out holds already.
struct FoldMagnitudes {
  static constexpr int kThreads = 256;
  const std::uint32_t* parts;
  Index n;
  float* out;
  template <class Block>
  SEEKSIM_BODY void operator()(Block& block) const {
    std::uint32_t* const found = block.template shared<std::uint32_t, kThreads>();
    block.threads([&](int t) SEEKSIM_PHASE {
      std::uint32_t most = FloatOps::bits(*out);
      for (Index i = t; i < n; i += kThreads) most = parts[i] > most ? parts[i] : most;
      found[t] = most;
    });
    fold_found<Block, kThreads>(block, found);
    block.threads([&](int t) SEEKSIM_PHASE {
      if (t == 0) *out = FloatOps::from_bits(found[0] < kInfinityBits ? found[0] : kInfinityBits);
    });
  }
};

// A scale from the largest magnitude: fp8_scale of fp8.cpp.
SEEKSIM_BODY float scale_of(const Fp8Rule& rule, std::uint32_t amax) {
  using V = FloatOps;
  if (amax == 0 || amax >= kInfinityBits) return 1.0F;
  float scale = V::div(Fp8Bits::of(rule.format).largest, V::from_bits(amax));
  for (int i = 0; i < rule.margin; ++i) scale = V::mul(scale, 0.5F);
  scale = scale > 0x1.fffffep127F ? 0x1.fffffep127F : scale;
  if (rule.power_2_scale) scale = V::from_bits(V::bits(scale) & kInfinityBits);
  return scale < 0x1p-126F ? 0x1p-126F : scale;
}
template <class T>
struct CastFp8Samples {
  Fp8Rule rule;
  Index rows;
  const std::uint32_t* amaxes;  // of each sample
  Mat<const T> x;
  Mat<float> y;
  SEEKSIM_BODY void operator()(Index r, Index c) const {
    const float scale = scale_of(rule, amaxes[r / rows]);
    const float q = fp8_rounded(Fp8Bits::of(rule.format), as_float(x(r, c)), scale, true);
    y(r, c) = FloatOps::mul(q, FloatOps::div(1.0F, scale));
  }
};

// One thread a block of 32 elements, of row or column `line`; `number` counts the blocks of a line.
template <class T>
struct CastMx {
  Fp8 format;
  bool down;
  Index segment, of_segment;  // elements and blocks of a segment
  Mat<const T> x;
  Mat<float> y;
  SEEKSIM_BODY void operator()(Index line, Index number) const {
    const Index n = down ? x.rows : x.cols, begin = number / of_segment * segment;
    const Index first = begin + number % of_segment * kMxBlock, end = least(least(begin + segment, n), first + kMxBlock);
    const auto at = [&](auto m, Index i) -> decltype(auto) { return down ? m(i, line) : m(line, i); };
    std::uint32_t most = 0;
    for (Index i = first; i < end; ++i) {
      const std::uint32_t a = magnitude_bits(as_float(at(x, i)));
      most = a > most ? a : most;
    }
    const std::uint32_t above = format == Fp8::e4m3 ? 8U : 15U;
    const std::uint32_t reached = (most >> 23) + ((most & 0x7fffffU) > 0x600000U ? 1U : 0U);
    const std::uint32_t e = reached > above ? reached - above : 0U;  // biased; 0 is 2^-127
    const bool finite = most < kInfinityBits;
    const float before = FloatOps::from_bits(finite ? (254U - e) << 23 : kNanBits);
    const float after = FloatOps::from_bits(finite ? (e > 0U ? e << 23 : 1U << 22) : kNanBits);
    for (Index i = first; i < end; ++i)
      at(y, i) = FloatOps::mul(fp8_rounded(Fp8Bits::of(format), as_float(at(x, i)), before, true), after);
  }
};

template <class Launch, class T>
struct Casts {
  static void cast(Lane lane, const Fp8Cast& how, Mat<const T> x, Mat<float> y) {
    Launch launch(lane);
    each_of(launch, CastFp8<T>{how, 1.0F / how.scale, x, y}, x, y);
  }
  // Of each `rows` rows.
  static std::uint32_t* magnitudes(Launch& launch, Mat<const T> x, Index rows) {
    static_assert(sizeof(std::uint32_t) == sizeof(float));
    const Index parts = blocks_for(x.rows, rows);
    auto* const found = reinterpret_cast<std::uint32_t*>(launch.scratch(parts));
    launch(Grid{parts, 1}, Magnitudes<T>{x, rows, found});
    return found;
  }
  static void cast_samples(Lane lane, const Fp8Rule& rule, Index rows, Mat<const T> x, Mat<float> y) {
    Launch launch(lane);
    if (x.rows == 0 || x.cols == 0) return;
    each(launch, x.rows, x.cols, CastFp8Samples<T>{rule, rows, magnitudes(launch, x, rows), x, y});
  }
  static void cast_mx(Lane lane, Fp8 format, bool down, Index segment, Mat<const T> x, Mat<float> y) {
    Launch launch(lane);
    const Index n = down ? x.rows : x.cols, lines = down ? x.cols : x.rows;
    if (n == 0 || lines == 0) return;
    if (segment <= 0) segment = n;
    const Index of_segment = blocks_for(segment, kMxBlock), rest = n % segment;
    const Index blocks = n / segment * of_segment + blocks_for(rest, kMxBlock);
    each(launch, lines, blocks, CastMx<T>{format, down, segment, of_segment, x, y});
  }
  static void fold_magnitude(Lane lane, Mat<const T> x, Vec<float> out) {
    Launch launch(lane);
    if (x.rows == 0 || x.cols == 0) return;
    constexpr Index kParts = 1024;
    const Index rows = blocks_for(x.rows, least(x.rows, kParts));
    const std::uint32_t* const parts = magnitudes(launch, x, rows);
    launch(Grid{1, 1}, FoldMagnitudes{parts, blocks_for(x.rows, rows), out.data});
  }
  static DeviceCasts<T> table() { return {cast, cast_samples, cast_mx, fold_magnitude}; }
};
