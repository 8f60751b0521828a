#include "tests/house/floors.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/house/lexer.h"

namespace seeksim::house {
namespace {

// A path without its ending: a header and its source are one unit.
std::string unit_of(std::string_view path) { return std::string(path.substr(0, path.rfind('.'))); }

const Wing* wing_of(std::string_view path) {
  const Wing* found = nullptr;  // the longest: runtime/backend stands inside runtime
  for (const Wing& wing : wings()) {
    if (path.starts_with(wing.folder + "/") && (found == nullptr || wing.folder.size() > found->folder.size()))
      found = &wing;
  }
  return found;
}

// Rooms of one vocabulary: an Op names buffers and a buffer's queue takes Ops; a list of parameters asks the families
// that draw it up; a message's head is a part of the transport that declares it.
bool may_turn(std::string_view room) {
  return room == "runtime/seams" || room == "runtime/layout" || room == "runtime/backend/messages";
}

// The floor of a room, from 1; 0 where the table has none.
std::size_t floor_of(const Wing& wing, std::string_view room) {
  if (wing.floors.empty()) return 1;
  for (std::size_t i = 0; i < wing.floors.size(); ++i) {
    for (const std::string& name : wing.floors[i]) {
      if (room == wing.folder + "/" + name) return i + 1;
    }
  }
  return 0;
}

struct Arrow {
  std::string to;  // a unit
  int line = 0;
};

using Arrows = std::map<std::string, std::vector<Arrow>>;  // by unit

// Follows the arrows from the last unit of `way`; true where they lead back to its first one.
bool leads_back(const Arrows& arrows, std::vector<std::string>& way, std::set<std::string>& seen) {
  const auto here = arrows.find(way.back());
  if (here == arrows.end()) return false;
  for (const Arrow& arrow : here->second) {
    if (arrow.to == way.front()) return true;
    if (!seen.insert(arrow.to).second) continue;
    way.push_back(arrow.to);
    if (leads_back(arrows, way, seen)) return true;
    way.pop_back();
  }
  return false;
}

}  // namespace

const std::vector<Wing>& wings() {
  static const std::vector<Wing> kWings = {
      {"runtime",
       {{"seams"},
        {"rules", "host"},
        {"plan"},
        {"layout", "launch"},
        {"files", "comm", "samples"},
        {"numbers"},
        {"detect", "model"},
        {"decide", "zero", "parts"},
        {"checkpoint"},
        {"trainer"},
        {"recovery"}},
       20},
      {"runtime/backend", {{"machine"}, {"wire"}, {"messages", "control"}, {"gpu"}, {"."}}, 20},
      {"harness",
       {{"input"},
        {"scenario"},
        {"record", "calibration"},
        {"oracles", "export"},
        {"verdict"},
        {"loading/deepspeed", "loading/features"},
        {"loading"},
        {"report", "simulate", "analyse"},
        {"html", "archive", "torch/hosts"},
        {"run", "torch"},
        {"explain", "search", "processes", "doctor", "campaign", "torch/table", "torch/check", "torch/show"},
        {"releases", "torch/explore", "torch/cases"},
        {"torch/program"},
        {"torch/hunt"},
        {"reference"},
        {"commands/words"},
        {"commands", "testing"},
        {"main.cpp", "seeksim.h"}},
       20},
      {"pytorch", {{"core"}, {"backend", "preload"}}, 20},
      {"sim", {}, 30, true},
      {"faults", {}, 20, true},
      {"reference", {}, 20, true},
      {"kernels", {}, 40, true},
  };
  return kWings;
}

std::string room_of(std::string_view path) {
  const Wing* wing = wing_of(path);
  if (wing == nullptr) return "";
  if (wing->floors.empty()) {
    const std::size_t slash = path.rfind('/');
    return std::string(path.substr(0, slash));
  }
  std::string best;
  for (const std::vector<std::string>& floor : wing->floors) {
    for (const std::string& name : floor) {
      const std::string room = wing->folder + "/" + name;
      const bool inside = path == room || path.starts_with(room + "/");
      if (inside && room.size() > best.size()) best = room;
    }
  }
  const bool directly = path.find('/', wing->folder.size() + 1) == std::string_view::npos;
  if (best.empty() && directly && floor_of(*wing, wing->folder + "/.") != 0) best = wing->folder + "/.";
  return best;
}

std::vector<Violation> check_floors(std::string_view path, std::string_view text) {
  std::vector<Violation> out;
  const Wing* wing = wing_of(path);
  if (wing == nullptr || wing->floors.empty()) return out;
  const std::string room = room_of(path);
  if (room.empty()) {
    out.push_back({std::string(path), 1, "stands in no room of " + wing->folder + "/ (tests/house/floors.cpp)"});
    return out;
  }
  for (const Include& include : lex(text).includes) {
    if (wing_of(include.path) != wing) continue;
    const std::string target = room_of(include.path);
    const std::size_t from = floor_of(*wing, room), to = floor_of(*wing, target);
    if (target == room) continue;
    if (to == 0) {
      out.push_back({std::string(path), include.line, "includes \"" + include.path + "\", which stands in no room"});
    } else if (to >= from) {
      out.push_back({std::string(path), include.line,
                     room + " (floor " + std::to_string(from) + ") includes " + target + " (floor " +
                         std::to_string(to) + "): includes point to lower floors"});
    }
  }
  return out;
}

std::vector<Violation> check_room_sizes(const std::vector<std::string>& paths) {
  std::map<std::string, std::set<std::string>> units;  // by room
  for (const std::string& path : paths) {
    const std::string room = room_of(path);
    if (!room.empty()) units[room].insert(unit_of(path));
  }
  std::vector<Violation> out;
  for (const auto& [room, names] : units) {
    const std::size_t most = wing_of(room + "/")->units_most;
    if (names.size() > most) {
      out.push_back({room, 0, "has " + std::to_string(names.size()) + " units, more than " + std::to_string(most)});
    }
  }
  return out;
}

std::vector<Violation> check_circles(const std::vector<std::pair<std::string, std::string>>& files) {
  Arrows arrows;
  for (const auto& [path, text] : files) {
    const std::string room = room_of(path);
    if (room.empty() || wing_of(path)->one_engine || may_turn(room)) continue;
    for (const Include& include : lex(text).includes) {
      const std::string unit = unit_of(include.path);
      if (room_of(include.path) == room && unit != unit_of(path)) arrows[unit_of(path)].push_back({unit, include.line});
    }
  }
  std::vector<Violation> out;
  std::set<std::string> reported;
  for (const auto& [unit, targets] : arrows) {
    if (reported.contains(unit)) continue;
    std::vector<std::string> way = {unit};
    std::set<std::string> seen = {unit};
    if (!leads_back(arrows, way, seen)) continue;
    std::string text = "stands in a circle of includes: ";
    for (const std::string& step : way) {
      text += step + " -> ";
      reported.insert(step);
    }
    out.push_back({unit, targets.front().line, text + unit});
  }
  return out;
}

}  // namespace seeksim::house
