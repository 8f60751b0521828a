#include "harness/scenario/monitors.h"

#include <filesystem>

namespace seeksim::harness {

std::string folder_of(const Monitor& monitor) {
  const std::filesystem::path folder =
      (std::filesystem::path(monitor.output_path) / monitor.job_name / "").lexically_normal();
  const bool leaves = folder.is_absolute() || (!folder.empty() && *folder.begin() == "..");
  if (leaves || folder.native().find('\0') != std::string::npos) return "";
  return folder.empty() ? "./" : folder.native();
}

}  // namespace seeksim::harness
