#include "harness/doctor/job.h"

#include <fmt/format.h>

#include <filesystem>

#include "harness/doctor/hostfile.h"
#include "harness/doctor/launch.h"
#include "harness/input/files.h"
#include "harness/loading/deepspeed/auto_values.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

// A file that a launch line names: as it stands, or beside the launch line. Empty: there is none.
std::string found_beside(const std::string& launch, const std::string& named) {
  std::error_code none;
  if (named.empty() || named.find('$') != std::string::npos) return "";
  const std::string beside = (std::filesystem::path(launch).parent_path() / named).string();
  for (const std::string& path : {named, beside}) {
    if (std::filesystem::is_regular_file(path, none)) return path;
  }
  return "";
}

class Job {
 public:
  explicit Job(JobFiles files) : files_(std::move(files)) {}

  std::vector<JobAdvice> lint() {
    if (!files_.launch.empty()) read_launch_line();
    if (!files_.hostfile.empty()) read_hostfile();
    if (!files_.config.empty()) read_config();
    return std::move(found_);
  }

 private:
  void read_launch_line() {
    launch_ = read_launch(read_file(files_.launch, kJsonBytesMax), files_.launch);
    std::vector<Advice> advice = launch_.advice;
    for (Advice& one : lint_environment(launch_.environment)) advice.push_back(std::move(one));
    if (launch_.ranks > 0) {
      advice.push_back({Weight::note,
                        {files_.launch, "",
                         fmt::format("{} starts {} ranks{}", launch_.launcher, launch_.ranks,
                                     launch_.nodes > 1 ? fmt::format(" on {} nodes", launch_.nodes) : ""),
                         ""}});
    }
    if (launch_.ranks > 0 && files_.gpus > 0 && launch_.ranks != files_.gpus)
      advice.push_back(
          {Weight::wrong,
           {files_.launch, "", fmt::format("starts {} ranks, and --gpus says {}", launch_.ranks, files_.gpus), ""}});
    if (files_.gpus == 0) files_.gpus = launch_.ranks;
    found_.push_back({files_.launch, std::move(advice)});
    if (files_.config.empty()) files_.config = found_beside(files_.launch, launch_.config);
    if (files_.hostfile.empty()) files_.hostfile = found_beside(files_.launch, launch_.hostfile);
  }

  void read_hostfile() {
    const std::string text = read_file(files_.hostfile, kJsonBytesMax);
    std::vector<Advice> advice = lint_hostfile(text, files_.hostfile);
    const std::int64_t slots = slots_of(text);
    if (slots > 0 && files_.gpus > slots)
      advice.push_back(
          {Weight::wrong, {files_.hostfile, "", fmt::format("{} slots for {} ranks", slots, files_.gpus), ""}});
    else if (slots > 0 && files_.gpus > 0 && files_.gpus < slots)
      advice.push_back(
          {Weight::doubtful, {files_.hostfile, "", fmt::format("{} of {} slots are used", files_.gpus, slots), ""}});
    if (files_.gpus == 0) files_.gpus = slots;
    found_.push_back({files_.hostfile, std::move(advice)});
  }

  void read_config() {
    read_file(files_.config, kJsonBytesMax);
    std::vector<std::string> sets = sets_of_auto(launch_.autos);
    for (std::string& set : sets_of_auto(files_.autos)) sets.push_back(std::move(set));
    Document document = Document::from_text(Json({{"deepspeed", files_.config}}).dump(), files_.config, sets);
    std::vector<Advice> advice = lint_config(std::move(document), files_.config, files_.gpus, files_.gpus_before);
    // The script has its arguments whether or not the file leaves something to them.
    if (files_.autos.empty())
      std::erase_if(advice, [](const Advice& one) { return one.problem.path.starts_with("auto."); });
    found_.push_back({files_.config, std::move(advice)});
  }

  JobFiles files_;
  Launch launch_;
  std::vector<JobAdvice> found_;
};

}  // namespace

std::vector<JobAdvice> lint_job(const JobFiles& files) { return Job(files).lint(); }

}  // namespace seeksim::harness
