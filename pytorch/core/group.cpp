#include "pytorch/core/group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "kernels/check.h"

namespace seeksim::pytorch {
namespace {

constexpr int kLookAroundMs = 20;  // how often a waiting rank looks for a poison and for dead processes
constexpr double kGraceS = 1;      // for another backend to end what a dead process has begun
constexpr std::int64_t kSilent_ns = 2'000'000'000;  // relays say something four times as often

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  sched_yield();
#endif
}

// How long to watch a word before sleeping on it: only where every rank has a processor of its own.
int spins_for(int ranks) { return ranks <= int(std::thread::hardware_concurrency()) ? 2000 : 20; }

// The part that ranks fill in; a group of n uses n of the sizes.
void copy(Expectation& to, const Expectation& from, int n) {
  to.op = from.op;
  to.reduce = from.reduce;
  to.dtype = from.dtype;
  to.root = from.root;
  to.numel = from.numel;
  to.tensors = from.tensors;
  to.sizes = from.sizes;
  to.layout = from.layout;
  std::copy_n(from.gives.begin(), n, to.gives.begin());
  std::copy_n(from.takes.begin(), n, to.takes.begin());
}

}  // namespace

ProcessHandle::ProcessHandle(int pid) : pid_(pid), file_(int(syscall(SYS_pidfd_open, pid, 0))) {}
ProcessHandle::~ProcessHandle() {
  if (file_ >= 0) ::close(file_);
}
ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept
    : pid_(other.pid_), file_(std::exchange(other.file_, -1)) {}

bool ProcessHandle::gone() const {
  if (file_ >= 0) {
    pollfd ended{file_, POLLIN, 0};
    return poll(&ended, 1, 0) > 0;
  }
  std::ifstream status("/proc/" + std::to_string(pid_) + "/stat");
  std::string line;
  if (!std::getline(status, line)) return true;
  const std::size_t at = line.rfind(')');
  return at == std::string::npos || at + 2 >= line.size() || line[at + 2] == 'Z' || line[at + 2] == 'X';
}

void ProcessHandle::signal(int number) const {
  if (file_ >= 0) {
    syscall(SYS_pidfd_send_signal, file_, number, nullptr, 0);
  } else {
    ::kill(pid_, number);
  }
}

Group::Group(Segment segment, Settings settings)
    : segment_(std::move(segment)),
      settings_(std::move(settings)),
      spins_(spins_for(int(settings_.ranks.size()))),
      sent_(settings_.ranks.size(), 0),
      received_(settings_.ranks.size(), 0) {
  SEEKSIM_CHECK_EQ(segment_.ranks(), settings_.ranks.size());
}

void Group::come_in() {
  RankState& me = segment_.rank(place());
  me.shows_stacks = settings_.shows_stacks ? 1 : 0;
  me.pid = getpid();
}

void Group::know_all() {
  segment_.close_address();
  for (int r = 0; r < size(); ++r) {
    if (is_far(r)) {
      processes_.emplace_back();
      continue;
    }
    const std::int64_t pid = segment_.rank(r).pid;
    if (pid <= 1 || pid > INT32_MAX) throw std::runtime_error(fmt::format("seeksim: rank {} has no process", r));
    processes_.push_back(std::make_unique<ProcessHandle>(int(pid)));
  }
}

bool Group::gone(int place) const {
  if (std::size_t(place) >= processes_.size()) return false;
  if (is_far(place)) return segment_.rank(place).far.load() != Far::there;
  return processes_[std::size_t(place)]->gone();
}

Group::State Group::state_of(int place) const {
  if (!is_far(place)) {
    if (gone(place)) return {Blame::is_dead, "is dead (its process is gone)"};
    return {Blame::did_not_join, "is alive"};
  }
  const int host = settings_.hosts[std::size_t(place)];
  const std::string where = std::size_t(host) < settings_.host_names.size()
                                ? fmt::format("host {} ({})", host, settings_.host_names[std::size_t(host)])
                                : fmt::format("host {}", host);
  const RankState& other = segment_.rank(place);
  const std::int64_t silent_ns = monotonic_ns() - other.heard_ns.load();
  switch (other.far.load()) {
    case Far::there:
      break;
    case Far::ended:
      return {Blame::is_dead, fmt::format("is dead (its process on {} is gone)", where)};
    case Far::host_gone:
      return {Blame::is_dead, fmt::format("is gone with {} (its seeksim has closed the connection)", where)};
    default:
      return {Blame::unreachable,
              fmt::format("is on {}, from which nothing came for {:.1f} s: the connection was given "
                          "up",
                          where, double(silent_ns) * 1e-9)};
  }
  if (silent_ns > kSilent_ns)
    return {Blame::unreachable,
            fmt::format("is on {}, from which nothing has come for {:.1f} s", where, double(silent_ns) * 1e-9)};
  return {Blame::did_not_join, fmt::format("is alive on {}", where)};
}

void Group::ask_for_stacks(int place) const {
  if (is_far(place)) {
    settings_.relay->say({.kind = NoteKind::stacks, .place = place});
  } else if (std::size_t(place) < processes_.size() && segment_.rank(place).shows_stacks == 1) {
    processes_[std::size_t(place)]->signal(SIGUSR2);
  }
}

void Group::filled(std::size_t offset, std::size_t bytes, int to) {
  if (!far() || bytes == 0) return;
  filled_.push_back({std::uint32_t(offset), std::uint32_t(bytes), to});
}

void Group::publish(std::uint32_t meeting) {
  segment_.rank(place()).meetings.ring(meeting);
  if (!far()) return;
  settings_.relay->say(
      {.kind = NoteKind::came, .count = meeting, .bank = std::uint32_t(bank_), .parts = std::uint32_t(filled_.size())},
      filled_);
}

void Group::begin(const Call& call) {
  throw_poison();
  segment_.rank(place()).joined = call.seq;
}
void Group::end(const Call& call) { segment_.rank(place()).finished = call.seq; }

std::string Group::where(const Call& call) const {
  return fmt::format("{} #{} of group {} (step {})", pytorch::name(call.expected.op), call.seq, settings_.name,
                     call.step);
}

void Group::wait(Bell& bell, int place, const Ready& ready, const std::function<void(bool gone)>& on_end) {
  for (int i = 0; i < spins_; ++i) {
    if (ready(bell.count.load(std::memory_order_acquire))) return;
    relax();
  }
  const std::int64_t until = monotonic_ns() + std::int64_t(settings_.timeout_s * 1e9);
  for (;;) {
    const std::uint32_t seen = bell.count.load();
    if (ready(seen)) return;
    throw_poison();
    const bool is_gone = gone(place);
    if (is_gone && ready(bell.count.load())) return;  // it came, then went
    if (is_gone || monotonic_ns() > until) on_end(is_gone);
    bell.wait(seen, kLookAroundMs);
  }
}

void Group::meet(Call& call) {
  RankState& me = segment_.rank(place());
  if (!call.compared) {
    Expectation told;
    copy(told, call.expected, size());
    if (call.mistake) call.mistake(told);
    copy(me.expected[bank_], told, size());
  }
  const std::uint32_t target = ++meetings_;
  const std::int64_t since = monotonic_ns();
  if (!call.lost) publish(target);
  filled_.clear();
  for (int r = 0; r < size(); ++r) {
    if (r == place() && !call.lost) continue;
    wait(
        segment_.rank(r).meetings, r, [target](std::uint32_t n) { return std::int32_t(n - target) >= 0; },
        [&](bool) { fail_missing(call, target, since); });
  }
  if (!call.compared) compare(call);
}

void Group::compare(Call& call) {
  call.compared = true;
  call.all.resize(std::size_t(size()));
  for (int r = 0; r < size(); ++r) copy(call.all[std::size_t(r)], segment_.rank(r).expected[bank_], size());
  const auto found = disagreement(call.all, settings_.ranks);
  if (!found) return;
  fail(fmt::format("seeksim: ranks do not agree on collective #{} of group {} (step {})\n  {}", call.seq,
                   settings_.name, call.step, found->text),
       found->odd, std::vector<Blame>(found->odd.size(), Blame::disagrees));
}

void Group::throw_poison() const {
  const Poison& poison = segment_.poison();
  if (poison.state.load(std::memory_order_acquire) != 2) return;
  std::vector<Culprit> culprits;
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(poison.culprits, kMaxRanks); ++i) {
    const std::int32_t place = poison.culprit[i];
    const Blame blame = Blame(poison.blame[i]);
    if (place < 0 || place >= size() || blame >= Blame::count_) continue;
    culprits.push_back({launch_rank(place), blame});
  }
  throw CollectiveError(std::string(poison.text, strnlen(poison.text, kPoisonText)), culprits);
}

void Group::fail(const std::string& text, const std::vector<int>& places, const std::vector<Blame>& blames) const {
  Poison& poison = segment_.poison();
  std::uint32_t none = 0;
  if (poison.state.compare_exchange_strong(none, 1)) {
    poison.culprits = std::uint32_t(std::min<std::size_t>(places.size(), kMaxRanks));
    for (std::uint32_t i = 0; i < poison.culprits; ++i) {
      poison.culprit[i] = places[i];
      poison.blame[i] = std::uint8_t(blames[i]);
    }
    std::memcpy(poison.text, text.data(), std::min(text.size(), kPoisonText - 1));
    poison.state.store(2);
    for (int r = 0; r < size(); ++r) segment_.rank(r).meetings.wake();
    if (far()) {
      try {
        settings_.relay->say({.kind = NoteKind::failed});
      } catch (const std::runtime_error&) {
        // Without a relay the other hosts notice that this rank is gone.
      }
    }
  }
  std::vector<Culprit> culprits;
  for (std::size_t i = 0; i < places.size(); ++i) culprits.push_back({launch_rank(places[i]), blames[i]});
  throw CollectiveError(text, culprits);
}

void Group::fail_missing(const Call& call, std::uint32_t target, std::int64_t since_ns) {
  std::vector<int> missing, launch;
  std::vector<Blame> blames;
  std::string details;
  for (int r = 0; r < size(); ++r) {
    const RankState& other = segment_.rank(r);
    if (std::int32_t(other.meetings.count.load() - target) >= 0) continue;
    const State state = state_of(r);
    const std::uint64_t joined = other.joined;
    const bool lost = state.blame == Blame::did_not_join && joined >= call.seq;
    missing.push_back(r);
    launch.push_back(launch_rank(r));
    blames.push_back(lost ? Blame::contribution_lost : state.blame);
    details += fmt::format("\n  rank {} {}; it joined {} collectives of this group and finished {}{}", launch_rank(r),
                           state.text, joined, other.finished.load(),
                           lost ? ": it did call this one, its contribution never arrived" : "");
    if (state.blame == Blame::did_not_join) ask_for_stacks(r);
  }
  fail(fmt::format("seeksim: {}: {} did not join; {} of {} ranks waited {:.3g} s{}", where(call), ranks_text(launch),
                   size() - int(missing.size()), size(), double(monotonic_ns() - since_ns) * 1e-9, details),
       missing, blames);
}

// --------------------------------------------------------------------------------- while another backend carries data

void Group::entered(const Call& call) { segment_.rank(place()).entered = call.seq; }

std::vector<int> Group::gone_before_end_of(const Call& call) const {
  std::vector<int> gone;
  for (int r = 0; r < size(); ++r) {
    if (segment_.rank(r).finished < call.seq && this->gone(r)) gone.push_back(r);
  }
  return gone;
}

void Group::look_around(const Call& call, std::int64_t since_ns) const {
  throw_poison();
  const double waited_s = double(monotonic_ns() - since_ns) * 1e-9;
  // A message has no members that could be asked. What a dead member gave may still be on its way: so not at once.
  const bool late = waited_s > settings_.timeout_s;
  if (call.seq == 0 || (!late && waited_s < kGraceS)) return;
  const std::vector<int> gone = gone_before_end_of(call);
  if (!gone.empty()) failed(call, "a member is dead", false);
  if (late) failed(call, fmt::format("it did not end in {:.3g} s", waited_s), false);
}

void Group::failed(const Call& call, const std::string& why, bool here) const {
  std::vector<int> places;
  const std::int64_t until = monotonic_ns() + std::int64_t(kGraceS * 1e9);
  // The error of a lost connection may be here before the other process is gone.
  while (call.seq > 0 && (places = gone_before_end_of(call)).empty() && monotonic_ns() < until) {
    throw_poison();
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookAroundMs));
  }
  throw_poison();  // who ended since then may have had its error from another one
  Blame blame = Blame::is_dead;
  if (places.empty()) {
    blame = Blame::backend_failed;
    for (int r = 0; r < size() && call.seq > 0 && !here; ++r) {
      if (segment_.rank(r).entered < call.seq) places.push_back(r);  // it has met the others, and hangs or failed there
    }
  }
  if (places.empty()) places = {place()};
  std::vector<int> launch;
  for (const int r : places) launch.push_back(launch_rank(r));
  const std::string who = blame == Blame::is_dead
                              ? fmt::format("{} died in it (its process is gone)", ranks_text(launch))
                              : fmt::format("{} got no result from the backend below", ranks_text(launch));
  fail(fmt::format("seeksim: {}: {}\n  {}", where(call), who, why), places, std::vector<Blame>(places.size(), blame));
}

// ------------------------------------------------------------------------------------------------ messages between two

void Group::fail_unanswered(int place, const Message& message, const char* what_it_does_not) const {
  const State state = state_of(place);
  const bool well = state.blame == Blame::did_not_join;
  fail(fmt::format("seeksim: {}: rank {} {}", message.what, launch_rank(place), well ? what_it_does_not : state.text),
       {place}, {well ? Blame::did_not_answer : state.blame});
}

void Group::send(int to, std::span<const std::byte> bytes, const Message& message) {
  SEEKSIM_CHECK(to >= 0 && to < size(), "place %d", to);
  Box& box = segment_.box(place(), to);
  const std::uint64_t number = ++sent_[std::size_t(to)];
  const auto nobody = [&](bool) { fail_unanswered(to, message, "does not receive"); };
  std::size_t at = 0;
  do {
    const std::uint32_t written = box.written.count.load(std::memory_order_relaxed);
    wait(
        box.taken, to, [written](std::uint32_t taken) { return written - taken < kChunks; }, nobody);
    const std::size_t n = std::min(kChunkBytes, bytes.size() - at);
    box.head[written % kChunks] = {number, bytes.size() + message.elsewhere.value_or(0), std::int32_t(message.dtype),
                                   message.tag};
    if (n > 0) std::memcpy(box.data[written % kChunks], bytes.data() + at, n);
    box.written.ring(written + 1);
    if (is_far(to)) {
      settings_.relay->say({.kind = NoteKind::wrote, .place = to, .count = written + 1, .bytes = std::uint32_t(n)});
    }
    at += n;
    if (!message.elsewhere) continue;
    // Both ends are there before the other backend begins.
    wait(
        box.taken, to, [written](std::uint32_t taken) { return taken == written + 1; }, nobody);
  } while (at < bytes.size());
}

void Group::receive(int from, std::span<std::byte> bytes, const Message& message) {
  SEEKSIM_CHECK(from >= 0 && from < size(), "place %d", from);
  Box& box = segment_.box(from, place());
  const std::uint64_t number = ++received_[std::size_t(from)];
  std::size_t at = 0;
  do {
    const std::uint32_t taken = box.taken.count.load(std::memory_order_relaxed);
    wait(
        box.written, from, [taken](std::uint32_t written) { return written != taken; },
        [&](bool) { fail_unanswered(from, message, "did not send"); });
    const ChunkHead head = box.head[taken % kChunks];
    const std::size_t expected = bytes.size() + message.elsewhere.value_or(0);
    if (head.message != number || head.bytes != expected || head.dtype != std::int32_t(message.dtype) ||
        head.tag != message.tag) {
      const auto text = [](std::uint64_t n, std::int32_t type, std::int32_t tag) {
        return fmt::format("{} bytes of {} with tag {}", n, pytorch::name(DType(std::uint8_t(type))), tag);
      };
      fail(fmt::format("seeksim: {}: rank {} sent {}, rank {} expects {} (messages are matched in order)", message.what,
                       launch_rank(from), text(head.bytes, head.dtype, head.tag), launch_rank(place()),
                       text(expected, std::int32_t(message.dtype), message.tag)),
           {from, place()}, {Blame::disagrees, Blame::disagrees});
    }
    const std::size_t n = std::min(kChunkBytes, bytes.size() - at);
    if (n > 0) std::memcpy(bytes.data() + at, box.data[taken % kChunks], n);
    box.taken.ring(taken + 1);
    if (is_far(from)) settings_.relay->say({.kind = NoteKind::took, .place = from, .count = taken + 1});
    at += n;
  } while (at < bytes.size());
}

int Group::sender_of_any(const Message& message) {
  const std::int64_t until = monotonic_ns() + std::int64_t(settings_.timeout_s * 1e9);
  for (;;) {
    for (int r = 0; r < size(); ++r) {
      const Box& box = segment_.box(r, place());
      if (box.written.count.load() != box.taken.count.load()) return r;
    }
    throw_poison();
    if (monotonic_ns() > until) fail(fmt::format("seeksim: {}: nobody sent", message.what), {}, {});
    // No word tells of all senders; so it looks again a little later.
    segment_.box(place(), place()).written.wait(0, 1);
  }
}

}  // namespace seeksim::pytorch
