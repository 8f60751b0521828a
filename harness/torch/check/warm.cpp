#include "harness/torch/check/warm.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/torch/child.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;

constexpr double kReady_s = 300;  // a first import from a slow disk

// Whether the process says that it is ready before it ends or the time is over.
bool says_ready(int fd) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(kReady_s);
  std::string said;
  while (said.find("ready\n") == std::string::npos) {
    pollfd waiting{fd, POLLIN, 0};
    if (std::chrono::steady_clock::now() > until) return false;
    if (::poll(&waiting, 1, 1000) <= 0) continue;
    char buffer[256];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    said.append(buffer, std::size_t(n));
  }
  return true;
}

// ": ModuleNotFoundError: ..."; empty where it said nothing.
std::string last_line_of(const std::string& file) {
  const std::string text = fs::exists(file) ? read_file(file, 1 << 20) : "";
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return ": " + text.substr(begin + 1, end - begin);
}

}  // namespace

WarmStart::WarmStart(const Start& start, const std::vector<std::string>& modules) {
  std::string folder = (fs::temp_directory_path() / "seeksim-warm-XXXXXX").string();
  std::array<int, 2> out{};
  if (::mkdtemp(folder.data()) == nullptr || ::pipe2(out.data(), O_CLOEXEC) != 0) {
    why_ = fmt::format("{}: {}", folder, std::strerror(errno));
    return;
  }
  folder_ = folder;
  const std::string socket = folder_ + "/ranks";
  std::vector<std::string> command = {start.python, "-m", "seeksim_torch.warm", socket};
  command.insert(command.end(), modules.begin(), modules.end());
  // What it says while it imports is of interest only where it does not get ready.
  const std::string errors = folder_ + "/errors.txt";
  const int err = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  pid_ = spawn(command, rank_environment(start), out[1], err < 0 ? STDERR_FILENO : err);
  ::close(out[1]);
  if (err >= 0) ::close(err);
  Subreaper::spare(pid_);
  if (says_ready(out[0]))
    ranks_with_ = {start.python, "-I", "-S", start.built.python_path + "/seeksim_torch/warm.py", socket};
  else
    why_ = "the process that imports torch once did not get ready" + last_line_of(errors);
  ::close(out[0]);
}

double WarmStart::processor_s() const {
  return pid_ > 0 ? double(processor_ticks(pid_)) / double(::sysconf(_SC_CLK_TCK)) : 0;
}

WarmStart::~WarmStart() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    Subreaper::give_back(pid_);
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

}  // namespace seeksim::harness::torch
