#include "pytorch/core/sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/check.h"
#include "pytorch/core/number_formats.h"

namespace seeksim::pytorch {
namespace {

constexpr std::size_t kBlock = 512;  // elements: what a tree of blocks needs stays in the first cache
constexpr int kLevels = 12;          // of the tree: 2^11 inputs

// How elements of a type are stored and in what they are reduced.
template <class Stored, class Wide>
struct Plain {
  using S = Stored;
  using W = Wide;
  static W widen(S x) { return W(x); }
  static S narrow(W x) { return S(x); }
};
template <class Format>
struct Narrow {
  using S = Format;
  using W = float;
  static W widen(S x) { return Format::widen(x); }
  static S narrow(W x) { return Format::narrow(x); }
};
struct Boolean {
  using S = std::uint8_t;
  using W = std::uint8_t;
  static W widen(S x) { return x != 0; }
  static S narrow(W x) { return x; }
};

template <class W>
inline constexpr bool kIsComplex = false;
template <class F>
inline constexpr bool kIsComplex<std::complex<F>> = true;

template <class W>
bool is_nan(W x) {
  if constexpr (std::is_floating_point_v<W>) return x != x;
  return false;
}

struct Add {
  template <class W>
  static W of(W a, W b) {
    return W(a + b);
  }
};
struct Multiply {
  template <class W>
  static W of(W a, W b) {
    if constexpr (kIsComplex<W>) {  // as written, each operation rounded once; the library's own looks for infinities
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    } else {
      return W(a * b);
    }
  }
};
struct Least {
  template <class W>
  static W of(W a, W b) {
    return b < a || is_nan(b) ? b : a;
  }
};
struct Most {
  template <class W>
  static W of(W a, W b) {
    return b > a || is_nan(b) ? b : a;
  }
};
struct And {
  template <class W>
  static W of(W a, W b) {
    return W(a & b);
  }
};
struct Or {
  template <class W>
  static W of(W a, W b) {
    return W(a | b);
  }
};
struct ExclusiveOr {
  template <class W>
  static W of(W a, W b) {
    return W(a ^ b);
  }
};

struct Job {
  std::span<const std::byte* const> inputs;
  std::byte* out;
  std::size_t count;
  double factor;
};

template <class T, class Before>
void load(const std::byte* from, std::size_t n, typename T::W* to, Before before) {
  typename T::S x;
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(&x, from + i * sizeof x, sizeof x);
    to[i] = before(T::widen(x));
  }
}

// The tree of two: without the detour over blocks.
template <class T, class Op, class Before, class After>
void pair(const Job& job, Before before, After after) {
  using W = typename T::W;
  using S = typename T::S;
  const std::byte* left = job.inputs[0];
  const std::byte* right = job.inputs[1];
  for (std::size_t i = 0; i < job.count; ++i) {
    S a, b;
    std::memcpy(&a, left + i * sizeof a, sizeof a);
    std::memcpy(&b, right + i * sizeof b, sizeof b);
    const S x = T::narrow(after(Op::template of<W>(before(T::widen(a)), before(T::widen(b)))));
    std::memcpy(job.out + i * sizeof x, &x, sizeof x);
  }
}

// F3 in its streaming form: a binary counter of blocks.
template <class T, class Op, class Before, class After>
void tree(const Job& job, Before before, After after) {
  using W = typename T::W;
  using S = typename T::S;
  if (job.inputs.size() == 2) return pair<T, Op>(job, before, after);
  std::array<std::array<W, kBlock>, kLevels> stack;
  for (std::size_t at = 0; at < job.count; at += kBlock) {
    const std::size_t n = std::min(kBlock, job.count - at);
    std::size_t depth = 0;
    const auto merge = [&] {  // the older operand on the left
      W* left = stack[depth - 2].data();
      const W* right = stack[depth - 1].data();
      for (std::size_t i = 0; i < n; ++i) left[i] = Op::template of<W>(left[i], right[i]);
      --depth;
    };
    for (std::size_t r = 0; r < job.inputs.size(); ++r) {
      load<T>(job.inputs[r] + at * sizeof(S), n, stack[depth++].data(), before);
      for (std::size_t low = r; (low & 1) != 0; low >>= 1) merge();
    }
    while (depth > 1) merge();
    for (std::size_t i = 0; i < n; ++i) {
      const S x = T::narrow(after(stack[0][i]));
      std::memcpy(job.out + (at + i) * sizeof x, &x, sizeof x);
    }
  }
}

template <class T, class Op>
void plain(const Job& job) {
  const auto same = [](typename T::W x) { return x; };
  tree<T, Op>(job, same, same);
}

template <class T>
void average(const Job& job) {
  using W = typename T::W;
  const auto same = [](W x) { return x; };
  if constexpr (kIsComplex<W>) {
    const auto n = typename W::value_type(job.inputs.size());
    tree<T, Add>(job, same, [n](W x) { return W(x.real() / n, x.imag() / n); });
  } else if constexpr (std::is_floating_point_v<W>) {
    const W n = W(job.inputs.size());
    tree<T, Add>(job, same, [n](W x) { return x / n; });
  } else {
    const auto n = std::int64_t(job.inputs.size());
    tree<T, Add>(job, same, [n](W x) { return W(std::int64_t(x) / n); });
  }
}

template <class T>
void scaled(const Job& job) {
  using W = typename T::W;
  const auto same = [](W x) { return x; };
  if constexpr (kIsComplex<W>) {
    const auto f = typename W::value_type(job.factor);
    tree<T, Add>(
        job, [f](W x) { return W(x.real() * f, x.imag() * f); }, same);
  } else if constexpr (std::is_floating_point_v<W>) {
    const W f = W(job.factor);
    tree<T, Add>(
        job, [f](W x) { return x * f; }, same);
  } else {
    const auto f = std::uint64_t(std::int64_t(job.factor));
    tree<T, Add>(
        job, [f](W x) { return W(x * f); }, same);
  }
}

template <class T>
void floating(ReduceName reduce, const Job& job) {
  switch (reduce) {
    case ReduceName::avg:
      return average<T>(job);
    case ReduceName::premul_sum:
      return scaled<T>(job);
    case ReduceName::product:
      return plain<T, Multiply>(job);
    case ReduceName::min:
      if constexpr (!kIsComplex<typename T::W>) return plain<T, Least>(job);
      break;
    case ReduceName::max:
      if constexpr (!kIsComplex<typename T::W>) return plain<T, Most>(job);
      break;
    default:
      break;
  }
  plain<T, Add>(job);
}

// Sums and products in unsigned arithmetic, which wraps; the rest by the type's own values.
template <class S>
void integral(ReduceName reduce, const Job& job) {
  using Wrapping = Plain<S, std::uint64_t>;
  using Valued = Plain<S, std::int64_t>;
  switch (reduce) {
    case ReduceName::avg:
      return average<Wrapping>(job);
    case ReduceName::premul_sum:
      return scaled<Wrapping>(job);
    case ReduceName::product:
      return plain<Wrapping, Multiply>(job);
    case ReduceName::min:
      return plain<Valued, Least>(job);
    case ReduceName::max:
      return plain<Valued, Most>(job);
    case ReduceName::band:
      return plain<Wrapping, And>(job);
    case ReduceName::bor:
      return plain<Wrapping, Or>(job);
    case ReduceName::bxor:
      return plain<Wrapping, ExclusiveOr>(job);
    default:
      return plain<Wrapping, Add>(job);
  }
}

void truth(ReduceName reduce, const Job& job) {
  if (reduce == ReduceName::bxor) return plain<Boolean, ExclusiveOr>(job);
  const bool all = reduce == ReduceName::product || reduce == ReduceName::min || reduce == ReduceName::band;
  if (all) return plain<Boolean, And>(job);
  plain<Boolean, Or>(job);
}

bool is_bitwise(ReduceName reduce) {
  return reduce == ReduceName::band || reduce == ReduceName::bor || reduce == ReduceName::bxor;
}
bool is_integral(DType type) {
  return type == DType::int8 || type == DType::int16 || type == DType::int32 || type == DType::int64 ||
         type == DType::uint8;
}
bool is_complex(DType type) { return type == DType::complex64 || type == DType::complex128; }

}  // namespace

std::string refusal(DType type, ReduceName reduce) {
  const bool summable = type != DType::none && type != DType::other && type < DType::count_;
  bool fits = summable && reduce != ReduceName::none && reduce < ReduceName::count_;
  if (is_bitwise(reduce)) fits = fits && (is_integral(type) || type == DType::boolean);
  if (reduce == ReduceName::min || reduce == ReduceName::max) fits = fits && !is_complex(type);
  if (reduce == ReduceName::avg || reduce == ReduceName::premul_sum) fits = fits && type != DType::boolean;
  return fits ? "" : std::string(name(reduce)) + " of " + std::string(name(type));
}

void reduce(DType type, ReduceName reduce, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count,
            double factor) {
  SEEKSIM_CHECK(!inputs.empty() && inputs.size() < (std::size_t(1) << (kLevels - 1)), "%zu inputs", inputs.size());
  const Job job{inputs, out, count, factor};
  switch (type) {
    case DType::fp32:
      return floating<Plain<float, float>>(reduce, job);
    case DType::fp64:
      return floating<Plain<double, double>>(reduce, job);
    case DType::fp16:
      return floating<Narrow<Fp16>>(reduce, job);
    case DType::bf16:
      return floating<Narrow<Bf16>>(reduce, job);
    case DType::fp8_e4m3:
      return floating<Narrow<Fp8E4M3>>(reduce, job);
    case DType::fp8_e5m2:
      return floating<Narrow<Fp8E5M2>>(reduce, job);
    case DType::complex64:
      return floating<Plain<std::complex<float>, std::complex<float>>>(reduce, job);
    case DType::complex128:
      return floating<Plain<std::complex<double>, std::complex<double>>>(reduce, job);
    case DType::int8:
      return integral<std::int8_t>(reduce, job);
    case DType::int16:
      return integral<std::int16_t>(reduce, job);
    case DType::int32:
      return integral<std::int32_t>(reduce, job);
    case DType::int64:
      return integral<std::int64_t>(reduce, job);
    case DType::uint8:
      return integral<std::uint8_t>(reduce, job);
    case DType::boolean:
      return truth(reduce, job);
    case DType::none:
    case DType::other:
    case DType::count_:
      break;
  }
  SEEKSIM_CHECK(false, "no reduction of %d", int(type));
}

}  // namespace seeksim::pytorch
