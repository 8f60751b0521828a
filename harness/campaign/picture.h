// What a study found as plain SVG: to look at, or to put into a report.
#pragma once

#include <string>

#include "harness/campaign/study_run.h"

namespace seeksim::harness::campaign {

// Goodput of each policy with its interval; along an axis of numbers where the sweep has one, as a line for each of the
// other settings.
std::string goodput_picture(const StudyResult& result);
// How likely the job runs for so long without an unplanned stop, a curve for each of the first policies.
std::string survival_picture(const StudyResult& result);
// What each policy loses, by cause, as bars.
std::string lost_picture(const StudyResult& result);

}  // namespace seeksim::harness::campaign
