// The log of values on bare queues: what it writes down, and what it passes on.
#include "sim/value_log.h"

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

// Writes 0 to 49 and reads 10 to 59 of one buffer, on two queues that do not wait for each other, and reads nothing.
WorldResult logged_run(bool race_detector, std::vector<ValueEntry>& entries) {
  WorldPlan plan = small_world(1);
  plan.race_detector = race_detector;
  plan.values.on = true;
  World world(plan);
  const WorldResult result = world.run([](Rank& rank) {
    const BufferPtr b = floats(rank, 100, 1.0f);
    const Op op = op_of(rank, OpKind::compute, 1);
    const auto reads = [](kernels::Lane, kernels::Vec<const float>) {};
    rank.device.compute_queue().launch(
        op, {1e6, 0}, [](kernels::Lane, kernels::Vec<float> out) { out[0] = 2.0f; }, vec<float>(*b, 0, 50));
    rank.device.copy_queue().launch(op, {1e3, 0}, reads, vec<const float>(*b, 10, 50));
    rank.device.copy_queue().launch(op, {1e3, 0}, reads, vec<const float>(*b, 0, 0));
    rank.device.drain();
  });
  entries = world.values(0)->entries();
  EXPECT_TRUE(all_returned(result));
  return result;
}

TEST(ValueLog, HasEachPartThatIsNotEmptyInTheOrderOfCompletion) {
  std::vector<ValueEntry> entries;
  EXPECT_TRUE(logged_run(false, entries).races.empty());
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_TRUE(entries[0].read);
  EXPECT_EQ(entries[0].lo, 10 * sizeof(float));
  EXPECT_FALSE(entries[1].read);
  EXPECT_EQ(entries[1].hi, 50 * sizeof(float));
  EXPECT_LT(entries[0].at_ns, entries[1].at_ns);
}

TEST(ValueLog, PassesOnToTheRaceDetector) {
  std::vector<ValueEntry> entries;
  EXPECT_EQ(logged_run(true, entries).races.size(), 1u);
  EXPECT_EQ(entries.size(), 2u);
}

}  // namespace
}  // namespace seeksim::sim
