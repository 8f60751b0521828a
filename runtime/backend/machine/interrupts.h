// Signals that ask the program to end: SIGINT, SIGTERM and SIGHUP (unless it was started to ignore that). A simulation
// looks now and then and ends in order; a process that drives real ranks cannot, and cleans up in a thread.
#pragma once

#include <string>
#include <thread>

namespace seeksim::runtime {

// While it lives, such a signal is only noted. A second one ends the process at once. One inside another does nothing.
class Interrupts {
 public:
  Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();
};

// The signal that was noted first; 0: none.
int interrupted();
// "signal 15 (Terminated)"; empty: there was none.
std::string interrupt_text();
// Before the next command of a program that has several.
void forget_interrupt();
// For a worker that was just forked and whose parent passes signals on: a second one is no news to it. When the parent
// is gone, so is it.
void become_worker(int parent);

// A folder that goes when a signal ends the process before its owner removes it.
class RemovedAtSignal {
 public:
  explicit RemovedAtSignal(std::string folder);
  RemovedAtSignal(const RemovedAtSignal&) = delete;
  RemovedAtSignal& operator=(const RemovedAtSignal&) = delete;
  ~RemovedAtSignal();

 private:
  std::string folder_;
};

// For a process whose rank waits for others: a thread takes such a signal, removes what is registered, and lets it end
// the process. Made before any other thread.
class EndsBySignal {
 public:
  EndsBySignal();
  EndsBySignal(const EndsBySignal&) = delete;
  EndsBySignal& operator=(const EndsBySignal&) = delete;
  ~EndsBySignal();

 private:
  int over_ = -1;  // an eventfd
  std::jthread thread_;
};

}  // namespace seeksim::runtime
