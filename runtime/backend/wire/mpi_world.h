// MpiWorld: the processes that mpirun (or srun) started. MPI carries what ranks send each other while they train, and
// what the launching processes tell each other before and after. Open MPI 4.1 has no ULFM: when a process dies the
// others cannot go on, and the job ends.
#pragma once

#include "runtime/backend/wire/process_world.h"

namespace seeksim::runtime {

class MpiWorld final : public ProcessWorld {
 public:
  static std::string problem();  // why MPI cannot be used here; empty: it can. Loads the library
  static std::string version();  // "Open MPI v4.1.4". Throws as the constructor does

  MpiWorld();            // MPI_Init; throws std::runtime_error where MPI cannot be used
  ~MpiWorld() override;  // MPI_Finalize, which all have to reach
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  const char* name() const override { return "mpi"; }
  std::string host() const override;
  std::string broadcast(std::string text) override;
  std::vector<std::vector<std::byte>> gather(std::vector<std::byte> mine, int count, TimeNs patience) override;
  [[noreturn]] void abort(int exit_status) override;
  Wire& wire() override { return *wire_; }

 private:
  std::unique_ptr<Wire> wire_;
};

}  // namespace seeksim::runtime
