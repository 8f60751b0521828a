// How data goes between the ranks of a group, in rounds of at most a slot each, on plain memory. A round is: write into
// the own slot, meet, read the others'. All functions throw CollectiveError; those that a rank has called with
// arguments that contradict each other throw std::invalid_argument before it joins.
#pragma once

#include <span>
#include <vector>

#include "pytorch/core/group.h"
#include "pytorch/core/sums.h"

namespace seeksim::pytorch {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

struct Reduction {
  ReduceName op = ReduceName::sum;
  DType dtype = DType::fp32;
  double factor = 1;  // premul_sum
  SumOrder order = SumOrder::canonical;
};

// Every function fills what the call expects (op, reduce, dtype, root, sizes) except `numel` and `tensors`, which only
// texts and comparison use: the caller knows them.
void all_reduce(Group& group, Call& call, const Reduction& how, std::span<const Bytes> tensors);
// Tensors of places other than the root stay as they are.
void reduce(Group& group, Call& call, const Reduction& how, std::span<const Bytes> tensors, int root);
void broadcast(Group& group, Call& call, std::span<const Bytes> tensors, int root);
// out[r]: what place r gives.
void all_gather(Group& group, Call& call, ConstBytes in, std::span<const Bytes> out);
void gather(Group& group, Call& call, ConstBytes in, std::span<const Bytes> out, int root);   // out: at the root
void scatter(Group& group, Call& call, std::span<const ConstBytes> in, Bytes out, int root);  // in: at the root
// in[r]: what place r gets the reduction of.
void reduce_scatter(Group& group, Call& call, const Reduction& how, std::span<const ConstBytes> in, Bytes out);
// in[r] goes to place r, out[r] comes from it.
void all_to_all(Group& group, Call& call, std::span<const ConstBytes> in, std::span<const Bytes> out);
void barrier(Group& group, Call& call);

}  // namespace seeksim::pytorch
