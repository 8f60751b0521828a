// Processes of the user's: started in a group of their own that ends with this program, and ended in order.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace seeksim::harness::torch {

// Variables that are set over this program's own environment.
using Environment = std::map<std::string, std::string>;

// How a process ended.
struct Ending {
  bool over = false;
  int status = 0;  // exit status, where no signal ended it
  int signal = 0;
  bool good() const { return over && status == 0 && signal == 0; }
};
// "with status 3", "by signal 9 (Killed)"
std::string how(const Ending& ending);
// What waitpid() says.
Ending ending_of(int wait_status);

// Starts a process with nothing on its standard input; what it writes goes to the two descriptors. It leads a process
// group of its own and is killed when this program is gone. Throws BadInput where it cannot be started.
pid_t spawn(const std::vector<std::string>& command, const Environment& environment, int out, int err);

// Processor time that a process and the children that it has waited for have used, in clock ticks; 0 where it is gone.
long processor_ticks(pid_t pid);

// What a command printed, and how it ended.
struct Captured {
  Ending ending;
  bool out_of_time = false;
  std::string out, err;
  // See LastWords; empty: none.
  std::string last_words() const;
};
// What a part of seeksim said, without "seeksim: " in front: the caller that passes it on adds that again.
std::string without_own_name(const std::string& words);
// This program was asked to stop (runtime::interrupted()) while it waited for something that is worth nothing in part.
class AskedToStop : public std::runtime_error {
 public:
  AskedToStop();
};
// on_error_line: gets each whole line of standard error as it comes. Throws as spawn(), and AskedToStop.
using OnLine = std::function<void(const std::string& line)>;
Captured capture(const std::vector<std::string>& command, const Environment& environment, double limit_s,
                 const OnLine& on_error_line = {});

// All processes below this one, but those that are spared, become its own children when their parent ends; from
// construction to destruction. At destruction the rest is killed.
class Subreaper {
 public:
  Subreaper();
  ~Subreaper();
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  // Kills them now. Returns how many there were.
  static int kill_the_left();
  // This child is nobody's leftover, until it is given back: it serves several jobs.
  static void spare(pid_t pid);
  static void give_back(pid_t pid);

 private:
  bool was_ = false;
};

}  // namespace seeksim::harness::torch
