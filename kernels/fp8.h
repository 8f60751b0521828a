// Casts to the 8-bit formats of OCP's OFP8 and of its microscaling (MX) specification, to nearest even. A tensor that
// was cast is handed on as what it is worth, in fp32: q times the inverse of its scale, rounded once; what the products
// of the contract then sum is what a GPU's tensor core multiplies (docs/fp8.md).
//
//   e4m3  4 bits of exponent, 3 of mantissa: largest 448, least 2^-9, no infinity
//   e5m2  5 and 2: largest 57344, least 2^-16
//
// A finite value beyond the largest one becomes the largest (saturation). What is not finite becomes NaN, so that an
// overflow is seen and not hidden behind a large number.
#pragma once

#include "kernels/view.h"

namespace seeksim::kernels {

enum class Fp8 : std::uint8_t { e4m3, e5m2 };

inline constexpr Index kMxBlock = 32;  // elements that share a scale

constexpr float largest(Fp8 format) { return format == Fp8::e4m3 ? 448.0F : 57344.0F; }

// The code of a value and the value of a code: sign, exponent, mantissa from the highest bit down. saturates: false
// makes what rounds beyond the largest value a NaN (e4m3) or an infinity (e5m2). NaN is 0x7f with the value's sign.
std::uint8_t to_fp8(Fp8 format, float value, bool saturates = true);
float from_fp8(Fp8 format, std::uint8_t code);

// How a scale comes from the largest magnitude of a tensor.
struct Fp8Rule {
  Fp8 format = Fp8::e4m3;
  int margin = 0;              // the scale is divided by 2^margin
  bool power_2_scale = false;  // rounded down to a power of two
};
// largest(format) / amax / 2^margin, at most the largest fp32 number; `otherwise` where amax is 0 or not finite.
float fp8_scale(const Fp8Rule& rule, float amax, float otherwise);

struct Fp8Cast {
  Fp8 format = Fp8::e4m3;
  float scale = 1;  // a value is multiplied by it before it is rounded
  bool saturates = true;
};

// y (R, C) = what x is worth after the cast, in fp32.
template <class T = float>
void fp8_cast(Lane lane, const Fp8Cast& cast, InMat<T> x, Mat<float> y);

// The same with a scale for each `rows` rows (one sample's), from their largest magnitude; 1 where that gives none.
template <class T = float>
void fp8_cast_samples(Lane lane, const Fp8Rule& rule, Index rows, InMat<T> x, Mat<float> y);

// The same with a power of two for each block of 32 elements: of a row, or of a column (`down`). Blocks begin again
// with each segment of so many elements; 0: there is one. The power is the least one by which no value saturates. A
// block with a value that is not finite becomes NaN.
template <class T = float>
void mx_cast(Lane lane, Fp8 format, bool down, Index segment, InMat<T> x, Mat<float> y);

// out[0] = the larger of out[0] and the largest magnitude of x (F5); infinity where one is not finite.
template <class T = float>
void fold_magnitude(Lane lane, InMat<T> x, Vec<float> out);

}  // namespace seeksim::kernels
