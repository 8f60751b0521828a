#include "pytorch/backend/seeksim_backend.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "faults/trigger.h"
#include "pytorch/backend/memory_layout.h"

namespace seeksim::pytorch {
namespace {

using faults::FaultKind;
using faults::Mode;
using faults::Site;

std::string shapes_of(const Tensors& tensors) {
  constexpr std::size_t kShown = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(tensors.size(), kShown); ++i) {
    text += i ? " [" : "[";
    for (std::int64_t d = 0; d < tensors[i].dim(); ++d) text += (d ? "," : "") + std::to_string(tensors[i].size(d));
    text += "]";
  }
  if (tensors.size() > kShown) text += " and " + std::to_string(tensors.size() - kShown) + " more";
  return text;
}

void sleep_for(std::int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

[[noreturn]] void end_process(const faults::Rule& rule) {
  const auto ending = faults::process_ending(rule.signal);
  switch (ending ? ending->how : faults::ProcessEnd::kill) {
    case faults::ProcessEnd::exit:
      _exit(ending->status);
    case faults::ProcessEnd::segv:
      ::signal(SIGSEGV, SIG_DFL);
      ::kill(getpid(), SIGSEGV);
      break;
    case faults::ProcessEnd::abrt:
      ::signal(SIGABRT, SIG_DFL);
      ::kill(getpid(), SIGABRT);
      break;
    case faults::ProcessEnd::kill:
      ::kill(getpid(), SIGKILL);
      break;
  }
  for (;;) pause();
}

// What the other ranks are told in place of what this rank means.
void mistake(Expectation& told, Mode mode) {
  const auto scale = [&told](std::int64_t by) {
    told.numel = by == 0 ? 0 : told.numel / by;
    for (auto& n : told.gives) n = by == 0 ? 0 : n / by;
  };
  if (mode == Mode::dtype) {
    told.dtype = told.dtype == DType::fp32 ? DType::fp64 : DType::fp32;
  } else if (mode == Mode::count) {
    scale(2);
  } else if (mode == Mode::count0) {
    scale(0);
  } else {
    told.op = told.op == OpName::all_reduce ? OpName::broadcast : OpName::all_reduce;
  }
}

void add_all(Digester& digester, const Tensors& tensors) {
  for (const at::Tensor& t : tensors) {
    const at::Tensor here = on_host(t);
    digester.add({static_cast<const std::byte*>(here.data_ptr()), here.nbytes()});
  }
}

void write_digests(CallEntry& e, const Digest& in, const Digest& out) {
  e.hash_in = in.hash;
  e.nonfinite_in = in.nonfinite;
  e.in = in.measure;
  e.hash_out = out.hash;
  e.nonfinite_out = out.nonfinite;
  e.out = out.measure;
}

// A sparse tensor of what is there of `values`: the rows that are not zero in `rows`.
void fill_sparse(const at::Tensor& sparse, const at::Tensor& values, const at::Tensor& rows) {
  const at::Tensor indices = rows.ne(0).nonzero().t().contiguous();  // (dimensions of rows, rows that are there)
  c10::List<std::optional<at::Tensor>> places;
  for (const at::Tensor& one : indices.unbind(0)) places.push_back(one);
  sparse.copy_(at::sparse_coo_tensor(indices, values.index(places), values.sizes())._coalesced_(true));
}

}  // namespace

Session*& session() {
  static Session* one = nullptr;
  return one;
}

Digest digest_of(const at::Tensor& tensor, bool measured) {
  Digester digester(dtype_of(tensor.scalar_type()), measured);
  add_all(digester, {tensor});
  return digester.done();
}

SeekBackend::SeekBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Start start)
    : Backend(rank, size), start_(std::move(start)) {
  TORCH_CHECK(session() != nullptr, "seeksim: the backend was not configured");
  if (start_.ranks.empty()) {
    for (int r = 0; r < size; ++r) start_.ranks.push_back(r);
  }
  TORCH_CHECK_VALUE(start_.ranks.size() == std::size_t(size), "seeksim: a group of ", size, " ranks names ",
                    start_.ranks.size());
  const SessionSettings& settings = session()->settings();
  const double timeout_s = settings.timeout_s > 0 ? settings.timeout_s : start_.timeout_s;
  group_ = meet_through(*store, rank, size, {start_.name, start_.ranks, rank, timeout_s, settings.stacks});
  std::string ranks;
  for (const int r : start_.ranks) ranks += (ranks.empty() ? "" : ",") + std::to_string(r);
  RecordWriter& record = session()->record();
  GroupEntry entry;
  entry.name = record.text(start_.name);
  entry.ranks = record.text(ranks);
  entry.size = size;
  group_number_ = record.add(entry);
}

SeekBackend::~SeekBackend() {
  if (start_.inner) worker_of({}).settle();  // it may be shared, and stays
}

SeekBackend::Job SeekBackend::job(OpName op, c10d::OpType type, Tensors in, Tensors out) {
  Job j;
  j.op = op;
  j.type = type;
  j.in = std::move(in);
  j.out = std::move(out);
  return j;
}

void SeekBackend::write_down(Job& j) {
  Session& s = *session();
  CallEntry& e = j.entry;
  const Tensors& given = j.in.empty() ? j.out : j.in;
  e.op = j.op;
  if (j.reduces) e.reduce = j.how.op;
  if (!given.empty()) e.dtype = dtype_of(given[0].scalar_type());
  e.phase = s.phase();
  e.group = group_number_;
  if (j.root >= 0) e.root = group_->launch_rank(j.root);
  if (j.peer >= 0) e.peer = group_->launch_rank(j.peer);
  e.micro_batch = s.micro_batch();
  e.seq = j.call.seq;
  e.step = s.step();
  for (const at::Tensor& t : given) {
    e.numel += t.numel();
    e.bytes += std::int64_t(t.nbytes());
    j.call.expected.sizes = j.call.expected.sizes * 0x9e3779b97f4a7c15U + std::uint64_t(t.numel()) + 1;
  }
  Expectation& expected = j.call.expected;
  std::string shapes = shapes_of(given);
  if (expected.layout != 0)
    shapes += " in memory by dimensions " + memory_order_text(expected.layout, std::int64_t(given.size()));
  e.shape = s.record().text(shapes);
  if (s.settings().stacks) e.stack = python_stack(s.record());
  e.created_ns = monotonic_ns();
  j.call.step = e.step;
  expected.op = j.op;
  expected.dtype = e.dtype;
  expected.numel = e.numel;
  expected.tensors = j.op == OpName::scatter ? 1 : std::int64_t(given.size());  // there only the root gives any
  if (given.size() < 2 || !j.reduces) expected.sizes = 0;
  if (!j.hits.empty()) e.fault = j.hits.front().index;
  j.number = s.record().add(e);
}

bool SeekBackend::strike_before(Job& j) {
  Session& s = *session();
  for (const Rules::Hit& hit : j.hits) {
    const faults::Rule& rule = *hit.rule;
    const auto said = [&](const std::string& what) { s.fired(hit, j.number, what); };
    switch (rule.kind) {
      case FaultKind::collective_timeout:
      case FaultKind::pause:
        if (rule.kind == FaultKind::collective_timeout && rule.mode != Mode::late) {
          said("never joins");
          for (;;) ::pause();
        }
        said("comes late");
        sleep_for(rule.delay_ns);
        break;
      case FaultKind::rank_crash:
        said("ends its process");
        if (rule.mode == Mode::before || rule.mode == Mode::unset) end_process(rule);
        break;
      case FaultKind::message_drop:
        said("its contribution is lost");
        j.call.lost = true;
        break;
      case FaultKind::message_corrupt:
        j.call.doubled = rule.mode == Mode::dup_apply;
        if (j.call.doubled) said("its contribution counts twice");
        break;
      case FaultKind::collective_mismatch:
        said("means another operation");
        if (rule.mode == Mode::skip) return false;
        j.call.mistake = [mode = rule.mode](Expectation& told) { mistake(told, mode); };
        break;
      case FaultKind::oom:
        said("out of memory");
        TORCH_CHECK_WITH(OutOfMemoryError, false, "seeksim: injected: out of memory in ", name(j.op), " of group ",
                         group_->name(), " (step ", j.call.step, ")");
      default:
        break;  // of numbers: where the numbers are
    }
  }
  return true;
}

WorkPtr SeekBackend::enqueue(Job given) {
  auto j = std::make_shared<Job>(std::move(given));
  const auto ready = start_.inner ? dense : on_host;
  ask_for_whole_memory(j->op, j->in, j->out);
  j->call.expected.layout = layout_of(j->op, j->in);
  j->user_out = j->out;
  for (at::Tensor& t : j->in) t = ready(t);
  const bool in_place = j->op == OpName::all_reduce || j->op == OpName::reduce || j->op == OpName::broadcast;
  for (std::size_t i = 0; i < j->out.size(); ++i) j->out[i] = in_place ? j->in[i] : ready(j->out[i]);
  const DType type = j->in.empty() ? DType::none : dtype_of(j->in[0].scalar_type());
  const bool floating = type != DType::none && type <= DType::fp8_e5m2;
  Situation situation;
  situation.op = j->op;
  situation.peer = j->peer >= 0 ? group_->launch_rank(j->peer) : -1;
  situation.sums = j->reduces && floating;
  situation.ranks = start_.ranks;
  for (const at::Tensor& t : j->in) situation.bytes += std::int64_t(t.nbytes());
  j->hits = session()->rules_at(std::move(situation));
  if (j->worker == nullptr) j->call.seq = seq_ + 1;
  j->call.carried_elsewhere = bool(start_.inner);
  const Tensors result = j->sparse.defined() ? Tensors{j->sparse} : j->user_out;
  j->work = c10::make_intrusive<SeekWork>(getRank(), j->type, result,
                                          start_.inner ? devices_of(result) : std::vector<c10::Device>{});
  write_down(*j);
  if (!strike_before(*j)) {
    j->work->done(nullptr);
    return j->work;
  }
  if (j->worker == nullptr) ++seq_;
  if (start_.inner) j->lane = Lane::of(j->in, j->out);
  const WorkPtr work = j->work;
  if (coalescing_) coalesced_.push_back(j->work);
  if (coalescing_ && goes_together(*j)) {
    together_.push_back(j);
  } else {
    worker_of(*j).push([this, j] { run(*j); });
  }
  return work;
}

// A fault in numbers: in what this rank gives to a sum (its own tensor too), or in what it got. True where it struck.
bool SeekBackend::spoil(Job& j, Site site, Tensors& tensors) {
  bool struck = false;
  for (const Rules::Hit& hit : j.hits) {
    const faults::Rule& rule = *hit.rule;
    if (!faults::is_value(rule.kind) || rule.site != site || tensors.empty()) continue;
    at::Tensor& t = tensors[0];
    const std::string what = strike_tensor(rule, t);
    if (what.empty()) continue;
    session()->fired(hit, j.number, what);
    struck = true;
  }
  return struck;
}

bool SeekBackend::digests_on_the_way(const Job& j) const { return j.op == OpName::all_reduce && !start_.inner; }

void SeekBackend::start(Job& j) {
  at::NoGradGuard no_grad;
  c10::OptionalStreamGuard stream;
  if (j.lane) j.lane->enter(stream);
  Session& s = *session();
  const bool hashes = s.settings().hashes;
  j.entry.state = CallState::started;
  j.entry.started_ns = monotonic_ns();
  s.record().update(j.number, j.entry);
  if (j.call.seq > 0) {
    s.record().joined(group_number_, j.op, j.call.seq);
    group_->begin(j.call);
  }
  for (const Rules::Hit& hit : j.hits) {
    if (hit.rule->kind != FaultKind::slow_link) continue;
    if (hit.begins) s.fired(hit, j.number, "the link is slow from here on");
    sleep_for(hit.delay_ns);
  }
  spoil(j, Site::gradient, j.in);
  // An all_reduce of this backend goes through the memory once: it takes its digests on the way.
  j.gave = std::make_unique<Digester>(j.entry.dtype, s.settings().norms);
  j.got = std::make_unique<Digester>(j.entry.dtype, s.settings().norms);
  if (hashes && digests_on_the_way(j)) {
    j.call.digest_in = j.gave.get();
    j.call.digest_out = j.got.get();
  } else if (hashes && (j.op != OpName::broadcast || j.root == getRank())) {
    add_all(*j.gave, j.in);
  }
  for (const Rules::Hit& hit : j.hits) {
    const faults::Rule& rule = *hit.rule;
    if (rule.kind == FaultKind::rank_crash && rule.mode == Mode::during) end_process(rule);
    if (!faults::is_message(rule) || rule.kind == FaultKind::message_drop || rule.mode == Mode::dup_apply) continue;
    if (j.in.empty() || j.in[0].nbytes() == 0) continue;
    const std::size_t bits = j.in[0].nbytes() * 8, width = std::size_t(j.in[0].element_size()) * 8;
    const std::size_t bit = rule.kind == FaultKind::bit_flip
                                ? std::size_t(rule.element % std::uint64_t(j.in[0].numel())) * width + rule.bit % width
                                : rule.bit % bits;
    j.call.strikes.push_back({bit / 8, std::uint8_t(1U << (bit % 8))});
    s.fired(hit, j.number, "bit " + std::to_string(bit) + " of its contribution flips on its way");
  }
  j.body(j);
}

void SeekBackend::end(Job& j) {
  at::NoGradGuard no_grad;
  c10::OptionalStreamGuard stream;
  if (j.lane) j.lane->enter(stream);
  Session& s = *session();
  const bool hashes = s.settings().hashes;
  if (spoil(j, Site::reduced_gradient, j.out) && digests_on_the_way(j)) {
    j.got->again();
    add_all(*j.got, j.out);
  }
  for (std::size_t i = 0; i < j.out.size(); ++i) {
    if (j.out[i].data_ptr() != j.user_out[i].data_ptr()) j.user_out[i].detach().copy_(j.out[i]);
  }
  if (j.sparse.defined()) fill_sparse(j.sparse, j.out[0], j.out[1]);
  if (hashes && !digests_on_the_way(j) && (j.op != OpName::reduce || j.root == getRank())) add_all(*j.got, j.out);
  if (hashes) write_digests(j.entry, j.gave->done(), j.got->done());
  if (j.lane) j.lane->settle();
  if (j.call.seq > 0) {
    group_->end(j.call);
    s.record().finished(group_number_, j.call.seq);
  }
  for (const Rules::Hit& hit : j.hits) {
    if (hit.rule->kind == FaultKind::rank_crash && hit.rule->mode == Mode::after) end_process(*hit.rule);
  }
}

void SeekBackend::blame(const Job& j, const std::string& text, const std::vector<Culprit>& culprits) {
  RecordWriter& record = session()->record();
  VerdictEntry v;
  v.op = j.op;
  v.group = group_number_;
  v.call = j.number;
  v.seq = j.call.seq;
  v.step = j.call.step;
  v.text = record.text(text);
  v.time_ns = monotonic_ns();
  v.waited_ns = v.time_ns - j.entry.started_ns;
  for (const Culprit& culprit : culprits) {
    v.rank = culprit.rank;
    v.blame = culprit.blame;
    record.add(v);
  }
}

// The error as the script gets it.
std::exception_ptr SeekBackend::failed(Job& j) {
  try {
    throw;
  } catch (const CollectiveError& e) {
    blame(j, e.what(), e.culprits);
    try {
      TORCH_CHECK_WITH(DistBackendError, false, e.what());
    } catch (...) {
      return std::current_exception();
    }
  } catch (const std::invalid_argument& e) {
    try {
      TORCH_CHECK_VALUE(false, e.what());
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return std::current_exception();
  }
}

void SeekBackend::ended(Job& j, const std::exception_ptr& error) {
  j.entry.state = error ? CallState::failed : CallState::finished;
  j.entry.finished_ns = monotonic_ns();
  session()->record().update(j.number, j.entry);
  j.work->done(error);
}

void SeekBackend::run(Job& j) {
  std::exception_ptr error;
  try {
    start(j);
    if (start_.inner) carry(j);
    end(j);
  } catch (...) {
    error = failed(j);
  }
  ended(j, error);
}

}  // namespace seeksim::pytorch
