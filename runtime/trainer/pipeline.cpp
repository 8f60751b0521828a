// A step's passes in the order of the schedule: which micro-batch goes through which piece when, what is sent before
// and after, and how many are in flight. Without a pipeline the schedule is F0 B0 F1 B1 ... and nothing is sent.
#include <algorithm>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

using Kind = InstructionKind;

// Everything that a world decides about a step.
void Trainer::cut_step(const Roster& world) {
  const Definition& d = plan_.definition;
  const ParallelPlan& parallel = plan_.layout.parallel;
  grid_.emplace(parallel, world.seats, world.members);
  const std::optional<GridPlace> place = grid_->place(rank_.id);
  SEEKSIM_CHECK(place.has_value(), "rank %d has no place in the grid of %zu members", rank_.id, world.members.size());
  place_ = *place;
  lowest_ = world.members.front();
  for (int stage = 0; stage < parallel.pipeline; ++stage) {
    for (int way = 0; way < parallel.tensor; ++way) lowest_ = std::min(lowest_, grid_->rank_at({stage, 0, way}));
  }
  ownership_ = {d.global_batch, grid_->replicas()};
  cut_ = {d.global_batch, grid_->replicas(), std::min<Index>(plan_.layout.micro_batch, d.global_batch),
          sharded(placement_.gradients)};
  micro_batches_ = micro_batches_of(place_.data);
  instructions_.clear();
  if (micro_batches_.empty()) return;
  PipelineShape shape = pipeline_shape(parallel, int(micro_batches_.size()));
  if (plan_.bug.is(Bug::all_forwards_first)) shape.schedule = PipelineSchedule::gpipe;
  for (const Tick& tick : stage_schedule(shape, place_.stage)) {
    for (const Instruction& instruction : tick) {
      if (instruction.kind < Kind::reduce_tied) instructions_.push_back(instruction);
    }
  }
  plant_in_schedule();
}

// Planted bugs of one rank's schedule.
void Trainer::plant_in_schedule() {
  if (plan_.layout.parallel.pipeline == 1) return;
  if (plan_.bug.is(Bug::fewer_micro_batches, rank_.id)) {
    const int last = int(micro_batches_.size()) - 1;
    std::erase_if(instructions_, [last](const Instruction& i) {
      const bool computes = i.kind == Kind::load || i.kind == Kind::forward || i.kind == Kind::backward;
      return last > 0 && i.micro_batch == last && !computes;
    });
  }
  if (!plan_.bug.is(Bug::backward_before_forward, rank_.id)) return;
  const auto is_first = [](Kind kind) {
    return [kind](const Instruction& i) { return i.kind == kind && i.micro_batch == 0; };
  };
  const auto forward = std::find_if(instructions_.begin(), instructions_.end(), is_first(Kind::forward));
  const auto gradient = std::find_if(forward, instructions_.end(), is_first(Kind::recv_gradient));
  if (gradient == instructions_.end()) return;
  const auto backward = std::find_if(gradient, instructions_.end(), is_first(Kind::backward));
  if (backward == instructions_.end()) return;
  const std::vector<Instruction> early = {*gradient, *backward};
  instructions_.erase(backward);
  instructions_.erase(gradient);
  instructions_.insert(std::find_if(instructions_.begin(), instructions_.end(), is_first(Kind::forward)), early.begin(),
                       early.end());
}

namespace {
// Whether this is the last that a piece has to do with a micro-batch. What it computed is still to be sent after a
// backward pass, and gradients of parameters may come after that.
bool is_last_use(const Instruction& i, const ModelPiece& piece, bool defers) {
  if (defers) return i.kind == Kind::backward_weight;
  return i.kind == (piece.embeds ? Kind::backward : Kind::send_gradient);
}
}  // namespace

// Micro-batches of each piece whose activations are held at a time, at most.
std::vector<int> Trainer::most_in_flight() const {
  const std::vector<ModelPiece>& pieces = parameters_.pieces();
  std::vector<int> most(pieces.size(), 1);
  std::vector<std::vector<int>> held(pieces.size());
  for (const Instruction& i : instructions_) {
    std::vector<int>& here = held[std::size_t(i.chunk)];
    if (std::find(here.begin(), here.end(), i.micro_batch) == here.end()) here.push_back(i.micro_batch);
    most[std::size_t(i.chunk)] = std::max(most[std::size_t(i.chunk)], int(here.size()));
    if (is_last_use(i, pieces[std::size_t(i.chunk)], in_two_parts())) std::erase(here, i.micro_batch);
  }
  return most;
}

// Room for as many micro-batches as this world's schedule holds. Nothing may be pending.
void Trainer::make_flights() {
  const std::vector<int> most = most_in_flight();
  bool enough = models_.size() == most.size();
  for (std::size_t piece = 0; enough && piece < most.size(); ++piece)
    enough = int(models_[piece].size()) >= most[piece];
  if (!enough) {
    holds_activations_ = true;
    models_.clear();
    const Index samples = std::min(plan_.layout.micro_batch, plan_.definition.global_batch);
    for (std::size_t piece = 0; piece < most.size(); ++piece)
      models_.push_back(
          make_models(rank_.device, plan_, parameters_, piece, samples, most[piece], tensor_ ? &*tensor_ : nullptr));
  }
  flights_.clear();
  for (const auto& of_piece : models_) {
    std::vector<InFlight>& flights = flights_.emplace_back();
    for (const auto& model : of_piece) flights.emplace_back().model = model.get();
  }
}

InFlight& Trainer::flight_of(const Instruction& i) {
  InFlight* free = nullptr;
  for (InFlight& flight : flights_[std::size_t(i.chunk)]) {
    if (flight.micro_batch == i.micro_batch) return flight;
    if (flight.micro_batch < 0 && free == nullptr) free = &flight;
  }
  SEEKSIM_CHECK(free != nullptr, "no room for micro-batch %d of piece %d: %zu are in flight", i.micro_batch, i.chunk,
                flights_[std::size_t(i.chunk)].size());
  free->micro_batch = i.micro_batch;
  return *free;
}

// A planted bug.
void Trainer::scale_gradient(InFlight& flight, Index samples) {
  const AnyVec gradient = flight.model->gradient_out(samples);
  with_float_type(gradient.type, [&](auto like) {
    using S = decltype(like);
    compute_(
        "gradient of an activation", SEEKSIM_SITE, memory_cost(2 * gradient.n),
        [factor = 1.0f / float(micro_batches_.size())](kernels::Lane lane, kernels::Vec<S> all) {
          kernels::change_on_host(lane, all, [&](kernels::Vec<S> values) {
            for (Index k = 0; k < values.n; ++k) {
              float wide = 0;
              kernels::widen<S>(kernels::Lane{}, {values.data + k, 1}, {&wide, 1});
              wide *= factor;
              kernels::narrow<S>(kernels::Lane{}, {&wide, 1}, {values.data + k, 1});
            }
          });
        },
        gradient.as<S>());
  });
  flight.gone_back = compute_.queue().record();
}

void Trainer::carry_out(const Instruction& i) {
  InFlight& flight = flight_of(i);
  const std::size_t piece = std::size_t(i.chunk);
  const Index samples = samples_of_flight(flight).size();
  const bool here = samples > 0;
  compute_.mute(!here);  // others have samples: this replica only takes part in what they need
  switch (i.kind) {
    case Kind::load:
      fetch(flight);
      break;
    case Kind::recv_activation:
      if (here) links_->receive_activation(flight, compute_, samples);
      break;
    case Kind::forward:
      if (here && links_) links_->before_forward(flight, compute_);
      forward(flight, piece);
      flight.gone_forward = compute_.queue().record();
      break;
    case Kind::send_activation:
      if (here) links_->send_activation(flight, compute_, samples);
      break;
    case Kind::recv_gradient:
      if (here) links_->receive_gradient(flight, compute_, samples);
      break;
    case Kind::backward:
    case Kind::backward_input:
      if (here && links_) links_->before_backward(flight, compute_);
      if (i.kind == Kind::backward)
        reduce_backward(flight, piece, i.kind);
      else
        backward(flight, piece, i.kind, nullptr);
      flight.gone_back = flight.over = compute_.queue().record();
      break;
    case Kind::backward_weight:
      reduce_backward(flight, piece, i.kind);
      flight.over = compute_.queue().record();
      break;
    case Kind::send_gradient:
      if (here && plan_.bug.is(Bug::scaled_at_every_stage)) scale_gradient(flight, samples);
      if (here) links_->send_gradient(flight, compute_, samples);
      break;
    default:
      SEEKSIM_CHECK(false, "%s is no part of the passes", std::string(text(i)).c_str());
  }
  compute_.mute(false);
  if (is_last_use(i, parameters_.pieces()[piece], in_two_parts())) flight.micro_batch = -1;
}

}  // namespace seeksim::runtime
