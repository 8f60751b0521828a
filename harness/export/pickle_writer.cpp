#include "harness/export/pickle_writer.h"

#include <bit>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

// The opcodes that are needed, under the names that Python's pickletools gives them.
enum Opcode : char {
  kProto = '\x80',
  kStop = '.',
  kMark = '(',
  kEmptyDict = '}',
  kSetItems = 'u',
  kEmptyList = ']',
  kAppends = 'e',
  kBinUnicode = 'X',
  kBinInt = 'J',
  kLong1 = '\x8a',
  kBinFloat = 'G',
  kNone = 'N',
  kTrue = '\x88',
  kFalse = '\x89'
};

class Writer {
 public:
  std::string all(const Json& value) {
    out_ = {kProto, 2};
    put(value);
    out_ += kStop;
    return std::move(out_);
  }

 private:
  void little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += char(value >> (8 * i));
  }

  void text(const std::string& text) {
    out_ += kBinUnicode;
    little_endian(text.size(), 4);
    out_ += text;
  }

  // Two's complement in nine bytes has room for every 64-bit number with its sign.
  void integer(std::uint64_t bits, bool negative) {
    const auto small = std::int64_t(bits);
    if (negative ? small >= INT32_MIN : bits <= INT32_MAX) {
      out_ += kBinInt;
      return little_endian(bits, 4);
    }
    out_ += kLong1;
    out_ += char(9);
    little_endian(bits, 8);
    out_ += negative ? '\xff' : '\0';
  }

  void number(double value) {
    out_ += kBinFloat;
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int i = 7; i >= 0; --i) out_ += char(bits >> (8 * i));
  }

  void put(const Json& value) {
    switch (value.type()) {
      case Json::value_t::object:
        out_ += kEmptyDict;
        out_ += kMark;
        for (const auto& [key, one] : value.items()) {
          put(Json(key));
          put(one);
        }
        out_ += kSetItems;
        return;
      case Json::value_t::array:
        out_ += kEmptyList;
        out_ += kMark;
        for (const Json& one : value) put(one);
        out_ += kAppends;
        return;
      case Json::value_t::string:
        // Through JSON's replacement of what is no UTF-8.
        return text(Json::parse(value.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>());
      case Json::value_t::number_unsigned:
        return integer(value.get<std::uint64_t>(), false);
      case Json::value_t::number_integer:
        return integer(std::uint64_t(value.get<std::int64_t>()), value.get<std::int64_t>() < 0);
      case Json::value_t::number_float:
        return number(value.get<double>());
      case Json::value_t::boolean:
        out_ += value.get<bool>() ? kTrue : kFalse;
        return;
      default:
        out_ += kNone;
    }
  }

  std::string out_;
};

}  // namespace

std::string pickled(const Json& value) { return Writer().all(value); }

}  // namespace seeksim::harness
