#include "harness/html/escape.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

namespace seeksim::harness::html {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Through JSON's replacement of what is no UTF-8.
std::string as_utf8(std::string_view raw) {
  return Json::parse(Json(std::string(raw)).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : as_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
        if (control)
          out += kReplacement;
        else
          out += c;
    }
  }
  return out;
}

std::string shown(const Json& value) {
  if (value.is_null()) return "&ndash;";
  if (value.is_string()) return escaped(value.get_ref<const std::string&>());
  return escaped(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

double number_of(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

const Json& member(const Json& object, const char* key) {
  static const Json kNothing;
  if (!object.is_object()) return kNothing;
  const auto at = object.find(key);
  return at == object.end() ? kNothing : *at;
}

std::string text_member(const Json& object, const char* key) {
  const Json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string bytes_shown(const Json& bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double value = number_of(bytes);
  if (std::isnan(value)) return "&ndash;";
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fmt::format("{:.3g}\u00a0{}", value, kUnits[unit]);  // not broken into two lines
}

std::string seconds_shown(double s, int digits) {
  if (std::isnan(s)) return "&ndash;";
  const double size = std::abs(s);
  if (size == 0 || size >= 1) return fmt::format("{:.{}g} s", s, digits);
  if (size >= 1e-3) return fmt::format("{:.{}g} ms", s * 1e3, digits);
  return fmt::format("{:.{}g} &micro;s", s * 1e6, digits);
}

}  // namespace seeksim::harness::html
