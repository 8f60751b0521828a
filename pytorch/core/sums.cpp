#include "pytorch/core/sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/check.h"
#include "pytorch/core/number_formats.h"

namespace seeksim::pytorch {
namespace {

constexpr std::size_t kBlock = 512;       // elements: what a tree of blocks needs stays in the first cache
constexpr int kLevels = 12;               // of the tree: 2^11 inputs
constexpr std::size_t kInputsMost = 512;  // three parts of each fit

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
  bool chain = false;     // one after the other instead of the tree
  std::size_t parts = 1;  // `inputs` holds each rank's so many times

  std::size_t ranks() const { return inputs.size() / parts; }
};

// How much of each element the part `part` of input `r` is; the last part is what is left. Some are larger than the
// whole and some negative, as the gradients of micro-batches are.
double share_of(std::size_t r, std::size_t part) {
  constexpr double kShares[] = {0.625, 1.375, -0.4375, 0.28125, 1.125};
  return kShares[(3 * r + part) % std::size(kShares)];
}

// What part of a contribution is summed at this place, of all parts of all inputs: all first parts, then all second...
// What is not finite, or near it, is not cut: its parts would cancel to a NaN.
template <class W>
W part_of(const Job& job, std::size_t place, W x) {
  const std::size_t r = place % job.ranks(), part = place / job.ranks();
  if (!std::isfinite(W(2) * x)) return part == 0 ? x : W(0);
  W rest = x;
  for (std::size_t p = 0; p < part; ++p) rest = W(rest - W(x * W(share_of(r, p))));
  return part + 1 == job.parts ? rest : W(x * W(share_of(r, part)));
}

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
  if (job.inputs.size() == 2 && job.parts == 1) return pair<T, Op>(job, before, after);
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
      W* row = stack[depth++].data();
      load<T>(job.inputs[r] + at * sizeof(S), n, row, before);
      if constexpr (std::is_same_v<Op, Add> && std::is_floating_point_v<W>) {
        for (std::size_t i = 0; i < n && job.parts > 1; ++i) row[i] = part_of(job, r, row[i]);
      }
      if (job.chain && depth > 1) merge();
      for (std::size_t low = r; (low & 1) != 0 && !job.chain; low >>= 1) merge();
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
    const auto n = typename W::value_type(job.ranks());
    tree<T, Add>(job, same, [n](W x) { return W(x.real() / n, x.imag() / n); });
  } else if constexpr (std::is_floating_point_v<W>) {
    const W n = W(job.ranks());
    tree<T, Add>(job, same, [n](W x) { return x / n; });
  } else {
    const auto n = std::int64_t(job.ranks());
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
bool is_sum(ReduceName reduce) {
  return reduce == ReduceName::sum || reduce == ReduceName::avg || reduce == ReduceName::premul_sum;
}
bool is_floating(DType type) { return type >= DType::fp32 && type <= DType::fp8_e5m2; }

// The inputs in the order in which they are summed.
std::vector<const std::byte*> ordered(std::span<const std::byte* const> inputs, SumOrder order, Job& job) {
  std::vector<const std::byte*> all(inputs.begin(), inputs.end());
  job.chain = order == SumOrder::reversed;
  if (order == SumOrder::reversed) std::reverse(all.begin(), all.end());
  if (order == SumOrder::rotated) std::rotate(all.begin(), all.begin() + 1, all.end());
  job.parts = order == SumOrder::two_parts ? 2 : order == SumOrder::three_parts ? 3 : 1;
  for (std::size_t part = 1; part < job.parts; ++part) all.insert(all.end(), inputs.begin(), inputs.end());
  return all;
}

bool is_integral(DType type) {
  return type == DType::int8 || type == DType::int16 || type == DType::int32 || type == DType::int64 ||
         type == DType::uint8;
}
bool is_complex(DType type) { return type == DType::complex64 || type == DType::complex128; }

}  // namespace

std::string_view name(SumOrder order) {
  constexpr std::string_view kNames[] = {"canonical", "reversed", "rotated", "two_parts", "three_parts"};
  return order < SumOrder::count_ ? kNames[std::size_t(order)] : "unknown";
}

SumOrder sum_order(std::string_view word) {
  for (std::size_t i = 0; i < std::size_t(SumOrder::count_); ++i) {
    if (name(SumOrder(i)) == word) return SumOrder(i);
  }
  return SumOrder::count_;
}

std::string refusal(DType type, ReduceName reduce) {
  const bool summable = type != DType::none && type != DType::other && type < DType::count_;
  bool fits = summable && reduce != ReduceName::none && reduce < ReduceName::count_;
  if (is_bitwise(reduce)) fits = fits && (is_integral(type) || type == DType::boolean);
  if (reduce == ReduceName::min || reduce == ReduceName::max) fits = fits && !is_complex(type);
  if (reduce == ReduceName::avg || reduce == ReduceName::premul_sum) fits = fits && type != DType::boolean;
  return fits ? "" : std::string(name(reduce)) + " of " + std::string(name(type));
}

void reduce(DType type, ReduceName reduce, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count,
            double factor, SumOrder order) {
  SEEKSIM_CHECK(!inputs.empty() && inputs.size() <= kInputsMost, "%zu inputs", inputs.size());
  Job job{inputs, out, count, factor};
  std::vector<const std::byte*> other;
  if (order != SumOrder::canonical && is_sum(reduce) && is_floating(type)) {
    other = ordered(inputs, order, job);
    job.inputs = other;
  }
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
