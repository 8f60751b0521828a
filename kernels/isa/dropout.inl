// Dropout's random words and their use, in whole vectors. dropout.h says which word belongs to which element. Included
// after lanes.inl.

constexpr int kDropGroup = 64;  // elements that 16 Philox blocks serve

#if defined(__AVX2__)
// kW counters at once.
struct VectorOfCounters {
  using U = Vu;
  SEEKSIM_FN U ulit(std::uint32_t a) { return SimdOps::ulit(a); }
  SEEKSIM_FN void multiply(U a, std::uint32_t b, U& high, U& low) {
    // The instruction multiplies every other lane, to 64 bits.
#if defined(__AVX512F__)
    const __m512i x = reinterpret_cast<__m512i>(a), y = reinterpret_cast<__m512i>(ulit(b));
    const __m512i even = _mm512_mul_epu32(x, y), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), y);
    high = reinterpret_cast<U>(_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd));
    low = reinterpret_cast<U>(_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32)));
#else
    const __m256i x = reinterpret_cast<__m256i>(a), y = reinterpret_cast<__m256i>(ulit(b));
    const __m256i even = _mm256_mul_epu32(x, y), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), y);
    high = reinterpret_cast<U>(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA));
    low = reinterpret_cast<U>(_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA));
#endif
  }
};
#else
using VectorOfCounters = OneCounter;
#endif

constexpr std::uint32_t kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The words of elements [64 group, 64 group + 64) of a sample.
void dropout_words(const Dropout& drop, std::uint32_t sample, Index group, std::uint32_t* words) {
  Vu lanes;
  __builtin_memcpy(&lanes, kLaneNumbers, sizeof lanes);
  for (int block = 0; block < 16; block += kW) {
    Vu c[4] = {lanes + VectorOfCounters::ulit(static_cast<std::uint32_t>(group * 16 + block)),
               VectorOfCounters::ulit(sample), VectorOfCounters::ulit(drop.op), VectorOfCounters::ulit(drop.step)};
    philox_body<VectorOfCounters>(c, static_cast<std::uint32_t>(drop.key), static_cast<std::uint32_t>(drop.key >> 32));
    for (int w = 0; w < 4; ++w) __builtin_memcpy(words + w * 16 + block, &c[w], sizeof c[w]);
  }
}

// y[i] = dropout of x[i], for elements first + i of the sample. y may be x.
template <class T>
SEEKSIM_FN void drop_out(const Dropout& drop, std::uint32_t sample, Index first, const T* x, T* y, Index n) {
  std::uint32_t words[kDropGroup + kW] = {};  // a whole vector may be read at any element
  const Vf factor = splat(drop.factor), zero = splat(0.0F);
  const auto threshold = SimdOps::as_int(SimdOps::ulit(drop.threshold));
  for (Index done = 0; done < n;) {
    const Index at = (first + done) % kDropGroup, size = min_of(kDropGroup - at, n - done);
    dropout_words(drop, sample, (first + done) / kDropGroup, words);
    for_vectors(size, [&](Index i, auto lanes) SEEKSIM_LAMBDA {
      Vu word;
      __builtin_memcpy(&word, words + at + i, sizeof word);
      const auto kept = SimdOps::as_int(word >> 8) >= threshold;
      const Vf value = SimdOps::mul(load_lanes(x + done + i, lanes), factor);
      store_lanes(y + done + i, lanes, kept ? value : zero);
    });
    done += size;
  }
}
