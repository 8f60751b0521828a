#include "harness/torch/show/trace.h"

#include <fmt/format.h>

#include <map>

#include <nlohmann/json.hpp>

#include "harness/export/trace_words.h"
#include "harness/input/json.h"
#include "harness/torch/show/spans.h"
#include "pytorch/core/rules.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::CallEntry;
using pytorch::RankRecord;

// Threads of a rank, in the order in which they are shown. Collectives of a group come one after the other, so each
// group has a thread; messages of two ranks run beside them.
enum Thread : int { kSteps, kPhases, kMessages, kFirstGroup };

class Trace {
 public:
  explicit Trace(const TorchRun& run) : run_(run) {}

  std::string text() {
    out_ = "{\"displayTimeUnit\":\"ms\",\"otherData\":" + about() + ",\n\"traceEvents\":[";
    for (const RankSpans& spans : spans_of(run_)) rank(spans);
    return std::move(out_) + "\n]}\n";
  }

 private:
  std::string about() const {
    const bool known = !run_.ranks.empty() && run_.ranks.front().record;
    return Json({{"script", run_.command},
                 {"time", "real"},
                 {"ranks", run_.ranks.size()},
                 {"torch", known ? run_.ranks.front().record->now.torch : ""}})
        .dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void line(const std::string& text) {
    out_ += lines_++ == 0 ? "\n" : ",\n";
    out_ += text;
  }
  void name(const char* what, int rank, int thread, const std::string& text) {
    line(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, rank, thread,
                     as_json_text(text)));
  }
  // args: members of an object, empty for none.
  void span(int rank, int thread, const std::string& text, std::int64_t begin_ns, std::int64_t end_ns,
            const char* colour, const std::string& args) {
    const std::string in_colour = colour == nullptr ? "" : fmt::format(R"("cname":"{}",)", colour);
    line(fmt::format(R"({{"ph":"X","name":{},{}"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})", as_json_text(text),
                     in_colour, rank, thread, in_microseconds(begin_ns), in_microseconds(end_ns - begin_ns), args));
  }

  void rank(const RankSpans& spans) {
    const RankRecord& record = *run_.ranks[std::size_t(spans.rank)].record;
    name("process_name", spans.rank, 0, fmt::format("rank {}", spans.rank));
    name("thread_name", spans.rank, kSteps, "steps");
    name("thread_name", spans.rank, kPhases, "phases");
    for (const StepSpan& step : spans.steps)
      span(spans.rank, kSteps, fmt::format("step {}", step.step), step.begin_ns, step.end_ns, nullptr, "");
    for (const PhaseSpan& phase : spans.phases)
      span(spans.rank, kPhases, std::string(pytorch::name(phase.phase)), phase.begin_ns, phase.end_ns,
           trace_colour(pytorch::catalogue_phase(phase.phase)),
           fmt::format(R"("step":{},"micro_batch":{})", phase.step, phase.micro_batch));
    std::map<int, std::string> threads;
    for (const CallSpan& call : spans.calls) {
      const bool message = call.call->seq == 0 || call.call->group < 0;
      const int thread = message ? int(kMessages) : kFirstGroup + call.call->group;
      threads[thread] = message ? "sends and receives" : "group " + group_of(record, call.call->group).name;
      collective(record, spans.rank, thread, call);
    }
    for (const auto& [thread, text] : threads) name("thread_name", spans.rank, thread, text);
    for (const Moment& moment : spans.moments)
      line(fmt::format(R"({{"ph":"i","s":"p","name":{},"pid":{},"tid":{},"ts":{}}})", as_json_text(moment.text),
                       spans.rank, int(kPhases), in_microseconds(moment.at_ns)));
  }

  void collective(const RankRecord& record, int rank, int thread, const CallSpan& span_of) {
    const CallEntry& call = *span_of.call;
    const std::string frame = own_frame(record.text(call.stack));
    std::string args = fmt::format(R"("number":{},"step":{},"phase":"{}","dtype":"{}","bytes":{},"shape":{})", call.seq,
                                   call.step, pytorch::name(call.phase), pytorch::name(call.dtype), call.bytes,
                                   as_json_text(record.text(call.shape)));
    if (!frame.empty()) args += R"(,"called_at":)" + as_json_text(frame);
    if (call.state != pytorch::CallState::finished) args += fmt::format(R"(,"state":"{}")", pytorch::name(call.state));
    span(rank, thread, std::string(pytorch::name(call.op)), span_of.begin_ns, span_of.end_ns,
         call.state == pytorch::CallState::finished ? nullptr : "terrible", args);
    if (span_of.waits_for >= 0 && span_of.waited_until_ns > span_of.begin_ns)
      span(rank, thread, fmt::format("waits for rank {}", span_of.waits_for), span_of.begin_ns, span_of.waited_until_ns,
           "thread_state_uninterruptible", "");
  }

  const TorchRun& run_;
  std::string out_;
  std::size_t lines_ = 0;
};

}  // namespace

std::string trace_text(const TorchRun& run) { return Trace(run).text(); }

}  // namespace seeksim::harness::torch
