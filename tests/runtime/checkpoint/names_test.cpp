// Names in a checkpoint, and how often its files are asked for.
#include <gtest/gtest.h>

#include "runtime/checkpoint/checkpoint_format.h"
#include "tests/runtime/checkpoint/checkpoint_world.h"

namespace seeksim::test {
namespace {

TEST(PieceNames, AreTakenWholeOrNotAtAll) {
  const auto name = parse_piece_name("h.0.attn.c_attn.weight/exp_avg/120");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->parameter, "h.0.attn.c_attn.weight");
  EXPECT_EQ(name->kind, StateKind::exp_avg);
  EXPECT_EQ(name->first, 120);
  EXPECT_EQ(text(*name), "h.0.attn.c_attn.weight/exp_avg/120");
  for (const char* wrong : {"", "/", "w", "/0", "w/0", "/weights/0", "w/weights/", "w/weights/1x", "w/weights/-1",
                            "w/weights/x1", "w/weights/99999999999999999999", "w/others/0"})
    EXPECT_FALSE(parse_piece_name(wrong).has_value()) << wrong;
}

// A disk on which the first so many attempts to read a manifest fail.
class BusyStorage final : public Storage {
 public:
  BusyStorage(Storage& inner, Clock& clock, int failures) : inner_(inner), clock_(clock), failures_(failures) {}
  std::string read(std::string_view path) override { return inner_.read(path); }
  void write(std::string_view path, std::string_view bytes) override { inner_.write(path, bytes); }
  void sync(std::string_view path) override { inner_.sync(path); }
  void rename(std::string_view from, std::string_view to) override { inner_.rename(from, to); }
  void remove(std::string_view path) override { inner_.remove(path); }
  std::size_t read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) override {
    if (path.ends_with(kManifest) && asked.size() < std::size_t(failures_ + 1)) {
      asked.push_back(clock_.now());
      if (asked.size() <= std::size_t(failures_)) throw SeamError(ErrorKind::io, Op{}, "the disk is busy");
    }
    return inner_.read_at(path, offset, into);
  }
  std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override {
    return inner_.write_at(path, offset, from);
  }
  bool exists(std::string_view path) override { return inner_.exists(path); }
  std::vector<std::string> list(std::string_view folder) override { return inner_.list(folder); }
  std::uint64_t free_bytes(std::string_view folder) override { return inner_.free_bytes(folder); }

  std::vector<TimeNs> asked;

 private:
  Storage& inner_;
  Clock& clock_;
  int failures_;
};

TEST(CheckpointReads, AreTriedAgainAfterTwiceAsLongEachTime) {
  TrainPlan plan = saving_plan(0);
  plan.recovery.storage_attempts_max = 4;
  const auto disks = std::make_shared<sim::Disks>();
  ASSERT_EQ(run_saving(plan, world_of(1), disks).outcomes[0]->ending, Ending::finished);
  plan.checkpoint.resume = true;
  std::unique_ptr<BusyStorage> busy;
  const SavingRun run = run_saving(plan, world_of(1), disks, [&](sim::World& world) {
    world.decorate([&](int, Seams inner) {
      busy = std::make_unique<BusyStorage>(inner.storage, inner.clock, 3);
      return Seams{inner.clock, inner.device, inner.transport, *busy, inner.control};
    });
  });
  ASSERT_EQ(run.outcomes[0]->ending, Ending::finished) << run.outcomes[0]->why;
  ASSERT_EQ(busy->asked.size(), 4u);
  TimeNs backoff = plan.recovery.storage_backoff_ns;
  for (std::size_t i = 1; i < busy->asked.size(); ++i, backoff *= 2)
    EXPECT_EQ(busy->asked[i] - busy->asked[i - 1], backoff) << i;
}

}  // namespace
}  // namespace seeksim::test
