#include "harness/analyse/log_lines.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

namespace seeksim::harness {
namespace {

constexpr std::size_t kLineMost = 4096, kTextMost = 160, kReportsMost = 100'000;
constexpr int kRanksMost = 1 << 20;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The number behind a word; -1: there is none, or it is no number of a job.
std::int64_t number_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return -1;
  std::int64_t number = -1;
  const char* from = text.data() + at + word.size();
  if (std::from_chars(from, text.data() + text.size(), number).ec != std::errc()) return -1;
  return number >= 0 ? number : -1;
}
int rank_after(std::string_view text, std::string_view word) {
  const std::int64_t rank = number_after(text, word);
  return rank < kRanksMost ? int(rank) : -1;
}
// What stands behind a word, up to a character; brackets hold their own commas.
std::string value_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return "";
  std::string_view rest = text.substr(at + word.size());
  const std::size_t end = rest.starts_with('[') ? rest.find(']') + 1 : rest.find_first_of(",)");
  return std::string(rest.substr(0, std::min(end, kTextMost)));
}

std::string shown(std::string_view text) {
  std::string out(text.substr(0, kTextMost));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return out;
}

// Without colours and other escapes of a terminal.
std::string plain(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size() && i < kLineMost; ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      while (i < line.size() && std::isalpha(static_cast<unsigned char>(line[i])) == 0) ++i;
      continue;
    }
    out += line[i];
  }
  return out;
}

struct Prefix {
  int rank = -1;
  std::string_view rest;
};

// "[rank3]:", "[default3]:", "3: ", "[1,3]<stderr>:", "(Worker pid=7, ip=...) ", in any order and number.
Prefix take_prefixes(std::string_view line) {
  Prefix p{-1, line};
  for (bool more = true; more;) {
    more = false;
    while (p.rest.starts_with(' ')) p.rest.remove_prefix(1);
    std::size_t end = std::string_view::npos;
    int rank = -1;
    if (p.rest.starts_with("[rank")) {
      rank = rank_after(p.rest, "[rank"), end = p.rest.find(']');
    } else if (p.rest.starts_with("[default")) {
      rank = p.rank >= 0 ? p.rank : rank_after(p.rest, "[default"), end = p.rest.find(']');
    } else if (p.rest.starts_with("[1,") &&
               (has(p.rest.substr(0, 20), "<stdout>") || has(p.rest.substr(0, 20), "<stderr>"))) {
      rank = rank_after(p.rest, "[1,"), end = p.rest.find('>');
    } else if (p.rest.starts_with('(') && has(p.rest.substr(0, 80), " pid=")) {
      end = p.rest.find(')');
      if (end != std::string_view::npos) p.rest.remove_prefix(end + 1), more = true;
      continue;
    } else if (!p.rest.empty() && is_digit(p.rest[0]) && p.rank < 0) {
      const std::size_t colon = p.rest.find_first_not_of("0123456789");
      if (colon != std::string_view::npos && colon <= 6 && p.rest.substr(colon).starts_with(": "))
        rank = rank_after(p.rest, ""), end = colon - 1;
    }
    if (rank < 0 || end == std::string_view::npos) continue;
    p.rank = rank;
    p.rest.remove_prefix(end + 1);
    if (p.rest.starts_with(':')) p.rest.remove_prefix(1);
    more = true;
  }
  return p;
}

// rank_3.log, worker-3.out, 3/stderr.log
int rank_of_file(const std::string& name) {
  for (const char* word : {"rank_", "rank-", "rank", "task_", "task", "worker_", "worker-"}) {
    const std::string base = name.substr(name.rfind('/') + 1);
    if (const int rank = rank_after(base, word); rank >= 0) return rank;
  }
  const std::size_t slash = name.rfind('/');
  if (slash == std::string::npos || slash == 0) return -1;
  const std::string folder = name.substr(0, slash);
  const std::string last = folder.substr(folder.rfind('/') + 1);
  const bool number = !last.empty() && last.size() < 7 && std::all_of(last.begin(), last.end(), is_digit);
  return number && name.substr(slash + 1).starts_with("std") ? std::stoi(last) : -1;
}

// What follows when another rank has gone or a timeout has struck.
bool only_follows(std::string_view text) {
  static constexpr std::string_view kWords[] = {"Connection closed by",
                                                "Connection reset by",
                                                "Broken pipe",
                                                "NCCL communicator was aborted",
                                                "collective operation",
                                                "timed out",
                                                "Timed out",
                                                "Timeout",
                                                "timeout",
                                                "ncclRemoteError",
                                                "remote process exited",
                                                "ChildFailedError",
                                                "SignalException",
                                                "SIGTERM",
                                                "TCPStore",
                                                "DistNetworkError",
                                                "NCCL error",
                                                "unhandled system error",
                                                "Application timeout caused pair closure",
                                                "KeyboardInterrupt",
                                                "c10::DistBackendError",
                                                "recvValue failed",
                                                "CalledProcessError",
                                                "RayTaskError",
                                                "Connection refused"};
  return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view w) { return has(text, w); });
}

// "ValueError: ...", "torch.cuda.OutOfMemoryError: ...": the last line of a traceback.
bool is_exception_line(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' || text[end] == '.'))
    ++end;
  const std::string_view name = text.substr(0, end);
  const bool named =
      name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Interrupt") || name == "StopIteration";
  return named && (end == text.size() || text[end] == ':') && (name.size() > 5);
}

bool is_fatal(std::string_view text) {
  static constexpr std::string_view kWords[] = {"CUDA error: ",
                                                "Segmentation fault",
                                                "Bus error",
                                                "Fatal Python error",
                                                "oom_kill",
                                                "oom-kill",
                                                "Out of memory: Killed process",
                                                "is killed by signal",
                                                "No space left on device",
                                                "Cuda failure",
                                                "device-side assert triggered"};
  return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view w) { return has(text, w); });
}

class Lines {
 public:
  Lines(const std::string& name, LogFacts& facts) : facts_(facts), of_file_(rank_of_file(name)) {}

  void add(std::string_view raw) {
    ++facts_.lines;
    const std::string line = plain(raw);
    const Prefix p = take_prefixes(line);
    rank_ = p.rank >= 0 ? p.rank : of_file_;
    if (rank_ >= 0) ++facts_.speaks[rank_];
    const std::string_view text = p.rest;
    settings(text);
    if (work(text) || absence(text) || fingerprint(text) || launcher(text) || nccl(text)) return;
    error(text);
  }

 private:
  void settings(std::string_view text) {
    facts_.nccl_info = facts_.nccl_info || has(text, "NCCL INFO");
    facts_.debug_detail = facts_.debug_detail || has(text, "CollectiveFingerPrint");
    facts_.recorder = facts_.recorder || has(text, "Stack trace of the failed collective:");
    if (const std::int64_t n = number_after(text, " nranks "); n > 0 && n < kRanksMost && has(text, "NCCL INFO"))
      facts_.world = std::max(facts_.world, int(n));
    if (const std::int64_t n = number_after(text, "world_size="); n > 0 && n < kRanksMost)
      facts_.world = std::max(facts_.world, int(n));
  }

  // "[PG ID 1 PG GUID 3(tensor) Rank 0]", "[PG 0 (default_pg) Rank 3]", "[Rank 3]": the rank is the group's own, and
  // the job's only in the default group. The launcher's prefix is the job's.
  void who(std::string_view text, WorkReport& report) const {
    const std::size_t at = text.find("[PG ");
    if (at != std::string_view::npos) {
      std::string_view part = text.substr(at, text.find(']', at) - at);
      const std::size_t guid = part.find("GUID ");
      part = guid != std::string_view::npos ? part.substr(guid + 5) : part.substr(4);
      const std::size_t end = part.find(" Rank ");
      report.group = shown(part.substr(0, end));
      if (rank_ < 0 && (has(report.group, "default_pg") || report.group == "0"))
        report.rank = rank_after(part, " Rank ");
    }
    if (rank_ >= 0) report.rank = rank_;
  }

  bool work(std::string_view text) {
    WorkReport report;
    who(text, report);
    const std::size_t at = text.find("WorkNCCL(");
    const bool watchdog = has(text, "Watchdog caught collective operation timeout");
    if (watchdog && at != std::string_view::npos && !has(text, "terminated with exception")) {
      const std::string_view fields = text.substr(at + 9);
      report.timed_out = true;
      report.number = number_after(fields, "SeqNum=");
      report.operation = value_after(fields, "OpType=");
      report.elements = value_after(fields, has(fields, "NumelIn=") ? "NumelIn=" : "TensorShape=");
      if (report.rank < 0) report.rank = rank_after(text, "[Rank ");
    } else if (has(text, "last enqueued") || has(text, "Last enqueued")) {
      report.number = std::max(number_after(text, "at work: "),
                               std::max(number_after(text, "NCCL work: "), number_after(text, "work sequence id: ")));
      if (has(text, "ast enqueued NCCL work: ") && !has(text, "Timeout at NCCL work"))
        report.number = number_after(text, "at work: ");
      report.enqueued =
          std::max(number_after(text, "ast enqueued NCCL work: "), number_after(text, "last enqueued work: "));
      report.completed =
          std::max(number_after(text, "ast completed NCCL work: "), number_after(text, "last completed work: "));
    } else {
      return watchdog;
    }
    if (facts_.works.size() < kReportsMost) facts_.works.push_back(report);
    return true;
  }

  bool absence(std::string_view text) {
    AbsenceReport report;
    if (has(text, "failed to pass monitoredBarrier")) {
      const std::size_t end = text.find("failed to pass");
      std::size_t at = text.find("Ranks ");
      if (at > end) at = text.rfind("Rank ", end);
      if (at > end) return true;  // the line was cut before it, so it names nobody
      report.ranks = ranks_in(text.substr(at, end - at));
      report.text = shown(text.substr(at));
    } else if (has(text, "but didn't join collective")) {
      const std::size_t open = text.find('[');
      report.ranks = ranks_in(text.substr(open == std::string_view::npos ? 0 : open, text.find(']') - open));
      report.text = shown(text);
    } else if (has(text, "successfully reached monitoredBarrier")) {
      return true;
    } else {
      return false;
    }
    if (!report.ranks.empty() && facts_.absences.size() < kReportsMost) facts_.absences.push_back(report);
    return true;
  }
  static std::vector<int> ranks_in(std::string_view text) {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < text.size() && ranks.size() < 4096; ++i) {
      if (!is_digit(text[i])) continue;
      int rank = 0;
      const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), rank);
      if (error == std::errc() && rank < kRanksMost) ranks.push_back(rank);
      i = std::size_t(end - text.data());
    }
    return ranks;
  }

  // "Detected mismatch ... Rank 1 is running collective: CollectiveFingerPrint(...), but Rank 0 is running ...".
  bool fingerprint(std::string_view text) {
    if (!has(text, "Detected mismatch between collectives")) return false;
    for (std::size_t at = text.find("Rank "); at != std::string_view::npos; at = text.find("Rank ", at + 5)) {
      const std::string_view rest = text.substr(at);
      if (!has(rest.substr(0, 40), "is running")) continue;
      const std::string_view own = rest.substr(0, rest.find(", but Rank"));
      FingerprintReport report{rank_after(rest, "Rank "), value_after(own, "OpType="),
                               value_after(own, "TensorShape=")};
      if (report.rank >= 0 && facts_.fingerprints.size() < kReportsMost) facts_.fingerprints.push_back(report);
    }
    return true;
  }

  // A process that ended by a signal, as srun, mpirun, torchrun and deepspeed tell it.
  bool launcher(std::string_view text) {
    if (has(text, "srun: error:") && has(text, "task ")) {
      const bool killed = has(text, "Killed") || has(text, "Out Of Memory") || has(text, "Segmentation fault");
      return put(rank_after(text, "task "), text, !killed);
    }
    if (has(text, "noticed that process rank "))
      return put(rank_after(text, "process rank "), text, has(text, "signal 15") || has(text, "signal 6"));
    if (has(text, "failed (exitcode: ")) {
      const std::size_t at = text.find("failed (exitcode: ");
      const bool killed = has(text.substr(at), "exitcode: -9)") || has(text.substr(at), "exitcode: -11)") ||
                          has(text.substr(at), "exitcode: -7)");
      if (killed) return put(rank_after(text, "local_rank: "), text, false);
      return true;
    }
    return has(text, "ChildFailedError");
  }

  bool nccl(std::string_view text) {
    const std::size_t at = text.find("NCCL WARN ");
    if (at == std::string_view::npos) return has(text, "NCCL INFO");
    const std::string_view said = text.substr(at + 10);
    ErrorReport report{rank_, facts_.lines, shown(said),
                       only_follows(said) || has(said, "failed :") || has(said, "Socket"), false};
    report.transport = has(said, "NET/IB") || has(said, "ibv_") || has(said, "vendor err") || has(said, "NVLink") ||
                       has(said, "no socket interface");
    if (report.transport) report.follows = false, report.rank = -1;
    if (has(said, "already checked in")) report.follows = false, report.rank = rank_after(said, "rank ");
    if (has(said, "Duplicate GPU detected"))
      report.follows = false, report.rank = -1;  // two ranks, and either may be wrong
    if (facts_.errors.size() < kReportsMost) facts_.errors.push_back(report);
    return true;
  }

  void error(std::string_view text) {
    if (has(text, "Traceback (most recent call last)")) tracebacks_.insert(rank_);
    // "ReconstructionError: 0.12" is a metric: an exception ends a traceback.
    const bool exception = is_exception_line(text) && tracebacks_.erase(rank_) > 0;
    if (exception || is_fatal(text)) put(rank_, text, only_follows(text));
  }

  bool put(int rank, std::string_view text, bool follows) {
    if (facts_.errors.size() < kReportsMost) facts_.errors.push_back({rank, facts_.lines, shown(text), follows, false});
    return true;
  }

  LogFacts& facts_;
  int of_file_, rank_ = -1;
  std::set<int> tracebacks_;  // ranks in whose traceback the lines are
};

}  // namespace

void read_log(std::string_view text, const std::string& name, LogFacts& facts) {
  Lines lines(name, facts);
  while (!text.empty()) {
    const std::size_t end = text.find_first_of("\n\r");
    if (end != 0) lines.add(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

}  // namespace seeksim::harness
