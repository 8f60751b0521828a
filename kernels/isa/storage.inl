// The 16-bit storage types (R8): a load widens exactly, a store rounds once, to nearest even, with every NaN stored as
// 0x7fff. So one text serves tensors of float, bf16 and fp16: what it computes is always the fp32 sequence. Included
// after simd.inl.
//
// bf16 is converted by integer operations on every set, because the hardware's conversion flushes denormals. fp16 is
// converted by the hardware where there are vectors (exact, MXCSR has no effect), but for NaNs, made canonical here.

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

// Vh: kW values of 16 bits.
#if defined(__AVX512F__)
using Vh = __m256i;
SEEKSIM_FN Vh load_half(const std::uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
SEEKSIM_FN Vh load_half_first(const std::uint16_t* p, int n) { return _mm256_maskz_loadu_epi16(first_lanes(n), p); }
SEEKSIM_FN void store_half(std::uint16_t* p, Vh h) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h); }
SEEKSIM_FN void store_half_first(std::uint16_t* p, int n, Vh h) { _mm256_mask_storeu_epi16(p, first_lanes(n), h); }
SEEKSIM_FN Vu to_lanes(Vh h) { return reinterpret_cast<Vu>(_mm512_cvtepu16_epi32(h)); }
SEEKSIM_FN Vh from_lanes(Vu u) { return _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(u)); }
SEEKSIM_FN Vf widen_fp16(Vh h) { return _mm512_cvtph_ps(h); }
SEEKSIM_FN Vh narrow_fp16(Vf x) {
  const __m256i h = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_mask_mov_epi16(h, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm256_set1_epi16(0x7fff));
}
#elif defined(__AVX2__)
using Vh = __m128i;
SEEKSIM_FN Vh load_half(const std::uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
// Not inlined: rare, and long enough to weigh where lane_sum is unrolled.
__attribute__((noinline)) Vh load_half_first(const std::uint16_t* p, int n) {
  alignas(16) std::uint16_t part[kW] = {};
  for (int i = 0; i < n; ++i) part[i] = p[i];
  return load_half(part);
}
SEEKSIM_FN void store_half(std::uint16_t* p, Vh h) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), h); }
__attribute__((noinline)) void store_half_first(std::uint16_t* p, int n, Vh h) {
  alignas(16) std::uint16_t part[kW];
  store_half(part, h);
  for (int i = 0; i < n; ++i) p[i] = part[i];
}
SEEKSIM_FN Vu to_lanes(Vh h) { return reinterpret_cast<Vu>(_mm256_cvtepu16_epi32(h)); }
SEEKSIM_FN Vh from_lanes(Vu u) {
  const __m256i v = reinterpret_cast<__m256i>(u);
  return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
SEEKSIM_FN Vf widen_fp16(Vh h) { return _mm256_cvtph_ps(h); }
SEEKSIM_FN Vh narrow_fp16(Vf x) {
  const __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m128i nan16 = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
  return _mm_blendv_epi8(h, _mm_set1_epi16(0x7fff), nan16);
}
#else
using Vh = std::uint16_t;
SEEKSIM_FN Vh load_half(const std::uint16_t* p) { return *p; }
SEEKSIM_FN Vh load_half_first(const std::uint16_t* p, int n) { return n > 0 ? *p : Vh{0}; }
SEEKSIM_FN void store_half(std::uint16_t* p, Vh h) { *p = h; }
SEEKSIM_FN void store_half_first(std::uint16_t* p, int n, Vh h) {
  if (n > 0) *p = h;
}
SEEKSIM_FN Vu to_lanes(Vh h) { return h; }
SEEKSIM_FN Vh from_lanes(Vu u) { return static_cast<Vh>(u); }
SEEKSIM_FN Vf widen_fp16(Vh h) { return cast::from_fp16<SimdOps>(to_lanes(h)); }
SEEKSIM_FN Vh narrow_fp16(Vf x) { return from_lanes(cast::to_fp16<SimdOps>(x)); }
#endif

template <class T>
SEEKSIM_FN Vf widen(Vh h) {
  if constexpr (std::is_same_v<T, bf16>) {
    return cast::from_bf16<SimdOps>(to_lanes(h));
  } else {
    return widen_fp16(h);
  }
}
template <class T>
SEEKSIM_FN Vh narrow(Vf x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return from_lanes(cast::to_bf16<SimdOps>(x));
  } else {
    return narrow_fp16(x);
  }
}

// The names of simd.inl for 16-bit memory.
template <class T>
SEEKSIM_FN Vf load(const T* p) {
  return widen<T>(load_half(&p->bits));
}
template <class T>
SEEKSIM_FN Vf load_first(const T* p, int n) {
  return widen<T>(load_half_first(&p->bits, n));
}
template <class T>
SEEKSIM_FN void store(T* p, Vf x) {
  store_half(&p->bits, narrow<T>(x));
}
template <class T>
SEEKSIM_FN void store_first(T* p, int n, Vf x) {
  store_half_first(&p->bits, n, narrow<T>(x));
}

// The value that a store of T followed by a load gives.
template <class T>
SEEKSIM_FN Vf rounded_to(Vf x) {
  if constexpr (kIsHalf<T>) {
    return widen<T>(narrow<T>(x));
  } else {
    return x;
  }
}

// One element.
SEEKSIM_FN float as_float(float x) { return x; }
SEEKSIM_FN float as_float(bf16 x) { return cast::from_bf16<FloatOps>(x.bits); }
SEEKSIM_FN float as_float(fp16 x) { return cast::from_fp16<FloatOps>(x.bits); }
template <class T>
SEEKSIM_FN T from_float(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return {static_cast<std::uint16_t>(cast::to_bf16<FloatOps>(x))};
  } else if constexpr (std::is_same_v<T, fp16>) {
    return {static_cast<std::uint16_t>(cast::to_fp16<FloatOps>(x))};
  } else {
    return x;
  }
}
