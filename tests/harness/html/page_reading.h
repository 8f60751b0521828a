// Pages as tests read them back: nothing here is shared with what writes them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "harness/input/json.h"
#include "sim/timeline.h"

namespace seeksim::harness::testing {

// What stands between <main> and </main>, read as XML: it is well-formed, or this throws std::runtime_error.
class PageBody {
 public:
  explicit PageBody(const std::string& page);
  // All text, entities resolved.
  const std::string& text() const { return text_; }
  std::vector<pugi::xml_node> all(const std::string& xpath) const;

 private:
  pugi::xml_document document_;
  std::string text_;
};

// Numbers and sentences of a report that its page lacks.
std::vector<std::string> missing_on(const std::string& page, const Json& report);

// What is wrong with the marks of a page's timeline: each moment of the report has one, at its place; empty: nothing.
std::string wrong_with_marks(const std::string& page, const Json& report);

// What is wrong with the bars of ranks: each span stands in one of its kind, each bar begins and ends with a span.
std::string wrong_with_bars(const std::string& page, const sim::Timeline& timeline);

}  // namespace seeksim::harness::testing
