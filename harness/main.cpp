// The program. All it does is in cli.cpp, so that tests can call it.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "harness/commands/cli.h"
#include "harness/run/memory_reserve.h"
#include "runtime/backend/machine/interrupts.h"

// A program that a signal asked to end cleans up and ends by that signal, so that a shell's loop around it ends too.
int main(int argc, char** argv) {
  const int status = seeksim::harness::main_of({argv + 1, argv + argc});
  if (const int signal = seeksim::runtime::interrupted(); signal != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  if (seeksim::harness::memory_ran_out()) {
    std::fflush(nullptr);
    ::_exit(status);
  }
  return status;
}
