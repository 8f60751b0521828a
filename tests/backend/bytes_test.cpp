// What processes send each other: everything is read back as it was written, and only valid messages are accepted.
#include <gtest/gtest.h>

#include <rapidcheck.h>

#include "runtime/backend/control/control_frame.h"

namespace seeksim::runtime {
namespace {

Ballot some_ballot() {
  Ballot ballot;
  ballot.ok = false;
  ballot.error = ErrorKind::timeout;
  ballot.last_committed = 7;
  ballot.stuck_kind = OpKind::all_reduce;
  ballot.missing_peer = 3;
  ballot.progress[2] = {11, 12};
  ballot.checkpoint = {5, true, false, 100, 200};
  ballot.words = {1, -2, 3, -4};
  return ballot;
}

Agreement some_agreement() {
  Agreement agreement;
  agreement.epoch = 2;
  agreement.members = {0, 2};
  agreement.dead = {1};
  agreement.silent = {1};
  agreement.ballots = {some_ballot(), Ballot{}};
  return agreement;
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Bytes, AnAgreementComesBackAsItWent) {
  const std::vector<std::byte> bytes = to_bytes(some_agreement());
  Agreement read;
  from_bytes(bytes, read);
  EXPECT_EQ(as_text(to_bytes(read)), as_text(bytes));
  EXPECT_EQ(read.members, (std::vector<int>{0, 2}));
  EXPECT_EQ(read.ballots[0].words, some_ballot().words);
  EXPECT_EQ(read.ballots[0].error, ErrorKind::timeout);
}

TEST(Bytes, WhatIsCutOffOrGoesOnIsRefused) {
  std::vector<std::byte> bytes = to_bytes(some_agreement());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    Agreement read;
    EXPECT_THROW(from_bytes(std::span(bytes).first(n), read), Malformed) << n;
  }
  bytes.push_back(std::byte{0});
  Agreement read;
  EXPECT_THROW(from_bytes(bytes, read), Malformed);
}

TEST(Bytes, ValuesThatAreNoneAreRefused) {
  OpKind kind = OpKind::vote;
  EXPECT_THROW(from_bytes(to_bytes(std::uint8_t(200)), kind), Malformed);
  bool flag = false;
  EXPECT_THROW(from_bytes(to_bytes(std::uint8_t(2)), flag), Malformed);
  std::vector<int> list;
  EXPECT_THROW(from_bytes(to_bytes(std::uint32_t(0xffffffff)), list), Malformed);  // and no memory is taken for it
}

TEST(Bytes, AnyBytesAreReadOrRefused) {
  rc::check([](const std::vector<std::uint8_t>& raw) {
    const auto* begin = reinterpret_cast<const std::byte*>(raw.data());
    FrameReader reader;
    reader.take({begin, raw.size()});
    try {
      while (reader.next(kFrameBytesMax)) {
      }
      Agreement read;
      from_bytes({begin, raw.size()}, read);
    } catch (const Malformed&) {
    }
  });
}

TEST(Frames, ComeOutWholeHoweverTheyArrive) {
  const std::vector<std::byte> bytes = frame_bytes(FrameKind::answer, to_bytes(some_agreement()));
  for (const std::size_t step : {std::size_t(1), std::size_t(7), bytes.size()}) {
    FrameReader reader;
    int whole = 0;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      reader.take(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
      const std::optional<Frame> frame = reader.next(kFrameBytesMax);
      if (!frame) continue;
      ++whole;
      EXPECT_EQ(frame->kind, FrameKind::answer);
      EXPECT_EQ(as_text(frame->body), as_text(to_bytes(some_agreement())));
    }
    EXPECT_EQ(whole, 1);
  }
}

TEST(Frames, OfAnotherProtocolOrTooLongAreRefused) {
  const auto refuses = [](std::vector<std::byte> bytes, std::size_t most) {
    FrameReader reader;
    reader.take(bytes);
    EXPECT_THROW(reader.next(most), Malformed);
  };
  std::vector<std::byte> bytes = frame_bytes(FrameKind::hello, to_bytes(std::string(300, 'x')));
  refuses(bytes, kStrangerBytesMax);
  bytes[0] ^= std::byte{1};
  refuses(bytes, kFrameBytesMax);
  std::vector<std::byte> kind = frame_bytes(FrameKind::beat, {});
  kind[8] = std::byte(FrameKind::count_);
  refuses(kind, kFrameBytesMax);
}

}  // namespace
}  // namespace seeksim::runtime
