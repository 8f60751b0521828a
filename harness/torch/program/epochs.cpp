// Samples that a DataLoader has: accelerate, Lightning and transformers' Trainer deal them out to the ranks. By hand
// each rank has a loader of its own, with the samples that the driver's documentation says.
#include <fmt/format.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

int number(const Case& drawn, const char* name) { return std::stoi(drawn.at(name)); }
bool is_of_lightning(const Case& drawn) { return drawn.at("loop") == "fabric" || drawn.at("loop") == "lightning"; }

// Micro-batches that a rank has of an epoch.
int micro_batches(const Case& drawn) {
  const int all = number(drawn, "accumulation") * number(drawn, "steps") / number(drawn, "epochs");
  return drawn.at("loader") == "short" ? all - 1 : all;
}

int samples(const Case& drawn) {
  const int all = kInMicroBatch * number(drawn, "np") * micro_batches(drawn);
  return drawn.at("loader") == "uneven" ? all - 4 : all;
}

// What a rank gets of an epoch, by hand.
void add_dealing(const Case& drawn, Lines& to) {
  const int ranks = number(drawn, "np"), count = samples(drawn);
  to.gap().add(0, "def dealt(epoch):  # to this rank, by hand");
  if (is_of_lightning(drawn)) {
    // Lightning's Trainer shuffles what it trains on, also where its loader does not.
    const bool shuffles = drawn.at("loop") == "lightning" || is_on(drawn, "shuffled");
    to.add(1, fmt::format("sampler = torch.utils.data.DistributedSampler(Samples(), shuffle={})",
                          shuffles ? "True" : "False"));
    to.add(1, "sampler.set_epoch(epoch)");
    to.add(1, fmt::format("return torch.utils.data.DataLoader(Samples(), {}, sampler=sampler)", kInMicroBatch));
    return;
  }
  to.add(1,
         fmt::format("starts = range({0} * dist.get_rank(), {1}, {2})", kInMicroBatch, count, kInMicroBatch * ranks));
  // One rank alone has a shorter batch; several begin again with the first samples.
  const std::string index = ranks == 1 ? "" : fmt::format(" % {}", count);
  const std::string end =
      ranks == 1 ? fmt::format("min(at + {}, {})", kInMicroBatch, count) : fmt::format("at + {}", kInMicroBatch);
  to.add(1, fmt::format("batches = [[i{} for i in range(at, {})] for at in starts]", index, end));
  to.add(1, "return torch.utils.data.DataLoader(Samples(), batch_sampler=batches)");
}

// A step by hand ends here, at depth 2, where its last micro-batch is done.
void add_end_of_step(const Case& drawn, Lines& to) {
  to.add(2, is_trainer(drawn) ? "if last:" : "if PLAIN and last:");
  add_gradients(drawn, 3, to);
  add_clipping(drawn, 3, to);
  add_optimizer_step(drawn, 3, to);
}

// Where an epoch's last micro-batch ends a step early, a Trainer divides by what the step has.
std::string divided_by_hand(const Case& drawn) {
  const std::string& accumulation = drawn.at("accumulation");
  if (accumulation == "1") return "loss";
  if (drawn.at("loop") != "trainer" || drawn.at("loader") != "short") return fmt::format("(loss / {})", accumulation);
  const int all = micro_batches(drawn);
  return fmt::format("(loss / min({0}, {1} - micro // {0} * {0}))", accumulation, all);
}

// The head of the loop over an epoch, and which step it is.
void add_micro_batches(const Case& drawn, const std::string& from, Lines& to) {
  const int epochs = number(drawn, "epochs"), steps = number(drawn, "steps"), each = number(drawn, "accumulation");
  to.add(1, fmt::format("for micro, (x, y) in enumerate({}):", from));
  to.add(2, fmt::format("step = epoch * {} + micro // {}", steps / epochs, each));
  to.add(2, each == 1
                ? "last = True"
                : fmt::format("last = micro % {0} == {1} or micro == {2}", each, each - 1, micro_batches(drawn) - 1));
}

// accelerate's loop, or Fabric's.
void add_loop_over_batches(const Case& drawn, Lines& to) {
  const bool accelerate = drawn.at("loop") == "accelerate";
  const int batch = accelerate && drawn.at("deals") == "split" ? kInMicroBatch * number(drawn, "np") : kInMicroBatch;
  to.gap().add(0, "if not PLAIN:");
  to.add(1, fmt::format("loader = {}(torch.utils.data.DataLoader(Samples(), {}{}))",
                        accelerate ? "accelerator.prepare" : "fabric.setup_dataloaders", batch,
                        is_on(drawn, "shuffled") ? ", shuffle=True" : ""));
  to.add(0, fmt::format("for epoch in range({}):", number(drawn, "epochs")));
  add_micro_batches(drawn, "dealt(epoch) if PLAIN else loader", to);
  if (accelerate)
    to.add(2, "with contextlib.nullcontext() if PLAIN else accelerator.accumulate(net):");
  else
    to.add(2, "with contextlib.nullcontext() if PLAIN or last else fabric.no_backward_sync(net):");
  add_micro_batch_of_loop(drawn, divided_by_hand(drawn), 2, "if last and not PLAIN:", to);
  add_end_of_step(drawn, to);
  to.add(2, "print(f\"rank {dist.get_rank()} step {step}: loss {loss.item():.9g}\")");
}

}  // namespace

bool has_loader(const Case& drawn) { return drawn.at("loader") != "off"; }

void add_samples(const Case& drawn, Lines& to) {
  to.gap().add(0, "class Samples(torch.utils.data.Dataset):");
  to.add(1, "def __len__(self):").add(2, fmt::format("return {}", samples(drawn)));
  to.gap().add(1, "def __getitem__(self, i):").add(2, "generator = torch.Generator().manual_seed(i)");
  if (drawn.at("inputs") == "numbers")
    to.add(2, fmt::format("x = torch.randn({}, generator=generator{}", drawn.at("width"),
                          narrow_type(drawn).empty() ? ")" : ", dtype=torch.float32)" + narrow_type(drawn)));
  else
    to.add(2, fmt::format("x = torch.randint(0, {}, (), generator=generator)", kWords));
  to.add(2, fmt::format("return x, torch.randint(0, {}, (), generator=generator)", kWords));
}

void add_epochs_program(const Case& drawn, Lines& to) {
  if (!is_trainer(drawn)) {
    add_dealing(drawn, to);
    add_loop_over_batches(drawn, to);
    return;
  }
  add_trainer_objects(drawn, to);
  add_dealing(drawn, to);
  to.gap().add(0, "dist.init_process_group(\"gloo\")").add(0, "if PLAIN:");
  to.add(1, names_of_objects(drawn) + " = build(1)");
  Lines loop;
  loop.add(0, fmt::format("for epoch in range({}):", number(drawn, "epochs")));
  add_micro_batches(drawn, "dealt(epoch)", loop);
  loop.add(2, "loss = loss_of(net, x, y, step)").add(2, divided_by_hand(drawn) + ".backward()");
  add_end_of_step(drawn, loop);
  to.add_block(1, loop);
  add_fit(drawn, to);
}

}  // namespace seeksim::harness::torch
