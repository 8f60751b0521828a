#include "runtime/backend/wire/mpi_api.h"

#ifdef SEEKSIM_HAVE_MPI
#include <dlfcn.h>

#include <array>
#include <stdexcept>
#include <type_traits>
#endif

namespace seeksim::runtime {

#ifdef SEEKSIM_HAVE_MPI

#ifndef OPEN_MPI
#error "This file knows Open MPI's handles only; the configure step leaves MPI out where mpi.h is another one's."
#endif

namespace {

constexpr const char* kFile = "libmpi.so.40";  // of Open MPI 3, 4 and 5, whose handles and constants are the same
constexpr const char* kFamily = "Open MPI";

struct Loaded {
  MpiApi api;
  std::string problem;  // empty: all of it is there
};

Loaded load() {
  Loaded made;
  // Global, because Open MPI's own plugins look for its symbols.
  void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    made.problem = std::string("MPI cannot be loaded: ") + ::dlerror() + " (is its folder in LD_LIBRARY_PATH?)";
    return made;
  }
  const auto find = [&](auto& what, const char* name) {
    what = reinterpret_cast<std::remove_reference_t<decltype(what)>>(::dlsym(library, name));
    if (what == nullptr && made.problem.empty()) made.problem = std::string("this MPI has no ") + name;
  };
  MpiApi& api = made.api;
  find(api.get_library_version, "MPI_Get_library_version");
  if (api.get_library_version == nullptr) return made;
  if (const std::string version = api.version(); !version.starts_with(kFamily)) {
    made.problem = std::string(kFile) + " is " + version + ", and this program was built for " + kFamily;
    return made;
  }
  find(api.init_thread, "MPI_Init_thread");
  find(api.finalize, "MPI_Finalize");
  find(api.abort, "MPI_Abort");
  find(api.error_string, "MPI_Error_string");
  find(api.get_processor_name, "MPI_Get_processor_name");
  find(api.comm_rank, "MPI_Comm_rank");
  find(api.comm_size, "MPI_Comm_size");
  find(api.comm_dup, "MPI_Comm_dup");
  find(api.comm_split_type, "MPI_Comm_split_type");
  find(api.comm_free, "MPI_Comm_free");
  find(api.comm_set_errhandler, "MPI_Comm_set_errhandler");
  find(api.comm_get_attr, "MPI_Comm_get_attr");
  find(api.allreduce, "MPI_Allreduce");
  find(api.ibcast, "MPI_Ibcast");
  find(api.isend, "MPI_Isend");
  find(api.irecv, "MPI_Irecv");
  find(api.improbe, "MPI_Improbe");
  find(api.mrecv, "MPI_Mrecv");
  find(api.imrecv, "MPI_Imrecv");
  find(api.get_count, "MPI_Get_count");
  find(api.test, "MPI_Test");
  find(api.testsome, "MPI_Testsome");
  find(api.request_free, "MPI_Request_free");
  find(api.comm_world, "ompi_mpi_comm_world");
  find(api.comm_null, "ompi_mpi_comm_null");
  find(api.request_null, "ompi_request_null");
  find(api.message_null, "ompi_message_null");
  find(api.info_null, "ompi_mpi_info_null");
  find(api.byte, "ompi_mpi_byte");
  find(api.int_type, "ompi_mpi_int");
  find(api.sum, "ompi_mpi_op_sum");
  find(api.errors_return, "ompi_mpi_errors_return");
  return made;
}

const Loaded& loaded() {
  static const Loaded kLoaded = load();
  return kLoaded;
}

}  // namespace

std::string mpi_problem() { return loaded().problem; }

std::string MpiApi::version() const {
  // Another MPI than that of mpi.h may answer: MPICH's texts are longer than MPI_MAX_LIBRARY_VERSION_STRING is here.
  std::array<char, 16384> text{};
  int length = 0;
  get_library_version(text.data(), &length);
  const std::string all(text.data());
  return all.substr(0, all.find_first_of(",\n"));
}

const MpiApi& MpiApi::get() {
  if (!loaded().problem.empty()) throw std::runtime_error(loaded().problem);
  return loaded().api;
}

#else

std::string mpi_problem() { return "this program was built without MPI: Open MPI's mpi.h was not found"; }

#endif

}  // namespace seeksim::runtime
