// What a stranger's file claims is held against limits before anything is made of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "runtime/files/bounded_files.h"
#include "runtime/files/bounded_json.h"
#include "runtime/seams/bounded.h"

namespace seeksim::runtime {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class Act>
std::string refusal_of(Act act) {
  try {
    act();
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

template <class Json>
std::string refusal_of_json(const std::string& text) {
  return refusal_of([&] { parse_bounded<Json>(text, {"the page", 1'000'000, 32}); });
}

std::string nested(int levels, char open, char close) {
  return std::string(std::size_t(levels), open) + std::string(std::size_t(levels), close);
}

TEST(BoundedJson, DepthLengthAndEqualKeysAreRefusedByName) {
  EXPECT_EQ(refusal_of_json<json>(nested(32, '[', ']')), "");
  EXPECT_EQ(refusal_of_json<json>(nested(33, '[', ']')), "the page is nested deeper than 32 levels");
  EXPECT_EQ(refusal_of_json<ordered_json>(nested(400'000, '[', ']')), "the page is nested deeper than 32 levels");
  EXPECT_EQ(refusal_of_json<json>(std::string(1'000'001, ' ')), "the page has 1000001 bytes; at most 1000000 are read");
  EXPECT_EQ(refusal_of_json<json>(R"({"a": 1, "b": {"a": 2}})"), "");
  EXPECT_EQ(refusal_of_json<json>(R"({"b": {"a": 1, "a": 2}})"), "the page has the key 'a' twice");
  EXPECT_EQ(refusal_of_json<json>(R"({"a": )"), "the page is not valid JSON at byte 7");
  EXPECT_EQ(refusal_of_json<json>("[1e999]"), "the page is not valid JSON: it holds a number that is too large");
}

// The map of ordered JSON looks for each key one by one: so many keys would take minutes.
TEST(BoundedJson, OrderedObjectsHaveALimitOfKeys) {
  std::string text = "{";
  for (int i = 0; i <= 10'000; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(refusal_of_json<ordered_json>(text + "}"), "the page has more than 10000 keys in one object");
  EXPECT_EQ(refusal_of_json<json>(text + "}"), "");
}

TEST(BoundedJson, NumbersFitOrAreNone) {
  EXPECT_EQ(whole_number<int>(json(2147483647)), 2147483647);
  EXPECT_EQ(whole_number<int>(json(2147483648)), std::nullopt);
  EXPECT_EQ(whole_number<int>(json(-2147483649)), std::nullopt);
  EXPECT_EQ(whole_number<int>(json::parse("18446744073709551615")), std::nullopt);
  EXPECT_EQ(whole_number<std::uint64_t>(json::parse("18446744073709551615")), ~std::uint64_t(0));
  EXPECT_EQ(whole_number<std::uint64_t>(json(-1)), std::nullopt);
  EXPECT_EQ(whole_number<std::int64_t>(json(1e300)), std::nullopt);
  EXPECT_EQ(whole_number<int>(json("1")), std::nullopt);
  EXPECT_EQ((whole_number<int>(json(7), 0, 6)), std::nullopt);
}

TEST(BoundedArithmetic, TimesStayAtTheEndOfTime) {
  EXPECT_EQ(to_time_ns(1.9), 1);
  EXPECT_EQ(to_time_ns(-1.9), -1);
  EXPECT_EQ(to_time_ns(1e300), kForever);
  EXPECT_EQ(to_time_ns(9223372036854775808.0), kForever);
  EXPECT_EQ(to_time_ns(-1e300), -kForever);
  EXPECT_EQ(to_time_ns(std::numeric_limits<double>::quiet_NaN()), kForever);
  EXPECT_EQ(shifted(kForever, kForever), kForever);
  EXPECT_EQ(shifted(-kForever, -kForever), -kForever);
  EXPECT_EQ(shifted(5, -7), -2);
  EXPECT_EQ(product(std::uint64_t(1) << 32, std::uint64_t(1) << 32), std::nullopt);
  EXPECT_EQ(product(6, 7), 42u);
  EXPECT_EQ(sum(~std::uint64_t(0), 1), std::nullopt);
}

// Asked for a whole file, this storage says that nobody should have asked.
class Counting final : public Storage {
 public:
  explicit Counting(std::string content) : content_(std::move(content)) {}
  std::string read(std::string_view) override { return ++reads, content_; }
  std::size_t read_at(std::string_view, std::uint64_t offset, std::span<std::byte> into) override {
    if (offset >= content_.size()) return 0;
    const std::size_t n = std::min<std::size_t>(into.size(), content_.size() - offset);
    std::memcpy(into.data(), content_.data() + offset, n);
    return n;
  }
  void write(std::string_view, std::string_view) override {}
  void sync(std::string_view) override {}
  void rename(std::string_view, std::string_view) override {}
  void remove(std::string_view) override {}
  std::size_t write_at(std::string_view, std::uint64_t, std::span<const std::byte>) override { return 0; }
  bool exists(std::string_view) override { return true; }
  std::vector<std::string> list(std::string_view) override { return {}; }
  std::uint64_t free_bytes(std::string_view) override { return 0; }
  int reads = 0;

 private:
  std::string content_;
};

TEST(BoundedFiles, AClaimedSizeIsHeldAgainstTheFileBeforeItIsRead) {
  Counting file("four");
  EXPECT_EQ(not_of_size(file, "f", 4), "");
  EXPECT_EQ(not_of_size(file, "f", 3), "has more than 3 bytes");
  for (const std::uint64_t claimed : {std::uint64_t(5), std::uint64_t(1) << 58, ~std::uint64_t(0)}) {
    const std::string wrong = "has 4 bytes, not " + std::to_string(claimed);
    EXPECT_EQ(not_of_size(file, "f", claimed), wrong);
    EXPECT_EQ(refusal_of([&] { read_of_size(file, "f", claimed); }), wrong);
    EXPECT_NE(refusal_of([&] { read_front(file, "f", claimed); }), "");
  }
  EXPECT_NE(refusal_of([&] { read_at_most(file, "f", 3); }), "");
  EXPECT_EQ(file.reads, 0);
  EXPECT_EQ(read_of_size(file, "f", 4), "four");
  EXPECT_EQ(read_front(file, "f", 2), "fo");
  EXPECT_EQ(read_at_most(file, "f", 4), "four");
}

}  // namespace
}  // namespace seeksim::runtime
