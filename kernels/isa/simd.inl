// Vectors of the instruction set that this file is compiled for: SimdOps has FloatOps' names for kW lanes at once.
// GCC's vector operators do + - * / and comparisons; each is one IEEE operation a lane. Included inside the anonymous
// namespace of an isa/*_<set>.cpp, before storage.inl and lanes.inl.

#define SEEKSIM_FN static inline __attribute__((always_inline))
#define SEEKSIM_UNROLL _Pragma("GCC unroll 32")
// Lambdas that take or return vectors are inlined at every optimisation level.
#define SEEKSIM_LAMBDA __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kW = 16;
#elif defined(__AVX2__)
constexpr int kW = 8;
#else
constexpr int kW = 1;
#endif

#if defined(__AVX2__)
typedef float Vf __attribute__((vector_size(kW * 4), may_alias));
typedef std::uint32_t Vu __attribute__((vector_size(kW * 4), may_alias));
typedef std::int32_t Vi __attribute__((vector_size(kW * 4), may_alias));
// The same for addresses that need not be aligned.
typedef float VfAny __attribute__((vector_size(kW * 4), may_alias, aligned(4)));

SEEKSIM_FN Vf load(const float* p) { return *reinterpret_cast<const VfAny*>(p); }
SEEKSIM_FN void store(float* p, Vf x) { *reinterpret_cast<VfAny*>(p) = x; }

struct SimdOps {
  using F = Vf;
  using U = Vu;
  using I = Vi;
  SEEKSIM_FN F add(F a, F b) { return a + b; }
  SEEKSIM_FN F sub(F a, F b) { return a - b; }
  SEEKSIM_FN F mul(F a, F b) { return a * b; }
  SEEKSIM_FN F div(F a, F b) { return a / b; }
#if defined(__AVX512F__)
  SEEKSIM_FN F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  SEEKSIM_FN F sqrt(F a) { return _mm512_sqrt_ps(a); }
  SEEKSIM_FN F from_int(I a) { return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(a)); }
  SEEKSIM_FN F lit(float a) { return _mm512_set1_ps(a); }
  SEEKSIM_FN U ulit(std::uint32_t a) { return reinterpret_cast<U>(_mm512_set1_epi32(static_cast<int>(a))); }
#else
  SEEKSIM_FN F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  SEEKSIM_FN F sqrt(F a) { return _mm256_sqrt_ps(a); }
  SEEKSIM_FN F from_int(I a) { return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(a)); }
  SEEKSIM_FN F lit(float a) { return _mm256_set1_ps(a); }
  SEEKSIM_FN U ulit(std::uint32_t a) { return reinterpret_cast<U>(_mm256_set1_epi32(static_cast<int>(a))); }
#endif
  SEEKSIM_FN U bits(F a) { return reinterpret_cast<U>(a); }
  SEEKSIM_FN F from_bits(U a) { return reinterpret_cast<F>(a); }
  SEEKSIM_FN I as_int(U a) { return reinterpret_cast<I>(a); }
  SEEKSIM_FN U as_unsigned(I a) { return reinterpret_cast<U>(a); }
};

SEEKSIM_FN Vf splat(float x) { return SimdOps::lit(x); }

#if defined(__AVX512F__)
// Load and store of the first n lanes (0 <= n <= kW). The others read as +0 and are not touched in memory.
SEEKSIM_FN __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1U << n) - 1U); }
SEEKSIM_FN Vf load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
SEEKSIM_FN void store_first(float* p, int n, Vf x) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
SEEKSIM_FN Vf take_first(int n, Vf x, Vf otherwise) { return _mm512_mask_blend_ps(first_lanes(n), otherwise, x); }
#else
SEEKSIM_FN __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SEEKSIM_FN Vf load_first(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
SEEKSIM_FN void store_first(float* p, int n, Vf x) { _mm256_maskstore_ps(p, first_lanes(n), x); }
SEEKSIM_FN Vf take_first(int n, Vf x, Vf otherwise) {
  return _mm256_blendv_ps(otherwise, x, _mm256_castsi256_ps(first_lanes(n)));
}
#endif

// Sums the lanes by halves: l + (l + kW/2), and so on down to one (the end of F4).
SEEKSIM_FN float fold_lanes(Vf v) {
#if defined(__AVX512F__)
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
  const __m256 half = v;
#endif
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  x = _mm_add_ss(x, _mm_shuffle_ps(x, x, 1));
  return _mm_cvtss_f32(x);
}

// The largest lane; none is a NaN.
SEEKSIM_FN float largest_lane(Vf v) {
#if defined(__AVX512F__)
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
  const __m256 half = v;
#endif
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  x = _mm_max_ss(x, _mm_shuffle_ps(x, x, 1));
  return _mm_cvtss_f32(x);
}

#else  // scalar: one lane
using Vf = float;
using Vu = std::uint32_t;
using SimdOps = FloatOps;
SEEKSIM_FN Vf load(const float* p) { return *p; }
SEEKSIM_FN void store(float* p, Vf x) { *p = x; }
SEEKSIM_FN Vf splat(float x) { return x; }
SEEKSIM_FN Vf load_first(const float* p, int n) { return n > 0 ? *p : 0.0F; }
SEEKSIM_FN void store_first(float* p, int n, Vf x) {
  if (n > 0) *p = x;
}
SEEKSIM_FN Vf take_first(int n, Vf x, Vf otherwise) { return n > 0 ? x : otherwise; }
SEEKSIM_FN float fold_lanes(Vf v) { return v; }
SEEKSIM_FN float largest_lane(Vf v) { return v; }
#endif
