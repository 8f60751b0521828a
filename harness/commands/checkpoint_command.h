// `seeksim checkpoint inspect|verify|convert`: checkpoints in real files, looked at without the run that wrote them.
#pragma once

#include <string>

#include "harness/report/report.h"
#include "harness/verdict/exit_status.h"

namespace seeksim::harness {

// folder: of checkpoints, or of one. All throw BadInput where there is none.

// Which there are, and of each what it holds.
ExitStatus inspect_checkpoints(const std::string& folder, const Style& style);
// Reads all files of each. Exit status 1 where one has a manifest and is not whole, or none is whole.
ExitStatus verify_checkpoints(const std::string& folder, const Style& style);
// The weights of the newest that is whole (or of the one that is named), in one file under Hugging Face's names.
ExitStatus convert_checkpoint(const std::string& folder, const std::string& out);

}  // namespace seeksim::harness
