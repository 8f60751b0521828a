// The storage queue serves one request after the other. Where it meets the queue of the gathers (which reads what came)
// and the host's queue (which updates what goes) there is an event.
#include "runtime/zero/swapped_parameters.h"

#include <algorithm>

#include "kernels/check.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

SwappedParameters::SwappedParameters(Rank& rank, const TrainPlan& plan, const std::string& name,
                                     const std::vector<ParameterPiece>& pieces, ElementType type)
    : rank_(rank),
      plan_(plan),
      io_(rank, plan),
      type_(type),
      path_(plan.layout.offload.parameters.nvme_path + "/rank" + std::to_string(rank.id) + '/' + name +
            ".parameters.swp") {
  const OffloadParamPlan& offload = plan.layout.offload.parameters;
  Index size = 0;
  for (const ParameterPiece& piece : pieces) size += piece.size;
  resident_ = std::min<Index>(offload.max_in_cpu, size);
  const Index limit = std::max<Index>(offload.buffer_elements, 1);
  Index begin = 0;
  for (const ParameterPiece& piece : pieces) {
    const Index end = begin + piece.size;
    for (Index at = std::max(begin, resident_); at < end; at += limit)
      units_.push_back({at, std::min(limit, end - at), 0});
    begin = end;
  }
  for (const Unit& unit : units_) largest_ = std::max(largest_, unit.size);
}

// act(number, first, count): elements [first, first + count) of the shard, in that unit.
template <class Do>
void SwappedParameters::for_units(Index at, Index n, Do&& act) {
  const auto first = std::upper_bound(units_.begin(), units_.end(), at,
                                      [](Index element, const Unit& unit) { return element < unit.at + unit.size; });
  for (auto unit = first; unit != units_.end() && unit->at < at + n; ++unit) {
    const Index lo = std::max(unit->at, at);
    act(unit - units_.begin(), lo, std::min(unit->at + unit->size, at + n) - lo);
  }
}

void SwappedParameters::open_stages() {
  if (!stages_.empty() || units_.empty()) return;
  const OffloadParamPlan& offload = plan_.layout.offload.parameters;
  const std::size_t bytes = std::size_t(largest_) * size_of(type_);
  const auto make = [&] {
    return rank_.device.allocate_in(offload.space(), bytes, MemoryTag::staging, "parameters from files");
  };
  std::vector<std::unique_ptr<Stage>> stages(std::min<std::size_t>(std::size_t(offload.buffer_count), units_.size()));
  for (std::unique_ptr<Stage>& stage : stages) {
    stage = std::make_unique<Stage>();
    stage->buffer = make();
  }
  collected_ = make();
  stages_ = std::move(stages);  // all or none
}

void SwappedParameters::forget() {
  for (const std::unique_ptr<Stage>& stage : stages_) {
    stage->unit = -1;
    stage->free = stage->before = {};
    stage->read.pending = false;
  }
}

void SwappedParameters::remove_file() {
  if (there_ && rank_.storage.exists(path_)) rank_.storage.remove(path_);  // in a run of shapes there is none
  there_ = false;
}

// ---- out -----------------------------------------------------------------------------------------------------------

void SwappedParameters::write(Unit& unit, AnyVec values, std::int64_t step) {
  Transfer out;
  out.path = &path_;
  out.offset = std::uint64_t(unit.at - resident_) * size_of(type_);
  out.values = values;
  out.write = true;
  out.op.phase = Phase::optimizer;
  out.op.step = step;
  out.op.tensor = "parameters";
  out.op.site = SEEKSIM_SITE;
  there_ = true;
  io_.start(out);
  io_.finish(out);
  unit.digest = out.digest;
}

void SwappedParameters::store(AnyVec all) {
  for (Unit& unit : units_) write(unit, all.part(unit.at, unit.size), -1);
}

Event SwappedParameters::put(Launcher& host, AnyVec values, Index at) {
  bool collects = false;
  after(rank_.device.storage_queue(), host.queue().record(), Edge::piece_updated, plan_.bug);
  for_units(at, values.n, [&](std::ptrdiff_t number, Index first, Index count) {
    Unit& unit = units_[std::size_t(number)];
    const AnyVec part = values.part(first - at, count);
    if (count == unit.size) return write(unit, part, host.last().step);
    copy_values(host, "parameters", SEEKSIM_SITE, part, AnyVec(collected_.get(), first - unit.at, count, type_));
    collects = true;
    if (first + count < unit.at + unit.size) return;  // the rest comes next
    after(rank_.device.storage_queue(), host.queue().record(), Edge::piece_updated, plan_.bug);
    write(unit, {collected_.get(), 0, unit.size, type_}, host.last().step);
  });
  return collects ? host.queue().record() : Event{};
}

// ---- in ------------------------------------------------------------------------------------------------------------

SwappedParameters::Stage* SwappedParameters::stage_of(std::ptrdiff_t unit) {
  for (const std::unique_ptr<Stage>& stage : stages_) {
    if (stage->unit == unit) return stage.get();
  }
  return nullptr;
}

void SwappedParameters::start_read(Stage& stage, std::ptrdiff_t number, const Op& op) {
  const Unit& unit = units_[std::size_t(number)];
  after(rank_.device.storage_queue(), stage.free, Edge::staging_free, plan_.bug);
  stage.before = stage.free;
  stage.unit = number;
  stage.read.path = &path_;
  stage.read.offset = std::uint64_t(unit.at - resident_) * size_of(type_);
  stage.read.values = staged(stage, unit.size);
  stage.read.digest = unit.digest;
  stage.read.op = op;
  stage.read.op.tensor = "parameters";
  io_.start(stage.read);
}

bool SwappedParameters::read_ahead(Index at, Index n, const Op& op) {
  bool all = true;
  for_units(at, n, [&](std::ptrdiff_t unit, Index, Index) {
    if (stage_of(unit) != nullptr) return;
    Stage* const free = all ? stage_of(-1) : nullptr;
    all = free != nullptr;
    if (all) start_read(*free, unit, op);
  });
  return all;
}

void SwappedParameters::bring(Launcher& launch, Index at, AnyVec to, const Op& op, Communicator& comm, const Op& last) {
  open_stages();
  for_units(at, to.n, [&](std::ptrdiff_t number, Index first, Index count) {
    Stage* stage = stage_of(number);
    if (stage == nullptr) stage = stage_of(-1);
    if (stage == nullptr) {  // all hold values read ahead for other modules, which will read them again
      stage = stages_[next_++ % stages_.size()].get();
      comm.wait(stage->before, last);
      io_.finish(stage->read);
      stage->unit = -1;
    }
    if (stage->unit < 0) start_read(*stage, number, op);
    comm.wait(stage->before, last);  // or a peer that hangs would be taken for a disk that does
    if (!plan_.bug.skips(Edge::piece_read)) io_.finish(stage->read);
    stage->read.pending = false;
    const Unit& unit = units_[std::size_t(number)];
    copy_values(launch, "parameters", SEEKSIM_SITE, staged(*stage, unit.size).part(first - unit.at, count),
                to.part(first - at, count));
    stage->free = launch.queue().record();
    stage->unit = -1;
  });
}

}  // namespace seeksim::runtime
