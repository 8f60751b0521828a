// What processes print, line by line: to the terminal with the rank in front, and to a file each.
#pragma once

#include <array>
#include <cstdio>
#include <fstream>
#include <string>

namespace seeksim::harness::torch {

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
  const std::string& last_words() const { return last_words_; }  // the last line of the error output with any text

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
  std::string last_words_;
};

}  // namespace seeksim::harness::torch
