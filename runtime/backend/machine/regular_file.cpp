#include "runtime/backend/machine/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

namespace seeksim::runtime {

bool Fd::close() {
  const int fd = std::exchange(fd_, -1);
  return fd < 0 || ::close(fd) == 0;
}

// O_NONBLOCK: to open a pipe would wait for its other end. It means nothing to a regular file.
RegularFile::RegularFile(const std::string& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {
  if (!fd_) throw FileRefused{"open", errno, errno == ENXIO || errno == ENODEV};
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) throw FileRefused{"stat", errno};
  if (S_ISDIR(info.st_mode)) throw FileRefused{"read", EISDIR};
  if (!S_ISREG(info.st_mode)) throw FileRefused{"read", EINVAL, true};
  bytes_ = std::uint64_t(info.st_size);
}

std::string RegularFile::read() const {
  std::string bytes(std::size_t(bytes_), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const std::size_t n = read_at(done, std::as_writable_bytes(std::span(bytes.data() + done, bytes.size() - done)));
    if (n == 0) break;  // it shrank: what is there is what was read
    done += n;
  }
  bytes.resize(done);
  return bytes;
}

std::size_t RegularFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  if (offset > std::uint64_t(std::numeric_limits<off_t>::max())) return 0;
  ssize_t n = 0;
  while ((n = ::pread(fd_.get(), into.data(), into.size(), off_t(offset))) < 0 && errno == EINTR) {
  }
  if (n < 0) throw FileRefused{"read", errno};
  return std::size_t(n);
}

}  // namespace seeksim::runtime
