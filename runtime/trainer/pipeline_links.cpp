#include "runtime/trainer/pipeline_links.h"

#include "kernels/check.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {
namespace {

constexpr std::array<MessageQueue, 4> kQueues = {MessageQueue::receive_activation, MessageQueue::send_activation,
                                                 MessageQueue::receive_gradient, MessageQueue::send_gradient};

}  // namespace

// Links in the order of the stages that they begin at, and for each the activations' communicator before the
// gradients': every rank builds its own in this order, so that none waits in a circle. Where the last stage is joined
// to the first, that link is built last by both.
PipelineLinks::PipelineLinks(Workbench& bench, const Grid& grid, const GridPlace& place, std::uint32_t epoch)
    : bench_(bench) {
  const ParallelPlan& parallel = bench.plan.layout.parallel;
  const int stages = parallel.pipeline;
  const auto rank_of = [&](int stage) { return grid.rank_at({stage % stages, place.data, place.way}); };
  const auto build = [&](End end, int from, bool gradients) {
    const int group = ((from * grid.replicas() + place.data) * parallel.ways() + place.way) * 2 + (gradients ? 1 : 0);
    links_[end].emplace(bench.rank, Axis::pipeline, epoch, std::vector<int>{rank_of(from), rank_of(from + 1)},
                        bench.plan.recovery.watchdog_ns, group);
  };
  for (int from = 0; from < stages; ++from) {
    if (from + 1 == stages && parallel.virtual_stages == 1) break;  // nothing goes from the last to the first
    if (from == place.stage) build(to_next, from, false), build(from_next, from, true);
    if ((from + 1) % stages == place.stage) build(from_before, from, false), build(to_before, from, true);
  }
}

Event PipelineLinks::message(End end, const Launcher& compute, AnyVec values, int micro_batch, VecView<float> losses) {
  const bool sends = end == to_next || end == to_before;
  SEEKSIM_CHECK(links_[end].has_value(), "micro-batch %d goes over a link that is not there", micro_batch);
  Communicator& link = *links_[end];
  const int peer = link.members()[std::size_t(1 - link.position())];
  Op op;
  op.kind = end == to_next || end == from_before ? OpKind::send_activation : OpKind::send_gradient;
  const bool evaluates = compute.last().phase == Phase::evaluation;
  op.phase = evaluates ? Phase::evaluation : op.kind == OpKind::send_activation ? Phase::forward : Phase::backward;
  op.step = compute.last().step;
  op.micro_batch = micro_batch;
  op.peer = peer;
  op.tensor = op.kind == OpKind::send_activation ? "activation" : "gradient of an activation";
  op.site = SEEKSIM_SITE;
  if (sends) values = bench_.planted->to_send(values);
  std::array<Piece, 2> pieces;
  std::size_t count = 0;
  const auto add = [&](AnyVec part) {
    const Range range = part.range(!sends);
    pieces[count++] = {peer, sends, range.buffer, range.lo, range.hi, nullptr, part.type};
  };
  add(values);
  if (losses.n > 0) add(AnyVec(losses));
  Queue& queue = bench_.rank.device.message_queue(kQueues[end]);
  link.exchange(queue, op, std::span<const Piece>(pieces).first(count));
  return queue.record();
}

void PipelineLinks::receive_activation(InFlight& flight, const Launcher& compute, Index samples) {
  Queue& queue = bench_.rank.device.message_queue(MessageQueue::receive_activation);
  const VecView<float> losses = flight.model->arriving_losses(samples);
  bench_.after(queue, flight.over, Edge::activation_place_free);
  if (losses.n > 0) bench_.after(queue, flight.left, Edge::router_losses_left);  // from where they arrive
  flight.arrived = message(from_before, compute, flight.model->arriving(samples), flight.micro_batch, losses);
}

void PipelineLinks::before_forward(const InFlight& flight, Launcher& compute) const {
  bench_.after(compute.queue(), flight.arrived, Edge::activation_received);
  bench_.after(compute.queue(), flight.left, Edge::activation_left);
}

void PipelineLinks::send_activation(InFlight& flight, const Launcher& compute, Index samples) {
  bench_.after(bench_.rank.device.message_queue(MessageQueue::send_activation), flight.gone_forward,
               Edge::activation_made);
  flight.left = message(to_next, compute, flight.model->leaving(samples), flight.micro_batch,
                        flight.model->leaving_losses(samples));
}

// Where it arrives, the gradient of an earlier micro-batch was made and sent from.
void PipelineLinks::receive_gradient(InFlight& flight, const Launcher& compute, Index samples) {
  Queue& queue = bench_.rank.device.message_queue(MessageQueue::receive_gradient);
  bench_.after(queue, flight.over, Edge::gradient_place_free);
  bench_.after(queue, flight.gradient_left, Edge::gradient_place_free);
  flight.gradient_arrived = message(from_next, compute, flight.model->gradient_in(samples), flight.micro_batch);
}

void PipelineLinks::before_backward(const InFlight& flight, Launcher& compute) const {
  bench_.after(compute.queue(), flight.gradient_arrived, Edge::gradient_received);
  bench_.after(compute.queue(), flight.gradient_left, Edge::gradient_place_free);
}

void PipelineLinks::send_gradient(InFlight& flight, const Launcher& compute, Index samples) {
  bench_.after(bench_.rank.device.message_queue(MessageQueue::send_gradient), flight.gone_back, Edge::gradient_made);
  if (bench_.planted->sends_again(flight.micro_batch))
    message(to_before, compute, flight.model->gradient_out(samples), flight.micro_batch);
  flight.gradient_left = message(to_before, compute, flight.model->gradient_out(samples), flight.micro_batch);
}

std::vector<Communicator*> PipelineLinks::communicators() {
  std::vector<Communicator*> all;
  for (std::optional<Communicator>& link : links_) {
    if (link) all.push_back(&*link);
  }
  return all;
}

}  // namespace seeksim::runtime
