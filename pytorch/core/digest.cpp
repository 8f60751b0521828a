#include "pytorch/core/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "pytorch/core/number_formats.h"

namespace seeksim::pytorch {
namespace {

constexpr std::size_t kBlockBytes = 16384;  // checked, then hashed, while it is in the first cache

// Numbers as bits: `magnitude` takes the sign away and is the canonical NaN; from `infinity` on nothing is finite,
// above it is NaN. A format without infinities has the last magnitude below its NaN there.
template <class Word>
struct Bits {
  Word magnitude, infinity;
  bool infinity_is_finite = false;
};

template <class Word>
bool any_nonfinite(const std::byte* p, std::size_t n, Bits<Word> bits) {
  const Word least = Word(bits.infinity + (bits.infinity_is_finite ? 1 : 0));
  Word found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    Word w;
    std::memcpy(&w, p + i * sizeof w, sizeof w);
    found |= Word(Word(w & bits.magnitude) >= least ? 1 : 0);
  }
  return found != 0;
}

template <class Word>
void one_nan(std::byte* p, std::size_t n, Bits<Word> bits) {
  for (std::size_t i = 0; i < n; ++i) {
    Word w;
    std::memcpy(&w, p + i * sizeof w, sizeof w);
    if (Word(w & bits.magnitude) > bits.infinity) w = bits.magnitude;
    std::memcpy(p + i * sizeof w, &w, sizeof w);
  }
}

// Calls f with the bits of the numbers that the type is made of, where they are floating-point numbers.
template <class F>
void with_bits(DType type, F f) {
  switch (type) {
    case DType::fp32:
    case DType::complex64:
      return f(Bits<std::uint32_t>{kFloatMagnitude, kFloatInf});
    case DType::fp64:
    case DType::complex128:
      return f(Bits<std::uint64_t>{0x7fffffffffffffffU, 0x7ff0000000000000U});
    case DType::bf16:
      return f(Bits<std::uint16_t>{0x7fff, 0x7f80});
    case DType::fp16:
      return f(Bits<std::uint16_t>{0x7fff, 0x7c00});
    case DType::fp8_e5m2:
      return f(Bits<std::uint8_t>{0x7f, 0x7c});
    case DType::fp8_e4m3:
      return f(Bits<std::uint8_t>{0x7f, 0x7e, true});
    default:
      return;
  }
}

constexpr std::size_t kSigns = 4096;  // in a row; the next row has the same ones or their opposites
constexpr std::size_t kLanes = 8;     // by index, so that additions need not wait for each other

std::uint64_t scrambled(std::uint64_t x) {
  x = x * 0x9e3779b97f4a7c15U + 0x243f6a8885a308d3U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Signs by index, the same for all tensors and runs.
const std::array<double, kSigns>& signs() {
  static const std::array<double, kSigns> all = [] {
    std::array<double, kSigns> made;
    for (std::size_t i = 0; i < kSigns; ++i) made[i] = (scrambled(i) & 1U) != 0 ? -1 : 1;
    return made;
  }();
  return all;
}
double sign_of_row(std::uint64_t row) { return (scrambled(~row) & 1U) != 0 ? -1 : 1; }

}  // namespace

namespace {

using Lanes = std::array<double, kLanes>;

// Rows of one number for each lane. The sums are held in variables of their own, which stay in registers.
template <class F>
inline __attribute__((always_inline)) void add_rows_as_built(const F* x, std::size_t rows, const double* sign,
                                                             double row, Lanes& squares, Lanes& probes) {
  Lanes s = squares, p = probes;
  for (std::size_t i = 0; i < rows * kLanes; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double v = double(x[i + lane]);
      s[lane] += v * v;
      p[lane] += v * (sign[i + lane] * row);
    }
  }
  squares = s;
  probes = p;
}

// The same additions in the same order, four at a time: no bit differs.
template <class F>
__attribute__((target("avx2"))) void add_rows_by_avx2(const F* x, std::size_t rows, const double* sign, double row,
                                                      Lanes& squares, Lanes& probes) {
  add_rows_as_built(x, rows, sign, row, squares, probes);
}

template <class F>
void add_rows(const F* x, std::size_t rows, const double* sign, double row, Lanes& squares, Lanes& probes) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  (has_avx2 ? add_rows_by_avx2<F> : add_rows_as_built<F>)(x, rows, sign, row, squares, probes);
}

}  // namespace

// In no anonymous namespace: Digester::State holds one.
struct DigestSums {
  std::uint64_t index = 0;  // of the next number
  Lanes squares = {};
  Lanes probes = {};

  template <class F>
  void add(const F* x, std::size_t n) {
    for (std::size_t at = 0; at < n;) {
      const std::size_t column = index % kSigns, run = std::min(n - at, kSigns - column);
      add_run(x + at, run, signs().data() + column, sign_of_row(index / kSigns));
      index += run;
      at += run;
    }
  }

 private:
  template <class F>
  void add_one(F number, double sign, std::size_t lane) {
    const double x = double(number);
    squares[lane] += x * x;
    probes[lane] += x * sign;
  }
  template <class F>
  void add_run(const F* x, std::size_t n, const double* sign, double row) {
    std::size_t i = 0;
    for (; i < n && (index + i) % kLanes != 0; ++i) add_one(x[i], sign[i] * row, (index + i) % kLanes);
    const std::size_t rows = (n - i) / kLanes;
    add_rows(x + i, rows, sign + i, row, squares, probes);
    for (i += rows * kLanes; i < n; ++i) add_one(x[i], sign[i] * row, (index + i) % kLanes);
  }
};

namespace {

template <class Format>
void widen(const std::byte* p, std::size_t n, float* to) {
  for (std::size_t i = 0; i < n; ++i) {
    Format x;
    std::memcpy(&x, p + i * sizeof x, sizeof x);
    to[i] = Format::widen(x);
  }
}

double total(const Lanes& x) { return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])); }

}  // namespace

struct Digester::State {
  XXH3_state_t hash;
  DType type;
  bool measured;
  bool seen = false;
  bool nonfinite = false;
  DigestSums sums;

  void measure(const std::byte* p, std::size_t bytes) {
    std::array<float, kBlockBytes> wide;
    if (type == DType::fp64 || type == DType::complex128) {
      std::array<double, kBlockBytes / sizeof(double)> x;
      std::memcpy(x.data(), p, bytes);
      return sums.add(x.data(), bytes / sizeof(double));
    }
    std::size_t n = bytes;
    if (type == DType::bf16) {
      widen<Bf16>(p, n /= 2, wide.data());
    } else if (type == DType::fp16) {
      widen<Fp16>(p, n /= 2, wide.data());
    } else if (type == DType::fp8_e4m3) {
      widen<Fp8E4M3>(p, n, wide.data());
    } else if (type == DType::fp8_e5m2) {
      widen<Fp8E5M2>(p, n, wide.data());
    } else {
      std::memcpy(wide.data(), p, bytes);
      n /= sizeof(float);
    }
    sums.add(wide.data(), n);
  }

  void block(const std::byte* p, std::size_t bytes) {
    std::array<std::byte, kBlockBytes> clean;
    with_bits(type, [&]<class Word>(Bits<Word> bits) {
      if (measured) measure(p, bytes);
      if (!any_nonfinite(p, bytes / sizeof(Word), bits)) return;
      nonfinite = true;
      std::memcpy(clean.data(), p, bytes);
      one_nan(clean.data(), bytes / sizeof(Word), bits);
      p = clean.data();
    });
    XXH3_64bits_update(&hash, p, bytes);
  }
};

Digester::Digester(DType type, bool measured) : state_(std::make_unique<State>()) {
  state_->type = type;
  state_->measured = measured;
  again();
}
void Digester::again() {
  XXH3_64bits_reset(&state_->hash);
  state_->seen = false;
  state_->nonfinite = false;
  state_->sums = {};
}
Digester::~Digester() = default;

void Digester::add(std::span<const std::byte> elements) {
  state_->seen = true;
  for (std::size_t at = 0; at < elements.size(); at += kBlockBytes) {
    state_->block(elements.data() + at, std::min(kBlockBytes, elements.size() - at));
  }
}

Digest Digester::done() const {
  const State& s = *state_;
  Digest d;
  if (!s.seen) return d;
  d.hash = XXH3_64bits_digest(&s.hash);
  if (d.hash == 0) d.hash = 1;
  d.nonfinite = s.nonfinite;
  d.measure.norm = std::sqrt(total(s.sums.squares));
  d.measure.probe = total(s.sums.probes);
  return d;
}

Digest digest(DType type, std::span<const std::byte> elements, bool measured) {
  Digester d(type, measured);
  d.add(elements);
  return d.done();
}

}  // namespace seeksim::pytorch
