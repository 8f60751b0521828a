// What each operation of c10d is in terms of pytorch/core/collectives.h.
#include "pytorch/backend/seeksim_backend.h"
#include "pytorch/core/sums.h"

namespace seeksim::pytorch {
namespace {

using c10d::OpType;
using Inner = c10d::Backend;

Bytes bytes(const at::Tensor& t) { return {static_cast<std::byte*>(t.data_ptr()), t.nbytes()}; }
std::vector<Bytes> bytes(const Tensors& tensors) {
  std::vector<Bytes> all;
  for (const at::Tensor& t : tensors) all.push_back(bytes(t));
  return all;
}
std::vector<ConstBytes> const_bytes(const Tensors& tensors) {
  std::vector<ConstBytes> all;
  for (const at::Tensor& t : tensors) all.push_back(bytes(t));
  return all;
}

// A flat tensor in equal parts, one for each rank.
template <class Part>
std::vector<Part> in_parts(const at::Tensor& t, int n, const char* op) {
  TORCH_CHECK_VALUE(t.numel() % n == 0, "seeksim: ", op, ": a tensor of ", t.numel(), " elements does not divide by ",
                    n, " ranks");
  const std::size_t part = t.nbytes() / std::size_t(n);
  std::vector<Part> all;
  for (int r = 0; r < n; ++r) all.push_back(bytes(t).subspan(part * std::size_t(r), part));
  return all;
}

// A tensor cut along its first dimension.
template <class Part>
std::vector<Part> cut(const at::Tensor& t, const std::vector<int64_t>& split, int n) {
  if (split.empty()) return in_parts<Part>(t, n, "all_to_all");
  TORCH_CHECK_VALUE(split.size() == std::size_t(n), "seeksim: all_to_all: not one part for each rank");
  const std::int64_t rows = t.dim() > 0 ? t.size(0) : 0;
  const std::size_t row = rows > 0 ? t.nbytes() / std::size_t(rows) : 0;
  std::vector<Part> all;
  std::int64_t at = 0;
  for (const int64_t part : split) {
    TORCH_CHECK_VALUE(part >= 0 && part <= rows - at, "seeksim: all_to_all: the parts are larger than the tensor");
    all.push_back(bytes(t).subspan(std::size_t(at) * row, std::size_t(part) * row));
    at += part;
  }
  TORCH_CHECK_VALUE(at == rows, "seeksim: all_to_all: the parts are smaller than the tensor");
  return all;
}

const at::Tensor& only(const Tensors& tensors, const char* op) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "seeksim: ", op, " takes one tensor, not ", tensors.size());
  return tensors[0];
}
const Tensors& only(const std::vector<Tensors>& lists, const char* op) {
  TORCH_CHECK_VALUE(lists.size() == 1, "seeksim: ", op, " takes one list of tensors, not ", lists.size());
  return lists[0];
}

// Each tensor of a coalesced operation has sizes of its own, so the ranks compare them again. A fault strikes the
// first.
void next_tensor(Call& call, std::size_t i) {
  if (i == 0) return;
  call.compared = false;
  call.strikes.clear();
}

}  // namespace

Reduction SeekBackend::reduction(OpName op, const c10d::ReduceOp& how, const Tensors& tensors) {
  using R = c10d::ReduceOp::RedOpType;
  static const std::map<R, ReduceName> names = {
      {R::SUM, ReduceName::sum}, {R::AVG, ReduceName::avg},   {R::PRODUCT, ReduceName::product},
      {R::MIN, ReduceName::min}, {R::MAX, ReduceName::max},   {R::BAND, ReduceName::band},
      {R::BOR, ReduceName::bor}, {R::BXOR, ReduceName::bxor}, {R::PREMUL_SUM, ReduceName::premul_sum}};
  const auto named = names.find(how.op_);
  TORCH_CHECK_VALUE(named != names.end(), "seeksim: ", name(op), ": unknown reduction");
  TORCH_CHECK_VALUE(!tensors.empty(), "seeksim: ", name(op), " without a tensor");
  Reduction r;
  r.op = named->second;
  r.dtype = dtype_of(tensors[0].scalar_type());
  r.order = session()->settings().sums;
  for (const at::Tensor& t : tensors) {
    TORCH_CHECK_VALUE(t.scalar_type() == tensors[0].scalar_type(), "seeksim: ", name(op), ": tensors of two types");
  }
  const std::string no = refusal(r.dtype, r.op);
  TORCH_CHECK_VALUE(no.empty(), "seeksim: ", name(op), ": there is no ", no, " (", tensors[0].scalar_type(), ")");
  if (how.op_ == R::PREMUL_SUM) {
    const auto* factor = static_cast<c10d::NCCLPreMulSumSupplement*>(how.supplement_.get());
    TORCH_CHECK_VALUE(factor != nullptr, "seeksim: ", name(op), ": PREMUL_SUM without a factor");
    r.factor = factor->tensor_factor.defined() ? factor->tensor_factor.item<double>() : factor->double_factor;
  }
  return r;
}

SeekBackend::Job SeekBackend::all_reduction(const Tensors& t, const c10d::ReduceOp& how) {
  Job j = job(OpName::all_reduce, OpType::ALLREDUCE, t, t);
  j.how = reduction(j.op, how, t);
  j.reduces = true;
  j.body = [this](Job& job) { all_reduce(*group_, job.call, job.how, bytes(job.out)); };
  return j;
}

// A sparse tensor travels as two dense ones: its values with zeros between them, and for each row whether it is there.
// Sums of both say which rows the sum has: those that some rank has, also where it is zero.
SeekBackend::Job SeekBackend::sparse_reduction(const at::Tensor& tensor, const c10d::ReduceOp& how) {
  const bool sums = how.op_ == c10d::ReduceOp::SUM || how.op_ == c10d::ReduceOp::AVG;
  TORCH_CHECK_VALUE(sums, "seeksim: all_reduce: of sparse tensors there are sums and averages only");
  const at::Tensor once = tensor.detach().coalesce();
  const int there = how.op_ == c10d::ReduceOp::AVG ? getSize() : 1;  // an average of integers is to stay one
  const at::Tensor rows = at::sparse_coo_tensor(once.indices(), at::full({once._nnz()}, there, once.values().options()),
                                                once.sizes().slice(0, std::size_t(once.sparse_dim())));
  Job j = all_reduction({once.to_dense(), rows.to_dense()}, how);
  j.sparse = tensor;
  return j;
}

WorkPtr SeekBackend::allreduce(Tensors& t, const c10d::AllreduceOptions& o) {
  Job j = t.size() == 1 && t[0].is_sparse() ? sparse_reduction(t[0], o.reduceOp) : all_reduction(t, o.reduceOp);
  j.carry = [o](Job&, Inner& inner, Tensors& in, Tensors&) { return inner.allreduce(in, o); };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::allreduce_coalesced(Tensors& t, const c10d::AllreduceCoalescedOptions& o) {
  Job j = all_reduction(t, o.reduceOp);
  j.carry = [o](Job&, Inner& inner, Tensors& in, Tensors&) { return inner.allreduce_coalesced(in, o); };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::reduce(Tensors& t, const c10d::ReduceOptions& o) {
  Job j = job(OpName::reduce, OpType::REDUCE, t, t);
  j.how = reduction(j.op, o.reduceOp, t);
  j.reduces = true;
  j.root = int(o.rootRank);
  j.body = [this](Job& job) { pytorch::reduce(*group_, job.call, job.how, bytes(job.out), job.root); };
  j.carry = [o](Job&, Inner& inner, Tensors& in, Tensors&) { return inner.reduce(in, o); };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::broadcast(Tensors& t, const c10d::BroadcastOptions& o) {
  Job j = job(OpName::broadcast, OpType::BROADCAST, t, t);
  j.root = int(o.rootRank);
  j.body = [this](Job& job) { pytorch::broadcast(*group_, job.call, bytes(job.out), job.root); };
  j.carry = [o](Job&, Inner& inner, Tensors& in, Tensors&) { return inner.broadcast(in, o); };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::allgather(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& o) {
  Job j = job(OpName::all_gather, OpType::ALLGATHER, {only(in, "all_gather")}, only(out, "all_gather"));
  j.body = [this](Job& job) { all_gather(*group_, job.call, bytes(job.in[0]), bytes(job.out)); };
  j.carry = [o](Job&, Inner& inner, Tensors& given, Tensors& got) {
    std::vector<Tensors> lists = {got};
    return inner.allgather(lists, given, o);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::allgather_coalesced(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& o) {
  TORCH_CHECK_VALUE(out.size() == std::size_t(getSize()), "seeksim: all_gather: not one list for each rank");
  Tensors flat;
  for (std::size_t i = 0; i < in.size(); ++i) {
    for (const Tensors& list : out) flat.push_back(list.at(i));
  }
  Job j = job(OpName::all_gather, OpType::ALLGATHER_COALESCED, in, flat);
  j.body = [this](Job& job) {
    const std::size_t n = std::size_t(getSize());
    const std::vector<Bytes> outs = bytes(job.out);
    for (std::size_t i = 0; i < job.in.size(); ++i) {
      next_tensor(job.call, i);
      all_gather(*group_, job.call, bytes(job.in[i]), std::span<const Bytes>(outs).subspan(i * n, n));
    }
  };
  j.carry = [o, n = out.size()](Job&, Inner& inner, Tensors& given, Tensors& got) {
    std::vector<Tensors> lists(n);
    for (std::size_t i = 0; i < got.size(); ++i) lists[i % n].push_back(got[i]);
    return inner.allgather_coalesced(lists, given, o);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::gather_flat(Tensors out, Tensors in, const c10d::AllgatherOptions& o) {
  TORCH_CHECK_VALUE(in.size() == out.size() && !in.empty(), "seeksim: all_gather: not as many outputs as inputs");
  Job j = job(OpName::all_gather, OpType::_ALLGATHER_BASE, std::move(in), std::move(out));
  j.body = [this](Job& job) {
    for (std::size_t i = 0; i < job.in.size(); ++i) {
      next_tensor(job.call, i);
      all_gather(*group_, job.call, bytes(job.in[i]), in_parts<Bytes>(job.out[i], getSize(), "all_gather"));
    }
  };
  j.carry = [o](Job&, Inner& inner, Tensors& given, Tensors& got) {
    return given.size() == 1 ? inner._allgather_base(got[0], given[0], o)
                             : inner.allgather_into_tensor_coalesced(got, given, o);
  };
  return enqueue(std::move(j));
}
WorkPtr SeekBackend::_allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& o) {
  return gather_flat({out}, {in}, o);
}
WorkPtr SeekBackend::allgather_into_tensor_coalesced(Tensors& out, Tensors& in, const c10d::AllgatherOptions& o) {
  return gather_flat(out, in, o);
}

WorkPtr SeekBackend::gather(std::vector<Tensors>& out, Tensors& in, const c10d::GatherOptions& o) {
  const bool is_root = getRank() == int(o.rootRank);
  Job j = job(OpName::gather, OpType::GATHER, {only(in, "gather")}, is_root ? only(out, "gather") : Tensors{});
  j.root = int(o.rootRank);
  j.body = [this](Job& job) { pytorch::gather(*group_, job.call, bytes(job.in[0]), bytes(job.out), job.root); };
  j.carry = [o](Job&, Inner& inner, Tensors& given, Tensors& got) {
    std::vector<Tensors> lists;
    if (!got.empty()) lists.push_back(got);
    return inner.gather(lists, given, o);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::gather_into_tensor(at::Tensor& out, at::Tensor& in, const c10d::GatherOptions& o) {
  const bool is_root = getRank() == int(o.rootRank);
  Job j = job(OpName::gather, OpType::GATHER, {in}, is_root ? Tensors{out} : Tensors{});
  j.root = int(o.rootRank);
  j.body = [this](Job& job) {
    const auto parts = job.out.empty() ? std::vector<Bytes>{} : in_parts<Bytes>(job.out[0], getSize(), "gather");
    pytorch::gather(*group_, job.call, bytes(job.in[0]), parts, job.root);
  };
  j.carry = [o, n = getSize()](Job&, Inner& inner, Tensors& given, Tensors& got) {
    std::vector<Tensors> lists;
    if (!got.empty()) {
      Tensors& parts = lists.emplace_back();
      for (const at::Tensor& part : got[0].view({-1}).chunk(n)) parts.push_back(part.view(given[0].sizes()));
    }
    return inner.gather(lists, given, o);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ScatterOptions& o) {
  const bool is_root = getRank() == int(o.rootRank);
  Job j = job(OpName::scatter, OpType::SCATTER, is_root ? only(in, "scatter") : Tensors{}, {only(out, "scatter")});
  j.root = int(o.rootRank);
  j.body = [this](Job& job) { pytorch::scatter(*group_, job.call, const_bytes(job.in), bytes(job.out[0]), job.root); };
  j.carry = [o](Job&, Inner& inner, Tensors& given, Tensors& got) {
    std::vector<Tensors> lists;
    if (!given.empty()) lists.push_back(given);
    return inner.scatter(got, lists, o);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::reduce_scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ReduceScatterOptions& o) {
  Job j =
      job(OpName::reduce_scatter, OpType::REDUCE_SCATTER, only(in, "reduce_scatter"), {only(out, "reduce_scatter")});
  j.how = reduction(j.op, o.reduceOp, j.in);
  j.reduces = true;
  j.body = [this](Job& job) {
    pytorch::reduce_scatter(*group_, job.call, job.how, const_bytes(job.in), bytes(job.out[0]));
  };
  j.carry = [o](Job&, Inner& inner, Tensors& given, Tensors& got) {
    std::vector<Tensors> lists = {given};
    return inner.reduce_scatter(got, lists, o);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::scatter_flat(Tensors out, Tensors in, const c10d::ReduceScatterOptions& o) {
  TORCH_CHECK_VALUE(in.size() == out.size() && !in.empty(), "seeksim: reduce_scatter: not as many outputs as inputs");
  Job j = job(OpName::reduce_scatter, OpType::_REDUCE_SCATTER_BASE, std::move(in), std::move(out));
  j.how = reduction(j.op, o.reduceOp, j.in);
  j.reduces = true;
  j.body = [this](Job& job) {
    for (std::size_t i = 0; i < job.in.size(); ++i) {
      next_tensor(job.call, i);
      pytorch::reduce_scatter(*group_, job.call, job.how, in_parts<ConstBytes>(job.in[i], getSize(), "reduce_scatter"),
                              bytes(job.out[i]));
    }
  };
  j.carry = [o](Job&, Inner& inner, Tensors& given, Tensors& got) {
    return given.size() == 1 ? inner._reduce_scatter_base(got[0], given[0], o)
                             : inner.reduce_scatter_tensor_coalesced(got, given, o);
  };
  return enqueue(std::move(j));
}
WorkPtr SeekBackend::_reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& o) {
  return scatter_flat({out}, {in}, o);
}
WorkPtr SeekBackend::reduce_scatter_tensor_coalesced(Tensors& out, Tensors& in, const c10d::ReduceScatterOptions& o) {
  return scatter_flat(out, in, o);
}

WorkPtr SeekBackend::alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_split,
                                   std::vector<int64_t>& in_split, const c10d::AllToAllOptions& o) {
  Job j = job(OpName::all_to_all, OpType::ALLTOALL_BASE, {in}, {out});
  j.body = [this, in_split, out_split](Job& job) {
    all_to_all(*group_, job.call, cut<ConstBytes>(job.in[0], in_split, getSize()),
               cut<Bytes>(job.out[0], out_split, getSize()));
  };
  j.carry = [o, in_split, out_split](Job&, Inner& inner, Tensors& given, Tensors& got) mutable {
    return inner.alltoall_base(got[0], given[0], out_split, in_split, o);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::alltoall(Tensors& out, Tensors& in, const c10d::AllToAllOptions& o) {
  Job j = job(OpName::all_to_all, OpType::ALLTOALL, in, out);
  j.body = [this](Job& job) { all_to_all(*group_, job.call, const_bytes(job.in), bytes(job.out)); };
  j.carry = [o](Job&, Inner& inner, Tensors& given, Tensors& got) { return inner.alltoall(got, given, o); };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::barrier(const c10d::BarrierOptions& o) {
  Job j = job(OpName::barrier, OpType::BARRIER, {}, {});
  j.body = [this](Job& job) { pytorch::barrier(*group_, job.call); };
  j.carry = [o](Job&, Inner& inner, Tensors&, Tensors&) { return inner.barrier(o); };
  return enqueue(std::move(j));
}

void SeekBackend::monitoredBarrier(const c10d::BarrierOptions& o, bool) {
  const double usual = group_->timeout();
  if (o.timeout.count() > 0 && session()->settings().timeout_s <= 0) group_->timeout(double(o.timeout.count()) * 1e-3);
  try {
    barrier(o)->wait();
  } catch (...) {
    group_->timeout(usual);
    throw;
  }
  group_->timeout(usual);
}

WorkPtr SeekBackend::message(Job j, int from, int to, int tag) {
  j.peer = from == getRank() ? to : from;
  j.worker = &peer_worker(from, to);
  j.body = [this, to, tag](Job& job) {
    const bool sends = job.op == OpName::send;
    const at::Tensor& t = sends ? job.in[0] : job.out[0];
    const Bytes data = start_.inner ? Bytes{} : bytes(t);
    Group::Message m{dtype_of(t.scalar_type()), tag, "", std::nullopt};
    if (start_.inner) m.elsewhere = t.nbytes();
    const auto what = [&](const std::string& who) {
      return std::string(name(job.op)) + (sends ? " to " : " from ") + who + " in group " + group_->name() + " (step " +
             std::to_string(job.call.step) + ")";
    };
    if (sends) {
      m.what = what("rank " + std::to_string(group_->launch_rank(to)));
      return group_->send(to, data, m);
    }
    m.what = what(job.peer < 0 ? "any rank" : "rank " + std::to_string(group_->launch_rank(job.peer)));
    if (job.peer < 0) job.peer = group_->sender_of_any(m);
    job.work->came_from(job.peer);
    group_->receive(job.peer, data, m);
  };
  j.carry = [tag](Job& job, Inner& inner, Tensors& given, Tensors& got) {
    return job.op == OpName::send ? inner.send(given, job.peer, tag) : inner.recv(got, job.peer, tag);
  };
  return enqueue(std::move(j));
}

WorkPtr SeekBackend::send(Tensors& t, int to, int tag) {
  return message(job(OpName::send, OpType::SEND, {only(t, "send")}, {}), getRank(), to, tag);
}
WorkPtr SeekBackend::recv(Tensors& t, int from, int tag) {
  return message(job(OpName::recv, OpType::RECV, {}, {only(t, "recv")}), from, getRank(), tag);
}
WorkPtr SeekBackend::recvAnysource(Tensors& t, int tag) {
  return message(job(OpName::recv, OpType::RECVANYSOURCE, {}, {only(t, "recv")}), -1, getRank(), tag);
}

}  // namespace seeksim::pytorch
