#include "pytorch/core/record.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <thread>

#include "pytorch/core/record_layout.h"

namespace seeksim::pytorch {
namespace {

class RecordTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("seeksim-record-" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "rank-1.rec";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static RecordWriter::Start start() {
    RecordWriter::Start s;
    s.rank = 1;
    s.world = 3;
    s.torch = "2.15.0";
    s.backend = "seeksim";
    return s;
  }
  // What goes wrong when the file is read; empty when nothing does.
  std::string problem() const {
    try {
      read_record(path_);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }
  // Overwrites bytes of the payload of an entry.
  template <class T>
  void spoil(std::uint64_t entry, std::size_t offset, T value) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(std::streamoff(kHeadBytes + entry * kEntryBytes + offsetof(Entry, payload) + offset));
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void spoil_head(std::size_t offset, T value) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(std::streamoff(offset));
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::filesystem::path folder_;
  std::string path_;
};

CallEntry some_call(RecordWriter& writer, std::int32_t group) {
  CallEntry call;
  call.op = OpName::reduce_scatter;
  call.reduce = ReduceName::avg;
  call.dtype = DType::bf16;
  call.phase = StepPhase::backward;
  call.group = group;
  call.shape = writer.text("[4,2]");
  call.seq = 7;
  call.step = 3;
  call.numel = 8;
  return call;
}

TEST_F(RecordTest, WhatIsWrittenIsRead) {
  const std::string long_text(3000, 'x');
  {
    RecordWriter writer(path_, start());
    GroupEntry group;
    group.name = writer.text("data");
    group.ranks = writer.text("0,1,2");
    group.size = 3;
    const std::int32_t g = writer.add(group);
    CallEntry call = some_call(writer, g);
    const std::int32_t c = writer.add(call);
    writer.joined(g, call.op, 7);
    call.state = CallState::finished;
    call.hash_out = 99;
    writer.update(c, call);
    writer.add(LossEntry{3, 1, DType::fp32, 0x3ff0000000000000U, 5});
    writer.add(StepEntry{3, 2, 6});
    writer.add(NoteEntry{writer.text(long_text)});
    writer.now(4, 0, StepPhase::forward);
    writer.ended();
  }
  const RankRecord r = read_record(path_);
  EXPECT_EQ(r.now.rank, 1);
  EXPECT_EQ(r.now.torch, "2.15.0");
  EXPECT_TRUE(r.now.ended);
  EXPECT_EQ(r.now.step, 4);
  ASSERT_EQ(r.now.groups.size(), 1U);
  EXPECT_EQ(r.now.groups[0].joined, 7U);
  EXPECT_EQ(r.now.groups[0].finished, 0U);
  EXPECT_EQ(r.text(r.groups.at(0).ranks), "0,1,2");
  ASSERT_EQ(r.calls.size(), 1U);
  EXPECT_EQ(r.calls[0].op, OpName::reduce_scatter);
  EXPECT_EQ(r.calls[0].state, CallState::finished);
  EXPECT_EQ(r.calls[0].hash_out, 99U);
  EXPECT_EQ(r.text(r.calls[0].shape), "[4,2]");
  EXPECT_EQ(r.losses.at(0).bits, 0x3ff0000000000000U);
  EXPECT_EQ(r.text(r.notes.at(0).text), long_text);
  ASSERT_EQ(r.order.size(), 5U);
  EXPECT_EQ(r.order[1].kind, EntryKind::call);
  EXPECT_EQ(r.order[4].kind, EntryKind::note);
}

TEST_F(RecordTest, ARankThatIsKilledHasWrittenAllThatItDid) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RecordWriter writer(path_, start());
    for (int i = 0; i < 10000; ++i) writer.add(StepEntry{i, 1, 1});
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RankRecord r = read_record(path_);
  EXPECT_EQ(r.steps.size(), 10000U);
  EXPECT_EQ(r.steps.back().step, 9999);
  EXPECT_FALSE(r.now.ended);
}

TEST_F(RecordTest, TheSameTextIsKeptOnce) {
  RecordWriter writer(path_, start());
  EXPECT_EQ(writer.text("a"), writer.text("a"));
  EXPECT_NE(writer.text("a"), writer.text("b"));
  EXPECT_EQ(read_record(path_).texts, (std::vector<std::string>{"a", "b"}));
}

TEST_F(RecordTest, WhatDoesNotFitIsCountedAndTheRestStays) {
  RecordWriter::Start small = start();
  small.max_bytes = 1 << 20;
  RecordWriter writer(path_, small);
  std::int32_t last = 0;
  for (int i = 0; i < 5000; ++i) last = writer.add(StepEntry{i, 1, 1});
  EXPECT_EQ(last, -1);
  const RankRecord r = read_record(path_);
  EXPECT_EQ(r.steps.size(), ((1U << 20) - kHeadBytes) / kEntryBytes);
  EXPECT_EQ(r.now.left_out, 5000 - r.steps.size());
}

TEST_F(RecordTest, ThreadsWriteWholeEntries) {
  RecordWriter writer(path_, start());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&writer, t] {
      for (int i = 0; i < 500; ++i) writer.add(NoteEntry{writer.text(std::to_string(t) + std::string(300, 'x'))});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RankRecord r = read_record(path_);
  EXPECT_EQ(r.notes.size(), 2000U);
  EXPECT_EQ(r.texts.size(), 4U);
}

TEST_F(RecordTest, AChildThatWasForkedWritesNothing) {
  RecordWriter writer(path_, start());
  writer.add(StepEntry{0, 1, 1});
  writer.forget();
  EXPECT_EQ(writer.add(StepEntry{1, 1, 1}), -1);
  EXPECT_EQ(writer.text("x"), kNoText);
  EXPECT_EQ(read_record(path_).steps.size(), 1U);
}

TEST_F(RecordTest, ARecordIsNeverWrittenOver) {
  RecordWriter writer(path_, start());
  EXPECT_THROW(RecordWriter(path_, start()), std::system_error);
}

TEST_F(RecordTest, ARecordThatBreaksTheFormatIsRefusedWithItsName) {
  EXPECT_NE(problem().find("rank-1.rec: No such file"), std::string::npos) << problem();
  std::ofstream(path_) << "short";
  EXPECT_NE(problem().find("too short"), std::string::npos) << problem();
  std::ofstream(path_) << std::string(kHeadBytes, 'x');
  EXPECT_NE(problem().find("is no record"), std::string::npos) << problem();
  std::filesystem::remove(path_);
  { RecordWriter writer(path_, start()); }
  EXPECT_EQ(problem(), "");
  spoil_head(offsetof(Head, entries), std::uint64_t(1) << 60);
  EXPECT_NE(problem().find("is cut short"), std::string::npos) << problem();
  spoil_head(offsetof(Head, entries), std::uint64_t(0));
  spoil_head(offsetof(Head, rank), std::int32_t(3));
  EXPECT_NE(problem().find("names a rank"), std::string::npos) << problem();
  spoil_head(offsetof(Head, rank), std::int32_t(1));
  spoil_head(offsetof(Head, groups), std::uint32_t(1000));
  EXPECT_NE(problem().find("damaged head"), std::string::npos) << problem();
  spoil_head(offsetof(Head, groups), std::uint32_t(0));
  spoil_head(offsetof(Head, version), kRecordVersion + 1);
  EXPECT_NE(problem().find("run the script again"), std::string::npos) << problem();
}

TEST_F(RecordTest, EveryDamagedEntryIsRefused) {
  {
    RecordWriter writer(path_, start());
    writer.text("a");  // entry 0
    GroupEntry group;
    group.size = 2;
    const std::int32_t g = writer.add(group);  // entry 1
    writer.add(some_call(writer, g));          // entries 2 (text), 3
    writer.add(TensorEntry{});                 // entry 4
    writer.add(VerdictEntry{});                // entry 5
  }
  ASSERT_EQ(problem(), "");
  const auto expect = [&](std::uint64_t entry, std::size_t offset, auto bad, auto good, const char* text) {
    spoil(entry, offset, bad);
    EXPECT_NE(problem().find(text), std::string::npos) << "entry " << entry << ": " << problem();
    spoil(entry, offset, good);
    ASSERT_EQ(problem(), "");
  };
  expect(0, offsetof(TextPart, bytes), std::uint32_t(1) << 30, std::uint32_t(1), "too long");
  expect(0, offsetof(TextPart, offset), std::uint32_t(240), std::uint32_t(0), "without its beginning");
  expect(0, offsetof(TextPart, bytes), std::uint32_t(500), std::uint32_t(1), "without its end");
  expect(1, offsetof(GroupEntry, name), std::uint32_t(17), kNoText, "a text that is not there");
  expect(1, offsetof(GroupEntry, size), std::int32_t(-1), std::int32_t(2), "impossible size");
  expect(3, offsetof(CallEntry, op), std::uint8_t(200), OpName::reduce_scatter, "a name that is not there");
  expect(3, offsetof(CallEntry, async), std::uint8_t(7), std::uint8_t(0), "neither true nor false");
  expect(3, offsetof(CallEntry, group), std::int32_t(5), std::int32_t(0), "a group that is not there");
  expect(3, offsetof(CallEntry, root), std::int32_t(9), std::int32_t(-1), "a rank that is not there");
  expect(3, offsetof(CallEntry, numel), std::int64_t(-8), std::int64_t(8), "negative size");
  expect(4, offsetof(TensorEntry, whole), std::uint8_t(2), std::uint8_t(1), "neither true nor false");
  expect(5, offsetof(VerdictEntry, call), std::int32_t(1), std::int32_t(-1), "a collective that is not there");
  expect(5, offsetof(VerdictEntry, rank), std::int32_t(1000), std::int32_t(0), "a rank that is not there");
}

}  // namespace
}  // namespace seeksim::pytorch
