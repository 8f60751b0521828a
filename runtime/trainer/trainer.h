// Trainer: one rank's share of a training run. train_step is a transaction: before its commit point nothing durable
// changes, so that a step which failed anywhere is simply run again, by the same members or by fewer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/edge.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/comm/tensor_parallel.h"
#include "runtime/decide/membership.h"
#include "runtime/decide/run_state.h"
#include "runtime/detect/divergence.h"
#include "runtime/detect/observer.h"
#include "runtime/detect/straggler.h"
#include "runtime/launch/poison.h"
#include "runtime/layout/grid.h"
#include "runtime/model/data.h"
#include "runtime/model/model.h"
#include "runtime/plan/plan.h"
#include "runtime/rules/loss_scaler.h"
#include "runtime/seams/rank.h"
#include "runtime/trainer/edited_gradients.h"
#include "runtime/trainer/pipeline_links.h"
#include "runtime/trainer/rerun.h"
#include "runtime/zero/bucket_sink.h"
#include "runtime/zero/gathered_weights.h"
#include "runtime/zero/gradient_reducer.h"
#include "runtime/zero/optimizer.h"
#include "runtime/zero/replica.h"
#include "runtime/zero/shard_keeper.h"

namespace seeksim::runtime {

class Trainer {
 public:
  // world: the first one that it is connected to; its seats decide which part of the model is here.
  Trainer(Rank& rank, const TrainPlan& plan, Observer& observer, const Roster& world);

  // Allocates what no world changes and makes the initial weights; no communication. Does nothing the second time.
  void prepare();
  // Why a world cannot go on with what `givers` hold, of whom joiners hold nothing; empty: it can.
  std::string lost(const Roster& world, const std::vector<int>& joiners, const std::vector<int>& givers) const;
  bool holds_shards() const { return keeper_ && step_ > 0 && keeper_->laid_out(); }
  // A new communicator for `epoch` and a new cut of the batch; shards, and all that joiners lack, come from those who
  // hold them. The step under way, if any, starts anew.
  void connect(std::uint32_t epoch, const Roster& world, const std::vector<int>& joiners);
  void train_step();
  // After a step: throws SeamError{too_slow} on all members where one of them is to leave for being so.
  void let_straggler_go();
  // After the last step: gathers what is sharded for state() and weights(), and lets nobody leave before all have it.
  void conclude();
  // After a failure: gives up the communicator and waits until nothing is pending. Leaves what is durable untouched.
  // False: the device does not answer, and this rank cannot go on.
  bool abandon();
  // After abandon(): gives back all memory that holds nothing durable. prepare() and connect() make it again, as the
  // plan's layout says then.
  void free_activations();

  bool connected() const { return comm_.has_value(); }
  bool finished() const { return step_ >= plan_.definition.steps; }
  std::int64_t step() const { return step_; }  // the next to be committed
  // Why the run has to end here though nothing failed: nothing but skipped steps. Empty: it goes on. The same on all.
  std::string stopped() const;
  // Fewer activations would leave more memory: some were made, or failed to be.
  bool holds_activations() const { return holds_activations_; }
  std::vector<Communicator*> communicators();  // that are there: of the data axis first
  bool is_lowest_rank() const { return comm_ && lowest_ == rank_.id; }

  // The first world begins with the newest checkpoint that can be used and holds at most so many steps; where there
  // never was one, from the beginning. Throws NoCheckpoint in connect() where there are some, and all are bad.
  void begin_with_checkpoint(std::int64_t steps_most);
  // Of a run that goes on from a checkpoint: batches that it found bad before, and how many more, from the first step
  // that is undone on, are not to be used again.
  void leave_out(const std::vector<std::int64_t>& batches, std::int64_t more);
  const std::vector<std::int64_t>& dropped_batches() const { return dropped_batches_; }
  bool loads() const { return load_most_ >= 0; }  // that is still to be done
  std::int64_t loads_at_most() const { return load_most_; }
  // All members alike, after a commit: writes one and waits until it is complete or given up.
  void save_checkpoint();
  // Before another trainer takes its place: files that hold offloaded state are nobody's any more.
  void remove_files();
  // Who comes and who goes, without a failure (trainer_members.cpp). In the last vote somebody waited, or was told to
  // leave, so that there is a better world than this one.
  bool world_may_change() const;
  // All vote, and so leave the step behind them: the world that the ballots ask for, this one where they ask for none.
  NextWorld agree_on_world();
  // Over the communicators of this epoch: shards to where they are in a world without some of its members.
  void give_shards_to(const Roster& next);
  // The same in an epoch of its own, which all who live have entered; nothing is connected before.
  void give_shards_first(std::uint32_t epoch, const Roster& all, const Roster& next);
  void leave();  // in order: it has nothing any more that others need
  HandOver hand_over(const Roster& world, const std::vector<int>& joiners) const;
  void take_over(const HandOver& given);     // of who joins, after prepare()
  bool joining() const { return joining_; }  // it has been taken in, and does not have the others' state yet

  // Where the run stands, and the way back to there; of tensors nothing.
  RunState run_state() const;
  void restore(const RunState& state);

  // Digests of what is sharded are there after conclude() only.
  StateDigest state() const;
  std::vector<NamedTensor> weights();

 private:
  // What the host reads of a finished backward pass.
  struct StepResult {
    float loss = 0;
    float grad_norm = 0;         // unscaled
    std::int64_t nonfinite = 0;  // elements of the gradients measured here
    bool finite = true;
  };
  using PerParameter = std::function<void(const ParameterInfo&, AnyVec)>;

  // A step (trainer.cpp).
  void carry_out(const Instruction& instruction);
  void plant_in_schedule();
  bool in_two_parts() const { return plan_.layout.parallel.defers() && plan_.layout.parallel.pipeline > 1; }
  void scale_gradient(InFlight& flight, Index samples);
  void fetch(InFlight& flight);
  void go_forward(InFlight& flight);
  void go_backward(InFlight& flight, std::size_t piece, InstructionKind kind);
  void reduce_backward(InFlight& flight, std::size_t piece, InstructionKind kind);
  std::vector<kernels::TreeNode> nodes_of(const SampleRange& samples) const;
  std::vector<GradientBlock> blocks_of(const SampleRange& samples) const;
  std::uint64_t dropout_seed() const;
  std::int64_t data_position() const;  // samples that are used up
  Batch batch(const SampleRange& samples) const { return {samples.size(), samples.begin, step_, dropout_seed()}; }
  void forward(InFlight& flight, std::size_t piece);
  void backward(InFlight& flight, std::size_t piece, InstructionKind kind, GradientSink* sink);
  void backward_to(GradientSink& sink, InFlight& flight, std::size_t piece, InstructionKind kind);
  void run_again(InFlight& flight);
  const SampleRange& samples_of_flight(const InFlight& flight) const {
    return micro_batches_[std::size_t(flight.micro_batch)];
  }
  ElementType accumulator() const { return accumulation_type(plan_.definition.quirks, compute_type()); }
  RankAverage average() const { return rank_average(plan_.definition.quirks, comm_->size()); }
  GradientEdit gradient_edit(const SampleRange& samples, int micro_batch) const;
  void reduce_gradients();
  void reduce_everywhere();
  void reduce_to_owners();
  std::vector<Bucket> planted_order(std::vector<Bucket> buckets) const;
  void add_tied_gradients();
  // What planted bugs do beyond an edit of a value (trainer_planted.cpp).
  void reduce_alone();
  void add_old_gradients();
  void forget_others_norms();
  void unclip_replicated(float coefficient);
  void hold_gradients();
  void measure_gradients();
  void measure_shard();
  void fold_norms();
  void gather_gradients();
  float gradient_norm() const;
  VecView<float> norm_of(Index trainable);
  VecView<float> loss_value() const;
  void fold_parameters();
  void add_gradients_of_other_stage();
  StepResult read_result();
  void tell_what_was_seen();
  bool vote(const char* about, bool good);
  void compare_runs();
  Op commit_op(OpKind kind, const char* about, std::int64_t step, const char* site) const;
  Agreement take_vote(const char* about, Ballot ballot);
  Agreement ask_all(const Op& op, const Ballot& ballot, TimeNs deadline);
  void redo_where_bits_differ(Op op, const Agreement& agreement) const;
  void look_for_poison(bool in_gradients);
  void stop_if_poisoned(const Agreement& agreement) const;
  float apply(const StepResult& result, double lr);
  void update(float grad_factor, double lr);
  void commit(const StepResult& result, bool applied, double lr);
  void publish(bool new_world);
  void record_digests();
  void tell_stagnation();
  double rate() const;
  // Bugs of collectives happen before the first recovery only, so that a run can go on after it.
  bool plants(Bug bug) const { return plan_.bug.is(bug, rank_.id) && comm_->epoch() == 0; }

  // What the votes show without a failure (trainer_detection.cpp).
  TimeNs busy_since_last_step();
  void look_for_stragglers(const Agreement& agreement, bool applied);
  StepWork work_of(int position);
  bool can_do_without(int rank, std::vector<int> members) const;
  void look_for_divergence(const StepResult& result);
  void drop_left_out();

  // For those who hold ranks against each other, and planted bugs of replicas (trainer_records.cpp).
  void report_replica();
  void report_shards();
  std::vector<std::pair<const char*, std::uint64_t>> replicated_digests() const;
  void list_what_all_ways_hold(ReplicaRecord& record) const;
  void drift();
  std::vector<std::byte> copy_of_weights(Index end) const;
  void restore_weights(const std::vector<std::byte>& old);

  // Checkpoints (trainer_checkpoint.cpp).
  bool writes_checkpoints() const { return plan_.checkpoint.on(); }
  void begin_checkpoint();
  void save_if_due();
  void finish_checkpoints();
  std::vector<SavedPiece> pieces_to_save() const;
  std::vector<PlaceToFill> places_to_fill();
  bool is_written_elsewhere(const ParameterInfo& parameter) const;
  void refuse_checkpoints_of_another_run();
  bool load_checkpoint();
  bool agree_on_one(CheckpointReader& reader, std::string& tried);

  // Around the steps (trainer_world.cpp).
  void allocate();
  void cut_step(const Roster& world);
  void disconnect();
  std::vector<int> most_in_flight() const;
  void make_flights();
  InFlight& flight_of(const Instruction& instruction);
  void initial_weights();
  void draw(const std::vector<ParameterPiece>& pieces, AnyVec out);
  template <class T>
  void draw_piece(const ParameterPiece& piece, VecView<T> out);
  void connect_shards();
  void lay_out_shards();
  void move_shards(const std::vector<int>& members);
  void bring_replicated();
  void hear_of_members(const Agreement& agreement);
  NextWorld wanted_world() const;
  void connect_step();
  std::vector<SampleRange> micro_batches_of(int member) const;
  void weigh_tokens();
  void start_optimizer();
  // frozen: of the parameters, which alone have such a part; else null, and frozen parameters are passed over.
  void for_each_gathered(AnyVec flat, const AnyVec* frozen, const char* what, const PerParameter& each);
  void bring_shards(Launcher& launch, const ParameterInfo& parameter, AnyVec held, AnyVec whole);
  std::vector<float> replicated_gradients() const;
  bool alone() const { return plan_.layout.parallel.alone(); }  // the model is whole on this rank
  const Parameters& whole();                                    // the whole model's
  Index place_in_whole(Index gradient);                         // of an element of this rank's gradients
  // Of all parameters, where they are replicated: what defines them, and what is computed with.
  AnyVec flat_weights() const {
    return flat(masters_ ? masters_ : weights_, masters_ ? ElementType::f32 : compute_type());
  }
  AnyVec flat_parameters() const { return flat(weights_, compute_type()); }
  AnyVec flat_gradients() const;
  AnyVec flat(const BufferPtr& buffer, ElementType type) const;
  AnyVec weights_of(const ParameterInfo& parameter) const;
  Weights& weights_in_use() { return gathered_ ? static_cast<Weights&>(*gathered_) : *all_weights_; }
  ElementType compute_type() const { return plan_.definition.precision.compute; }
  // What the host itself reads or writes, declared.
  void host_touches(const char* site, const Range& range) const;
  AnyVec host_reads(const char* site, AnyVec values) const;
  template <class T>
  kernels::OnHost<T> host_reads(const char* site, VecView<const T> values) const {
    host_touches(site, values.range());
    return on_host(values);
  }
  // One value; 0 in a run of shapes, so that every step is finite there.
  template <class T>
  T host_value(const char* site, VecView<const T> value) const {
    const kernels::OnHost<T> held = host_reads(site, value);
    return has_values() ? held[0] : T{};
  }
  // A run of shapes has none: it tells of no digests, gradients, replicas, poison or weights.
  bool has_values() const { return plan_.numerics != Numerics::shapes; }
  bool sharded(Place place) const { return place == Place::sharded; }
  // Who works on reduced gradients and on the optimizer's state: the device, or where they are offloaded the host.
  bool offloads() const { return plan_.layout.offload.optimizer.home != Home::device; }
  Launcher& at_home() { return offloads() ? host_ : compute_; }
  void stand_at(std::uint32_t epoch, std::int64_t step);
  void bring_norms(const ShardInfo& share);

  Rank& rank_;
  const TrainPlan& plan_;
  Observer& observer_;
  Placement placement_;
  Parameters parameters_;  // of this rank's stage and way
  LossScale scale_;
  LossScaler scaler_;
  SkipState skips_;
  DataSource data_;
  Launcher compute_;
  Launcher host_;  // kernels of the host's processor

  // Made by prepare().
  BufferPtr weights_;      // parameters to compute with; none where they are sharded
  BufferPtr masters_;      // fp32, of what is trained, beside 16-bit parameters; none where the optimizer is sharded
  BufferPtr sums_;         // reduced in fp32: gradients, head's share, loss (Parameters); none where sharded
  BufferPtr gradients_;    // of what is trained, in 16 bits; none where they are held as summed, or sharded
  BufferPtr norm_blocks_;  // norm^2 of blocks: of one slab, or (optimizer sharded) of all, then the loss
  BufferPtr home_norms_;   // norm^2 of the blocks of this rank's shard, then the loss, where the host measures them
  BufferPtr norms_;        // norm^2 of each parameter, then of all
  BufferPtr nonfinite_;    // a count
  BufferPtr old_sums_;     // gradients of the step before: of a planted bug
  std::vector<std::vector<std::unique_ptr<Model>>> models_;  // by piece, one a micro-batch in flight
  std::vector<std::vector<InFlight>> flights_;               // likewise
  bool drawn_ = false;                                       // prepare() came to its end once
  bool holds_activations_ = false;
  std::vector<GradientTree> trees_;     // this rank's subtree roots, by piece, where gradients are replicated
  std::optional<Optimizer> optimizer_;  // where its state is replicated
  std::optional<ShardKeeper> keeper_;   // where it is sharded
  std::optional<ReplicatedWeights> all_weights_;
  std::optional<GatheredWeights> gathered_;  // where parameters are sharded
  std::optional<Provenance> provenance_;
  std::optional<Replica> replica_;           // where a model is on several ranks
  std::optional<TensorAxis> tensor_;         // where its products are split
  std::unique_ptr<const Parameters> whole_;  // made when first asked for

  // Made by connect().
  std::optional<Communicator> comm_;  // of the data axis
  std::optional<PipelineLinks> links_;
  std::optional<Grid> grid_;
  Seats seats_;
  std::vector<int> joiners_;  // of this world, who held nothing when it began
  GridPlace place_;
  int lowest_ = 0;                          // launch rank
  std::vector<SampleRange> micro_batches_;  // of this rank, in samples of the step
  std::vector<Instruction> instructions_;   // of a step, up to the reduction of gradients
  std::vector<float> token_weights_;        // of each: as a multiple of one over the step's tokens
  TreeOwnership ownership_;
  StepCut cut_;
  std::optional<GradientReducer> reducer_;
  std::optional<BucketSink> buckets_;
  std::optional<Rerun> rerun_;  // where each micro-batch is run twice

  std::int64_t step_ = 0;
  std::optional<CheckpointWriter> writer_;
  bool checkpoint_due_ = false;
  std::int64_t load_most_ = -1;   // steps, of the checkpoint to begin with; -1: with none
  std::int64_t loaded_step_ = 0;  // of the checkpoint that it began with; 0: with none
  bool looked_for_others_ = false;
  std::vector<std::int64_t> left_out_;  // batches, whatever the checkpoint says
  std::int64_t leaves_out_more_ = 0;
  Roster laid_out_;  // where a model is on several ranks: the world that shards were cut for
  bool joining_ = false;
  std::vector<int> waiting_;                   // in the last vote: to be taken in
  std::vector<int> leaving_;                   // ... were told to leave
  std::vector<std::int64_t> dropped_batches_;  // ascending: the definition's, and those found bad on the way
  std::string poison_;                         // what the last look found; told in the next vote
  bool poison_at_source_ = false;
  std::optional<RerunFound> corrupt_;  // what this rank computed twice with different bits; told in the next vote
  StepRecord committed_;               // the last one
  bool published_ = false;             // its parameters are with all who hold them
  std::vector<std::pair<const char*, std::uint64_t>>
      replicated_;  // digests of all parameters, where all are replicated
  bool hand_out_gradients_ = false;
  std::vector<float> handed_out_;  // reduced gradients, gathered for the observer
  BufferPtr hand_out_;  // where a tensor is gathered; a failure leaves it to be freed when nothing is pending
  StragglerMonitor stragglers_;
  DivergenceMonitor divergence_;
  TimeNs busy_before_ = 0;          // of this rank's device, at the last step's vote
  bool busy_is_of_a_step_ = false;  // what it computes since then is a whole step after an applied one
  std::vector<StepWork> work_;      // of a step, by place on the data axis; as far as it was asked for
  int leaves_ = -1;                 // who is too slow and leaves once the step is committed
  // Made by conclude().
  std::optional<StateDigest> concluded_;
  std::vector<float> final_weights_;  // on the lowest rank
};

}  // namespace seeksim::runtime
