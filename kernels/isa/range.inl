// The range of a tensor (range.h). Included by elements_*.cpp after elements.inl.

template <class T>
constexpr float kSmallestNormal = std::is_same_v<T, fp16> ? 0x1p-14F : 0x1p-126F;

// The contribution of one block of at most kBlock elements. Counts are kept in lanes; lanes past the end count nothing.
struct BlockRange {
  Vf min = splat(__builtin_inff()), max = splat(-__builtin_inff());
  Vu zeros = SimdOps::ulit(0), subnormals = SimdOps::ulit(0), infinities = SimdOps::ulit(0), nans = SimdOps::ulit(0);

  SEEKSIM_FN float least(Vf values) {
    float lane[kW];
    store(lane, values);
    float m = lane[0];
    for (int l = 1; l < kW; ++l) m = lane[l] < m ? lane[l] : m;
    return m;
  }
};

SEEKSIM_FN Vf magnitude(Vf x) { return SimdOps::from_bits(SimdOps::bits(x) & SimdOps::ulit(0x7fffffffU)); }

// Elements as they count for minimum, maximum and sum: +0 for -0, and `otherwise` for NaN and infinities.
SEEKSIM_FN Vf finite_or(Vf x, Vf otherwise) {
  return magnitude(x) < splat(__builtin_inff()) ? SimdOps::add(x, splat(0.0F)) : otherwise;
}

template <class T>
SEEKSIM_FN void add_block(const T* x, Index n, TensorRange& range) {
  using V = SimdOps;
  BlockRange b;
  const Vf infinity = splat(__builtin_inff()), normal = splat(kSmallestNormal<T>), zero = splat(0.0F);
  const Vu one = V::ulit(1), none = V::ulit(0);
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    // Lanes past the end get a value that no count, minimum or maximum takes.
    const Vf v = keep_lanes(lanes, load_lanes(x + i, lanes), splat(1.0F));
    const Vf a = magnitude(v);
    b.zeros += a == zero ? one : none;
    b.subnormals += a < normal ? one : none;  // and zeros, which are taken off below
    b.infinities += a == infinity ? one : none;
    b.nans += a != a ? one : none;
    const Vf low = finite_or(v, infinity), high = finite_or(v, -infinity);
    b.min = keep_lanes(lanes, low < b.min ? low : b.min, b.min);
    b.max = keep_lanes(lanes, high > b.max ? high : b.max, b.max);
  });
  const Index zeros = sum_of_lanes(b.zeros);
  range.zeros += zeros;
  range.subnormals += sum_of_lanes(b.subnormals) - zeros;
  range.infinities += sum_of_lanes(b.infinities);
  range.nans += sum_of_lanes(b.nans);
  const float low = BlockRange::least(b.min), high = -BlockRange::least(-b.max);
  range.min = low < range.min ? low : range.min;
  range.max = high > range.max ? high : range.max;
}

template <class T>
TensorRange range_body(Mat<const T> x) {
  TensorRange range;
  range.n = x.rows * x.cols;
  float stack[64];  // F3 over the blocks
  int top = 0;
  Index count = 0;
  for (Index r = 0; r < x.rows; ++r) {
    for (Index begin = 0; begin < x.cols; begin += kBlock) {
      const T* const block = x.row(r) + begin;
      const Index n = min_of(kBlock, x.cols - begin);
      const Index bad_before = range.infinities + range.nans;
      add_block(block, n, range);
      if (range.first_nonfinite < 0 && range.infinities + range.nans > bad_before) {
        Index c = 0;
        while (is_finite(block[c])) ++c;
        range.first_nonfinite = r * x.cols + begin + c;
      }
      float sum = lane_sum(n, [block](Vf s, Index i, auto lanes) SEEKSIM_LAMBDA {
        return SimdOps::add(s, finite_or(load_lanes(block + i, lanes), splat(0.0F)));
      });
      for (Index c = count++; c & 1; c >>= 1) sum = FloatOps::add(stack[--top], sum);
      stack[top++] = sum;
    }
  }
  float sum = top > 0 ? stack[--top] : 0.0F;
  while (top > 0) sum = FloatOps::add(stack[--top], sum);
  const Index finite = range.n - range.infinities - range.nans;
  if (finite > 0) range.mean = FloatOps::div(sum, static_cast<float>(finite));
  return range;
}
