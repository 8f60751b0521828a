#include "runtime/files/bounded_json.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace seeksim::runtime {
std::string quoted(const std::string& name) {
  std::string out = "'";
  for (const char c : name.substr(0, 80)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (name.size() > 80 ? "...'" : "'");
}

namespace {

// Looks at each event before a value is made of it. The parser itself keeps the last of several equal keys, and what it
// makes of a million levels cannot be copied on any stack.
template <class Json>
struct Watch {
  const JsonBounds& bounds;
  std::vector<std::set<std::string>> open;

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error(std::string(bounds.what) + ' ' + what);
  }
  bool operator()(int depth, typename Json::parse_event_t event, Json& parsed) {
    using Event = typename Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= bounds.depth_max)
      refuse("is nested deeper than " + std::to_string(bounds.depth_max) + " levels");
    // Ordered JSON looks for each key one by one, so many keys cost their square.
    constexpr std::size_t kKeysMax = std::is_same_v<Json, nlohmann::ordered_json> ? 10'000 : std::size_t(-1);
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.template get<std::string>()).second)
      refuse("has the key " + quoted(parsed.template get<std::string>()) + " twice");
    if (event == Event::key && open.back().size() > kKeysMax)
      refuse("has more than " + std::to_string(kKeysMax) + " keys in one object");
    return true;
  }
};

}  // namespace

template <class Json>
Json parse_bounded(std::string_view text, const JsonBounds& bounds) {
  Watch<Json> watch{bounds, {}};
  if (text.size() > bounds.bytes_max)
    watch.refuse("has " + std::to_string(text.size()) + " bytes; at most " + std::to_string(bounds.bytes_max) +
                 " are read");
  try {
    return Json::parse(text, std::ref(watch));
  } catch (const typename Json::parse_error& error) {
    watch.refuse("is not valid JSON at byte " + std::to_string(error.byte));
  } catch (const typename Json::exception&) {
    watch.refuse("is not valid JSON: it holds a number that is too large");
  }
}

template nlohmann::json parse_bounded(std::string_view, const JsonBounds&);
template nlohmann::ordered_json parse_bounded(std::string_view, const JsonBounds&);

}  // namespace seeksim::runtime
