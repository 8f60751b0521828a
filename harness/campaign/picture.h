// What a study found as plain SVG: to look at, or to put into a report.
#pragma once

#include <string>

#include "harness/campaign/study_run.h"

namespace seeksim::harness::campaign {

// Goodput of each policy with its interval; along an axis of numbers where the sweep has one, as a line for each of the
// other settings.
std::string goodput_picture(const StudyResult& result);
// What each policy loses, by cause, as bars.
std::string lost_picture(const StudyResult& result);

}  // namespace seeksim::harness::campaign
