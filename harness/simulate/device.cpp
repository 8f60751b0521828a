#include "harness/simulate/device.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "harness/input/problem.h"
#include "runtime/backend/gpu/cuda_memory.h"
#include "sim/emulated_memory.h"

namespace seeksim::harness {
namespace {

// The answer of a process that is forked for the question. Rows of a sweep are forked too, and CUDA cannot be used in
// them once this process has used it.
std::string asked_apart(std::string (*question)()) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string answer = question();
    const ssize_t written = ::write(ends[1], answer.data(), answer.size());
    ::_exit(written == ssize_t(answer.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string answer;
  std::array<char, 1024> some;
  for (ssize_t n = 0; (n = ::read(ends[0], some.data(), some.size())) != 0;) {
    if (n > 0) answer.append(some.data(), std::size_t(n));
    if (n < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0 || status != 0)
    return "the process that looked for GPUs did not come to its end; seeksim doctor says more";
  return answer;
}

}  // namespace

void check_device(const std::string& device) {
  if (device != "cuda") return;
  if (const std::string problem = asked_apart(runtime::cuda_problem); !problem.empty())
    throw BadInput("--device cuda", problem,
                   "Leave it out: kernels run on the CPU; --device emulated runs those for GPUs there.");
}

void check_fast_device(const std::string& device) {
  if (device != "cuda") return;
  if (const std::string problem = asked_apart(runtime::vendor_products_problem); !problem.empty())
    throw BadInput("numerics", "\"fast\" on a GPU is cuBLASLt's: " + problem,
                   "Leave --device out: then a CPU kernel of another order stands for a vendor's.");
}

std::unique_ptr<runtime::DeviceMemory> make_device(const std::string& device) {
  if (device == "emulated") try {
      return std::make_unique<sim::EmulatedMemory>();
    } catch (const std::runtime_error& error) {
      throw BadInput("--device emulated", error.what(), "Raise the limit (ulimit -v), or leave it out.");
    }
  if (device == "cuda") try {
      return std::make_unique<runtime::CudaMemory>();
    } catch (const std::runtime_error& error) {
      throw BadInput("--device cuda", error.what(), "nvidia-smi shows who uses the GPU; -j 1 runs one row at a time.");
    }
  return nullptr;
}

}  // namespace seeksim::harness
