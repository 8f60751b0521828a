// What the text logs of a job tell about its hang. Numbers of different groups are not compared; a rank is accused only
// where a line speaks against it, and silence is no such line.
#pragma once

#include "harness/analyse/log_lines.h"
#include "harness/analyse/story.h"

namespace seeksim::harness {

Story judge_logs(const LogFacts& facts);

}  // namespace seeksim::harness
