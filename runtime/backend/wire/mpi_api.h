// MpiApi: the functions and handles of MPI that are used, found in the library when a process first asks for them: a
// program that simulates, or whose processes meet over TCP, starts without one. Built where Open MPI's mpi.h is.
#pragma once

#include <string>

namespace seeksim::runtime {

// Why MPI cannot be used here; empty: it can. Loads the library.
std::string mpi_problem();

}  // namespace seeksim::runtime

#ifdef SEEKSIM_HAVE_MPI

#include <mpi.h>

namespace seeksim::runtime {

struct MpiApi {
  decltype(&MPI_Get_library_version) get_library_version = nullptr;
  decltype(&MPI_Init_thread) init_thread = nullptr;
  decltype(&MPI_Finalize) finalize = nullptr;
  decltype(&MPI_Abort) abort = nullptr;
  decltype(&MPI_Error_string) error_string = nullptr;
  decltype(&MPI_Get_processor_name) get_processor_name = nullptr;
  decltype(&MPI_Comm_rank) comm_rank = nullptr;
  decltype(&MPI_Comm_size) comm_size = nullptr;
  decltype(&MPI_Comm_dup) comm_dup = nullptr;
  decltype(&MPI_Comm_split_type) comm_split_type = nullptr;
  decltype(&MPI_Comm_free) comm_free = nullptr;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler = nullptr;
  decltype(&MPI_Comm_get_attr) comm_get_attr = nullptr;
  decltype(&MPI_Allreduce) allreduce = nullptr;
  decltype(&MPI_Ibcast) ibcast = nullptr;
  decltype(&MPI_Isend) isend = nullptr;
  decltype(&MPI_Irecv) irecv = nullptr;
  decltype(&MPI_Improbe) improbe = nullptr;
  decltype(&MPI_Mrecv) mrecv = nullptr;
  decltype(&MPI_Imrecv) imrecv = nullptr;
  decltype(&MPI_Get_count) get_count = nullptr;
  decltype(&MPI_Test) test = nullptr;
  decltype(&MPI_Testsome) testsome = nullptr;
  decltype(&MPI_Request_free) request_free = nullptr;

  // mpi.h calls them MPI_COMM_WORLD and so on, which are the addresses of the library's variables.
  MPI_Comm comm_world = nullptr;
  MPI_Comm comm_null = nullptr;
  MPI_Request request_null = nullptr;
  MPI_Message message_null = nullptr;
  MPI_Info info_null = nullptr;
  MPI_Datatype byte = nullptr;
  MPI_Datatype int_type = nullptr;
  MPI_Op sum = nullptr;
  MPI_Errhandler errors_return = nullptr;

  std::string version() const;  // "Open MPI v4.1.4"
  // Throws std::runtime_error with mpi_problem().
  static const MpiApi& get();
};

}  // namespace seeksim::runtime

#endif
