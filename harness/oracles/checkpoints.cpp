#include "harness/oracles/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>

namespace seeksim::harness {

Finding checkpoints_valid(const Evidence& e, const std::string&) {
  const auto& begun = e.run.training.checkpoints;
  const std::vector<FoundCheckpoint>& found = e.run.training.found_checkpoints;
  for (const FoundCheckpoint& one : found) {
    if (!one.problem.empty())
      return bad(fmt::format("the one of step {} has a manifest and {}", one.step, one.problem));
  }
  const auto complete = std::count_if(begun.begin(), begun.end(), [](const Checkpoint& c) { return c.complete; });
  if (found.empty() && complete > 0) return bad(fmt::format("{} were complete, but none is left", complete));
  if (found.empty()) return blind(fmt::format("no checkpoint was completed ({} were started)", begun.size()));
  return good(fmt::format("{} left of {} that were complete, the newest of step {}: every file has its size and digest",
                          found.size(), complete, found.front().step));
}

bool last_checkpoint_to_judge(const Evidence& e) {
  const runtime::CheckpointPlan& plan = e.scenario.train.checkpoint;
  const bool finished = std::any_of(e.run.ranks.begin(), e.run.ranks.end(),
                                    [](const RankRecord& rank) { return rank.how == RankRecord::How::finished; });
  return plan.on() && plan.at_end && e.run.has_values && finished;
}

Finding saved_at_end(const Evidence& e, const std::string&) {
  if (!last_checkpoint_to_judge(e)) return blind("no rank finished, or no checkpoint was wanted after the last step");
  const std::int64_t last = e.scenario.train.definition.steps;
  const auto& begun = e.run.training.checkpoints;
  // One that a recovery gave up can be whole on the disks: its last writer died after its last write.
  for (const FoundCheckpoint& found : e.run.training.found_checkpoints) {
    if (found.step == last && found.problem.empty())
      return good(fmt::format("the checkpoint after step {} is whole on the disks", last - 1));
  }
  std::string why = "it was never begun";
  for (const Checkpoint& one : begun) {
    if (one.step != last) continue;
    if (one.complete) return good(fmt::format("the checkpoint after step {} is complete", last - 1));
    why = one.why.empty() ? "it was begun and never completed" : one.why;
  }
  return bad(
      fmt::format("the run finished without the checkpoint after step {}, which at_end asks for: {}", last - 1, why));
}

Finding restarts(const Evidence& e, const std::string& wanted) {
  const std::size_t n = e.run.training.attempts.empty() ? 0 : e.run.training.attempts.size() - 1;
  const std::string detail = fmt::format("the job was restarted {} times", n);
  return n == std::stoull(wanted) ? good(detail) : bad(detail);
}

Finding steps_lost(const Evidence& e, const std::string& limit) {
  if (e.run.detection.recoveries.empty() && e.run.training.attempts.size() < 2)
    return blind("there was no recovery, so no step could be lost");
  std::int64_t lost = 0;
  for (const Recovery& recovery : e.run.detection.recoveries) lost += recovery.steps_lost;
  for (const Attempt& attempt : e.run.training.attempts) lost += attempt.steps_lost;
  const std::string detail = fmt::format("{} lost", lost);
  return lost <= std::stoll(limit) ? good(detail) : bad(detail);
}

}  // namespace seeksim::harness
