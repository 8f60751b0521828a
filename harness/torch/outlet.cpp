#include "harness/torch/outlet.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace seeksim::harness::torch {
namespace {

// A line that never ends is handed on in parts of this size.
constexpr std::size_t kLineMax = 1 << 16;

}  // namespace

Outlet::Outlet(std::string label, const std::string& file, bool quiet) : label_(std::move(label)), file_(file) {
  streams_[0].to = quiet ? nullptr : stdout;
  streams_[1].to = quiet ? nullptr : stderr;
  streams_[1].is_error = true;
  for (Stream& stream : streams_) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
    stream.read_end = ends[0];
    stream.write_end = ends[1];
    ::fcntl(stream.read_end, F_SETFL, O_NONBLOCK);
  }
}

Outlet::~Outlet() {
  close_write_ends();
  for (Stream& stream : streams_) {
    if (stream.read_end >= 0) ::close(stream.read_end);
  }
}

void Outlet::close_write_ends() {
  for (Stream& stream : streams_) {
    if (stream.write_end >= 0) ::close(stream.write_end);
    stream.write_end = -1;
  }
}

void Outlet::pump() {
  for (Stream& stream : streams_) {
    char buffer[1 << 15];
    while (stream.read_end >= 0) {
      const ssize_t n = ::read(stream.read_end, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) break;
      if (n == 0) {
        ::close(stream.read_end);
        stream.read_end = -1;
        break;
      }
      bytes_ += std::size_t(n);
      stream.pending.append(buffer, std::size_t(n));
      hand_on(stream, true);
    }
  }
}

void Outlet::finish() {
  pump();
  for (Stream& stream : streams_) hand_on(stream, false);
}

void Outlet::hand_on(Stream& stream, bool whole_lines_only) {
  std::string& pending = stream.pending;
  std::string lines;
  while (!pending.empty()) {
    std::size_t end = pending.find('\n');
    if (end == std::string::npos) {
      if (whole_lines_only && pending.size() < kLineMax) break;
      end = pending.size();
    }
    const std::string line = pending.substr(0, end);
    pending.erase(0, end + 1);
    lines += label_ + line + '\n';
    if (stream.is_error && line.find_first_not_of(" \t\r") != std::string::npos) last_words_ = line;
  }
  if (lines.empty()) return;
  file_ << lines << std::flush;
  if (stream.to == nullptr) return;
  std::fwrite(lines.data(), 1, lines.size(), stream.to);
  std::fflush(stream.to);
}

}  // namespace seeksim::harness::torch
