#include "tests/house/source_rules.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tests/house/lexer.h"

namespace seeksim::house {
namespace {

using Names = std::set<std::string, std::less<>>;

// ---- the folders and their arrows

// The part of the house that a path belongs to; empty for what is not ours.
std::string folder_of(std::string_view path) {
  if (path.starts_with("runtime/backend/")) return "runtime/backend";
  static const Names kFolders = {"kernels",   "runtime", "faults", "sim",  "pytorch",
                                 "reference", "harness", "tests",  "bench"};
  const std::string_view first = path.substr(0, path.find('/'));
  return kFolders.contains(first) && first.size() < path.size() ? std::string(first) : std::string();
}

const std::map<std::string, Names, std::less<>>& allowed_includes() {
  static const std::map<std::string, Names, std::less<>> kAllowed = {
      {"kernels", {"kernels"}},
      {"runtime", {"kernels", "runtime"}},
      {"runtime/backend", {"kernels", "runtime", "runtime/backend"}},
      {"faults", {"kernels", "runtime", "faults"}},
      {"sim", {"kernels", "runtime", "sim"}},
      {"pytorch", {"kernels", "runtime", "faults", "pytorch"}},
      // A second opinion: it is told what a training is in values of its own, and borrows nothing.
      {"reference", {"reference"}},
      {"harness", {"kernels", "runtime", "runtime/backend", "faults", "sim", "pytorch", "reference", "harness"}},
      {"tests", {"kernels", "runtime", "runtime/backend", "faults", "sim", "pytorch", "reference", "harness", "tests"}},
      {"bench", {"kernels", "runtime", "runtime/backend", "faults", "sim", "pytorch", "reference", "harness", "bench"}},
  };
  return kAllowed;
}

// ---- what runtime/ reaches only through its seams

bool is_outside_header(std::string_view header) {
  static const Names kHeaders = {"barrier",        "condition_variable",
                                 "cstdlib_time",   "ctime",
                                 "fcntl.h",        "filesystem",
                                 "fstream",        "future",
                                 "latch",          "mutex",
                                 "poll.h",         "random",
                                 "semaphore",      "shared_mutex",
                                 "signal.h",       "csignal",
                                 "stop_token",     "thread",
                                 "time.h",         "unistd.h",
                                 "pthread.h",      "threads.h",
                                 "dirent.h",       "mpi.h",
                                 "nccl.h",         "cuda.h",
                                 "cuda_runtime.h", "netdb.h",
                                 "dlfcn.h",        "spawn.h",
                                 "sched.h",        "aio.h",
                                 "glob.h",         "ftw.h"};
  return kHeaders.contains(header) || header.starts_with("sys/") || header.starts_with("netinet/") ||
         header.starts_with("arpa/") || header.starts_with("linux/") || header.starts_with("boost/");
}

// Names that mean the facility wherever they stand.
bool is_outside_name(std::string_view name) {
  static const Names kNames = {"thread_local",
                               "this_thread",
                               "jthread",
                               "random_device",
                               "mt19937",
                               "mt19937_64",
                               "minstd_rand",
                               "minstd_rand0",
                               "ranlux24",
                               "ranlux48",
                               "knuth_b",
                               "default_random_engine",
                               "ifstream",
                               "ofstream",
                               "fstream",
                               "basic_ifstream",
                               "basic_ofstream",
                               "filebuf",
                               "filesystem",
                               "FILE",
                               "getenv",
                               "secure_getenv",
                               "setenv",
                               "putenv",
                               "fopen",
                               "fdopen",
                               "freopen",
                               "tmpfile",
                               "mkstemp",
                               "clock_gettime",
                               "gettimeofday",
                               "timespec_get",
                               "nanosleep",
                               "usleep",
                               "clock_nanosleep",
                               "drand48",
                               "lrand48",
                               "srand",
                               "srandom",
                               "getrandom",
                               "getentropy",
                               "arc4random",
                               "condition_variable",
                               "condition_variable_any",
                               "mutex",
                               "recursive_mutex",
                               "shared_mutex",
                               "lock_guard",
                               "unique_lock",
                               "scoped_lock",
                               "__rdtsc",
                               "__builtin_ia32_rdtsc",
                               "_rdrand32_step",
                               "_rdrand64_step",
                               "popen",
                               "fork",
                               "localtime",
                               "gmtime",
                               "strftime",
                               "mktime"};
  return kNames.contains(name) || name.ends_with("_clock") || name.starts_with("pthread_");
}

// Names that a class of ours may bear too. They mean the facility as std::name or ::name.
bool is_outside_qualified(std::string_view name, bool in_std) {
  static const Names kStd = {"thread", "async", "rand", "time", "clock", "system", "call_once", "osyncstream"};
  static const Names kGlobal = {"open",   "openat",  "creat",  "read",   "write",  "close", "pread",  "pwrite",
                                "fsync",  "rename",  "remove", "unlink", "mkdir",  "rmdir", "stat",   "fstat",
                                "mmap",   "munmap",  "rand",   "random", "time",   "clock", "sleep",  "system",
                                "socket", "connect", "poll",   "select", "signal", "kill",  "getpid", "sysconf"};
  return in_std ? kStd.contains(name) : kGlobal.contains(name);
}

// ---- looking at one name in its surroundings

struct Place {
  const std::vector<Token>& tokens;
  size_t i;

  std::string_view at(long offset) const {
    const long j = static_cast<long>(i) + offset;
    return j < 0 || j >= static_cast<long>(tokens.size()) ? std::string_view() : std::string_view(tokens[j].text);
  }
  bool identifier_at(long offset) const {
    const long j = static_cast<long>(i) + offset;
    return j >= 0 && j < static_cast<long>(tokens.size()) && tokens[j].identifier;
  }
  bool called() const { return at(1) == "("; }
  bool member() const { return at(-1) == "." || at(-1) == "->"; }
  bool qualified() const { return at(-1) == "::"; }
  bool in_std() const { return qualified() && at(-2) == "std"; }
  // "return ::open(...)" is global; "Storage::open(...)" is not.
  bool global() const { return qualified() && (!identifier_at(-2) || at(-2) == "return"); }
  // "float exp(float x)" declares; "return exp(x)" calls.
  bool after_type() const {
    static const Names kNotTypes = {"return", "else", "do",  "co_return", "co_yield", "co_await",
                                    "throw",  "case", "and", "or",        "not"};
    return identifier_at(-1) && !kNotTypes.contains(at(-1));
  }
  // "const Log& log() const {" and "Log& log(Id id) const {" declare, by what follows their parameters.
  bool before_body() const {
    long end = 2;
    for (int depth = 1; depth > 0 && !at(end).empty(); ++end) depth += at(end) == "(" ? 1 : at(end) == ")" ? -1 : 0;
    static const Names kAfterParameters = {"const", "{", "noexcept", "override", "->"};
    return kAfterParameters.contains(at(end));
  }
};

void check_outside(std::string_view path, const Place& here, std::vector<Violation>& out) {
  const Token& token = here.tokens[here.i];
  bool bad = false;
  if (is_outside_name(token.text)) {
    bad = !here.member();
  } else if (here.in_std()) {
    bad = is_outside_qualified(token.text, true);
  } else if (here.global()) {
    bad = here.called() && is_outside_qualified(token.text, false);
  } else if (token.text == "time" && here.called() && !here.member() && !here.qualified()) {
    // The classic seed. Our own functions called time() take something else.
    bad = here.at(2) == "nullptr" || here.at(2) == "NULL" || here.at(2) == "0";
  } else if (token.text == "rand" && here.called()) {
    bad = !here.member() && !here.qualified() && !here.after_type();
  }
  if (bad) {
    out.push_back({std::string(path), token.line,
                   "runtime/ names '" + token.text +
                       "': clocks, threads, random numbers and files come through the seams (runtime/backend/ "
                       "implements them)"});
  }
}

void check_libm(std::string_view path, const Place& here, std::vector<Violation>& out) {
  const Token& token = here.tokens[here.i];
  std::string_view name = token.text;
  if (name.starts_with("__builtin_")) name.remove_prefix(std::string_view("__builtin_").size());
  if (!is_inexact_libm(name) || !here.called() || here.member() || here.after_type() || here.before_body()) return;
  if (here.at(2) == ")") return;  // an accessor: every function of libm takes something
  if (here.qualified() && !here.in_std() && !here.global()) return;
  out.push_back({std::string(path), token.line,
                 "calls '" + token.text +
                     "' of libm, whose last bit depends on the machine: use the function of "
                     "kernels/ (and name the namespace where its name is the same)"});
}

}  // namespace

bool is_inexact_libm(std::string_view name) {
  static const Names kNames = {"exp",    "exp2",   "exp10", "expm1", "log",   "log2",  "log10", "log1p",
                               "pow",    "sin",    "cos",   "tan",   "asin",  "acos",  "atan",  "atan2",
                               "sinh",   "cosh",   "tanh",  "asinh", "acosh", "atanh", "erf",   "erfc",
                               "tgamma", "lgamma", "cbrt",  "hypot", "sincos"};
  if (kNames.contains(name)) return true;
  return !name.empty() && (name.back() == 'f' || name.back() == 'l') &&
         kNames.contains(name.substr(0, name.size() - 1));
}

std::vector<Violation> check_source(std::string_view path, std::string_view text) {
  std::vector<Violation> out;
  const std::string folder = folder_of(path);
  if (folder.empty()) return out;
  const Lexed lexed = lex(text);
  const bool keeps_to_seams = folder == "runtime";
  const bool keeps_to_our_math = folder == "kernels" || folder == "runtime";

  for (const Include& include : lexed.includes) {
    const std::string target = folder_of(include.path);
    if (include.path.find("..") != std::string::npos) {
      out.push_back(
          {std::string(path), include.line, "includes \"" + include.path + "\": write it from the top folder"});
    } else if (!target.empty() && !allowed_includes().find(folder)->second.contains(target)) {
      out.push_back({std::string(path), include.line,
                     folder + "/ must not include " + target + "/ (\"" + include.path +
                         "\"); the arrows are kernels <- runtime <- {faults, sim} <- harness <- tests, bench; "
                         "reference <- harness"});
    } else if (target.empty() && keeps_to_seams && is_outside_header(include.path)) {
      out.push_back({std::string(path), include.line,
                     "runtime/ includes <" + include.path + ">: what it offers comes through the seams"});
    }
  }
  for (size_t i = 0; i < lexed.tokens.size(); ++i) {
    if (!lexed.tokens[i].identifier) continue;
    const Place here{lexed.tokens, i};
    if (keeps_to_seams) check_outside(path, here, out);
    if (keeps_to_our_math) check_libm(path, here, out);
  }
  return out;
}

std::vector<Violation> check_machine_paths(std::string_view path, std::string_view text) {
  // In two pieces, so that this file does not name them either.
  static const std::array<std::string, 3> kPlaces = {std::string("/wo") + "rk/", std::string("/ro") + "ot/",
                                                     std::string("/ho") + "me/"};
  std::vector<Violation> out;
  for (const std::string& place : kPlaces) {
    for (size_t at = text.find(place); at != std::string_view::npos; at = text.find(place, at + 1)) {
      // "our/work/is" is a relative path or prose; only an absolute path counts.
      const char before = at == 0 ? ' ' : text[at - 1];
      if (is_word(before) || before == '.' || before == '}' || before == '/' || before == '~') continue;
      const int line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
      out.push_back({std::string(path), line, "names a path of one machine (" + place + "...)"});
    }
  }
  return out;
}

}  // namespace seeksim::house
