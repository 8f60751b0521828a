#include "harness/processes/job_metrics.h"

#include <fmt/format.h>

#include <cmath>

namespace seeksim::harness {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Text {
 public:
  explicit Text(const std::string& scenario) : labels_(fmt::format("scenario=\"{}\"", escaped(scenario))) {}

  void gauge(const char* name, const char* help, double value) { put(name, "gauge", "", help, value); }
  void counter(const char* name, const char* help, double value) { put(name, "counter", "_total", help, value); }
  std::string end() && { return std::move(text_) + "# EOF\n"; }

 private:
  void put(const char* name, const char* type, const char* suffix, const char* help, double value) {
    text_ += fmt::format("# TYPE seeksim_{0} {1}\n# HELP seeksim_{0} {2}\nseeksim_{0}{3}{{{4}}} {5}\n", name, type,
                         help, suffix, labels_, number(value));
  }

  std::string labels_, text_;
};

// The last number of a list of the report; words stand for what is not finite.
std::optional<double> last_of(const Json& report, const char* key) {
  const auto list = report.find(key);
  if (list == report.end() || !list->is_array() || list->empty()) return std::nullopt;
  const Json& last = list->back();
  if (last.is_number()) return last.get<double>();
  if (last == "NaN") return std::nan("");
  if (last == "Infinity") return INFINITY;
  if (last == "-Infinity") return -INFINITY;
  return std::nullopt;
}

void put_report(const Json& report, Text& text) {
  if (!report.is_object()) return;
  if (const auto steps = report.find("steps_committed"); steps != report.end() && steps->is_number_unsigned())
    text.counter("steps_committed", "Steps that all ranks have committed.", steps->get<double>());
  if (const auto loss = last_of(report, "loss")) text.gauge("loss", "Loss of the last step.", *loss);
  if (const auto norm = last_of(report, "grad_norm"))
    text.gauge("grad_norm", "Norm of the last step's gradient, before clipping.", *norm);
  if (const auto scale = last_of(report, "loss_scale"))
    text.gauge("loss_scale", "Loss scale of the last step.", *scale);
  if (const auto checks = report.find("checks"); checks != report.end() && checks->is_array()) {
    int red = 0;
    for (const Json& check : *checks) red += check.is_object() && !check.value("ok", true);
    text.gauge("checks_red", "Checks that failed.", red);
  }
}

}  // namespace

std::string openmetrics_text(const JobState& s) {
  Text text(s.scenario);
  text.gauge("ranks", "Ranks of the job.", s.ranks);
  text.gauge("ranks_ready", "Processes that have met the others.", s.ready);
  text.gauge("ranks_gone", "Processes that ended without a goodbye.", s.gone);
  text.gauge("ranks_silent", "Processes whose heartbeats have stopped.", s.silent);
  text.counter("job_restarts", "How often the job was started again.", s.attempt);
  text.counter("connections_refused", "Strangers that were refused.", double(s.refused));
  text.gauge("job_running_seconds", "Since the first start.", s.running_s);
  text.gauge("job_ended", "1 once the job has ended.", s.exit_status ? 1 : 0);
  if (s.exit_status) text.gauge("job_exit_status", "Exit status of the job.", *s.exit_status);
  put_report(s.report, text);
  return std::move(text).end();
}

}  // namespace seeksim::harness
