// A library that lies where MPI is looked for and is not the MPI that seeksim was built for: it says whose it is by
// SEEKSIM_OTHER_MPI, and has nothing else. Its text is longer than Open MPI's may be, as MPICH's are.
#include <cstdio>
#include <cstdlib>

extern "C" int MPI_Get_library_version(char* text, int* length) {
  const char* const mine = std::getenv("SEEKSIM_OTHER_MPI");
  *length = std::snprintf(text, 8192, "%s\n%4000s", mine != nullptr ? mine : "nobody's", "configured with all of it");
  return 0;
}
