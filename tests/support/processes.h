// Shared by tests with real processes: starts the program under mpirun, and reads what it leaves behind.
#pragma once

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/backend/wire/mpi_world.h"
#include "tests/support/paths.h"

namespace seeksim {

using Json = nlohmann::ordered_json;

struct Ran {
  int status = -1;
  std::string text;
};

inline Ran shell(const std::string& command) {
  Ran ran;
  FILE* pipe = ::popen(("export COLUMNS=0; " + command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> bytes;
  for (std::size_t n = 0; (n = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) ran.text.append(bytes.data(), n);
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return ran;
}

inline std::string in_quotes(const std::string& word) { return "'" + word + "'"; }

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = runtime::MpiWorld::problem(); !problem.empty())
      GTEST_SKIP() << problem << " (libopenmpi-dev, openmpi-bin)";
    if (shell("command -v mpirun").status != 0) GTEST_SKIP() << "there is no mpirun here (openmpi-bin)";
    std::string name = std::filesystem::temp_directory_path() / "seeksim-mpi-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) shell("rm -r " + in_quotes(folder_));
  }

  Ran mpi(int processes, const std::string& scenario, const std::vector<std::string>& sets,
          const std::string& more = "") {
    const std::string as_root = ::getuid() == 0 ? " --allow-run-as-root" : "";
    return shell("timeout 120 mpirun --oversubscribe" + as_root + " -np " + std::to_string(processes) + " " +
                 arguments(scenario, sets) + " --backend mpi --report " + in_quotes(folder_ + "/mpi.json") + " " +
                 more);
  }
  Json report(const std::string& which) const {
    std::ifstream file(folder_ + "/" + which + ".json");
    return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  // Expects the run on processes to pass like the simulated one, with the same bits.
  void expect_the_simulators_bits(int processes, const std::string& scenario, std::vector<std::string> sets) {
    sets.push_back("sweep=[]");
    const Ran real = mpi(processes, scenario, sets);
    ASSERT_EQ(real.status, 0) << real.text;
    const Ran simulated = shell(arguments(scenario, sets) + " --report " + in_quotes(folder_ + "/sim.json"));
    ASSERT_EQ(simulated.status, 0) << simulated.text;
    const Json mine = report("mpi"), theirs = report("sim");
    EXPECT_EQ(mine["backend"], "mpi");
    EXPECT_EQ(theirs["backend"], "sim");
    for (const char* key : {"params_digest", "loss", "grad_norm", "loss_scale", "steps_committed"})
      EXPECT_EQ(mine[key], theirs[key]) << key;
    EXPECT_FALSE(mine["params_digest"].get<std::string>().empty());
    // The simulator sums over all ranks at once where it can. At stage 0 that needs other messages, and no slots.
    if (theirs["comm"].contains("all_reduce")) return;
    EXPECT_EQ(mine["comm"], theirs["comm"]);
    EXPECT_EQ(mine["memory"], theirs["memory"]);
  }

  const std::string& folder() const { return folder_; }
  static std::string arguments(const std::string& scenario, const std::vector<std::string>& sets) {
    std::string text = seeksim::paths::program() + " run scenarios/" + scenario + ".json";
    for (const std::string& set : sets) text += " --set " + in_quotes(set);
    return text;
  }

 private:
  std::string folder_;
};

}  // namespace seeksim
