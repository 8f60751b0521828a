// pydantic 2.14's lax mode, tried value by value (tests/harness/loading/lax_test.cpp holds the table).
#include "harness/loading/deepspeed/lax.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

// DeepSpeed looks at these itself first: it takes no boolean, and "8.0" for no whole number.
constexpr std::string_view kLookedAt[] = {"loss_scale", "loss_scale_window", "min_loss_scale"};

bool is_refused_before(const std::string& key, const Json& member) {
  if (std::find(std::begin(kLookedAt), std::end(kLookedAt), key) == std::end(kLookedAt)) return false;
  const bool has_point = member.is_string() && member.get_ref<const std::string&>().find('.') != std::string::npos;
  return member.is_boolean() || (has_point && key != "loss_scale");
}

// Beyond every size that means something, and still a number of 64 bits.
constexpr double kMost = 9.2e18;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Without the single underscores between digits; empty where one stands elsewhere.
std::string without_underscores(std::string_view text) {
  const auto is_digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return {};
    }
  }
  return out;
}

// "8", "+8", " 1_000 ", "8.00": the forms of a whole number.
std::optional<std::int64_t> whole_of(std::string_view text) {
  std::string digits = without_underscores(trimmed(text));
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (const std::size_t dot = digits.find('.'); dot != std::string::npos) {
    const std::string_view zeros = std::string_view(digits).substr(dot + 1);
    if (dot == 0 || zeros.empty() || zeros.find_first_not_of('0') != std::string_view::npos) return std::nullopt;
    digits.resize(dot);
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<double> number_of(std::string_view text) {
  std::string digits = without_underscores(trimmed(text));
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<bool> flag_of(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  constexpr std::string_view kTrue[] = {"1", "on", "t", "true", "y", "yes"};
  constexpr std::string_view kFalse[] = {"0", "off", "f", "false", "n", "no"};
  if (std::find(std::begin(kTrue), std::end(kTrue), word) != std::end(kTrue)) return true;
  if (std::find(std::begin(kFalse), std::end(kFalse), word) != std::end(kFalse)) return false;
  return std::nullopt;
}

void to_whole(Json& value) {
  if (value.is_boolean()) {
    value = std::int64_t(value.get<bool>());
  } else if (value.is_string()) {
    if (const auto whole = whole_of(value.get_ref<const std::string&>())) value = *whole;
  } else if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t(kMost)) {
    value = std::int64_t(kMost);
  } else if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::trunc(number) && std::fabs(number) < kMost) value = std::int64_t(number);
  }
}

void to_number(Json& value) {
  if (value.is_boolean()) {
    value = double(value.get<bool>());
  } else if (value.is_string()) {
    if (const auto number = number_of(value.get_ref<const std::string&>())) value = *number;
  }
}

void to_flag(Json& value) {
  if (value.is_string()) {
    if (const auto flag = flag_of(value.get_ref<const std::string&>())) value = *flag;
  } else if (value.is_number() && (value == 0 || value == 1)) {
    value = value == 1;
  }
}

bool is_of(const Json& schema, std::string_view wanted) {
  const auto type = schema.find("type");
  if (type == schema.end()) return false;
  if (type->is_string()) return type->get_ref<const std::string&>() == wanted;
  return std::any_of(type->begin(), type->end(), [&](const Json& one) { return one == wanted; });
}

}  // namespace

void read_laxly(const Json& schema, Json& value) {
  const auto properties = schema.find("properties");
  if (value.is_object() && properties != schema.end()) {
    for (auto& [key, member] : value.items()) {
      const auto known = properties->find(key);
      if (known != properties->end() && !is_refused_before(key, member)) read_laxly(*known, member);
    }
    return;
  }
  if (is_of(schema, "integer")) to_whole(value);
  if (is_of(schema, "number")) to_number(value);
  if (is_of(schema, "boolean")) to_flag(value);
}

}  // namespace seeksim::harness
