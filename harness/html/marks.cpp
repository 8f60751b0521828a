#include "harness/html/marks.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/html/escape.h"

namespace seeksim::harness::html {
namespace {

void add(std::vector<Mark>& marks, const Json& at, const char* kind, std::string text) {
  if (at.is_number()) marks.push_back({at.get<double>(), at.dump(), kind, std::move(text)});
}

std::string plain(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void add_recovery(std::vector<Mark>& marks, const Json& recovery) {
  const std::string epoch = plain(member(recovery, "epoch"));
  add(marks, member(recovery, "t_detect_s"), "detected", fmt::format("the failure of epoch {} is detected", epoch));
  add(marks, member(recovery, "t_agree_s"), "agreed", fmt::format("agreed: {}", text_member(recovery, "diagnosis")));
  add(marks, member(recovery, "t_rebuild_s"), "rebuilt",
      fmt::format("the group is rebuilt after epoch {}, survivors: {}", epoch, plain(member(recovery, "survivors"))));
  add(marks, member(recovery, "t_resumed_s"), "resumed",
      fmt::format("resumed: step {} is committed, {} steps lost", plain(member(recovery, "step")),
                  plain(member(recovery, "steps_lost"))));
}

}  // namespace

std::vector<Mark> marks_of(const Json& report) {
  std::vector<Mark> marks;
  for (const Json& fault : member(report, "faults"))
    add(marks, member(fault, "first_fired_s"), "fault",
        fmt::format("{} fires{}", text_member(fault, "kind"),
                    member(fault, "ranks").empty() ? "" : ", rank " + plain(member(fault, "ranks"))));
  for (const Json& recovery : member(report, "recoveries")) {
    const Json& struck = member(recovery, "t_inject_s");
    const bool known = std::any_of(marks.begin(), marks.end(), [&](const Mark& mark) {
      return mark.kind == "fault" && struck.is_number() && mark.at_s == struck.get<double>();
    });
    if (!known) add(marks, struck, "fault", fmt::format("{} fires again", text_member(recovery, "fault")));
    add_recovery(marks, recovery);
  }
  const Json& attempts = member(report, "attempts");
  for (std::size_t i = 1; i < attempts.size(); ++i)
    add(marks, member(attempts[i], "began_s"), "restart",
        fmt::format("the job starts again with step {}", plain(member(attempts[i], "first_step"))));
  std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  return marks;
}

}  // namespace seeksim::harness::html
