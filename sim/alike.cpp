// When ranks of a class are not alike any more, and how that is found.
#include "sim/alike.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core.h"

namespace seeksim::sim {

std::size_t Core::simulated_of(const std::vector<int>& some) const {
  if (plan.classes == nullptr) return some.size();
  return std::size_t(std::count_if(some.begin(), some.end(), [this](int id) { return simulated(id); }));
}

void Core::tell_apart(const std::string& why) {
  if (plan.classes == nullptr || !told_apart.empty()) return;
  told_apart = why;
  ended(why);
}

void Core::tell_apart(int id, const std::string& why) {
  tell_apart(why);
  if (plan.classes != nullptr) throw runtime::RankDied{id};
}

void collect_courses(Core& core, WorldResult& out) {
  using runtime::MemoryTag, runtime::OpKind, runtime::Space;
  std::vector<std::uint64_t> own(core.ranks.size());
  for (const auto& rank : core.ranks) {
    if (rank == nullptr) continue;
    Course course = rank->device.course();
    for (std::size_t tag = 0; tag < std::size_t(MemoryTag::count_); ++tag) {
      for (const Space space : {Space::device, Space::host, Space::pinned})
        course.holds(tag << 56 ^ std::uint64_t(space) << 48 ^ rank->device.use(MemoryTag(tag), space).peak);
    }
    for (const Space space : {Space::device, Space::host, Space::pinned})
      course.holds(~std::uint64_t(space) << 48 ^ rank->device.use_total(space).peak);
    for (std::size_t kind = 0; kind < std::size_t(OpKind::count_); ++kind) {
      const SimTransport::Use& use = rank->transport.use()[kind];
      course.holds(Course::mix(kind << 56 ^ use.calls) ^ use.bytes);
    }
    own[std::size_t(rank->host.rank())] = course.digest();
  }
  for (int id = 0; id < core.plan.ranks(); ++id) out.courses.push_back(own[std::size_t(core.stand_in(id))]);
  out.told_apart = core.told_apart;
  if (core.plan.classes == nullptr || !out.told_apart.empty()) return;
  for (const auto& [one, other] : core.plan.classes->twins) {
    if (own[std::size_t(one)] == own[std::size_t(other)]) continue;
    out.told_apart = fmt::format("ranks {} and {} did not do the same", one, other);
    return;
  }
}

}  // namespace seeksim::sim
