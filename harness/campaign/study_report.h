// What a study found, for people, spreadsheets and programs; and whether it is as published.
#pragma once

#include <string>

#include "harness/campaign/study_run.h"
#include "harness/report/report.h"

namespace seeksim::harness::campaign {

struct StudyCheck {
  std::string name;
  bool ok = false;
  std::string detail;
};
// That all time adds up, in every campaign; published figures; Young's and Daly's formula where the study asks for it.
std::vector<StudyCheck> checks_of(const StudyResult& result);
// bug: time does not add up, or a process broke.
ExitStatus status_of(const StudyResult& result);

// Everything above the table, and everything below it, folded to the screen by whoever prints them.
std::string study_head(const StudyResult& result, const Style& style);
std::string study_tail(const StudyResult& result, const Style& style);
// A row a policy.
std::string study_table(const StudyResult& result);

// A line a policy: settings, then of each figure its mean and its interval, then shares of the time by cause.
std::string study_csv(const StudyResult& result);
Json study_json(const StudyResult& result);

// "every_s=600 hot=8", "the study" where there is no sweep.
std::string label_of(const StudyResult& result, const PolicyResult& policy);

}  // namespace seeksim::harness::campaign
