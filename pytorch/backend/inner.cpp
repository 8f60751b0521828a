// A backend of the script's own below this one: it carries the data and adds it up, once the ranks have met here and
// mean the same.
#include <condition_variable>
#include <future>

#include "pytorch/backend/seeksim_backend.h"

namespace seeksim::pytorch {
namespace {

constexpr auto kLookAround = std::chrono::milliseconds(20);

std::string text_of(const std::exception& e) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&e);
  const std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : e.what();
  return text.substr(0, text.find('\n'));
}

// Flat bytes of a dense tensor: what any backend carries, whatever it knows of the type.
at::Tensor as_bytes(const at::Tensor& t) { return t.view({-1}).view(at::kByte); }

// Gloo completes its work from a thread of its own, and tells when. Some of its operations tell nothing: they end by
// themselves where the other side is gone, or after their own timeout.
void wait_for_future(c10d::Work& work, const std::function<void()>& look_around) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = work.getFuture();
  } catch (const c10::Error&) {
    return;
  }
  struct Signal {
    std::mutex mutex;
    std::condition_variable rung;
    bool done = false;
  };
  auto signal = std::make_shared<Signal>();
  future->addCallback([signal](c10::ivalue::Future&) {
    std::lock_guard lock(signal->mutex);
    signal->done = true;
    signal->rung.notify_all();
  });
  std::unique_lock lock(signal->mutex);
  while (!signal->rung.wait_for(lock, kLookAround, [&] { return signal->done; })) {
    lock.unlock();
    look_around();
    lock.lock();
  }
}

// Others are asked, ever more seldom.
void poll(c10d::Work& work, const std::function<void()>& look_around) {
  constexpr auto kMost = std::chrono::microseconds(1000);
  auto pause = std::chrono::microseconds(0);
  auto looked = std::chrono::steady_clock::now();
  while (!work.isCompleted()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(kMost, pause + std::chrono::microseconds(2));
    const auto now = std::chrono::steady_clock::now();
    if (now - looked < kLookAround) continue;
    looked = now;
    look_around();
  }
}

}  // namespace

WorkPtr SeekBackend::begin_carrying(Job& j, Tensors& in, Tensors& out) {
  try {
    std::lock_guard lock(inner_mutex_);
    const WorkPtr work = j.carry(j, *start_.inner, in, out);
    if (j.call.seq > 0) group_->entered(j.call);
    return work;
  } catch (const c10::DistError& e) {
    group_->failed(j.call, text_of(e), true);
  } catch (const c10::Error&) {
    throw;  // it does not do this: the script gets what it would have got
  } catch (const std::exception& e) {
    group_->failed(j.call, text_of(e), true);
  }
}

void SeekBackend::await(Job& j, const WorkPtr& work) {
  if (!work) return;
  const std::int64_t since = monotonic_ns();
  const auto look_around = [&] { group_->look_around(j.call, since); };
  try {
    if (start_.backend != "gloo") {
      poll(*work, look_around);
      if (const std::exception_ptr error = work->exception()) std::rethrow_exception(error);
    } else {
      wait_for_future(*work, look_around);
    }
    work->wait();
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::exception& e) {
    group_->failed(j.call, text_of(e), false);
  }
}

// What this rank gives, as the others are to see it: copies, where a fault changes it on its way.
Tensors SeekBackend::struck(Job& j) const {
  if (j.in.empty() || (j.call.strikes.empty() && !(j.call.doubled && j.reduces))) return j.in;
  Tensors given;
  for (const at::Tensor& t : j.in) given.push_back(t.clone());
  for (at::Tensor& t : given) {
    if (j.call.doubled && j.reduces) t.add_(t.clone());
  }
  const at::Tensor host = on_host(given[0]);
  auto* bytes = static_cast<std::uint8_t*>(host.data_ptr());
  for (const Strike& strike : j.call.strikes) {
    if (strike.byte < host.nbytes()) bytes[strike.byte] ^= strike.flip;
  }
  if (host.data_ptr() != given[0].data_ptr()) given[0].copy_(host);
  return given;
}

void SeekBackend::carry(Job& j) {
  at::NoGradGuard no_grad;
  c10::OptionalStreamGuard stream;
  if (j.lane) j.lane->enter(stream);
  Tensors in = struck(j);
  if (start_.folds && j.reduces) {
    carry_and_fold(j, in, j.out);
    return;
  }
  await(j, begin_carrying(j, in, j.out));
  take_back(j, in);
}

// Where copies stood for tensors that the operation changes in place.
void SeekBackend::take_back(Job& j, const Tensors& given) const {
  const bool is_root = j.root == getRank();
  const bool gets =
      j.op == OpName::all_reduce || (j.op == OpName::reduce && is_root) || (j.op == OpName::broadcast && !is_root);
  for (std::size_t i = 0; gets && i < given.size(); ++i) {
    if (j.out[i].data_ptr() != given[i].data_ptr()) j.out[i].copy_(given[i]);
  }
}

// Everybody's contribution to what this rank needs, by the inner backend, and then the sum here.
void SeekBackend::carry_and_fold(Job& j, Tensors& in, Tensors& out) {
  const std::size_t n = std::size_t(getSize());
  const bool everybodys = j.op != OpName::reduce_scatter;
  const std::size_t sums = everybodys ? in.size() : out.size();
  for (std::size_t i = 0; i < sums; ++i) {
    // All ranks' whole tensors; or, of each rank's, the part that belongs here.
    const at::Tensor& like = out[i];
    at::Tensor all = at::empty({std::int64_t(n * like.nbytes())}, like.options().dtype(at::kByte));
    Tensors parts;
    for (std::size_t r = 0; r < n; ++r)
      parts.push_back(all.narrow(0, std::int64_t(r * like.nbytes()), std::int64_t(like.nbytes())));
    Tensors given = {everybodys ? as_bytes(in[i]) : at::Tensor()};
    std::vector<std::int64_t> gives, takes(n, std::int64_t(like.nbytes()));
    if (!everybodys) {
      Tensors pieces;  // one for each rank: a list, or one tensor cut
      if (sums == 1 && in.size() == n && j.type == c10d::OpType::REDUCE_SCATTER) {
        for (const at::Tensor& t : in) pieces.push_back(as_bytes(t));
      } else {
        for (const at::Tensor& t : as_bytes(in[i]).chunk(std::int64_t(n))) pieces.push_back(t);
      }
      for (const at::Tensor& t : pieces) gives.push_back(t.numel());
      given[0] = at::cat(pieces);
    }
    j.carry = [&](Job&, c10d::Backend& inner, Tensors& gave, Tensors& got) {
      std::vector<Tensors> lists = {got};
      return everybodys ? inner.allgather(lists, gave) : inner.alltoall_base(all, gave[0], takes, gives);
    };
    await(j, begin_carrying(j, given, parts));
    if (j.op == OpName::reduce && j.root != getRank()) continue;
    for (at::Tensor& part : parts) part = part.view(like.scalar_type()).view(like.sizes());
    out[i].copy_(fold(parts, j.how));
  }
}

// Operations that the script began as one, and the inner backend gets as one.
void SeekBackend::run_together(const std::vector<JobPtr>& jobs) {
  std::vector<std::future<void>> met;
  for (const JobPtr& j : jobs) {
    auto task = std::make_shared<std::packaged_task<void()>>([this, j] { start(*j); });
    met.push_back(task->get_future());
    if (j->worker != nullptr) {  // an end of a message waits for the other one: all at the same time
      j->worker->push([task] { (*task)(); });
    } else {
      (*task)();
    }
  }
  std::exception_ptr error;
  for (auto& one : met) {
    try {
      one.get();
    } catch (...) {
      error = std::current_exception();
    }
  }
  try {
    if (error) std::rethrow_exception(error);
    at::NoGradGuard no_grad;
    c10::OptionalStreamGuard stream;
    for (const JobPtr& j : jobs) {
      if (j->lane) j->lane->enter(stream);  // the stream of the last waits for all callers' streams
    }
    std::vector<Tensors> given;
    for (const JobPtr& j : jobs) given.push_back(struck(*j));
    Job& first = *jobs.front();
    first.carry = [&, own = first.carry](Job&, c10d::Backend& inner, Tensors&, Tensors&) {
      inner.startCoalescing();
      for (std::size_t i = 0; i < jobs.size(); ++i)
        (i == 0 ? own : jobs[i]->carry)(*jobs[i], inner, given[i], jobs[i]->out);
      return inner.endCoalescing();
    };
    await(first, begin_carrying(first, first.in, first.out));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (jobs[i]->call.seq > 0) group_->entered(jobs[i]->call);
      take_back(*jobs[i], given[i]);
      end(*jobs[i]);
    }
  } catch (...) {
    error = std::current_exception();
  }
  for (const JobPtr& j : jobs) {
    std::exception_ptr own;
    try {
      if (error) std::rethrow_exception(error);
    } catch (...) {
      own = failed(*j);
    }
    ended(*j, own);
  }
}

}  // namespace seeksim::pytorch
