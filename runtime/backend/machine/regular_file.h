// RegularFile: a file that is opened for reading without waiting for anybody. A pipe that nobody writes to, a terminal
// or a device is refused; how long the file is, is known before memory is taken for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace seeksim::runtime {

// A file that cannot be read: what failed, and why.
struct FileRefused {
  const char* verb;      // "open", "stat", "read"
  int error = 0;         // errno; EISDIR: it is a folder
  bool special = false;  // it is neither a file nor a folder
};

// A file descriptor that is closed at the end.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  bool close();  // false: what was written may not be there

 private:
  int fd_;
};

class RegularFile {
 public:
  // Throws FileRefused, as the others do.
  explicit RegularFile(const std::string& path);

  std::uint64_t bytes() const { return bytes_; }  // when it was opened
  // All of it, or what is left of it by now.
  std::string read() const;
  // Fewer at its end.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  Fd fd_;
  std::uint64_t bytes_ = 0;
};

}  // namespace seeksim::runtime
