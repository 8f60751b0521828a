#include "tests/harness/html/page_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

namespace seeksim::harness::testing {
namespace {

std::string with_dashes(std::string body) {
  const std::pair<const char*, const char*> each[] = {
      {"&ndash;", "-"}, {"&micro;", "u"}, {"&times;", "x"}, {"&larr;", "<-"}, {"&rarr;", "->"}};
  for (const auto& [entity, text] : each) {
    const std::string safe = std::string(text) == "<-" ? "&lt;-" : std::string(text) == "->" ? "-&gt;" : text;
    for (std::size_t at; (at = body.find(entity)) != std::string::npos;)
      body.replace(at, std::string(entity).size(), safe);
  }
  return body;
}

using Knots = std::vector<std::pair<double, double>>;  // seconds, x

Knots knots_of(const PageBody& body) {
  Knots knots;
  for (const Json& one : Json::parse(body.all("//svg[@data-knots]").at(0).attribute("data-knots").value()))
    knots.emplace_back(one[0].get<double>(), one[1].get<double>());
  return knots;
}

// Where a time stands: linear between knots.
double place(const Knots& knots, double at_s) {
  if (at_s <= knots.front().first) return knots.front().second;
  for (std::size_t i = 1; i < knots.size(); ++i) {
    const auto& [t0, x0] = knots[i - 1];
    const auto& [t1, x1] = knots[i];
    if (at_s <= t1) return x0 + (x1 - x0) * (at_s - t0) / (t1 - t0);
  }
  return knots.back().second;
}

struct Bar {
  double from, to;
};

// "M12 5.5h30M50 5.5h1": x and length of each.
std::vector<Bar> bars_of(const std::string& path) {
  std::vector<Bar> bars;
  std::istringstream in(path);
  char letter = 0;
  double x = 0, y = 0, length = 0;
  while (in >> letter >> x >> y >> letter >> length) bars.push_back({x, x + length});
  return bars;
}

std::string kind_of(const std::string& lane) {
  if (lane == "communication queue") return "comm";
  return lane == "copy queue" || lane == "storage queue" ? "copies" : "compute";
}

void add_moments(const Json& report, std::multiset<std::pair<std::string, double>>& wanted) {
  const auto add = [&](const char* kind, const Json& at) {
    if (at.is_number()) wanted.emplace(kind, at.get<double>());
  };
  for (const Json& fault : report["faults"]) add("fault", fault["first_fired_s"]);
  for (const Json& recovery : report["recoveries"]) {
    add("detected", recovery["t_detect_s"]);
    add("agreed", recovery["t_agree_s"]);
    add("rebuilt", recovery["t_rebuild_s"]);
    add("resumed", recovery["t_resumed_s"]);
  }
}

}  // namespace

PageBody::PageBody(const std::string& page) {
  const std::size_t begin = page.find("<main>"), end = page.find("</main>");
  if (begin == std::string::npos || end == std::string::npos) throw std::runtime_error("no <main>");
  const std::string body = with_dashes(page.substr(begin, end + 7 - begin));
  const pugi::xml_parse_result read = document_.load_string(body.c_str(), pugi::parse_default | pugi::parse_ws_pcdata);
  if (!read)
    throw std::runtime_error(fmt::format("{} near: {}", read.description(), body.substr(std::size_t(read.offset), 80)));
  for (const pugi::xpath_node& node : document_.select_nodes("//text()"))
    text_ += std::string(node.node().value()) + ' ';
}

std::vector<pugi::xml_node> PageBody::all(const std::string& xpath) const {
  std::vector<pugi::xml_node> nodes;
  for (const pugi::xpath_node& node : document_.select_nodes(xpath.c_str())) nodes.push_back(node.node());
  return nodes;
}

std::vector<std::string> missing_on(const std::string& page, const Json& report) {
  const PageBody body(page);
  std::vector<std::string> wanted, missing;
  for (const char* key : {"virtual_s", "fingerprint", "params_digest", "sentence", "seed", "training_seed"})
    wanted.push_back(report[key].is_string() ? report[key].get<std::string>() : report[key].dump());
  for (const char* key : {"loss", "grad_norm", "committed_s"}) {
    for (const Json& value : report[key]) wanted.push_back(value.dump());
  }
  for (const Json& check : report["checks"]) {
    wanted.push_back(check["name"]);
    wanted.push_back(check["detail"]);
  }
  for (const Json& recovery : report["recoveries"]) {
    for (const char* key : {"t_detect_s", "t_agree_s", "t_rebuild_s", "t_resumed_s"})
      wanted.push_back(recovery[key].dump());
    wanted.push_back(recovery["diagnosis"]);
  }
  for (const auto& [kind, use] : report["comm"].items()) {
    wanted.push_back(kind);
    wanted.push_back(use["calls"].dump());
    wanted.push_back(use["bytes_sent_per_rank_max"].dump());
  }
  wanted.push_back(report["memory"]["peak_bytes_per_rank_max"].dump());
  for (const auto& [tag, bytes] : report["memory"]["by_tag"].items()) {
    if (bytes != 0) wanted.push_back(bytes.dump());
  }
  for (const std::string& one : wanted) {
    if (body.text().find(one) == std::string::npos) missing.push_back(one);
  }
  return missing;
}

std::string wrong_with_marks(const std::string& page, const Json& report) {
  const PageBody body(page);
  const Knots knots = knots_of(body);
  std::multiset<std::pair<std::string, double>> wanted;
  add_moments(report, wanted);
  for (const pugi::xml_node& mark : body.all("//path[starts-with(@class,'m ')]")) {
    const std::string kind = std::string(mark.attribute("class").value()).substr(2);
    const double at = mark.attribute("data-at-s").as_double();
    const double x = std::strtod(mark.attribute("d").value() + 1, nullptr);
    if (std::abs(x - place(knots, at)) > 1) return fmt::format("the mark of {} at {} s stands at {}", kind, at, x);
    const auto known = wanted.find({kind, at});
    if (known == wanted.end()) return fmt::format("a mark that the report does not have: {} at {} s", kind, at);
    wanted.erase(known);
  }
  return wanted.empty() ? "" : fmt::format("no mark of {} at {} s", wanted.begin()->first, wanted.begin()->second);
}

std::string wrong_with_bars(const std::string& page, const sim::Timeline& timeline) {
  const PageBody body(page);
  const Knots knots = knots_of(body);
  std::map<std::pair<int, std::string>, std::vector<Bar>> drawn;
  for (const pugi::xml_node& row : body.all("//g[@data-rank]")) {
    for (const pugi::xml_node& path : row.children("path"))
      drawn[{row.attribute("data-rank").as_int(), path.attribute("class").value()}] =
          bars_of(path.attribute("d").value());
  }
  std::map<std::pair<int, std::string>, std::vector<double>> ends;
  for (const sim::Timeline::Span& span : timeline.spans()) {
    const sim::Timeline::Lane& lane = timeline.lanes()[span.lane];
    if (lane.is_host || span.begin == span.end) continue;
    const std::pair key{lane.rank, kind_of(lane.name)};
    const double from = place(knots, double(span.begin) / 1e9), to = place(knots, double(span.end) / 1e9);
    ends[key].insert(ends[key].end(), {from, to});
    const std::vector<Bar>& bars = drawn[key];
    const bool inside = std::any_of(bars.begin(), bars.end(),
                                    [&](const Bar& bar) { return bar.from <= from + 1.5 && bar.to >= to - 1.5; });
    if (!inside) return fmt::format("rank {}: no bar of {} from {} to {}", lane.rank, key.second, from, to);
  }
  for (const auto& [key, bars] : drawn) {
    if (key.second == "waits") continue;
    for (const Bar& bar : bars) {
      for (const double edge : {bar.from, bar.to}) {
        const std::vector<double>& known = ends[key];
        if (std::none_of(known.begin(), known.end(), [&](double end) { return std::abs(end - edge) <= 2; }))
          return fmt::format("rank {}: a bar of {} ends at {}, where no span does", key.first, key.second, edge);
      }
    }
  }
  return ends.empty() ? "nothing is drawn" : "";
}

}  // namespace seeksim::harness::testing
