#include "harness/report/bundle.h"

#include <nlohmann/json.hpp>

#include "harness/export/flight_recorder.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/loading/load.h"
#include "harness/loading/schedule_string.h"
#include "harness/verdict/stop_reason.h"

namespace seeksim::harness {

extern const char* const kBuildInfo;

bool wants_bundle(const Judgement& judgement) {
  return judgement.status != ExitStatus::as_expected || !judgement.stopped.empty();
}

Json analyses_json(const RunRecord& run) {
  Json all = Json::array();
  for (const Recovery& recovery : run.detection.recoveries) {
    if (recovery.analysis) all.push_back(analysis_json(*recovery.analysis));
  }
  const bool telling =
      run.end != sim::WorldEnd::finished || (run.detection.at_the_end && run.detection.at_the_end->slow);
  if (run.detection.at_the_end && telling) all.push_back(analysis_json(*run.detection.at_the_end));
  return all;
}

void write_bundle(const std::string& folder, const Evidence& e, const Judgement& j, const std::string& story) {
  make_folder(folder, "--bundle");
  write_file(folder + "/scenario.json", dump(to_json(e.scenario)));
  write_file(folder + "/story.txt", story);
  write_file(folder + "/analysis.json", dump(analyses_json(e.run)));
  Json run = {{"scenario", e.scenario.name},
              {"seed", e.scenario.world.seed},
              {"schedule", schedule_string(e.scenario)},
              {"program", kBuildInfo},
              {"exit_code", code(j.status)},
              {"sentence", j.sentence},
              {"stopped", j.stopped.empty() ? Json(nullptr) : Json(j.stopped)}};
  if (!j.stopped.empty()) {
    const StopReason why = classify(e.run, j.stopped);
    run["failure_domain"] = why.domain;
    run["outlook"] = why.outlook;
  }
  write_file(folder + "/run.json", dump(run));
  write_dumps(folder, e.scenario, e.run);
}

}  // namespace seeksim::harness
