#include "harness/doctor/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "harness/input/scenario_files.h"
#include "harness/loading/estimate.h"
#include "harness/loading/load.h"
#include "harness/record/golden.h"
#include "harness/run/one_run.h"
#include "harness/scenario/variants.h"
#include "kernels/isa.h"
#include "runtime/backend/gpu/nccl_api.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/wire/mpi_world.h"

namespace seeksim::harness {
namespace {

using State = Probe::State;

// A library that may not be there. Its functions keep it open.
class Library {
 public:
  explicit Library(const char* file) : handle_(::dlopen(file, RTLD_NOW | RTLD_LOCAL), close) {}
  explicit operator bool() const { return handle_ != nullptr; }
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_.get(), name));
  }

 private:
  static void close(void* handle) { ::dlclose(handle); }  // never called with null
  std::unique_ptr<void, void (*)(void*)> handle_;
};

const char* file_system_of(const std::string& folder) {
  struct statfs found {};
  if (::statfs(folder.c_str(), &found) != 0) return "unknown file system";
  switch (std::uint32_t(found.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs: memory, not a disk";
    case 0x794C7630:
      return "overlay";
    case 0x6969:
      return "nfs";
    case 0x0BD00BD0:
      return "lustre";
    case 0x2FC12FC1:
      return "zfs";
    case 0x65735546:
      return "fuse";
    default:
      return "another file system";
  }
}

// "8 x NVIDIA H100 80GB HBM3 (79.1 GiB)"
Probe devices(const Library& driver, int count) {
  const auto get = driver.find<int(int*, int)>("cuDeviceGet");
  const auto get_name = driver.find<int(char*, int, int)>("cuDeviceGetName");
  const auto total = driver.find<int(std::size_t*, int)>("cuDeviceTotalMem_v2");
  const auto can_access = driver.find<int(int*, int, int)>("cuDeviceCanAccessPeer");
  if (!get || !get_name || !total || !can_access)
    return {State::missing, "gpus", "the driver lacks functions of CUDA 11", "Install a newer driver."};
  std::vector<int> all;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (get(&device, i) == 0) all.push_back(device);
  }
  if (all.empty()) return {State::missing, "gpus", "none can be opened", ""};
  char name[128] = "";
  std::size_t bytes = 0;
  get_name(name, sizeof name, all.front());
  total(&bytes, all.front());
  int pairs = 0, peers = 0;
  for (const int a : all) {
    for (const int b : all) {
      int can = 0;
      if (a == b) continue;
      ++pairs;
      peers += can_access(&can, a, b) == 0 && can != 0;
    }
  }
  std::string text = fmt::format("{} x {} ({})", all.size(), name, bytes_text(double(bytes)));
  if (pairs > 0) text += fmt::format("; {} of {} pairs reach each other's memory", peers, pairs);
  return {State::good, "gpus", text, ""};
}

}  // namespace

void check_machine() {
  try {
    kernels::active_isa();
  } catch (const std::exception& error) {
    throw BadInput("this machine", error.what(), "seeksim doctor says what it has.");
  }
  if (const std::string wrong = kernels::self_test(); !wrong.empty()) throw BadInput("this machine", wrong, "");
}

std::vector<Probe> probe_processor() {
  std::vector<Probe> found;
  std::string sets;
  for (const kernels::Isa isa : {kernels::Isa::scalar, kernels::Isa::avx2, kernels::Isa::avx512}) {
    if (kernels::cpu_has(isa)) sets += fmt::format(" {}", kernels::name(isa));
  }
  try {
    const char* const active = kernels::name(kernels::active_isa());
    found.push_back({State::good, "cpu", fmt::format("{} in use; this CPU has:{}", active, sets), ""});
    const std::string wrong = kernels::self_test();
    found.push_back({wrong.empty() ? State::good : State::bad, "arithmetic",
                     wrong.empty() ? "rounds as docs/numerics.md asks, subnormals included" : wrong, ""});
  } catch (const std::exception& error) {
    found.push_back({State::bad, "cpu", error.what(), ""});
  }
  found.push_back({State::good, "cores", fmt::format("{}", std::thread::hardware_concurrency()), ""});
  found.push_back({State::good, "memory", bytes_text(double(host_memory_free())) + " available", ""});
  return found;
}

Probe probe_storage(const std::string& folder) {
  const std::string own = fmt::format("{}/.seeksim-doctor-{}", folder, ::getpid());
  const auto fails = [&](const std::string& why) {
    return Probe{State::missing, "files", fmt::format("{}: {}", folder, why), "Runs cannot write files there."};
  };
  const auto remove_probe = [&] {
    ::unlink((own + "/probe/a").c_str());
    ::unlink((own + "/probe/a.tmp").c_str());
    ::rmdir((own + "/probe").c_str());
    ::rmdir(own.c_str());
  };
  if (::access(folder.c_str(), W_OK) != 0) return fails("cannot be written");
  try {
    make_folder(own, "doctor");
    runtime::PosixStorage storage(own);
    const std::string text = "seeksim";
    storage.write("probe/a.tmp", text);
    storage.sync("probe/a.tmp");
    storage.rename("probe/a.tmp", "probe/a");
    storage.sync("probe");
    const bool same = storage.read("probe/a") == text && storage.list("probe") == std::vector<std::string>{"a"};
    const std::uint64_t free = storage.free_bytes("probe");
    remove_probe();
    if (!same) return fails("a file that was written, synced and renamed did not read back");
    return {State::good, "files",
            fmt::format("{}: {}, {} free; written, synced, renamed and read back", folder, file_system_of(folder),
                        bytes_text(double(free))),
            ""};
  } catch (const std::exception& error) {
    remove_probe();
    return fails(error.what());
  }
}

std::vector<Probe> probe_gpus() {
  const Library driver("libcuda.so.1");
  if (!driver) {
    return {{State::missing, "gpus", "no driver (libcuda.so.1)",
             "Simulated ranks need none. For real ones: NVIDIA's driver."}};
  }
  const auto init = driver.find<int(unsigned)>("cuInit");
  const auto version = driver.find<int(int*)>("cuDriverGetVersion");
  const auto count_of = driver.find<int(int*)>("cuDeviceGetCount");
  int number = 0, count = 0;
  if (!init || !version || !count_of || init(0) != 0 || version(&number) != 0 || count_of(&count) != 0 || count == 0)
    return {{State::missing, "gpus", "the driver finds no device", "nvidia-smi may say why."}};
  std::vector<Probe> found = {devices(driver, count)};
  found.push_back({State::good, "driver", fmt::format("for CUDA up to {}.{}", number / 1000, number % 1000 / 10), ""});
  const Library nccl("libnccl.so.2");
  const auto nccl_version = nccl ? nccl.find<int(int*)>("ncclGetVersion") : nullptr;
  int code = 0;
  if (nccl_version == nullptr || nccl_version(&code) != 0) code = 0;
  found.push_back(nccl_probe(code, std::getenv(runtime::kGpuSharingVariable)));
  return found;
}

Probe nccl_probe(int version, const char* sharing) {
  if (version == 0) return {State::missing, "nccl", "no libnccl.so.2", "Install libnccl2 of 2.28 or newer."};
  const std::string problem = runtime::gpu_sharing_problem(version, sharing);
  if (!problem.empty()) return {State::good, "nccl", problem, ""};
  return {State::good, "nccl", fmt::format("NCCL {} takes several ranks a GPU", runtime::nccl_version_text(version)),
          ""};
}

Probe probe_mpi() {
  if (const std::string problem = runtime::MpiWorld::problem(); !problem.empty()) {
    return {State::missing, "mpi", problem,
            "Simulated ranks need none. For real ones: apt-get install openmpi-bin; to build with it libopenmpi-dev."};
  }
  const std::string library = runtime::MpiWorld::version();
  const char* const path = std::getenv("PATH");
  std::string folders = path ? path : "";
  for (std::size_t at = 0; at < folders.size();) {
    const std::size_t colon = std::min(folders.find(':', at), folders.size());
    const std::string file = folders.substr(at, colon - at) + "/mpirun";
    if (::access(file.c_str(), X_OK) == 0) return {State::good, "mpi", file + ", " + library, ""};
    at = colon + 1;
  }
  return {State::missing, "mpi", library + ", and no mpirun in PATH",
          "Simulated ranks need none. For real ones: apt-get install openmpi-bin."};
}

Probe probe_conformance() {
  const std::string file = scenarios_folder() + "/nccl_timeout.json";
  try {
    const Scenario scenario = one_rank(load_scenario(file, {}));
    const std::optional<Golden> stored = stored_golden(load_scenario(file, {}));
    if (!stored) return {State::missing, "conformance", "no bits are stored for " + file, ""};
    const Golden fresh = run_golden(scenario, golden_key(scenario.train.definition));
    const std::string differs = difference(*stored, fresh.state);
    if (!differs.empty())
      return {State::bad, "conformance", "one rank of " + file + " differs from the stored bits: " + differs,
              "Please report it with the lines above."};
    return {State::good, "conformance",
            fmt::format("one rank, {} steps: the stored bits ({})", fresh.loss.size(), hex(fresh.state.params)), ""};
  } catch (const std::exception& error) {
    return {State::bad, "conformance", error.what(), ""};
  }
}

}  // namespace seeksim::harness
