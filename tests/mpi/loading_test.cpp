// MPI is opened when a process first asks for it: the program runs without one, and says what it lacks where it needs
// one.
#include "tests/support/processes.h"

namespace seeksim {
namespace {

namespace fs = std::filesystem;

class MpiLoading : public Mpi {
 protected:
  // What MPI is looked for by comes from this folder first.
  std::string with(const std::string& mpi_folder, const std::string& says = "") const {
    return "env LD_LIBRARY_PATH=" + in_quotes(mpi_folder) + " SEEKSIM_OTHER_MPI=" + in_quotes(says) + " ";
  }
  // A file that is no library: what the loader says of it stands for whatever it may say.
  std::string without_mpi() const {
    fs::create_directories(folder() + "/none");
    std::ofstream(folder() + "/none/libmpi.so.40") << "nothing";
    return with(folder() + "/none");
  }
  std::string another_mpi(const std::string& says) const {
    return with(fs::path(paths::program()).parent_path() / "tests/other_mpi", says);
  }
  static std::string under_mpirun(const std::string& command) {
    return "timeout 60 mpirun --oversubscribe" + std::string(::getuid() == 0 ? " --allow-run-as-root" : "") +
           " -np 2 " + command;
  }
};

TEST_F(MpiLoading, TheProgramIsNotLinkedWithIt) {
  const Ran ran = shell("readelf --dynamic " + in_quotes(paths::program()));
  ASSERT_EQ(ran.status, 0) << ran.text;
  EXPECT_NE(ran.text.find("NEEDED"), std::string::npos) << ran.text;
  EXPECT_EQ(ran.text.find("libmpi"), std::string::npos) << ran.text;
}

TEST_F(MpiLoading, ASimulationRunsWithoutIt) {
  const Ran ran = shell(without_mpi() + arguments("baseline", {}));
  EXPECT_EQ(ran.status, 0) << ran.text;
}

TEST_F(MpiLoading, ProcessesWithoutItAreToldInOneLine) {
  const Ran ran = shell(under_mpirun(without_mpi() + arguments("baseline", {}) + " --backend mpi"));
  EXPECT_EQ(ran.status, 2) << ran.text;
  EXPECT_NE(ran.text.find("seeksim: --backend mpi: MPI cannot be loaded: "), std::string::npos) << ran.text;
  EXPECT_NE(ran.text.find("libmpi.so.40"), std::string::npos) << ran.text;
}

TEST_F(MpiLoading, AnotherMpiIsRefusedByName) {
  const std::string asks = another_mpi("MPICH Version: 4.0.2");
  const Ran ran = shell(under_mpirun(asks + arguments("baseline", {}) + " --backend mpi"));
  EXPECT_EQ(ran.status, 2) << ran.text;
  EXPECT_NE(ran.text.find("libmpi.so.40 is MPICH Version: 4.0.2, and this program was built for Open MPI"),
            std::string::npos)
      << ran.text;
}

TEST_F(MpiLoading, AnOpenMpiThatLacksAFunctionIsRefused) {
  const Ran ran = shell(under_mpirun(another_mpi("Open MPI v1") + arguments("baseline", {}) + " --backend mpi"));
  EXPECT_EQ(ran.status, 2) << ran.text;
  EXPECT_NE(ran.text.find("this MPI has no MPI_Init_thread"), std::string::npos) << ran.text;
}

TEST_F(MpiLoading, WhoeverLaunchesOrExploresIsTold) {
  for (const char* command : {" launch ", " explore --budget 1 --out "}) {
    const std::string more = std::string(command).find("explore") == std::string::npos ? "" : folder() + "/found ";
    const Ran ran = shell(without_mpi() + "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 " + paths::program() +
                          command + more + "scenarios/baseline.json");
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_NE(ran.text.find("MPI cannot be loaded: "), std::string::npos) << ran.text;
  }
}

TEST_F(MpiLoading, TheDoctorSaysWhatItFound) {
  const std::string doctor = paths::program() + " doctor";
  const Ran here = shell(doctor), missing = shell(without_mpi() + doctor),
            other = shell(another_mpi("MPICH Version: 4.0.2") + doctor);
  EXPECT_NE(here.text.find("mpirun, Open MPI v"), std::string::npos) << here.text;
  EXPECT_NE(missing.text.find("MPI cannot be loaded"), std::string::npos) << missing.text;
  EXPECT_NE(other.text.find("is MPICH Version: 4.0.2"), std::string::npos) << other.text;
}

}  // namespace
}  // namespace seeksim
