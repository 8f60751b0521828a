// The program. All it does is in cli.cpp, so that tests can call it.
#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "harness/commands/cli.h"
#include "harness/run/memory_reserve.h"
#include "runtime/backend/machine/interrupts.h"

namespace {
// A sweep gives back and asks for the same memory row after row: what the heap keeps costs no new pages.
void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  ::mallopt(M_TOP_PAD, 4 << 20);
#endif
}
}  // namespace

// A program that a signal asked to end cleans up and ends by that signal, so that a shell's loop around it ends too.
int main(int argc, char** argv) {
  keep_freed_memory();
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
