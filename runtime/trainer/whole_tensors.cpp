#include "runtime/trainer/whole_tensors.h"
#include "runtime/seams/edges.h"

#include <algorithm>

namespace seeksim::runtime {

// First the members of this rank's data axis bring their shards, then, where the model is on several ranks, those of
// the replica their parts.
void WholeTensors::for_each(AnyVec flat, const AnyVec* frozen, const char* what, const Each& each) {
  const std::vector<ParameterInfo>& parameters = tensors_.whole().all();
  Index largest = 0;
  for (const ParameterInfo& p : parameters) largest = std::max(largest, p.size);
  Index apart = 0;  // room for what is no one stretch of a parameter
  for (const ParameterInfo& p : tensors_.parameters().all()) apart = std::max(apart, p.scattered() ? p.size : 0);
  place_ = bench_.rank.device.allocate(std::size_t(largest + apart) * sizeof(float), MemoryTag::scratch, what);
  Queue& queue = bench_.rank.device.communication_queue();
  Launcher launch(queue, bench_.rank.id);
  launch.at(world_.epoch(), bench_.progress.step());
  launch.phase(Phase::checkpoint);
  for (const ParameterInfo& p : parameters) {
    if (p.frozen && frozen == nullptr) continue;
    const AnyVec held = p.frozen ? *frozen : flat;
    const AnyVec all(place_.get(), 0, p.size, held.type);
    const ParameterInfo* const here = tensors_.parameters().numbered(p.number);
    if (here != nullptr && here->scattered()) {
      const AnyVec own(place_.get(), largest, here->size, held.type);
      bring_shards(launch, *here, held, own);
      for (Index at = 0; at < here->size; at += here->stretch())
        copy_values(launch, p.name, SEEKSIM_SITE, own.part(at, here->stretch()),
                    all.part(here->whole_place(at), here->stretch()));
    } else if (here != nullptr) {
      bring_shards(launch, *here, held, all.part(here->first, here->size));
    }
    if (Replica* replica = world_.replica()) {
      const Op op = replica->gather_whole(queue, bench_.progress.step(), p, all);
      bench_.host_after(world_.comm(), queue.record(), op, Edge::shard_handed_out);
    }
    each(p, bench_.host_reads(SEEKSIM_SITE, all));
  }
  place_.reset();
}

// A parameter of this rank, into `whole`: from where all of it is, or from the shards of the data axis.
void WholeTensors::bring_shards(Launcher& launch, const ParameterInfo& p, AnyVec held, AnyVec whole) {
  const ShardKeeper* const keeper = tensors_.keeper();
  if (keeper == nullptr) return copy_values(launch, p.name, SEEKSIM_SITE, held.part(p.offset, p.size), whole);
  Communicator& comm = world_.shards();
  const Partition& partition = keeper->partition();
  const ShardInfo mine = p.frozen ? partition.frozen(comm.position()) : partition.shard(comm.position());
  std::vector<ShardInfo> shards;
  for (int member = 0; member < comm.size(); ++member) {
    const ShardInfo part = partition.shard_in(member, p.offset, p.offset + p.size);
    shards.push_back({part.offset - p.offset, part.size});
  }
  const ShardInfo own = shards[std::size_t(comm.position())];
  if (own.size > 0) {
    copy_values(launch, p.name, SEEKSIM_SITE, held.part(p.offset + own.offset - mine.offset, own.size),
                whole.part(own.offset, own.size));
  }
  const Op op = comm.all_gather(launch.queue(), bench_.op(OpKind::all_gather, Phase::checkpoint, p.name, SEEKSIM_SITE),
                                whole, shards);
  bench_.host_after(comm, launch.queue().record(), op, Edge::shard_handed_out);
}

}  // namespace seeksim::runtime
