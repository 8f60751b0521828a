// What processes print, line by line: to the terminal with the rank in front, and to a file each.
#pragma once

#include <array>
#include <cstdio>
#include <fstream>
#include <string>

namespace seeksim::harness::torch {

// What a process said last in its error output: its last line with any text, or the first line of the exception whose
// traceback it printed at the end. An exception's message may have several lines, of which the first says what it is.
class LastWords {
 public:
  void hear(const std::string& line);  // without its end
  std::string text() const { return since_exception_ <= kMessageLines ? exception_ : last_; }

 private:
  static constexpr int kMessageLines = 20;  // what comes later is no part of a message

  bool in_traceback_ = false;
  int since_exception_ = kMessageLines + 1;  // lines
  std::string exception_, last_, place_;
};

// The output and the error output of one process.
class Outlet {
 public:
  // label: stands before each line; empty: nothing does. file: where both go, in the order of arrival. quiet: only
  // there.
  Outlet(std::string label, const std::string& file, bool quiet = false);
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;
  ~Outlet();

  // The ends for the process to write to; to be closed here once it has started.
  int out_end() const { return streams_[0].write_end; }
  int err_end() const { return streams_[1].write_end; }
  void close_write_ends();

  // The ends to wait for; -1 once the process has closed its own.
  int out_fd() const { return streams_[0].read_end; }
  int err_fd() const { return streams_[1].read_end; }
  // Takes what is there, and hands on whole lines.
  void pump();
  // Hands on what is left, also without a line's end.
  void finish();

  bool closed() const { return out_fd() < 0 && err_fd() < 0; }
  std::size_t bytes() const { return bytes_; }
  std::string last_words() const { return last_words_.text(); }

 private:
  struct Stream {
    int read_end = -1, write_end = -1;
    std::string pending;
    std::FILE* to = nullptr;
    bool is_error = false;
  };
  void hand_on(Stream& stream, bool whole_lines_only);

  std::string label_;
  std::ofstream file_;
  std::array<Stream, 2> streams_;
  std::size_t bytes_ = 0;
  LastWords last_words_;
};

}  // namespace seeksim::harness::torch
