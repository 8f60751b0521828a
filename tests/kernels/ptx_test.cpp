// The kernels for GPUs under nvcc: all float arithmetic in their PTX rounds to nearest by name. (ptxas may fuse or
// approximate whatever does not say so.)

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "tests/support/paths.h"

namespace seeksim::kernels::test {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  if (std::FILE* pipe = popen(command.c_str(), "r")) {
    std::array<char, 4096> buffer;
    while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
    pclose(pipe);
  }
  return text;
}

std::string nvcc() {
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::string& candidate :
       {std::string("nvcc"), std::string(home ? home : "/usr/local/cuda") + "/bin/nvcc"}) {
    const std::string path = output_of("command -v " + candidate + " 2>/dev/null");
    if (!path.empty()) return path.substr(0, path.find('\n'));
  }
  return "";
}

std::string ptx(const std::string& flags, const std::string& source) {
  return output_of(nvcc() + " -std=c++20 -arch=sm_90 " + flags + " -I '" + seeksim::paths::source_dir() +
                   "' -ptx -o - " + source + " 2>&1");
}

const char* const kContractFlags = "-fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Xcompiler -ffp-contract=off";

// Opcodes on floats that may change a value, and how often each occurs.
std::map<std::string, int> float_opcodes(const std::string& text) {
  static const std::regex kOpcode(R"(^\s*(?:@!?%p\d+\s+)?([a-z][a-z0-9_.:]*\.(?:f32|f64|f16|bf16|f16x2)[a-z0-9_.]*))");
  static const std::regex kHarmless(R"((?:ld|st|mov|selp|setp|neg|abs|set)\..*)");
  std::map<std::string, int> counts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, kOpcode)) continue;
    const std::string opcode = match[1];
    const bool flushes = opcode.find("ftz") != std::string::npos;
    if (flushes || !std::regex_match(opcode, kHarmless)) ++counts[opcode];
  }
  return counts;
}

bool allowed(const std::string& opcode) {
  static const std::regex kAllowed(R"((?:add|sub|mul|div|sqrt|fma)\.rn\.f32|cvt\.rn\.f32\.s(?:32|64))");
  return std::regex_match(opcode, kAllowed);
}

class PtxSlow : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Files, PtxSlow,
                         testing::Values("elements", "products_bf16", "products_float", "products_fp16", "rows"),
                         [](const auto& file) { return std::string(file.param); });

TEST_P(PtxSlow, HoldsOnlyFloatArithmeticThatRoundsToNearest) {
  if (nvcc().empty()) GTEST_SKIP() << "no nvcc on this machine";
  const std::string text =
      ptx(kContractFlags, "'" + seeksim::paths::source_dir() + "/kernels/cuda/" + GetParam() + ".cu'");
  const auto counts = float_opcodes(text);
  ASSERT_TRUE(counts.contains("fma.rn.f32")) << text.substr(0, 2000);
  for (const auto& [opcode, count] : counts) EXPECT_TRUE(allowed(opcode)) << opcode << ", " << count << " times";
}

// The list above is all there is.
TEST(Ptx, EveryFileIsLookedAt) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(seeksim::paths::source_dir() + "/kernels/cuda"))
    files += entry.path().extension() == ".cu";
  EXPECT_EQ(files, 5);
}

// The lint itself must be able to fail: plain operators with fast math, and an approximate root.
TEST(Ptx, TheLintSeesFastMath) {
  if (nvcc().empty()) GTEST_SKIP() << "no nvcc on this machine";
  const auto offences = [](const std::string& text) {
    int n = 0;
    for (const auto& [opcode, count] : float_opcodes(text)) n += allowed(opcode) ? 0 : count;
    return n;
  };
  const std::string path = testing::TempDir() + "seeksim_fast_math.cu";
  std::ofstream(path) << "__global__ void f(float* x, float y) { x[0] = x[0] * y + x[1]; x[1] = y / x[2]; }\n";
  EXPECT_GT(offences(ptx("-use_fast_math", "'" + path + "'")), 0);
  EXPECT_EQ(offences(ptx(kContractFlags, "'" + path + "'")), 0);
  EXPECT_GT(offences("\trsqrt.approx.f32 \t%f2, %f1;\n\t@%p1 mul.f32 %f3, %f1, %f2;\n"), 1);
}

}  // namespace
}  // namespace seeksim::kernels::test
