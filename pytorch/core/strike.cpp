// What a fault does to the numbers of a tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "pytorch/core/number_formats.h"
#include "pytorch/core/rules.h"

namespace seeksim::pytorch {
namespace {

using faults::FaultKind;
using faults::Rule;

// One element of a type, changed: the bits of the value that the rule asks for. False where the type has none.
bool set_value(DType type, std::byte* at, double value) {
  const auto put = [at](auto x) {
    std::memcpy(at, &x, sizeof x);
    return true;
  };
  switch (type) {
    case DType::fp32:
    case DType::complex64:
      return put(float(value));
    case DType::fp64:
    case DType::complex128:
      return put(value);
    case DType::bf16:
      return put(Bf16::narrow(float(value)));
    case DType::fp16:
      return put(Fp16::narrow(float(value)));
    case DType::fp8_e4m3:
      return put(Fp8E4M3::narrow(float(value)));
    case DType::fp8_e5m2:
      return put(Fp8E5M2::narrow(float(value)));
    default:
      return false;
  }
}

std::string hex(const std::byte* at, std::size_t n) {
  std::string text = "0x";
  for (std::size_t i = n; i-- > 0;) text += fmt::format("{:02x}", std::to_integer<unsigned>(at[i]));
  return text;
}

}  // namespace

std::string strike(const Rule& rule, DType type, std::byte* data, std::int64_t numel) {
  const std::size_t width = element_bytes(type);
  if (numel <= 0 || width == 0) return "";
  const std::size_t element = std::size_t(rule.element % std::uint64_t(numel));
  std::byte* at = data + element * width;
  const std::string before = hex(at, width);
  const double sign = rule.negative ? -1 : 1;
  bool done = true;
  switch (rule.kind) {
    case FaultKind::bit_flip: {
      const std::size_t bit = std::size_t(rule.bit % (width * 8));
      at[bit / 8] ^= std::byte(1U << (bit % 8));
      break;
    }
    case FaultKind::nan_inject:
      done = set_value(type, at, std::numeric_limits<double>::quiet_NaN());
      break;
    case FaultKind::inf_inject:
      done = set_value(type, at, sign * std::numeric_limits<double>::infinity());
      break;
    case FaultKind::overflow:
      done = set_value(type, at, sign * rule.value);
      break;
    case FaultKind::zero_tile: {
      const std::size_t n = std::min(std::size_t(std::max(rule.elements, 1)), std::size_t(numel) - element);
      std::memset(at, 0, n * width);
      return fmt::format("{} elements from {} on became zero", n, element);
    }
    default:
      done = false;
      break;
  }
  if (!done) return "";
  return fmt::format("{}: element {} of {} went from {} to {}", faults::name(rule.kind), element, numel, before,
                     hex(at, width));
}

}  // namespace seeksim::pytorch
