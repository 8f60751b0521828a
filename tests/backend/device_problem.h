// One operation of kernels/, computed by the CPU and by a device on copies of the same arrays, and compared bit for
// bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cast.h"
#include "kernels/host_access.h"
#include "runtime/host/device_memory.h"

namespace seeksim::test {

using kernels::bf16;
using kernels::fp16;
using kernels::Index;
using kernels::Lane;
using kernels::Mat;
using kernels::Vec;

template <class T>
constexpr bool is_half = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

class Problem {
 public:
  explicit Problem(runtime::DeviceMemory& device) : device_(device) {}

  // An array that the operation reads or writes, by its number in order of these calls.
  template <class T>
  void array(std::vector<T> values) {
    Block block;
    block.element = sizeof(T);
    block.nan_above = std::is_same_v<T, float> ? 0x7f800000u : std::is_same_v<T, bf16> ? 0x7f80u : 0x7c00u;
    block.is_float = std::is_same_v<T, float> || is_half<T>;
    block.bytes.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(block.bytes.data(), values.data(), block.bytes.size());
    blocks_.push_back(std::move(block));
  }
  // Random numbers, stored as T; one in `odd` is a zero of either sign, denormal, large or small.
  template <class T>
  void random(Index n, unsigned odd = 12) {
    std::vector<T> values(static_cast<std::size_t>(n));
    for (T& value : values) {
      const float x = draw(odd);
      if constexpr (is_half<T>)
        kernels::narrow<T>({}, {&x, 1}, {&value, 1});
      else
        value = x;
    }
    array(std::move(values));
  }
  void indices(Index n, Index below) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    for (std::int32_t& value : values) value = std::int32_t(rng_() % std::uint64_t(below));
    array(std::move(values));
  }
  // Room for what is written, full of a pattern.
  template <class T>
  void room(Index n) {
    array(std::vector<T>(static_cast<std::size_t>(n)));
  }

  // Arrays as an operation gets them: the CPU's, or the device's.
  class Arrays {
   public:
    template <class T>
    Vec<T> vec(int number) const {
      return {reinterpret_cast<T*>(data_[std::size_t(number)]), Index(bytes_[std::size_t(number)] / sizeof(T))};
    }
    template <class T>
    Mat<T> mat(int number, Index rows, Index cols, Index stride = 0) const {
      return {reinterpret_cast<T*>(data_[std::size_t(number)]), rows, cols, stride > 0 ? stride : cols};
    }

   private:
    friend class Problem;
    std::vector<std::byte*> data_;
    std::vector<std::size_t> bytes_;
  };

  // operation(lane, arrays), on both. Adds a failure that names the first element that differs.
  template <class Operation>
  void compare(const std::string& what, Operation operation) {
    std::vector<std::vector<std::byte>> wanted;
    for (const Block& block : blocks_) wanted.push_back(block.bytes);
    Arrays here;
    for (std::vector<std::byte>& bytes : wanted) {
      here.data_.push_back(bytes.data());
      here.bytes_.push_back(bytes.size());
    }
    operation(Lane{}, here);

    const Lane lane = device_.lane();
    Arrays there;
    for (const Block& block : blocks_) {
      std::byte* const data = device_.allocate(block.bytes.size() + 4);
      kernels::copy_bytes(lane, block.bytes.data(), data, block.bytes.size());
      there.data_.push_back(data);
      there.bytes_.push_back(block.bytes.size());
    }
    operation(lane, there);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      std::vector<std::byte> got(blocks_[i].bytes.size());
      kernels::copy_bytes(lane, there.data_[i], got.data(), got.size());
      if (const std::string differs = difference(blocks_[i], got, wanted[i]); !differs.empty())
        ADD_FAILURE() << what << ": array " << i << ", " << differs;
      device_.release(there.data_[i]);
    }
  }

 private:
  struct Block {
    std::size_t element = 1;
    std::uint32_t nan_above = 0;
    bool is_float = false;
    std::vector<std::byte> bytes;
  };
  // NaNs are one NaN (docs/numerics.md#r9).
  static std::uint64_t bits_of(const Block& block, const std::vector<std::byte>& bytes, std::size_t at) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at * block.element, std::min<std::size_t>(block.element, 8));
    const std::uint64_t magnitude = block.element == 2 ? 0x7fffu : 0x7fffffffu;
    return block.is_float && (bits & magnitude) > block.nan_above ? magnitude : bits;
  }
  static std::string difference(const Block& block, const std::vector<std::byte>& got,
                                const std::vector<std::byte>& want) {
    for (std::size_t i = 0; i < got.size() / block.element; ++i) {
      const std::uint64_t g = bits_of(block, got, i), w = bits_of(block, want, i);
      if (g == w &&
          (block.element <= 8 || std::memcmp(&got[i * block.element], &want[i * block.element], block.element) == 0))
        continue;
      char text[96];
      std::snprintf(text, sizeof text, "element %zu: %llx, want %llx", i, static_cast<unsigned long long>(g),
                    static_cast<unsigned long long>(w));
      return text;
    }
    return "";
  }
  float draw(unsigned odd) {
    constexpr float kOdd[] = {0.0f, -0.0f, 0x1p-149f, -0x1.8p-130f, 0x1p-126f, 1e4f, -3e4f, 1e-30f};
    if (rng_() % odd == 0) return kOdd[rng_() % std::size(kOdd)];
    return float(rng_() >> 40) * 0x1p-23f - 1.0f;
  }

  runtime::DeviceMemory& device_;
  std::mt19937_64 rng_{1};
  std::vector<Block> blocks_;
};

}  // namespace seeksim::test
