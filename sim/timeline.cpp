#include "sim/timeline.h"

#include <algorithm>

namespace seeksim::sim {

using runtime::RecordState;

Timeline::LaneOf& Timeline::lane_of(int rank, const runtime::Queue* queue) {
  std::vector<LaneOf>& known = lanes_of_[std::size_t(rank)];
  const char* const name = queue != nullptr ? queue->name() : "host";
  for (LaneOf& lane : known) {  // the name too: another queue may come to stand where one was
    if (lane.queue == queue && lanes_[lane.lane].name == name) return lane;
  }
  lanes_.push_back({rank, name, queue == nullptr, 0});
  return known.emplace_back(LaneOf{queue, std::uint32_t(lanes_.size() - 1), 0});
}

void Timeline::add(LaneOf& lane, Span span) {
  span.lane = lane.lane;
  lane.last = forgotten_ + spans_.size();
  ++lanes_[lane.lane].spans;
  spans_.push_back(span);
  if (spans_.size() <= kSpansMax) return;
  spans_.pop_front();
  ++forgotten_;
}

void Timeline::ran(const runtime::Queue& queue, int rank, const runtime::Op& op, TimeNs begin, TimeNs end,
                   RecordState state) {
  Span span;
  span.begin = begin;
  span.end = end;
  span.op = op;
  span.state = state;
  add(lane_of(rank, &queue), span);
}

void Timeline::waited(int rank, Blocked why, TimeNs begin, TimeNs end) {
  if (begin == end || undrawn_[std::size_t(rank)]) return;
  Span span;
  span.begin = begin;
  span.end = end;
  span.op.rank = rank;
  span.why = why;
  add(lane_of(rank, nullptr), span);
}

void Timeline::message(const runtime::Queue& from, int sender, const runtime::Queue& to, int receiver, TimeNs sent,
                       TimeNs received) {
  const std::uint32_t from_lane = lane_of(sender, &from).lane;
  arrows_.push_back({from_lane, lane_of(receiver, &to).lane, sent, received});
  if (arrows_.size() > kSpansMax) arrows_.pop_front();
}

void Timeline::holds(int rank, TimeNs now, const runtime::BytesByTag& bytes) {
  runtime::BytesByTag& held = held_[std::size_t(rank)];
  if (held == bytes) return;
  held = bytes;
  memory_.push_back({now, rank, bytes});
  if (memory_.size() > kLevelsMax) memory_.pop_front();
}

void Timeline::depth(const runtime::Queue& queue, int rank, TimeNs begin, TimeNs end, std::size_t depth) {
  const std::uint32_t lane = lane_of(rank, &queue).lane;
  depths_.push_back({begin, lane, depth});
  if (depth == 1) depths_.push_back({end, lane, 0});
  while (depths_.size() > kLevelsMax) depths_.pop_front();
}

void Timeline::mark(TimeNs at, int rank, const char* what, std::string text) {
  marks_.push_back({at, rank, what, std::move(text)});
  if (marks_.size() > kMarksMax) marks_.pop_front();
}

void Timeline::cut(int rank, TimeNs now) {
  for (const LaneOf& lane : lanes_of_[std::size_t(rank)]) {
    if (lanes_[lane.lane].spans == 0 || lane.last < forgotten_) continue;
    Span& newest = spans_[lane.last - forgotten_];
    if (newest.end <= now) continue;
    newest.end = std::max(newest.begin, now);
    newest.state = RecordState::aborted;
  }
}

}  // namespace seeksim::sim
