// EnumNames: the name of each value of an enum, one row a value. A row that is missing, one too many or one out of
// order does not compile.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace seeksim::runtime {

// E: an enum whose values are counted from 0; its last one, count_, says how many there are.
template <class E>
class EnumNames {
 public:
  static constexpr std::size_t kCount = std::size_t(E::count_);
  struct Row {
    E value;
    const char* name;
  };
  consteval EnumNames(const Row (&rows)[kCount]) {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (rows[i].name == nullptr || std::size_t(rows[i].value) != i) throw "rows stand in the order of the enum";
      names_[i] = rows[i].name;
    }
  }

  // otherwise: for a value that has no name, as count_.
  constexpr const char* of(E value, const char* otherwise = "none") const {
    return std::size_t(value) < kCount ? names_[std::size_t(value)] : otherwise;
  }
  // The value of that name; count_ where there is none.
  constexpr E named(std::string_view name) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (name == names_[i]) return E(i);
    }
    return E::count_;
  }

  // In the order of the enum.
  constexpr const std::array<const char*, kCount>& all() const { return names_; }

 private:
  std::array<const char*, kCount> names_{};
};

}  // namespace seeksim::runtime
