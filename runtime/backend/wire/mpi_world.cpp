#include "runtime/backend/wire/mpi_world.h"

#include <stdexcept>

#include "runtime/backend/wire/mpi_api.h"

#ifdef SEEKSIM_HAVE_MPI
#include "kernels/check.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/wire/mpi_wire.h"
#endif

namespace seeksim::runtime {

#ifdef SEEKSIM_HAVE_MPI

namespace {

constexpr int kGatherTag = 1;

const MpiApi& mpi() { return MpiApi::get(); }

void finish(MPI_Request& request) {
  for (int done = 0; done == 0;) {
    mpi().test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) nap();
  }
}

}  // namespace

std::string MpiWorld::problem() { return mpi_problem(); }
std::string MpiWorld::version() { return mpi().version(); }

MpiWorld::MpiWorld() {
  int given = 0;
  // Rank 0 may have a thread beside for the control plane, which never calls MPI.
  if (mpi().init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS)
    throw std::runtime_error("MPI_Init failed");
  mpi().comm_rank(mpi().comm_world, &rank_);
  mpi().comm_size(mpi().comm_world, &size_);
  // One process a host counts for it.
  MPI_Comm here = mpi().comm_null;
  mpi().comm_split_type(mpi().comm_world, MPI_COMM_TYPE_SHARED, 0, mpi().info_null, &here);
  int place = 0;
  mpi().comm_rank(here, &place);
  const int first = place == 0 ? 1 : 0;
  mpi().allreduce(&first, &hosts_, 1, mpi().int_type, mpi().sum, mpi().comm_world);
  mpi().comm_free(&here);
  wire_ = std::make_unique<MpiWire>();
}

std::string MpiWorld::host() const {
  char text[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  mpi().get_processor_name(text, &length);
  return {text, std::size_t(length)};
}

MpiWorld::~MpiWorld() {
  wire_.reset();
  mpi().finalize();
}

std::string MpiWorld::broadcast(std::string text) {
  const auto send = [](void* data, int bytes) {
    MPI_Request request = mpi().request_null;
    mpi().ibcast(data, bytes, mpi().byte, 0, mpi().comm_world, &request);
    finish(request);
  };
  std::uint64_t length = text.size();
  send(&length, int(sizeof length));
  SEEKSIM_CHECK(length < (std::uint64_t(1) << 31), "a broadcast of %llu bytes",
                static_cast<unsigned long long>(length));
  text.resize(length);
  send(text.data(), int(length));
  return text;
}

std::vector<std::vector<std::byte>> MpiWorld::gather(std::vector<std::byte> mine, int count, TimeNs patience) {
  std::vector<std::vector<std::byte>> all;
  if (rank_ != 0) {
    MPI_Request request = mpi().request_null;
    mpi().isend(mine.data(), int(mine.size()), mpi().byte, 0, kGatherTag, mpi().comm_world, &request);
    finish(request);
    return all;
  }
  all.resize(std::size_t(count));
  all[0] = std::move(mine);
  const WallClock clock;
  TimeNs last = clock.now();
  for (int missing = count - 1; missing > 0 && clock.now() - last < patience;) {
    MPI_Message message = mpi().message_null;
    MPI_Status status;
    int came = 0;
    mpi().improbe(MPI_ANY_SOURCE, kGatherTag, mpi().comm_world, &came, &message, &status);
    if (came == 0) {
      nap();
      continue;
    }
    int bytes = 0;
    mpi().get_count(&status, mpi().byte, &bytes);
    std::vector<std::byte>& text = all[std::size_t(status.MPI_SOURCE)];
    text.resize(std::size_t(bytes));
    MPI_Request request = mpi().request_null;
    mpi().imrecv(text.data(), bytes, mpi().byte, &message, &request);
    finish(request);
    last = clock.now();
    --missing;
  }
  return all;
}

void MpiWorld::abort(int exit_status) {
  mpi().abort(mpi().comm_world, exit_status);
  throw std::runtime_error("MPI_Abort returned");
}

#else

namespace {
[[noreturn]] void none() { throw std::runtime_error(mpi_problem()); }
}  // namespace

std::string MpiWorld::problem() { return mpi_problem(); }
std::string MpiWorld::version() { none(); }
MpiWorld::MpiWorld() { none(); }
MpiWorld::~MpiWorld() = default;
std::string MpiWorld::host() const { none(); }
std::string MpiWorld::broadcast(std::string) { none(); }
std::vector<std::vector<std::byte>> MpiWorld::gather(std::vector<std::byte>, int, TimeNs) { none(); }
void MpiWorld::abort(int) { none(); }

#endif

}  // namespace seeksim::runtime
