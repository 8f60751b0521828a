// Choice of the instruction set, the start-up checks, and digests.

#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>

#include "kernels/check.h"
#include "kernels/digest.h"
#include "kernels/isa.h"
#include "tests/kernels/reference.h"

namespace seeksim::kernels::test {
namespace {

constexpr int kRefused = 100;

// Not a test of its own: what a fresh process answers, as its exit status (the choice is made once in a process).
TEST(IsaChoice, DISABLED_InChild) {
  try {
    std::_Exit(static_cast<int>(active_isa()));
  } catch (const std::runtime_error& e) {
    std::_Exit(std::string(e.what()).find("SEEKSIM_ISA") != std::string::npos ? kRefused : kRefused + 1);
  }
}

int isa_in_child(const char* value) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("SEEKSIM_ISA", value, 1);
    unsetenv("GTEST_TOTAL_SHARDS");  // else the child may find its one test in another shard, and run none
    unsetenv("GTEST_SHARD_INDEX");
    if (std::freopen("/dev/null", "w", stdout) == nullptr) std::_Exit(kRefused + 3);
    execl("/proc/self/exe", "test_kernels", "--gtest_also_run_disabled_tests",
          "--gtest_filter=IsaChoice.DISABLED_InChild", static_cast<char*>(nullptr));
    std::_Exit(kRefused + 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(IsaChoice, FollowsTheEnvironment) {
  EXPECT_EQ(isa_in_child("scalar"), static_cast<int>(Isa::scalar));
  EXPECT_EQ(isa_in_child("avx2"), static_cast<int>(Isa::avx2));
  EXPECT_EQ(isa_in_child("avx512"), cpu_has(Isa::avx512) ? static_cast<int>(Isa::avx512) : kRefused);
  EXPECT_EQ(isa_in_child("sse9"), kRefused);
}

TEST(IsaChoice, ASetThatTheCpuLacksIsRefused) {
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (cpu_has(isa)) {
      force_isa(isa);
      EXPECT_EQ(active_isa(), isa);
    } else {
      EXPECT_THROW(force_isa(isa), std::runtime_error);
    }
  }
}

TEST(SelfTest, PassesHere) {
  EXPECT_EQ(self_test(), "");
  EXPECT_TRUE(float_environment_ok());
}

TEST(Check, SaysWhereAndWhat) {
  try {
    SEEKSIM_CHECK_EQ(2 + 1, 4);
    FAIL();
  } catch (const CheckError& e) {
    EXPECT_NE(std::string(e.what()).find("isa_test.cpp"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("3 != 4"), std::string::npos);
  }
}

TEST(Digest, SeesEveryBitButNotTheKindOfNan) {
  Rng rng(1);
  Floats x = tames(rng, 3000);
  x[7] = NAN, x[8] = 0.0F;
  const std::uint64_t before = digest(vec(std::as_const(x)));
  x[7] = from_bits(0xffc12345U);
  EXPECT_EQ(digest(vec(std::as_const(x))), before);
  x[8] = -0.0F;
  EXPECT_NE(digest(vec(std::as_const(x))), before);
  x[8] = 0.0F;
  x[2999] = from_bits(bits(x[2999]) ^ 1U);
  EXPECT_NE(digest(vec(std::as_const(x))), before);
}

TEST(Digest, IsMadeOfItsBlocks) {
  Rng rng(2);
  const Floats x = tames(rng, 2500);
  std::uint64_t hash = combine(0, 2500);
  for (Index begin : {0, 1024, 2048})
    hash = combine(hash, block_digest({x.data() + begin, std::min<Index>(1024, 2500 - begin)}));
  EXPECT_EQ(digest(vec(x)), hash);
  EXPECT_NE(combine(1, 2), combine(2, 1));
}

}  // namespace
}  // namespace seeksim::kernels::test
