// The rules of the house, checked on every file of the tree; and each rule seen to fail on a planted violation.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/house/source_rules.h"
#include "tests/house/tree.h"
#include "tests/support/paths.h"

namespace seeksim::house {
namespace {

TEST(IncludeArrows, TheTreeKeepsTheRules) {
  std::vector<Violation> found;
  int sources = 0;
  for (const File& file : files_of_the_tree()) {
    if (!is_source(file.path)) continue;
    ++sources;
    for (Violation& violation : check_source(file.path, file.text)) found.push_back(std::move(violation));
  }
  EXPECT_GT(sources, 3) << "the walk from " << seeksim::paths::source_dir() << " saw next to nothing";
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST(MachinePaths, TheTreeNamesNone) {
  std::vector<Violation> found;
  for (const File& file : files_of_the_tree()) {
    if (file.text.find('\0') != std::string::npos) continue;  // weights, not text
    for (Violation& violation : check_machine_paths(file.path, file.text)) found.push_back(std::move(violation));
  }
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST(MachinePaths, PlantedOnesAreFound) {
  const std::string place = std::string("/wo") + "rk/";
  EXPECT_EQ(check_machine_paths("README.md", "ok\nsee " + place + "notes").size(), 1U);
  EXPECT_EQ(check_machine_paths("README.md", "ok\nsee " + place + "notes").front().line, 2);
  EXPECT_EQ(check_machine_paths("a.sh", std::string("cd \"/ro") + "ot/x\"").size(), 1U);
  EXPECT_TRUE(check_machine_paths("README.md", "what peers" + place + "do with us; build" + place + "x").empty());
}

struct Planted {
  const char* path;
  const char* text;
  int line;  // 0: nothing to find
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.path << " <<" << planted.text << ">>"; }

class Planting : public testing::TestWithParam<Planted> {};

TEST_P(Planting, IsJudgedRightly) {
  const Planted& planted = GetParam();
  const std::vector<Violation> found = check_source(planted.path, planted.text);
  if (planted.line == 0) {
    EXPECT_TRUE(found.empty()) << listing(found);
    return;
  }
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().line, planted.line) << listing(found);
  EXPECT_EQ(found.front().file, planted.path);
}

INSTANTIATE_TEST_SUITE_P(
    Arrows, Planting,
    testing::Values(Planted{"kernels/a.h", "#include \"runtime/seams/op.h\"", 1},
                    Planted{"kernels/a.cpp", "#include \"kernels/b.h\"\n#include <cmath>", 0},
                    Planted{"runtime/a.cpp", "\n#include \"kernels/b.h\"\n#include \"sim/world.h\"", 3},
                    Planted{"runtime/a.cpp", "#include \"faults/plan.h\"", 1},
                    Planted{"runtime/a.cpp", "#include \"harness/report/report.h\"", 1},
                    Planted{"runtime/a.cpp", "#include \"runtime/backend/mpi.h\"", 1},
                    Planted{"runtime/backend/mpi.cpp", "#include \"runtime/backend/mpi.h\"\n#include <mpi.h>", 0},
                    Planted{"faults/a.cpp", "#include \"sim/world.h\"", 1},
                    Planted{"sim/a.cpp", "#include \"faults/plan.h\"", 1},
                    Planted{"sim/a.cpp", "#include \"runtime/backend/clock.h\"", 1},
                    Planted{"faults/a.cpp", "#include \"runtime/backend/clock.h\"", 1},
                    Planted{"sim/a.cpp", "#include <runtime/seams/op.h>\n#include <faults/plan.h>", 2},
                    Planted{"sim/a.cpp", "#  include \"harness/main.h\"", 1},
                    Planted{"harness/a.cpp", "#include \"sim/world.h\"\n#include \"runtime/backend/mpi.h\"", 0},
                    Planted{"harness/a.cpp", "#include \"reference/model.h\"", 0},
                    Planted{"reference/a.cpp", "#include \"reference/model.h\"\n#include <cmath>", 0},
                    Planted{"reference/a.cpp", "#include \"kernels/random.h\"", 1},
                    Planted{"reference/a.h", "#include <vector>\n#include \"runtime/plan/plan.h\"", 2},
                    Planted{"reference/a.h", "#include \"harness/scenario/scenario.h\"", 1},
                    Planted{"runtime/a.cpp", "#include \"reference/model.h\"", 1},
                    Planted{"harness/a.cpp", "#include \"tests/support.h\"", 1},
                    Planted{"tests/sim/a.cpp", "#include \"sim/world.h\"\n#include \"faults/plan.h\"", 0},
                    Planted{"runtime/a.cpp", "#include \"../sim/world.h\"", 1},
                    Planted{"runtime/a.cpp", "// #include \"sim/world.h\"\n/* \n#include \"sim/a.h\"\n*/", 0},
                    Planted{"runtime/a.cpp", "auto s = \"\\\"#include\"; auto r = R\"x(\n#include \"sim/a.h\"\n)x\";",
                            0},
                    Planted{"runtime/a.cpp", "auto r = R\"x(\n\n)x\";\n#include \"sim/a.h\"", 4}));

INSTANTIATE_TEST_SUITE_P(
    Outside, Planting,
    testing::Values(
        Planted{"runtime/a.cpp", "#include <thread>", 1}, Planted{"runtime/a.cpp", "#include <random>", 1},
        Planted{"runtime/a.cpp", "#include <fstream>", 1}, Planted{"runtime/a.h", "#include <sys/stat.h>", 1},
        Planted{"runtime/a.h", "#include <boost/fiber/all.hpp>", 1},
        Planted{"runtime/a.cpp", "\nauto t = std::chrono::steady_clock::now();", 2},
        Planted{"runtime/a.cpp", "using namespace std::chrono;\nauto t = system_clock::now();", 2},
        Planted{"runtime/a.cpp", "std::chrono::nanoseconds d{3};", 0},
        Planted{"runtime/a.cpp", "std::this_thread::yield();", 1}, Planted{"runtime/a.cpp", "std::thread t;", 1},
        Planted{"runtime/a.cpp", "thread_local int x;", 1}, Planted{"runtime/a.cpp", "auto* f = fopen(p, \"r\");", 1},
        Planted{"runtime/a.cpp", "auto* f = std::fopen(p, \"r\");", 1},
        Planted{"runtime/a.cpp", "std::ifstream in(p);", 1}, Planted{"runtime/a.cpp", "int fd = ::open(p, 0);", 1},
        Planted{"runtime/a.cpp", "return ::open(p, 0);", 1},
        Planted{"runtime/a.cpp", "storage.open(p); Storage::open(p); open(p); s->time(nullptr);", 0},
        Planted{"runtime/a.cpp", "auto s = time(nullptr);", 1}, Planted{"runtime/a.cpp", "time(0);", 1},
        Planted{"runtime/a.cpp", "Time time(int rank);", 0}, Planted{"runtime/a.cpp", "return rand();", 1},
        Planted{"runtime/a.cpp", "std::mt19937 g;", 1}, Planted{"runtime/a.cpp", "getenv(\"X\");", 1},
        Planted{"runtime/a.cpp", "#define NOW std::chrono::steady_clock::now()", 1},
        Planted{"runtime/a.cpp", "say(\"the system_clock of fopen\");  // steady_clock", 0},
        Planted{"runtime/backend/a.cpp", "#include <thread>\nauto t = std::chrono::steady_clock::now();", 0},
        Planted{"harness/a.cpp", "#include <thread>\nauto t = std::chrono::steady_clock::now();", 0}));

INSTANTIATE_TEST_SUITE_P(
    Libm, Planting,
    testing::Values(Planted{"kernels/a.cpp", "y = std::exp(x);", 1}, Planted{"kernels/a.h", "\n\ny = expf(x);", 3},
                    Planted{"kernels/a.h", "return ::tanhf(x);", 1}, Planted{"kernels/a.h", "return tanh(x);", 1},
                    Planted{"kernels/a.h", "y = __builtin_powf(x, 2);", 1},
                    Planted{"runtime/a.cpp", "lr *= std::cos(t);", 1}, Planted{"runtime/a.cpp", "lr = x+pow(b, t);", 1},
                    Planted{"kernels/a.h", "float exp(float x);\ny = kernels::exp(x);", 0},
                    Planted{"kernels/a.h", "y = std::sqrt(x) + std::fma(a, b, c); // exp(x)", 0},
                    Planted{"kernels/a.h", "table.log(x); int log = 3;", 0},
                    Planted{"runtime/a.h", "const Log& log() const { return log_; }", 0},
                    Planted{"runtime/a.h", "if (a > log(x)) {", 1}, Planted{"harness/a.cpp", "y = std::exp(x);", 0}));

// The symbols of libm, of inexact result or not to be called for speed, that `nm -u` lists; each with its object.
std::vector<std::string> libm_symbols(const std::string& nm_output) {
  std::vector<std::string> found;
  std::string object;
  std::istringstream lines(nm_output);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with(".o:")) object = line;
    const size_t at = line.rfind(' ');
    if (at == std::string::npos) continue;
    const std::string symbol = line.substr(at + 1, line.find('@', at) - at - 1);
    if (is_inexact_libm(symbol) || symbol == "fma" || symbol == "fmaf") found.push_back(object + " " + symbol);
  }
  return found;
}

TEST(LibmSymbols, PlantedOnesAreFound) {
  EXPECT_EQ(libm_symbols("a.cpp.o:\n                 U malloc\n                 U expf\n"),
            std::vector<std::string>{"a.cpp.o: expf"});
  EXPECT_EQ(libm_symbols("a.cpp.o:\n                 U cos@GLIBC_2.2.5\n                 U fmaf\n").size(), 2U);
  EXPECT_TRUE(libm_symbols("exp.cpp.o:\n                 U _ZN7seeksim7kernels3expEf\n").empty());
}

// The sources may hide a call in a macro or in a library's header; the objects cannot.
TEST(LibmSymbols, TheArchivesCallNone) {
  std::istringstream archives(SEEKSIM_EXACT_ARCHIVES);
  for (std::string archive; std::getline(archives, archive, '|');) {
    const std::string command = "nm -u -- '" + archive + "' 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    ASSERT_NE(pipe, nullptr);
    std::string text;
    std::array<char, 4096> chunk;
    while (const size_t got = fread(chunk.data(), 1, chunk.size(), pipe.get())) text.append(chunk.data(), got);
    EXPECT_NE(text.find(".o:"), std::string::npos) << "nm saw no object in " << archive << ": " << text.substr(0, 300);
    EXPECT_EQ(libm_symbols(text), std::vector<std::string>()) << archive;
  }
}

}  // namespace
}  // namespace seeksim::house
