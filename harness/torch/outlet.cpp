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

// Torch puts "[rank1]: " before each line of a traceback.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kBefore = "[rank", kAfter = "]: ";
  if (!line.starts_with(kBefore)) return line;
  const std::size_t digits_end = line.find_first_not_of("0123456789", kBefore.size());
  if (digits_end == std::string_view::npos || !line.substr(digits_end).starts_with(kAfter)) return line;
  return line.substr(digits_end + kAfter.size());
}

// "train.py:3" of a line of Python's that says where: '  File "train.py", line 3'; empty: it is none.
std::string place_in(std::string_view said) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  const std::size_t begin = said.find_first_not_of(' ');
  if (begin == std::string_view::npos || !said.substr(begin).starts_with(kFile)) return "";
  const std::string_view name = said.substr(begin + kFile.size());
  const std::size_t end = name.find(kLine);
  if (end == std::string_view::npos) return "";
  const std::string_view number = name.substr(end + kLine.size());
  return fmt::format("{}:{}", name.substr(0, end), number.substr(0, number.find_first_not_of("0123456789")));
}

// Errors of a script that never began: no traceback says where.
bool is_of_syntax(std::string_view said) {
  return said.starts_with("SyntaxError: ") || said.starts_with("IndentationError: ") || said.starts_with("TabError: ");
}

}  // namespace

void LastWords::hear(const std::string& line) {
  if (since_exception_ <= kMessageLines) ++since_exception_;
  const std::string_view said = without_rank(line);
  if (said.find_first_not_of(" \t\r") == std::string_view::npos) return;
  last_ = line;
  if (std::string place = place_in(said); !place.empty()) place_ = std::move(place);
  if (is_of_syntax(said) && !place_.empty()) {
    in_traceback_ = false;
    exception_ = fmt::format("{} ({})", line, place_);
    since_exception_ = 0;
  } else if (said.starts_with("Traceback (most recent call last)")) {
    in_traceback_ = true;
  } else if (in_traceback_ && said.front() != ' ') {
    in_traceback_ = false;
    exception_ = line;
    since_exception_ = 0;
  }
}

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
    if (stream.is_error) last_words_.hear(line);
  }
  if (lines.empty()) return;
  file_ << lines << std::flush;
  if (stream.to == nullptr) return;
  std::fwrite(lines.data(), 1, lines.size(), stream.to);
  std::fflush(stream.to);
}

}  // namespace seeksim::harness::torch
