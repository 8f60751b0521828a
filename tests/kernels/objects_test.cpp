// What was compiled, not what it computes: the kernels' library calls no mathematical function of libm, and files built
// for one instruction set export nothing that could be linked into another's path.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace seeksim::kernels::test {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  if (std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r")) {
    std::array<char, 4096> buffer;
    while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
    pclose(pipe);
  }
  return text;
}

// The program is <build>/seeksim; the library lies beside it.
std::string library() {
  const std::string program = seeksim::paths::program();
  return program.substr(0, program.rfind('/')) + "/kernels/libseeksim_kernels.a";
}

TEST(KernelObjects, CallNoFunctionOfLibm) {
  const std::string symbols = output_of("nm -u " + library());
  if (symbols.empty()) GTEST_SKIP() << "nm (binutils) or " << library() << " is missing";
  const std::set<std::string> banned = {"fma",   "fmaf",   "exp",   "expf",   "exp2f",  "expm1f",     "log",
                                        "logf",  "log2f",  "pow",   "powf",   "sqrt",   "sqrtf",      "tanh",
                                        "tanhf", "erff",   "sinf",  "cosf",   "sin",    "cos",        "fmaxf",
                                        "fminf", "roundf", "rintf", "floorf", "sgemm_", "cblas_sgemm"};
  std::istringstream lines(symbols);
  bool saw_scratch = false;
  for (std::string word; lines >> word;) {
    EXPECT_FALSE(banned.contains(word)) << "the kernels call " << word;
    EXPECT_NE(word.substr(0, 4), "_ZGV") << "a vector math function: " << word;
    saw_scratch |= word.find("scratch") != std::string::npos;
  }
  EXPECT_TRUE(saw_scratch) << "nm listed none of the symbols that are known to be there";
}

TEST(KernelObjects, ForOneInstructionSetExportNothingButTheirTable) {
  const std::string symbols = output_of("nm -A --defined-only " + library());
  if (symbols.empty()) GTEST_SKIP() << "nm (binutils) or " << library() << " is missing";
  int tables = 0;
  std::istringstream lines(symbols);
  for (std::string line; std::getline(lines, line);) {
    bool special = false;
    for (const char* isa : {"_scalar.cpp.o", "_avx2.cpp.o", "_avx512.cpp.o"})
      special |= line.find(isa) != std::string::npos;
    if (!special) continue;
    std::istringstream fields(line.substr(line.rfind(".o:") + 3));
    std::string address, type, name;
    fields >> address >> type >> name;
    const bool global = !type.empty() && type != "r" && std::string("TWVuBDRGS").find(type[0]) != std::string::npos;
    const bool no_code = name.starts_with("DW.ref.") || name.find("asan") != std::string::npos;  // of the compiler
    if (!global || no_code) continue;
    const bool table = name.find("products_") != std::string::npos || name.find("elements_") != std::string::npos;
    EXPECT_TRUE(table && type == "T") << line;
    tables += table;
  }
  EXPECT_EQ(tables, 6);
}

}  // namespace
}  // namespace seeksim::kernels::test
