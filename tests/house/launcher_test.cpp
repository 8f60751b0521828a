// The launcher at the top, run in a made-up repository with stubs in place of cmake, ninja, apt-get and the program.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace seeksim::house {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  std::string out;  // stdout and stderr, in the order of writing
};

class Launcher : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "seeksim launcher XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    scratch_ = fs::canonical(name);
    top_ = scratch_ / "a repository";
    for (const char* folder :
         {"cmake", "kernels", "runtime", "faults", "sim", "pytorch/core", "reference", "harness", "scenarios"}) {
      fs::create_directories(top_ / folder);
    }
    write("CMakeLists.txt", "");
    write("CMakePresets.json", "");
    write("kernels/a.cpp", "");
    fs::copy_file(fs::path(seeksim::paths::source_dir()) / "seeksim", top_ / "seeksim");
    // What each stub is called with goes to $CALLS, for the tests to read.
    stub("cmake", "b=${*: -1}; mkdir -p \"$b\"; touch \"$b/CMakeCache.txt\" \"$b/build.ninja\"");
    stub("ninja",
         "[ ! -e \"$SCRATCH/broken\" ] || { printf 'FAILED: a.o\\nboom\\n'; exit 1; }; "
         "cp \"$SCRATCH/program\" \"$2/seeksim\"");
    stub("ctest", "echo '100% tests passed, 0 tests failed out of 1'");
    stub("dpkg-query", "shift 3; for p; do [ -e \"$SCRATCH/bare\" ] || printf 'installed=%s ' \"$p\"; done");
    stub("apt-get", "[ \"$1\" = update ] || rm -f \"$SCRATCH/bare\"");
    stub("id", "echo 0");
    write_script(scratch_ / "program", "printf '%s\\n' \"the program in $PWD\"; printf '<%s>' \"$@\"; exit 7");
  }

  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(scratch_, ignored);
  }

  void write(const std::string& path, const std::string& text) { std::ofstream(top_ / path) << text; }

  static void write_script(const fs::path& path, const std::string& body) {
    std::ofstream(path) << "#!/bin/bash\n" << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  void stub(const std::string& name, const std::string& body) {
    fs::create_directories(scratch_ / "bin");
    write_script(scratch_ / "bin" / name, "echo \"" + name + " $*\" >>\"$CALLS\"\n" + body);
  }

  // `command` is run by bash with $TOP, $SCRATCH and $CALLS set, from a folder that is not the repository.
  Outcome run(const std::string& command) {
    const fs::path script = scratch_ / "command";
    std::error_code ignored;
    fs::remove(scratch_ / "calls", ignored);
    std::ofstream(script)
        << "unset SEEKSIM_BUILD_DIR SEEKSIM_CMAKE_ARGS SEEKSIM_JOBS SEEKSIM_NO_INSTALL SEEKSIM_PRESET\n"
        << "export SCRATCH='" << scratch_.string() << "'\n"
        << "export TOP='" << top_.string() << "' CALLS=\"$SCRATCH/calls\" PATH=\"$SCRATCH/bin:$PATH\"\n"
        << "exec 2>&1 </dev/null; cd \"$SCRATCH\"\n"
        << command << "\n";
    Outcome outcome;
    FILE* pipe = popen(("bash '" + script.string() + "'").c_str(), "r");
    if (pipe == nullptr) return outcome;
    std::array<char, 4096> chunk;
    while (const size_t got = fread(chunk.data(), 1, chunk.size(), pipe)) outcome.out.append(chunk.data(), got);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
    return outcome;
  }

  std::string calls() const {
    std::ifstream in(scratch_ / "calls");
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path scratch_;
  fs::path top_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Launcher, BuildsOnceAndHandsOverArgumentsFolderAndStatus) {
  const Outcome first = run("\"$TOP/seeksim\" run 'my scenario.json' ''");
  EXPECT_EQ(first.status, 7) << first.out;
  EXPECT_TRUE(has(first.out, "the program in " + scratch_.string() + "\n<run><my scenario.json><>")) << first.out;
  EXPECT_TRUE(has(calls(), "cmake --preset release")) << calls();
  EXPECT_TRUE(has(calls(), "ninja ")) << calls();

  const Outcome second = run("\"$TOP/seeksim\" run x");
  EXPECT_EQ(second.status, 7);
  EXPECT_EQ(second.out, "the program in " + scratch_.string() + "\n<run><x>");
  EXPECT_EQ(calls(), "") << "nothing changed, and yet something was started";
}

TEST_F(Launcher, HelpNamesItsOwnCommandsToo) {
  const Outcome help = run("\"$TOP/seeksim\" --help");
  EXPECT_EQ(help.status, 7) << "the program's";
  EXPECT_TRUE(has(help.out, "<--help>")) << help.out;
  EXPECT_TRUE(has(help.out, "./seeksim build [target...]") && has(help.out, "./seeksim test [fast|all")) << help.out;
  for (const char* own : {"build", "test", "pack"}) {
    const Outcome outcome = run(std::string("\"$TOP/seeksim\" ") + own + " --help");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(has(outcome.out, std::string("./seeksim ") + own)) << outcome.out;
    EXPECT_EQ(calls(), "") << "nothing is to be built for that";
  }
}

TEST_F(Launcher, IsFoundThroughASymbolicLink) {
  const Outcome linked = run("ln -s \"$TOP/seeksim\" \"$SCRATCH/link\"; ./link run x");
  EXPECT_EQ(linked.status, 7) << linked.out;
  EXPECT_TRUE(has(linked.out, "the program in " + scratch_.string())) << linked.out;
}

// The launcher stands before every run. These three are all that it finds on its path here, and a fourth is noted too.
TEST_F(Launcher, AHandOverStartsThreeProcesses) {
  run("\"$TOP/seeksim\" x");
  const std::vector<std::string> allowed = {"readlink", "dirname", "find"};
  for (const std::string& name : allowed) stub(name, "PATH=$REAL_PATH exec " + name + " \"$@\"");
  const Outcome second =
      run("command_not_found_handle() { echo \"$*\" >>\"$CALLS\"; }; export -f command_not_found_handle\n"
          "REAL_PATH=${PATH#*:} PATH=\"$SCRATCH/bin\" \"$TOP/seeksim\" x");
  EXPECT_EQ(second.status, 7);
  EXPECT_EQ(second.out, "the program in " + scratch_.string() + "\n<x>");
  std::vector<std::string> started;
  std::istringstream lines(calls());
  for (std::string line; std::getline(lines, line);) started.push_back(line.substr(0, line.find(' ')));
  EXPECT_EQ(started, allowed);
}

TEST_F(Launcher, ChangedNewAndDeletedSourcesAreBuilt) {
  for (const char* change : {"touch \"$TOP/kernels/a.cpp\"", "touch \"$TOP/sim/new.h\"", "rm \"$TOP/sim/new.h\"",
                             "rm \"$TOP/build/release/seeksim\""}) {
    // The sources are older than the last build, and that is older than any change to come.
    run("\"$TOP/seeksim\" x; find \"$TOP\" -exec touch -d '2 minutes ago' {} +\n"
        "touch -d '1 minute ago' \"$TOP/build/release/.seeksim-built\"");
    run("\"$TOP/seeksim\" x");
    EXPECT_EQ(calls(), "") << "nothing changed before: " << change;
    const Outcome after = run(std::string(change) + "; \"$TOP/seeksim\" x");
    EXPECT_EQ(after.status, 7) << change << "\n" << after.out;
    EXPECT_TRUE(has(calls(), "ninja ")) << change;
  }
}

TEST_F(Launcher, AMovedRepositoryIsConfiguredAnew) {
  run("\"$TOP/seeksim\" x");
  const Outcome moved = run("mv \"$TOP\" \"$SCRATCH/elsewhere\"; \"$SCRATCH/elsewhere/seeksim\" x");
  EXPECT_EQ(moved.status, 7) << moved.out;
  EXPECT_TRUE(has(calls(), "cmake ")) << calls();
}

TEST_F(Launcher, AFailedBuildShowsTheCompilerAndIsTriedAgain) {
  const Outcome broken = run("touch \"$SCRATCH/broken\"; \"$TOP/seeksim\" x");
  EXPECT_EQ(broken.status, 4);
  EXPECT_TRUE(has(broken.out, "FAILED: a.o\nboom\n")) << broken.out;
  EXPECT_EQ(run("\"$TOP/seeksim\" x").status, 4);
  EXPECT_EQ(run("rm \"$SCRATCH/broken\"; \"$TOP/seeksim\" x").status, 7);
}

TEST_F(Launcher, InstallsWhatIsMissingAndPrintsTheLine) {
  const Outcome bare = run("touch \"$SCRATCH/bare\"; \"$TOP/seeksim\" x");
  EXPECT_EQ(bare.status, 7) << bare.out;
  EXPECT_TRUE(has(bare.out, "apt-get update; apt-get install -y ")) << bare.out;
  EXPECT_TRUE(has(calls(), "apt-get install -y ") && has(calls(), "libboost-fiber1.81-dev")) << calls();
}

TEST_F(Launcher, StopsWithTheLineWhenItMayNotInstall) {
  const Outcome told = run("touch \"$SCRATCH/bare\"; SEEKSIM_NO_INSTALL=1 \"$TOP/seeksim\" x");
  EXPECT_EQ(told.status, 2);
  EXPECT_TRUE(has(told.out, "apt-get install -y ")) << told.out;
  EXPECT_FALSE(has(calls(), "apt-get")) << calls();

  stub("id", "echo 1000");
  stub("sudo", "exit 1");
  const Outcome refused = run("\"$TOP/seeksim\" x");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(has(refused.out, "sudo apt-get install -y ")) << refused.out;
  EXPECT_FALSE(has(calls(), "apt-get install")) << calls();
}

TEST_F(Launcher, TestBuildsAllAndEndsWithTheSummary) {
  const Outcome fast = run("\"$TOP/seeksim\" test fast");
  EXPECT_EQ(fast.status, 0);
  EXPECT_TRUE(fast.out.ends_with("100% tests passed, 0 tests failed out of 1\n")) << fast.out;
  EXPECT_TRUE(has(calls(), "-L ^fast$")) << calls();
  run("\"$TOP/seeksim\" test");
  EXPECT_TRUE(has(calls(), "-LE ") && has(calls(), "nightly")) << calls();
  const Outcome unknown = run("\"$TOP/seeksim\" test quickly");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_TRUE(has(unknown.out, "fast, all, gpu")) << unknown.out;
}

// The first one's build ends when the second one has said that it waits, or after half a minute.
TEST_F(Launcher, TwoAtOnceBuildOnce) {
  const Outcome both =
      run("await() { for ((i = 0; i < 3000; ++i)); do [ ! -e \"$SCRATCH/$1\" ] || return 0; sleep 0.01; done; }\n"
          "export -f await\n"
          "printf 'touch \"$SCRATCH/builds\"; await waits\\n' >>\"$SCRATCH/bin/ninja\"\n"
          "\"$TOP/seeksim\" one & await builds\n"
          "\"$TOP/seeksim\" two 2>&1 | while IFS= read -r line || [ -n \"$line\" ]; do\n"
          "  printf '%s\\n' \"$line\"\n"
          "  case $line in *'waiting for it'*) touch \"$SCRATCH/waits\" ;; esac\n"
          "done\n"
          "wait");
  EXPECT_TRUE(has(both.out, "waiting for it") && has(both.out, "<one>") && has(both.out, "<two>")) << both.out;
  EXPECT_EQ(calls().find("ninja "), calls().rfind("ninja ")) << calls();
}

}  // namespace
}  // namespace seeksim::house
