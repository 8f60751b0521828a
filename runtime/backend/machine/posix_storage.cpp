#include "runtime/backend/machine/posix_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/backend/machine/regular_file.h"

namespace seeksim::runtime {
namespace {

[[noreturn]] void fail(const char* verb, const std::string& path, int error) {
  Op op;
  op.kind = OpKind::copy;
  op.tensor = "storage";
  op.site = verb;
  throw SeamError(ErrorKind::io, op, std::string(verb) + ' ' + path + ": " + std::strerror(error));
}

// What is done with a file that is open, with errors as the seam has them.
template <class Act>
auto of_file(const std::string& path, Act act) {
  try {
    return act(RegularFile(path));
  } catch (const FileRefused& refused) {
    fail(refused.verb, path, refused.error);
  }
}

// Neither waits for the other end of a pipe nor writes into a device.
Fd open_to_write(const std::string& path, int flags) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0666));
  struct stat info {};
  if (!file) fail("open", path, errno);
  if (::fstat(file.get(), &info) != 0) fail("stat", path, errno);
  if (!S_ISREG(info.st_mode)) fail("write", path, EINVAL);
  return file;
}

void make_parents(const std::string& path, std::size_t after) {
  for (std::size_t slash = path.find('/', after); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) fail("mkdir", folder, errno);
  }
}

}  // namespace

PosixStorage::PosixStorage(std::string root) : root_(std::move(root)) {
  if (root_.empty() || root_.back() != '/') root_ += '/';
}

std::string PosixStorage::full(std::string_view path) const {
  // "a/../../b" would write beside the folder that the user named.
  const std::string whole = '/' + std::string(path) + '/';
  if (path.find('\0') != std::string_view::npos || whole.find("/../") != std::string::npos)
    fail("open", std::string(path), EINVAL);
  return root_ + std::string(path);
}

std::string PosixStorage::read(std::string_view path) {
  return of_file(full(path), [](const RegularFile& file) { return file.read(); });
}

void PosixStorage::write(std::string_view path, std::string_view bytes) {
  const std::string name = full(path);
  make_parents(name, root_.size());
  const Fd file = open_to_write(name, O_TRUNC);
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", name, errno);
    bytes.remove_prefix(std::size_t(n));
  }
}

// Folders too.
void PosixStorage::sync(std::string_view path) {
  const std::string name = full(path);
  const Fd file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) fail("open", name, errno);
  if (::fsync(file.get()) != 0) fail("fsync", name, errno);
}

void PosixStorage::rename(std::string_view from, std::string_view to) {
  const std::string a = full(from), b = full(to);
  make_parents(b, root_.size());
  if (::rename(a.c_str(), b.c_str()) != 0) fail("rename", a, errno);
}

void PosixStorage::remove(std::string_view path) {
  const std::string name = full(path);
  if (::unlink(name.c_str()) == 0) return;
  if (errno == EISDIR && ::rmdir(name.c_str()) == 0) return;
  fail("remove", name, errno);
}

std::size_t PosixStorage::read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) {
  return of_file(full(path), [&](const RegularFile& file) { return file.read_at(offset, into); });
}

std::size_t PosixStorage::write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) {
  const std::string name = full(path);
  make_parents(name, root_.size());
  const Fd file = open_to_write(name, 0);
  ssize_t n = 0;
  while ((n = ::pwrite(file.get(), from.data(), from.size(), off_t(offset))) < 0 && errno == EINTR) {
  }
  if (n < 0 && errno == ENOSPC) return 0;
  if (n < 0) fail("write", name, errno);
  return std::size_t(n);
}

bool PosixStorage::exists(std::string_view path) { return ::access(full(path).c_str(), F_OK) == 0; }

std::vector<std::string> PosixStorage::list(std::string_view folder) {
  const std::string name = full(folder);
  DIR* stream = ::opendir(name.c_str());
  if (stream == nullptr) fail("list", name, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view one = entry->d_name;
    if (one != "." && one != "..") names.emplace_back(one);
  }
  ::closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t PosixStorage::free_bytes(std::string_view folder) {
  const std::string name = full(folder);
  struct statvfs info {};
  if (::statvfs(name.c_str(), &info) != 0) fail("statvfs", name, errno);
  return std::uint64_t(info.f_bavail) * info.f_frsize;
}

}  // namespace seeksim::runtime
