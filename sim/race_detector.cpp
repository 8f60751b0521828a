// Vector clocks over the queues of one rank, what each byte was last used by, and which bytes were ever written.
#include "sim/race_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace seeksim::sim {

using runtime::Event;
using runtime::Op;
using runtime::Range;

namespace {
const Op kNoOp;
}

// ---- clocks ------------------------------------------------------------------------------------------------------

std::size_t RaceDetector::lane_of(const runtime::Queue* queue) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].queue == queue) return i;
  }
  SEEKSIM_CHECK(lanes_.size() < kQueues, "rank %d has more than %zu queues", rank_, kQueues);
  lanes_.emplace_back().queue = queue;
  return lanes_.size() - 1;
}

bool RaceDetector::join(Clock& into, const Clock& other) const {
  bool changed = false;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    changed |= other[i] > into[i];
    into[i] = std::max(into[i], other[i]);
  }
  return changed;
}

// What comes before the event at a place. An event that was recorded before a wait of its queue, with nothing between
// the two, has the same place as one recorded after it, and is taken for the later one.
RaceDetector::Clock RaceDetector::clock_at(std::size_t lane, std::uint64_t place) const {
  const std::deque<Mark>& marks = lanes_[lane].marks;
  const auto after = std::upper_bound(marks.begin(), marks.end(), place,
                                      [](std::uint64_t p, const Mark& mark) { return p < mark.place; });
  Clock clock = after == marks.begin() ? Clock{} : std::prev(after)->clock;
  clock[lane] = place;
  return clock;
}

void RaceDetector::enqueued(const Event& through, const Op& op, std::span<const Range> ranges) {
  settle();
  const std::size_t number = lane_of(through.queue);
  Lane& lane = lanes_[number];
  bool changed = false;
  if (lane.host_version != host_version_) {
    changed = join(lane.clock, host_);
    lane.host_version = host_version_;
  }
  lane.last = lane.clock[number] = through.place;
  if (changed) lane.marks.push_back({through.place, lane.clock});
  if (ranges.empty()) return;
  unwritten_.accesses(op, ranges);
  lane.past.push_back({through.place, op});
  for (const Range& range : ranges) access(number, op, range);
}

void RaceDetector::queue_waits(const Event& place, const Event& event) {
  if (event.queue == nullptr || event.queue == place.queue) return;
  settle();
  const std::size_t from = lane_of(event.queue);
  Lane& lane = lanes_[lane_of(place.queue)];
  if (join(lane.clock, clock_at(from, event.place))) lane.marks.push_back({place.place, lane.clock});
}

void RaceDetector::host_waited(const Event& event) {
  if (event.queue == nullptr) return;
  settle();
  const std::size_t from = lane_of(event.queue);
  if (!join(host_, clock_at(from, event.place))) return;
  ++host_version_;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    while (!lane.past.empty() && lane.past.front().place <= host_[i]) lane.past.pop_front();
    while (!lane.marks.empty() && lane.marks.front().place < host_[i]) lane.marks.pop_front();
  }
}

void RaceDetector::host_drained() {
  settle();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    host_[i] = std::max(host_[i], lanes_[i].last);
    lanes_[i].past.clear();
    lanes_[i].marks.clear();
  }
  ++host_version_;
  ++generation_;
}

// ---- accesses ----------------------------------------------------------------------------------------------------

RaceDetector::Shadow& RaceDetector::shadow(const runtime::Buffer& buffer) {
  if (buffer.id >= shadows_.size()) shadows_.resize(std::max<std::size_t>(buffer.id + 1, 2 * shadows_.size()));
  Shadow& shadow = shadows_[buffer.id];
  if (shadow.generation != generation_) shadow.cells.clear();
  shadow.generation = generation_;
  return shadow;
}

void RaceDetector::allocated(const runtime::Buffer& buffer) {
  shadow(buffer).cells.clear();
  unwritten_.allocated(buffer);
}

void RaceDetector::released(const runtime::Buffer& buffer) {
  Range whole;
  whole.buffer = const_cast<runtime::Buffer*>(&buffer);
  whole.hi = buffer.bytes;
  check_host({&kNoOp, kRelease, true}, whole);
  std::vector<Cell>().swap(shadow(buffer).cells);
  unwritten_.released(buffer);
}

void RaceDetector::host_touches(const Op& op, const Range& range) {
  settle();
  ++accesses_;
  check_host({&op, kHost, range.write}, range);
  unwritten_.accesses(op, {&range, 1});
}

void RaceDetector::check_host(const Access& now, const Range& range) {
  if (range.buffer == nullptr) return;
  for (const Cell& cell : shadow(*range.buffer).cells) {
    if (cell.hi > range.lo && cell.lo < range.hi) check(cell, host_, now, range);
  }
}

// The first cell that ends behind `lo`. Nearly always the one that was used last, or the next one.
std::size_t RaceDetector::first_behind(const Shadow& shadow, std::size_t lo) {
  const std::vector<Cell>& cells = shadow.cells;
  for (std::size_t i = std::max<std::size_t>(shadow.next, 1) - 1; i <= shadow.next; ++i) {
    if (i < cells.size() && cells[i].hi > lo && (i == 0 || cells[i - 1].hi <= lo)) return i;
  }
  const auto at = std::partition_point(cells.begin(), cells.end(), [lo](const Cell& cell) { return cell.hi <= lo; });
  return std::size_t(at - cells.begin());
}

void RaceDetector::access(std::size_t lane, const Op& op, const Range& range) {
  if (range.buffer == nullptr || range.lo >= range.hi) return;
  ++accesses_;
  Shadow& shadow = this->shadow(*range.buffer);
  std::vector<Cell>& cells = shadow.cells;
  const std::size_t first = first_behind(shadow, range.lo);
  const Clock& clock = lanes_[lane].clock;
  const std::uint64_t place = clock[lane];
  for (std::size_t i = first; i < cells.size() && cells[i].lo < range.hi; ++i) {
    check(cells[i], clock, {&op, lane, range.write}, range);
  }
  shadow.next = first + 1;
  Cell used{range.lo, range.hi, range.write ? place : 0, lane, {}};
  if (!range.write) used.reads[lane] = place;
  if (range.write)
    write(shadow, first, used);
  else
    read(shadow, first, used, lane);
}

// One cell in the place of all that it covers; what stood out on either side stays.
void RaceDetector::write(Shadow& shadow, std::size_t first, const Cell& cell) {
  std::vector<Cell>& cells = shadow.cells;
  std::size_t end = first;
  while (end < cells.size() && cells[end].lo < cell.hi) ++end;
  if (end == first + 1 && cells[first].lo == cell.lo && cells[first].hi == cell.hi) {
    cells[first] = cell;  // the same range again, as nearly always
    return;
  }
  std::array<Cell, 3> instead;
  std::size_t n = 0;
  if (end > first && cells[first].lo < cell.lo) {
    instead[n] = cells[first];
    instead[n++].hi = cell.lo;
  }
  instead[n++] = cell;
  if (end > first && cells[end - 1].hi > cell.hi) {
    instead[n] = cells[end - 1];
    instead[n++].lo = cell.hi;
  }
  const auto at = cells.erase(cells.begin() + std::ptrdiff_t(first), cells.begin() + std::ptrdiff_t(end));
  cells.insert(at, instead.begin(), instead.begin() + std::ptrdiff_t(n));
}

// Cells are cut at both ends of the range and get the read; gaps between them become cells.
void RaceDetector::read(Shadow& shadow, std::size_t first, const Cell& cell, std::size_t lane) {
  std::vector<Cell>& cells = shadow.cells;
  const auto insert = [&cells](std::size_t i, Cell made) { cells.insert(cells.begin() + std::ptrdiff_t(i), made); };
  std::size_t pos = cell.lo;
  for (std::size_t i = first; pos < cell.hi; ++i) {
    if (i == cells.size() || cells[i].lo > pos) {
      Cell gap = cell;
      gap.lo = pos;
      gap.hi = i == cells.size() ? cell.hi : std::min(cell.hi, cells[i].lo);
      insert(i, gap);
    } else {
      if (cells[i].lo < pos) {
        insert(i, cells[i]);
        cells[i].hi = cells[i + 1].lo = pos;
        ++i;
      }
      if (cells[i].hi > cell.hi) {
        insert(i, cells[i]);
        cells[i].hi = cells[i + 1].lo = cell.hi;
      }
      cells[i].reads[lane] = cell.reads[lane];
    }
    pos = cells[i].hi;
  }
}

void RaceDetector::check(const Cell& cell, const Clock& clock, const Access& now, const Range& range) {
  const auto unordered = [&](std::size_t lane, std::uint64_t place) { return lane != now.lane && clock[lane] < place; };
  Range common = range;
  common.lo = std::max(range.lo, cell.lo);
  common.hi = std::min(range.hi, cell.hi);
  if (cell.write != 0 && unordered(cell.writer, cell.write)) found(cell.writer, cell.write, true, now, common);
  if (!now.write) return;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (unordered(lane, cell.reads[lane])) found(lane, cell.reads[lane], false, now, common);
  }
}

// ---- findings ----------------------------------------------------------------------------------------------------

const Op& RaceDetector::past(std::size_t lane, std::uint64_t place) const {
  const std::deque<Past>& past = lanes_[lane].past;
  const auto at = std::lower_bound(past.begin(), past.end(), place,
                                   [](const Past& p, std::uint64_t wanted) { return p.place < wanted; });
  return at != past.end() && at->place == place ? at->op : kNoOp;
}

void RaceDetector::found(std::size_t lane, std::uint64_t place, bool write, const Access& now, const Range& range) {
  const Access before{&past(lane, place), lane, write};
  const std::array<const char*, 3> key = {before.op->site, now.op->site, range.buffer->name};
  const std::array<bool, 2> writes = {write, now.write};
  for (std::vector<Finding>* list : {&findings_, &leaving_}) {
    for (Finding& known : *list) {
      if (known.key != key || known.writes != writes) continue;
      ++known.race.times;
      return;
    }
  }
  if (findings_.size() + leaving_.size() >= kKept) return;
  (now.lane == kRelease ? leaving_ : findings_).push_back({key, writes, {rank_, text(before, now, range), 1}});
}

void RaceDetector::settle() {
  if (leaving_.empty()) return;
  findings_.insert(findings_.end(), leaving_.begin(), leaving_.end());
  leaving_.clear();
}

const char* RaceDetector::who(std::size_t lane) const { return lane < kQueues ? lanes_[lane].queue->name() : "host"; }

std::string RaceDetector::text(const Access& before, const Access& now, const Range& range) const {
  const std::string what = fmt::format("'{}' ({}, buffer {}) bytes [{}, {})", range.buffer->name,
                                       name(range.buffer->tag), range.buffer->id, range.lo, range.hi);
  const std::string first = fmt::format("the {} {} it in {} at {}", who(before.lane), before.write ? "writes" : "reads",
                                        describe(*before.op), before.op->site);
  const std::string edge =
      fmt::format("the {} has to wait for the {}'s event after that", who(now.lane), who(before.lane));
  if (now.lane == kRelease) return fmt::format("{} is given back while {}: {}", what, first, edge);
  return fmt::format("{}: the {} {} it in {} at {}, while {}: {}", what, who(now.lane), now.write ? "writes" : "reads",
                     describe(*now.op), now.op->site, first, edge);
}

std::vector<Race> RaceDetector::races() const {
  std::vector<Race> all;
  for (const std::vector<Finding>* list : {&findings_, &leaving_}) {
    for (const Finding& finding : *list) all.push_back(finding.race);
  }
  return all;
}

// ---- unwritten reads: the written bytes of each buffer, as a sorted list of ranges with gaps ------------------------

UnwrittenReads::Written& UnwrittenReads::written_in(const runtime::Buffer& buffer) {
  if (buffer.id >= buffers_.size()) buffers_.resize(std::max<std::size_t>(buffer.id + 1, 2 * buffers_.size()));
  return buffers_[buffer.id];
}

void UnwrittenReads::accesses(const Op& op, std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    if (!range.write && range.buffer != nullptr && range.lo < range.hi) read(op, range);
  }
  for (const Range& range : ranges) {
    if (range.write && range.buffer != nullptr && range.lo < range.hi) write(range);
  }
}

void UnwrittenReads::read(const Op& op, const Range& range) {
  ++reads_;
  Written& written = written_in(*range.buffer);
  if (written.last.hold(range)) return;
  const auto at = std::partition_point(written.all.begin(), written.all.end(),
                                       [&](const Bytes& bytes) { return bytes.hi <= range.lo; });
  if (at != written.all.end() && at->hold(range)) {
    written.last = *at;
    return;
  }
  Bytes gap{range.lo, range.hi};
  auto behind = at;
  if (at != written.all.end() && at->lo <= range.lo) {
    gap.lo = at->hi;
    ++behind;
  }
  if (behind != written.all.end()) gap.hi = std::min(gap.hi, behind->lo);
  add(op, range, gap);
}

void UnwrittenReads::write(const Range& range) {
  Written& written = written_in(*range.buffer);
  if (written.last.hold(range)) return;
  Bytes whole{range.lo, range.hi};  // with all that it touches
  const auto first = std::partition_point(written.all.begin(), written.all.end(),
                                          [&](const Bytes& bytes) { return bytes.hi < range.lo; });
  auto end = first;
  for (; end != written.all.end() && end->lo <= range.hi; ++end) {
    whole.lo = std::min(whole.lo, end->lo);
    whole.hi = std::max(whole.hi, end->hi);
  }
  written.all.insert(written.all.erase(first, end), whole);
  written.last = whole;
}

void UnwrittenReads::add(const Op& op, const Range& range, const Bytes& gap) {
  for (Finding& known : findings_) {
    if (known.site != op.site || known.buffer != range.buffer->name) continue;
    ++known.read.times;
    return;
  }
  if (findings_.size() >= kKept) return;
  findings_.push_back(
      {op.site,
       range.buffer->name,
       {rank_, fmt::format("{} at {} reads '{}' ({}, buffer {}) bytes [{}, {}), which nothing has written "
                           "since it was allocated",
                           describe(op), op.site, range.buffer->name, name(range.buffer->tag), range.buffer->id, gap.lo,
                           gap.hi)}});
}

std::vector<UnwrittenRead> UnwrittenReads::found() const {
  std::vector<UnwrittenRead> all;
  for (const Finding& finding : findings_) all.push_back(finding.read);
  return all;
}

}  // namespace seeksim::sim
