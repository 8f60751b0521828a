#include "sim/timeline.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace seeksim::sim {

using runtime::RecordState;

// ---- parts, and which of them stay -------------------------------------------------------------------------------

std::uint32_t Parts::number(std::uint32_t epoch, std::int64_t step, TimeNs now) {
  const auto [at, fresh] = numbers_.try_emplace({epoch, step}, std::uint32_t(all_.size()));
  if (!fresh) return at->second;
  all_.push_back({epoch, step, now, now, false});
  if (numbers_.size() > kNumbersMax) numbers_.erase(numbers_.begin() == at ? std::next(at) : numbers_.begin());
  return std::uint32_t(all_.size() - 1);
}

void Parts::lasts(std::uint32_t part, TimeNs begin, TimeNs end) {
  all_[part].begin = std::min(all_[part].begin, begin);
  all_[part].end = std::max(all_[part].end, end);
}

bool Parts::matters_near(std::uint32_t part) const {
  const auto matters = [&](std::size_t one) { return one < all_.size() && all_[one].matters; };
  return matters(part) || matters(std::size_t(part) + 1) || (part > 0 && matters(std::size_t(part) - 1));
}

template <class T>
bool Thinned<T>::add(T item, const Parts& parts) {
  items_.push_back(std::move(item));
  if (items_.size() <= most_) return false;
  const std::size_t before = items_.size();
  thin(parts);
  left_out_ += before - items_.size();
  return true;
}

template <class T>
bool Thinned<T>::stays(std::uint32_t part, const Parts& parts) const {
  return part < first_ || part >= recent_ || part % stride_ == 0 ||
         (part % stride_of_what_matters_ == 0 && parts.matters_near(part));
}

template <class T>
void Thinned<T>::thin(const Parts& parts) {
  constexpr std::ptrdiff_t kFew = 6;
  std::vector<std::size_t> counts(parts.all().size());
  for (const T& item : items_) ++counts[item.part];
  const auto parts_there = std::ptrdiff_t(counts.size()) - std::count(counts.begin(), counts.end(), 0U);
  if (gap_ == 0 && parts_there >= kFew) {
    if (first_ == 0) first_ = items_[most_ / 8].part;
    recent_ = items_[items_.size() - most_ / 4].part;
    const auto too_many = [&] {
      std::size_t kept = 0;
      for (std::uint32_t part = 0; part < counts.size(); ++part) kept += stays(part, parts) ? counts[part] : 0;
      return kept > most_ / 4 * 3;
    };
    while (too_many() && stride_ <= counts.size()) stride_ *= 2;
    while (too_many() && stride_of_what_matters_ <= counts.size()) stride_of_what_matters_ *= 2;
    std::erase_if(items_, [&](const T& item) { return !stays(item.part, parts); });
    if (items_.size() <= most_ / 4 * 3) return;
  }
  gap_ = most_ / 4;
  const auto from = items_.begin() + std::ptrdiff_t(gap_);
  const auto until = items_.end() - std::ptrdiff_t(most_ / 2);
  if (from < until) items_.erase(from, until);
}

std::size_t Timeline::Memory::total() const { return std::accumulate(bytes.begin(), bytes.end(), std::size_t(0)); }

// ---- what was done -----------------------------------------------------------------------------------------------

Timeline::LaneOf& Timeline::lane_of(int rank, const runtime::Queue* queue) {
  std::vector<LaneOf>& known = lanes_of_[std::size_t(rank)];
  const char* const name = queue != nullptr ? queue->name() : "host";
  for (LaneOf& lane : known) {  // the name too: another queue may come to stand where one was
    if (!lane.free && lane.queue == queue && lanes_[lane.lane].name == name) return lane;
  }
  for (LaneOf& lane : known) {
    if (!lane.free || lanes_[lane.lane].name != name) continue;
    lane = {queue, lane.lane};
    return lane;
  }
  lanes_.push_back({rank, name, queue == nullptr, 0});
  newest_.push_back(kNone);
  return known.emplace_back(LaneOf{queue, std::uint32_t(lanes_.size() - 1)});
}

// What comes before all parts is in the first one, before the first step.
std::uint32_t Timeline::here(int rank, TimeNs now) {
  if (parts_.all().empty()) parts_.number(0, -1, now);
  return part_of_[std::size_t(rank)];
}

void Timeline::add(const LaneOf& lane, Span span) {
  span.lane = lane.lane;
  ++lanes_[lane.lane].spans;
  parts_.lasts(span.part, span.begin, span.end);
  newest_[lane.lane] = spans_.items().size();
  if (spans_.add(span, parts_)) find_newest();
}

// After some were left out. What is cut is the newest of its lane and under way, so that it was not left out.
void Timeline::find_newest() {
  std::fill(newest_.begin(), newest_.end(), kNone);
  for (std::size_t i = 0; i < spans_.items().size(); ++i) newest_[spans_.items()[i].lane] = i;
}

void Timeline::ran(const runtime::Queue& queue, int rank, const runtime::Op& op, TimeNs begin, TimeNs end,
                   RecordState state) {
  Span span;
  span.begin = begin;
  span.end = end;
  span.op = op;
  span.state = state;
  span.part = parts_.number(op.epoch, op.step, begin);
  part_of_[std::size_t(rank)] = span.part;
  if (state != RecordState::completed || op.phase == runtime::Phase::recovery) parts_.matters(span.part);
  add(lane_of(rank, &queue), span);
}

void Timeline::waited(int rank, Blocked why, TimeNs begin, TimeNs end) {
  if (begin == end || undrawn_[std::size_t(rank)]) return;
  Span span;
  span.begin = begin;
  span.end = end;
  span.op.rank = rank;
  span.why = why;
  span.part = here(rank, begin);
  add(lane_of(rank, nullptr), span);
}

void Timeline::message(const runtime::Queue& from, int sender, const runtime::Queue& to, int receiver, TimeNs sent,
                       TimeNs received) {
  const std::uint32_t from_lane = lane_of(sender, &from).lane;
  arrows_.add({from_lane, lane_of(receiver, &to).lane, sent, received, here(sender, sent)}, parts_);
}

void Timeline::holds(int rank, TimeNs now, const runtime::BytesByTag& bytes) {
  runtime::BytesByTag& held = held_[std::size_t(rank)];
  if (held == bytes) return;
  held = bytes;
  const Memory memory{now, rank, bytes, here(rank, now)};
  Memory& peak = peaks_[std::size_t(rank)];
  if (memory.total() > peak.total()) peak = memory;
  memory_.add(memory, parts_);
}

void Timeline::depth(const runtime::Queue& queue, int rank, TimeNs begin, TimeNs end, std::size_t depth) {
  const std::uint32_t lane = lane_of(rank, &queue).lane;
  depths_.add({begin, lane, depth, here(rank, begin)}, parts_);
  if (depth == 1) depths_.add({end, lane, 0, here(rank, begin)}, parts_);
}

// Of the world: it falls into the newest part.
void Timeline::mark(TimeNs at, int rank, const char* what, std::string text) {
  std::uint32_t part = here(std::max(rank, 0), at);
  if (rank < 0) part = std::uint32_t(parts_.all().size() - 1);
  parts_.matters(part);
  marks_.add({at, rank, what, std::move(text), part}, parts_);
}

void Timeline::cut(int rank, TimeNs now) {
  for (const LaneOf& lane : lanes_of_[std::size_t(rank)]) {
    if (newest_[lane.lane] == kNone) continue;
    Span& newest = spans_.at(newest_[lane.lane]);
    if (newest.end <= now) continue;
    newest.end = std::max(newest.begin, now);
    newest.state = RecordState::aborted;
    parts_.matters(newest.part);
  }
}

void Timeline::go_on(Timeline&& before, TimeNs now) {
  *this = std::move(before);
  for (int rank = 0; rank < ranks(); ++rank) holds(rank, now, {});
  for (std::vector<LaneOf>& lanes : lanes_of_) {
    for (LaneOf& lane : lanes) lane.free = true;
  }
  std::fill(undrawn_.begin(), undrawn_.end(), false);
  parts_.begin_again();
  const std::uint32_t part = parts_.number(0, -1, now);
  parts_.matters(part);
  std::fill(part_of_.begin(), part_of_.end(), part);
}

// ---- what was left out -------------------------------------------------------------------------------------------

std::vector<Timeline::LeftOut> Timeline::left_out() const {
  std::vector<LeftOut> all;
  if (forgotten() == 0) return all;
  const std::vector<Parts::Part>& parts = parts_.all();
  std::vector<bool> kept(parts.size());
  for (const Span& span : spans()) kept[span.part] = true;
  bool open = false;  // the newest stretch goes on
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool gone = !kept[i] && parts[i].end > parts[i].begin;
    if (gone && !open) {
      const TimeNs before = i > 0 && parts[i - 1].end < parts[i].end ? parts[i - 1].end : parts[i].begin;
      all.push_back({std::max(before, parts[i].begin), 0, parts[i].step, parts[i].step, true});
    }
    open = gone;
    if (!gone) continue;
    LeftOut& newest = all.back();
    newest.first_step = std::min(newest.first_step, parts[i].step);
    newest.last_step = std::max(newest.last_step, parts[i].step);
    newest.end = std::max(newest.end, parts[i].end);
    if (i + 1 < parts.size() && kept[i + 1]) newest.end = std::min(newest.end, parts[i + 1].begin);
  }
  if (const std::size_t gap = spans_.gap(); gap > 0 && gap < spans().size()) {
    const Span &from = spans()[gap - 1], &to = spans()[gap];
    std::erase_if(all, [&](const LeftOut& one) { return one.begin >= from.begin && one.begin <= to.begin; });
    all.push_back({from.begin, to.begin, parts[from.part].step, parts[to.part].step, false});
  }
  std::erase_if(all, [](const LeftOut& one) { return one.end <= one.begin; });
  std::stable_sort(all.begin(), all.end(), [](const LeftOut& a, const LeftOut& b) { return a.begin < b.begin; });
  return all;
}

}  // namespace seeksim::sim
