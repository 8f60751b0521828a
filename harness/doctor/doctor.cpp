#include "harness/doctor/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "harness/doctor/machine.h"
#include "harness/input/scenario_files.h"
#include "harness/report/terminal.h"

extern char** environ;

namespace seeksim::harness {

extern const char* const kBuildInfo;

namespace {

// True: seeksim can be trusted with what was looked at.
bool report(const Probe& probe, const Style& style) {
  const std::string state = probe.state == Probe::State::good      ? style.good("ok  ")
                            : probe.state == Probe::State::missing ? style.faint("--  ")
                                                                   : style.bad("FAIL");
  put(fmt::format("  {}  {:<12} {}{}\n", state, probe.subject, probe.text,
                  probe.next.empty() ? "" : ". " + probe.next));
  return probe.state != Probe::State::bad;
}

bool report_machine(const Style& style) {
  std::vector<Probe> probes = {{Probe::State::good, "build", kBuildInfo, ""}};
  const auto add = [&](const std::vector<Probe>& more) { probes.insert(probes.end(), more.begin(), more.end()); };
  add(probe_processor());
  add({{Probe::State::good, "scenarios", scenarios_folder(), ""}, probe_storage(".")});
  add(probe_gpus());
  add({probe_mpi()});
  const bool can_compute =
      std::none_of(probes.begin(), probes.end(), [](const Probe& p) { return p.state == Probe::State::bad; });
  if (can_compute) add({probe_conformance()});
  bool well = true;
  for (const Probe& probe : probes) well &= report(probe, style);
  return well;
}

Environment environment() {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

// True: none of it is wrong.
bool report(const char* about, std::vector<Advice> advice, const Style& style) {
  std::stable_sort(advice.begin(), advice.end(), [](const Advice& a, const Advice& b) { return a.weight < b.weight; });
  put(fmt::format("\n{}\n", style.bold(about)));
  if (advice.empty()) put("  ok    nothing to say\n");
  for (const Advice& one : advice) {
    const std::string word = fmt::format("{:<8}", name(one.weight));
    const std::string painted = one.weight == Advice::Weight::wrong      ? style.bad(word)
                                : one.weight == Advice::Weight::doubtful ? style.bold(word)
                                                                         : style.faint(word);
    put(fmt::format("  {}  {}\n", painted, one.problem.text()));
  }
  return std::none_of(advice.begin(), advice.end(),
                      [](const Advice& one) { return one.weight == Advice::Weight::wrong; });
}

}  // namespace

ExitStatus doctor_command(const DoctorArguments& a, const Style& style) {
  // Before anything is printed: what cannot be read is bad input.
  const std::vector<JobAdvice> job = lint_job(a);
  const bool machine = report_machine(style);
  bool sane = report("environment", lint_environment(environment()), style);
  for (const JobAdvice& one : job) sane &= report(one.about.c_str(), one.advice, style);
  if (!machine) return ExitStatus::bad_input;
  return sane ? ExitStatus::as_expected : ExitStatus::check_failed;
}

}  // namespace seeksim::harness
