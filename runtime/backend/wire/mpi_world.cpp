#include "runtime/backend/wire/mpi_world.h"

#include <stdexcept>

#ifdef SEEKSIM_HAVE_MPI
#include <mpi.h>

#include <chrono>
#include <thread>

#include "kernels/check.h"
#include "runtime/backend/wire/mpi_wire.h"
#endif

namespace seeksim::runtime {

#ifdef SEEKSIM_HAVE_MPI

namespace {

constexpr int kGatherTag = 1;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

void finish(MPI_Request& request) {
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) nap();
  }
}

TimeNs now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool MpiWorld::available() { return true; }

std::string MpiWorld::version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, std::size_t(length));
  return all.substr(0, all.find(','));
}

MpiWorld::MpiWorld() {
  int given = 0;
  // Rank 0 may have a thread beside for the control plane, which never calls MPI.
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS)
    throw std::runtime_error("MPI_Init failed");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  // One process a host counts for it.
  MPI_Comm here = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  int place = 0;
  MPI_Comm_rank(here, &place);
  const int first = place == 0 ? 1 : 0;
  MPI_Allreduce(&first, &hosts_, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_free(&here);
  wire_ = std::make_unique<MpiWire>();
}

std::string MpiWorld::host() const {
  char text[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  MPI_Get_processor_name(text, &length);
  return {text, std::size_t(length)};
}

MpiWorld::~MpiWorld() {
  wire_.reset();
  MPI_Finalize();
}

std::string MpiWorld::broadcast(std::string text) {
  const auto send = [](void* data, int count, MPI_Datatype type) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(data, count, type, 0, MPI_COMM_WORLD, &request);
    finish(request);
  };
  std::uint64_t length = text.size();
  send(&length, 1, MPI_UINT64_T);
  SEEKSIM_CHECK(length < (std::uint64_t(1) << 31), "a broadcast of %llu bytes",
                static_cast<unsigned long long>(length));
  text.resize(length);
  send(text.data(), int(length), MPI_BYTE);
  return text;
}

std::vector<std::vector<std::byte>> MpiWorld::gather(std::vector<std::byte> mine, int count, TimeNs patience) {
  std::vector<std::vector<std::byte>> all;
  if (rank_ != 0) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(mine.data(), int(mine.size()), MPI_BYTE, 0, kGatherTag, MPI_COMM_WORLD, &request);
    finish(request);
    return all;
  }
  all.resize(std::size_t(count));
  all[0] = std::move(mine);
  TimeNs last = now();
  for (int missing = count - 1; missing > 0 && now() - last < patience;) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    int came = 0;
    MPI_Improbe(MPI_ANY_SOURCE, kGatherTag, MPI_COMM_WORLD, &came, &message, &status);
    if (came == 0) {
      nap();
      continue;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::vector<std::byte>& text = all[std::size_t(status.MPI_SOURCE)];
    text.resize(std::size_t(bytes));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Imrecv(text.data(), bytes, MPI_BYTE, &message, &request);
    finish(request);
    last = now();
    --missing;
  }
  return all;
}

void MpiWorld::abort(int exit_status) {
  MPI_Abort(MPI_COMM_WORLD, exit_status);
  throw std::runtime_error("MPI_Abort returned");
}

#else

namespace {
[[noreturn]] void none() { throw std::runtime_error("this program was built without MPI"); }
}  // namespace

bool MpiWorld::available() { return false; }
std::string MpiWorld::version() { return "none"; }
MpiWorld::MpiWorld() { none(); }
MpiWorld::~MpiWorld() = default;
std::string MpiWorld::host() const { none(); }
std::string MpiWorld::broadcast(std::string) { none(); }
std::vector<std::vector<std::byte>> MpiWorld::gather(std::vector<std::byte>, int, TimeNs) { none(); }
void MpiWorld::abort(int) { none(); }

#endif

}  // namespace seeksim::runtime
