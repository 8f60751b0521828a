#include "harness/input/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "harness/input/problem.h"
#include "runtime/backend/machine/regular_file.h"

#ifndef SEEKSIM_SOURCE_DIR
#define SEEKSIM_SOURCE_DIR "."
#endif

namespace seeksim::harness {
namespace {

using runtime::Fd;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string what_next(int error) {
  switch (error) {
    case ENOENT:
      return "Check the name, and the folder you are in.";
    case EACCES:
    case EPERM:
      return "Check its permissions.";
    case EROFS:
      return "Its file system is read-only: choose another folder.";
    case ENOSPC:
    case EDQUOT:
      return "Its file system is full: make room or choose another folder.";
    case ENOTDIR:
      return "A part of the path is a file, not a folder.";
    default:
      return "";
  }
}

[[noreturn]] void fail(const std::string& place, const std::string& what, int error) {
  throw BadInput(place, fmt::format("{}: {}", what, std::strerror(error)), what_next(error));
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes.remove_prefix(std::size_t(n));
  }
  return true;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Devices and pipes must not be replaced by a file of the same name.
bool is_special(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// A file beside `path` that nobody else has: neither a file nor a link that lies there under its name is opened.
struct Temporary {
  std::string name;
  Fd fd;
};
Temporary make_temporary(const std::string& path) {
  constexpr int kNames = 100;
  for (int n = 0;; ++n) {
    std::string name = fmt::format("{}.{}.{}.tmp", path, ::getpid(), n);
    Fd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (fd || errno != EEXIST || n + 1 == kNames) return {std::move(name), std::move(fd)};
  }
}

// A number in a file of /sys or /proc; the largest when there is none ("max").
std::uint64_t number_in(const char* path) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return kNone;
  unsigned long long value = 0;
  const bool ok = std::fscanf(file, "%llu", &value) == 1;
  std::fclose(file);
  return ok ? value : kNone;
}

}  // namespace

namespace {

// It can be read once, and a sweep reads its scenario for every row.
const std::string& standard_input(std::uint64_t bytes_max) {
  static std::string all;
  static bool read = false;
  if (std::exchange(read, true)) return all;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("-", "standard input cannot be read", errno);
    if (n == 0) return all;
    all.append(buffer, std::size_t(n));
    if (all.size() > bytes_max)
      throw BadInput("-", fmt::format("standard input has more than {} bytes", bytes_max), "Give a file.");
  }
}

}  // namespace

std::string read_file(const std::string& path, std::uint64_t bytes_max, const std::string& place) {
  if (path == "-" && place.empty()) return standard_input(bytes_max);
  const std::string at = place.empty() ? path : place;
  const std::string subject = place.empty() ? "cannot be read" : path + " cannot be read";
  if (path.find('\0') != std::string::npos) throw BadInput(at, "the name of a file holds a zero byte", "");
  try {
    const runtime::RegularFile file(path);
    if (file.bytes() > bytes_max) {
      throw BadInput(at, fmt::format("{}: {} bytes; at most {} are read here", subject, file.bytes(), bytes_max), "");
    }
    return file.read();
  } catch (const runtime::FileRefused& refused) {
    if (refused.error == EISDIR) throw BadInput(at, subject + ": it is a folder", "Name a file in it.");
    if (refused.special) throw BadInput(at, subject + ": it is not a regular file", "");
    fail(at, subject, refused.error);
  }
}

void write_file(const std::string& path, std::string_view bytes) {
  if (is_special(path)) {
    Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd || !write_all(fd.get(), bytes)) fail(path, "cannot be written", errno);
    return;
  }
  auto [temporary, fd] = make_temporary(path);
  if (!fd) fail(path, "cannot be written", errno);
  const bool ok = write_all(fd.get(), bytes) && ::fsync(fd.get()) == 0 && fd.close() &&
                  ::rename(temporary.c_str(), path.c_str()) == 0;
  if (!ok) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail(path, "cannot be written (nothing was left there)", error);
  }
}

void probe_writable(const std::string& path, const std::string& option) {
  const std::string place = option + ' ' + path;
  struct stat info {};
  if (path.empty()) throw BadInput(option, "the name is empty", "Name a file.");
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    throw BadInput(place, "this is a folder", "Name a file in it.");
  }
  if (is_special(path)) {
    if (::access(path.c_str(), W_OK) != 0) fail(place, "cannot be written", errno);
    return;
  }
  // 64 KiB, about what a report takes: a full file system shows here.
  const auto [temporary, fd] = make_temporary(path);
  if (!fd) fail(place, "cannot be written", errno);
  const bool ok = write_all(fd.get(), std::string(1 << 16, ' '));
  const int error = errno;
  ::unlink(temporary.c_str());
  if (!ok) fail(place, "cannot be written", error);
}

// What holds it is the open file: a process that is killed leaves a name, and no lock.
FolderLock::FolderLock(const std::string& folder, const std::string& option) {
  if (folder.empty()) return;
  file_ = folder + "/.seeksim-lock";
  fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;  // or a file system without
  ::close(fd_);
  throw BadInput(option + ' ' + folder, "another run writes there now", "Wait for it, or name another folder.");
}

FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  ::unlink(file_.c_str());
  ::close(fd_);
}

void make_folder(const std::string& path, const std::string& option) {
  const std::string place = option + ' ' + path;
  if (path.empty()) throw BadInput(option, "the name is empty", "Name a folder.");
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) fail(place, "the folder cannot be made", errno);
    if (slash == std::string::npos) break;
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail(place, "the folder cannot be used", errno);
  if (!S_ISDIR(info.st_mode)) throw BadInput(place, "this is a file", "Name a folder.");
}

std::string resolve(const std::string& name, const std::string& scenario_file, const std::string& place) {
  if (name.empty()) throw BadInput(place, "the name of a file is empty", "Name a file.");
  if (name.find('\0') != std::string::npos) throw BadInput(place, "the name of a file holds a zero byte", "");
  if (name[0] == '/') {
    if (exists(name)) return name;
    fail(place, fmt::format("{} cannot be read", in_quotes(name)), ENOENT);
  }
  const std::string folder = folder_of(scenario_file);
  std::vector<std::string> places = {name, folder + '/' + name, folder + "/../" + name, folder + "/../../" + name};
  places.push_back(own_folder() + '/' + name);
  for (const std::string& candidate : places) {
    if (exists(candidate)) return candidate;
  }
  throw BadInput(
      place, fmt::format("there is no file {}", in_quotes(name)),
      fmt::format("Looked in the working folder, beside {}, above it, and in seeksim's own folder. Check the "
                  "name, or give a path that begins with /.",
                  scenario_file));
}

const std::string& own_folder() {
  static const std::string folder = [] {
    if (const char* home = std::getenv("SEEKSIM_HOME"); home != nullptr && *home != 0) return std::string(home);
    char program[4096];
    const ssize_t n = ::readlink("/proc/self/exe", program, sizeof program);
    const std::string bin = n > 0 ? folder_of(std::string(program, std::size_t(n))) : "";
    const std::string installed = folder_of(bin) + "/share/seeksim";
    return exists(installed + "/scenarios") ? installed : std::string(SEEKSIM_SOURCE_DIR);
  }();
  return folder;
}

std::string own_file(const std::string& name, const std::string& place) {
  std::string file = own_folder() + '/' + name;
  if (!exists(file))
    throw BadInput(place, fmt::format("there is no file {} in seeksim's own folder", in_quotes(name)),
                   "Is what is installed whole? SEEKSIM_HOME names another folder.");
  return file;
}

std::string top_folder() { return exists("scenarios") || exists("golden") ? "." : own_folder(); }

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> names;
  if (DIR* folder = ::opendir(path.c_str())) {
    while (const dirent* entry = ::readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    ::closedir(folder);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t host_memory_free() {
  std::uint64_t available = 0;
  if (std::FILE* file = std::fopen("/proc/meminfo", "r")) {
    char line[256];
    unsigned long long kib = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) available = kib * 1024;
    }
    std::fclose(file);
  }
  // In a container the machine's memory is not ours: version 2 of control groups, then version 1.
  constexpr const char* kGroups[][2] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, use_file] : kGroups) {
    const std::uint64_t limit = number_in(limit_file), use = number_in(use_file);
    if (limit > (std::uint64_t(1) << 60) || use == std::numeric_limits<std::uint64_t>::max()) continue;
    // Page cache counts as used there and can be had back; without it this is a lower bound, so half of it is granted.
    const std::uint64_t left = limit > use ? limit - use + use / 2 : use / 2;
    available = available == 0 ? left : std::min(available, left);
  }
  return available;
}

}  // namespace seeksim::harness
