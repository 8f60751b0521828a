// The program under test in a process of its own, for tests that tell it something while it runs.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/paths.h"

namespace seeksim::harness::testing {

// The program in a process of its own, its output in a file.
class Running {
 public:
  Running(const std::vector<std::string>& arguments, const std::string& output) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    std::vector<std::string> words = {seeksim::paths::program()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (std::freopen(output.c_str(), "w", stdout) == nullptr) ::_exit(9);  // empties it
    if (std::freopen(output.c_str(), "a", stdout) == nullptr) ::_exit(9);
    if (std::freopen(output.c_str(), "a", stderr) == nullptr) ::_exit(9);
    ::execv(argv[0], argv.data());
    ::_exit(9);
  }
  ~Running() {
    if (!over_) ::kill(pid_, SIGKILL), wait();
  }
  pid_t pid() const { return pid_; }
  void tell(int signal) const { ::kill(pid_, signal); }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    over_ = true;
    return status;
  }

 private:
  pid_t pid_ = -1;
  bool over_ = false;
};

// Waits until it holds; false: it never did.
template <class Holds>
bool soon(Holds holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace seeksim::harness::testing
