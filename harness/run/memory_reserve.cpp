#include "harness/run/memory_reserve.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <string_view>

#include "harness/verdict/exit_status.h"

namespace seeksim::harness {
namespace {

// Stacks grow into it as well, where a limit is on all of the address space.
constexpr std::size_t kReserveBytes = std::size_t{32} << 20;
void* reserve = nullptr;
bool ran_out = false;

void out_of_memory() {
  if (reserve != nullptr) {
    ::munmap(reserve, kReserveBytes);
    reserve = nullptr;
    throw std::bad_alloc();
  }
  constexpr std::string_view kWords =
      "seeksim: out of memory: the machine or its limits (ulimit -v) give no more. Use fewer ranks or a smaller "
      "model.\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWords.data(), kWords.size());
  ::_exit(code(ExitStatus::bad_input));
}

}  // namespace

void keep_memory_reserve() {
  if (reserve == nullptr) {
    void* const mapped = ::mmap(nullptr, kReserveBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) reserve = mapped;
  }
  std::set_new_handler(out_of_memory);
}

void memory_has_run_out() { ran_out = true; }
bool memory_ran_out() { return ran_out; }

}  // namespace seeksim::harness
