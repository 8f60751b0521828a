// A case as a Python program that a person can read and start alone.
#pragma once

#include <string>
#include <vector>

#include "harness/torch/cases/features.h"

namespace seeksim::harness::torch {

// The program. With --plain it trains the same by hand: the bare model, and gradients averaged by all_reduce. `name`:
// what it is called in the commands at its head; drawn: where it comes from.
std::string script_of(const Case& drawn, const std::string& name, const std::string& from);

// What the training by hand depends on: equal for two cases, it is one training.
std::string plain_key(const Case& drawn);

// The training is saved by another number of ranks than resumes it: the program runs twice, first with --first.
bool moves(const Case& drawn);
int ranks_before(const Case& drawn);  // that save it
// DeepSpeed's own program turns the state of some ranks into one for others.
bool carries_state(const Case& drawn);

inline constexpr int kWords = 11;        // that tokens are, and classes
inline constexpr int kInMicroBatch = 6;  // samples of a rank

// Lines of a Python program.
class Lines {
 public:
  // A line at this depth of blocks; an empty text: an empty line.
  Lines& add(int depth, const std::string& text);
  // The same where `there` holds.
  Lines& add_if(bool there, int depth, const std::string& text) { return there ? add(depth, text) : *this; }
  // An empty line: a finding is to have few lines.
  Lines& gap() { return add(0, ""); }
  // What is made of other lines, deeper.
  Lines& add_block(int depth, const Lines& block);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The parts of the program: its model and data, and who distributes it.
void add_model(const Case& drawn, Lines& to);
void add_data(const Case& drawn, Lines& to);
void add_config(const Case& drawn, Lines& to);                                    // DeepSpeed's
void add_wrapping(const Case& drawn, int depth, Lines& to);                       // the others'
void add_step_of_zero(const Case& drawn, const std::string& divided, Lines& to);  // divided: the loss by hand
void add_fsdp2(const Case& drawn, int depth, Lines& to);                          // FSDP2's
void add_pipe_program(const Case& drawn, Lines& to);                              // of a pipeline, behind its head
void add_stages_program(const Case& drawn, Lines& to);                            // of torch's pipelines, likewise
void add_moe_program(const Case& drawn, Lines& to);  // with DeepSpeed's expert layer, likewise
void add_loss_of_moe(const Case& drawn, int depth, Lines& to);
void add_muon(int depth, Lines& to);  // DeepSpeed's optimizer, by hand
// What is passed to DDP, beside the model.
std::vector<std::string> ddp_options(const Case& drawn);
// Words with commas behind them, in as many lines as they take.
void add_words(const std::vector<std::string>& words, int depth, Lines& to);

// Tensor parallel layers: imports; the mesh of ranks; who distributes the model; gradients averaged by the script, in
// its own step or in both; the gradient clipped; a moving average of weights, which is used at the end.
void add_imports_of_tensors(const Case& drawn, Lines& to);
void add_mesh(const Case& drawn, Lines& to);
void add_tensors(const Case& drawn, int depth, Lines& to);
void add_averaged_gradients(const Case& drawn, Lines& to);
void add_clipping_of_tensors(const Case& drawn, int depth, Lines& to);
bool has_average(const Case& drawn);
void add_average(const Case& drawn, Lines& to);
void add_average_used(Lines& to);
// " + ...": which samples this rank gets; and whether they are the first ones.
std::string rank_of_data(const Case& drawn);
std::string has_first_data(const Case& drawn);

// The parts of a step, at this depth: the loss of a micro-batch; gradients averaged by hand; the gradient's norm; the
// optimizer.
void add_loss(const Case& drawn, int depth, Lines& to);
void add_gradients(const Case& drawn, int depth, Lines& to);
void add_clipping(const Case& drawn, int depth, Lines& to);
void add_optimizer_step(const Case& drawn, int depth, Lines& to);

std::string optimizer_of(const Case& drawn);  // a call that makes it

// Options of DDP and FSDP: imports; what DDP gets beside its arguments; the optimizer of post-local SGD, and what it
// does by hand behind a step; what is set before a micro-batch; "float16" and the like: the type of sums over ranks, or
// "".
void add_imports_of_options(const Case& drawn, Lines& to);
void add_ddp_hook(const Case& drawn, int depth, Lines& to);
void add_local_optimizer(int depth, Lines& to);
void add_local_average(Lines& to);
void add_options_of_fsdp2(const Case& drawn, int depth, Lines& to);
void add_options_of_micro_batch(const Case& drawn, int depth, Lines& to);
void add_finalization(const Case& drawn, Lines& to);
std::string compressed_type(const Case& drawn);
// What DeepSpeed gets: the optimizer, or what its own one is to train.
const char* optimized_by(const Case& drawn);

// Where a training goes on from a saved state: in new objects behind some steps; or in the second of two runs, of which
// the first one ends with add_save().
std::string names_of_objects(const Case& drawn);  // what build() returns
void add_imports_of_state(const Case& drawn, Lines& to);
void add_resume(const Case& drawn, Lines& to);
void add_load(const Case& drawn, Lines& to);
void add_save(const Case& drawn, Lines& to);
void add_gathering(const Case& drawn, Lines& to);
void add_look(const Case& drawn, Lines& to);

// What a script changes while it trains: a weight before a step's forward pass; a weight, gradient or moment before the
// optimizer's step, at this depth; which parameters require a gradient.
bool edits_weight_first(const Case& drawn);
void add_edit_of_weight(const Case& drawn, Lines& to);
void add_edit(const Case& drawn, int depth, Lines& to);
void add_edit_of_zero(const Case& drawn, int depth, const std::string& also, Lines& to);  // also: " and ...", or ""
void add_imports_of_edit(const Case& drawn, Lines& to);
void add_turn(const Case& drawn, Lines& to);

// What accelerate, Fabric and Trainers need, where one of them drives the training.
void add_loop_imports(const Case& drawn, Lines& to);
void add_loop(const Case& drawn, Lines& to);                // the object that drives it
void add_prepare(const Case& drawn, int depth, Lines& to);  // the model and its optimizer are given to it
// made: the line that makes new objects, or "".
void add_resume_of_loop(const Case& drawn, const std::string& made, Lines& to);
// A micro-batch that accelerate or Fabric drives, at depth 3. ends: the line behind which Fabric makes its step.
void add_micro_batch_of_loop(const Case& drawn, const std::string& divided, int depth, const std::string& ends,
                             Lines& to);
void add_step_of_loop(const Case& drawn, const std::string& divided, Lines& to);
void add_trainer_program(const Case& drawn, const std::string& divided, Lines& to);  // from its loss to its end
std::string folder_of_state();                                                       // the line that names it
bool has_own_loop(const Case& drawn);

// Samples that a DataLoader has, and its driver deals out: they, and all from there to the program's end.
bool has_loader(const Case& drawn);
void add_samples(const Case& drawn, Lines& to);
void add_epochs_program(const Case& drawn, Lines& to);
// Of Lightning's and transformers' Trainers: what they are made with; and the branch that lets them train.
void add_trainer_objects(const Case& drawn, Lines& to);
void add_fit(const Case& drawn, Lines& to);
bool is_trainer(const Case& drawn);  // it has the loop over steps, too

bool is_on(const Case& drawn, const char* name);
bool is_deepspeed(const Case& drawn);
bool is_fsdp2(const Case& drawn);  // or HSDP, or what else goes by its code
bool has_no_sync(const Case& drawn);
bool has_deepspeeds_muon(const Case& drawn);
// By hand each weight is cast for a forward pass: what FSDP's policies and DeepSpeed do.
bool casts_by_hand(const Case& drawn);
// ".bfloat16()", ".half()": the type of weights in forward passes, where it is not fp32.
std::string narrow_type(const Case& drawn);
// The layer that some batches use is wrapped alone, not with the rest of the model.
bool other_is_unit(const Case& drawn);
// A GradScaler is used: beside autocast to fp16, or by hand in place of DeepSpeed's own.
bool scales_loss(const Case& drawn);
// In one step, before the middle, the gradient of one rank overflows.
bool has_spike(const Case& drawn);
int middle(const Case& drawn);  // a step: where it resumes, say
// A layer is used in some micro-batches of each step and not in others.
bool goes_by_micro_batch(const Case& drawn);
// What the model is told beside its input: "step", or "micro" where its layers go by that.
std::string turn_of(const Case& drawn);
// A flat parameter is updated whole: what a step did not use has a gradient of zero, and momentum goes on.
bool fills_with_zeros(const Case& drawn);
// Whether DeepSpeed's optimizer trains flat copies of weights, and moves what is frozen on the way by its momentum.
bool has_flat_copies(const Case& drawn);

}  // namespace seeksim::harness::torch
