// Casts to 8-bit formats (fp8.h). Included by elements_*.cpp after range.inl.

// Bits of a format: the power of two of its least normal value; how far above a value's own power of two a number lies
// whose last bit is the last that the format has there.
struct Fp8Bits {
  std::uint32_t least_normal;
  std::uint32_t up;
  float largest;
};
SEEKSIM_FN Fp8Bits fp8_bits(Fp8 format) {
  return format == Fp8::e4m3 ? Fp8Bits{(127U - 6U) << 23, 20U << 23, 448.0F}
                             : Fp8Bits{(127U - 14U) << 23, 21U << 23, 57344.0F};
}

// x, times scale, rounded to the format. saturates: else what is beyond it becomes NaN.
SEEKSIM_FN Vf fp8_rounded(const Fp8Bits& f, Vf x, Vf scale, bool saturates) {
  const Vu sign = V::bits(x) & V::ulit(0x80000000U);
  const Vf scaled = magnitude(V::mul(x, scale)), most = splat(f.largest);
  const Vf a = saturates ? (scaled > most ? most : scaled) : scaled;
  const Vu power = V::bits(a) & V::ulit(0x7f800000U), least = V::ulit(f.least_normal);
  const Vf up = V::from_bits((power > least ? power : least) + V::ulit(f.up));
  const Vf rounded = V::sub(V::add(a, up), up);
  const Vf nan = V::from_bits(V::ulit(0x7fffffffU));
  const Vf value = rounded > most ? nan : V::from_bits(V::bits(rounded) | sign);
  return magnitude(x) < splat(__builtin_inff()) ? value : nan;
}

template <class T>
void fp8_cast_body(const Fp8Cast& cast, const T* x, float* y, Index n) {
  const Fp8Bits f = fp8_bits(cast.format);
  const Vf scale = splat(cast.scale), inverse = splat(1.0F / cast.scale);
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    store_lanes(y + i, lanes, V::mul(fp8_rounded(f, load_lanes(x + i, lanes), scale, cast.saturates), inverse));
  });
}

// Bits of the largest magnitude; those of NaN and infinity are above all others.
template <class T>
SEEKSIM_FN Vu fold_bits(Vu most, const T* x, Index n) {
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    const Vu a = V::bits(magnitude(keep_lanes(lanes, load_lanes(x + i, lanes), splat(0.0F))));
    most = a > most ? a : most;
  });
  return most;
}
SEEKSIM_FN std::uint32_t largest_lane(Vu values) {
  std::uint32_t lane[kW];
  __builtin_memcpy(lane, &values, sizeof lane);
  std::uint32_t most = lane[0];
  for (int l = 1; l < kW; ++l) most = lane[l] > most ? lane[l] : most;
  return most;
}

template <class T>
std::uint32_t magnitude_bits_body(const T* x, Index n) {
  return largest_lane(fold_bits(V::ulit(0), x, n));
}

// A block's scale, from the bits of its largest magnitude: of 2^e, the least one that the largest value of the format
// times it reaches. As what a value is multiplied by, and what its rounded value is.
struct MxScale {
  Vf before, after;
};
SEEKSIM_FN MxScale mx_scale(Fp8 format, Vu most) {
  const std::uint32_t above = format == Fp8::e4m3 ? 8U : 15U;  // exponent of the largest value, 1.75 times a power
  const Vu power = most >> 23;
  const Vu round_up = (most & V::ulit(0x7fffffU)) > V::ulit(0x600000U) ? V::ulit(1U) : V::ulit(0U);
  const Vu reached = power + round_up;
  const Vu e = reached > V::ulit(above) ? reached - V::ulit(above) : V::ulit(0U);  // biased; 0 is 2^-127
  const Vf after = e > V::ulit(0U) ? V::from_bits(e << 23) : splat(0x1p-127F);
  const Vf before = V::from_bits((V::ulit(254U) - e) << 23);
  const Vf nan = V::from_bits(V::ulit(0x7fffffffU));
  const auto finite = most < V::ulit(0x7f800000U);
  return {finite ? before : nan, finite ? after : nan};
}

// A block of consecutive elements.
template <class T>
void mx_row_body(Fp8 format, const T* x, float* y, Index n) {
  const Fp8Bits f = fp8_bits(format);
  const MxScale scale = mx_scale(format, V::ulit(largest_lane(fold_bits(V::ulit(0), x, n))));
  for_vectors(n, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
    store_lanes(y + i, lanes, V::mul(fp8_rounded(f, load_lanes(x + i, lanes), scale.before, true), scale.after));
  });
}

// Each column of x is a block.
template <class T>
void mx_columns_body(Fp8 format, Mat<const T> x, Mat<float> y) {
  const Fp8Bits f = fp8_bits(format);
  for_vectors(x.cols, [&](Index c, auto lanes) SEEKSIM_LAMBDA {
    Vu most = V::ulit(0);
    for (Index r = 0; r < x.rows; ++r) {
      const Vu a = V::bits(magnitude(load_lanes(x.row(r) + c, lanes)));
      most = a > most ? a : most;
    }
    const MxScale scale = mx_scale(format, most);
    for (Index r = 0; r < x.rows; ++r)
      store_lanes(y.row(r) + c, lanes,
                  V::mul(fp8_rounded(f, load_lanes(x.row(r) + c, lanes), scale.before, true), scale.after));
  });
}
