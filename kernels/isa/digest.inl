// Digests of blocks (digest.h). XXH3 gives one value with every set of vectors; its header takes those of this file's
// flags. Included by elements_*.cpp after elements.inl.

// Per type: an element's bits, its infinity, and the pattern that every NaN is read as.
template <class T>
struct Pattern {
  using Bits = std::uint16_t;
  static constexpr Bits kInfinity = std::is_same_v<T, bf16> ? 0x7f80 : 0x7c00;
  static constexpr Bits kMagnitude = 0x7fff;  // and the canonical NaN
};
template <>
struct Pattern<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kInfinity = 0x7f800000U;
  static constexpr Bits kMagnitude = 0x7fffffffU;
};

// x: up to kBlock elements. They are hashed where they lie, unless there is a NaN.
template <class T>
std::uint64_t block_digest_body(const T* x, Index n) {
  using P = Pattern<T>;
  using Bits = typename P::Bits;
  const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
  const auto magnitude = [x](Index i) {
    Bits b;
    __builtin_memcpy(&b, x + i, sizeof b);
    return static_cast<Bits>(b & P::kMagnitude);
  };
  Bits largest = 0;
  for (Index i = 0; i < n; ++i) largest = magnitude(i) > largest ? magnitude(i) : largest;
  if (largest <= P::kInfinity) return XXH3_64bits(x, bytes);
  Bits bits[kBlock];
  __builtin_memcpy(bits, x, bytes);
  for (Index i = 0; i < n; ++i) bits[i] = magnitude(i) > P::kInfinity ? P::kMagnitude : bits[i];
  return XXH3_64bits(bits, bytes);
}
