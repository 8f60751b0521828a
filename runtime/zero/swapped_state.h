// SwappedState: the masters (or, where there are none, the parameters) and what the optimizer keeps of a shard, in
// files. Each kind has two, written in turn: the older one stays until the next step's agreement, which says that
// everybody has the newer state. A step goes through them in pieces, each read, updated and written through staging
// memory while its neighbours are.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "runtime/files/file_io.h"
#include "runtime/zero/optimizer.h"

namespace seeksim::runtime {

class SwappedState {
 public:
  static constexpr std::size_t kKinds = 4;  // at most: weights, two moments, the mean of weights

  // name: of the files, unique on this rank.
  SwappedState(Rank& rank, const TrainPlan& plan, const std::string& name, ElementType weights, Index elements);

  // All of it, from memory of the host into files and back: weights, then what the optimizer keeps, in its order
  // (Optimizer::states). The host waits.
  void store(const std::vector<AnyVec>& values);
  void load(const std::vector<AnyVec>& values);

  // Allocates what state passes through; not the second time. Before a commit point, since a step that is committed
  // must not fail for want of memory.
  void open_stages();

  // Updated parameters [at, at + n) of the shard go on from where they are; returns when that memory is free.
  using SendOn = std::function<Event(AnyVec values, Index at)>;
  // One step of the optimizer. host: the launcher of the host's processor.
  void step(Launcher& host, Optimizer& optimizer, AnyVec gradients, float grad_factor, double lr,
            const SendOn& send_on);

  // The digest of the bytes as they were written last; kind 0: weights.
  std::uint64_t digest(std::size_t kind) const;
  void remove_files();

 private:
  struct File {
    std::string path;
    std::vector<std::uint64_t> digests;  // of pieces
  };
  // Where a piece is while it is worked on.
  struct Stage {
    std::array<BufferPtr, kKinds> buffers;
    BufferPtr compute;  // 16-bit parameters, beside masters
    std::array<Transfer, kKinds> reads, writes;
    Event sent;
    Index piece = -1;
    bool reading = false;
    bool writing = false;
  };

  std::size_t kinds() const { return 1 + kept_.size(); }
  const char* name_of(std::size_t kind) const { return kind == 0 ? "weights" : kept_[kind - 1]; }
  Index pieces() const { return std::max<Index>((elements_ + piece_elements_ - 1) / piece_elements_, 1); }
  ShardInfo range(Index piece) const;
  ElementType type(std::size_t kind) const { return kind == 0 ? weights_ : ElementType::f32; }
  File& file(std::size_t kind, int generation) { return files_[kind][std::size_t(generation)]; }
  void aim(Transfer& transfer, std::size_t kind, int generation, Index piece, AnyVec values, bool write);
  void pass_all(const std::vector<AnyVec>& values, int generation, bool write);
  void begin_read(Index piece, std::int64_t step);
  void finish_read(Stage& stage);
  void update(Launcher& host, Optimizer& optimizer, const kernels::OptimizerStep& constants, Stage& stage,
              AnyVec gradients, const SendOn& send_on);
  void begin_write(Launcher& host, Stage& stage);
  void finish_write(Stage& stage);
  void make_durable();
  int generation_to_read(std::int64_t step) const;

  Rank& rank_;
  const TrainPlan& plan_;
  std::vector<const char*> kept_;  // names of what the optimizer keeps
  FileIo io_;
  ElementType weights_;
  Index elements_, piece_elements_;
  std::array<std::array<File, 2>, kKinds> files_;
  int generation_ = 0;  // the newer one
  std::vector<Stage> stages_;
};

}  // namespace seeksim::runtime
