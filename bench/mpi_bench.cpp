// The cost of processes: the exchanges of training steps between two ranks beside the same in plain MPI, and the time
// from a start to the end of the first step beside that of a plain program.
//
//   mpirun -np 2 bench_mpi_bench SCENARIO            exchanges: medians of 20 rounds, the two sides in turn
//   bench_mpi_bench --starts SEEKSIM SCENARIO        starts: medians of 20, in turn; the scenario has two ranks
//   mpirun -np 2 bench_mpi_bench --plain GROUP...    the other side of a start: MPI, those exchanges, the end
//
// The exchanges of a step are recorded on the simulator, where the same runtime makes them.
#ifndef SEEKSIM_HAVE_MPI
#include <cstdio>
int main() { std::puts("skipped: built without MPI"); }
#else
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "harness/loading/load.h"
#include "harness/processes/told.h"
#include "harness/scenario/scenario.h"
#include "runtime/backend/machine/host_device.h"
#include "runtime/backend/machine/wall_clock.h"
#include "runtime/backend/messages/message_transport.h"
#include "runtime/backend/wire/mpi_world.h"
#include "runtime/recovery/train.h"
#include "sim/world.h"

namespace {

using namespace seeksim::runtime;
using seeksim::harness::Scenario;

constexpr int kRounds = 20;
using Times = std::vector<double>;

double median(Times times) {
  std::sort(times.begin(), times.end());
  return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

double seconds_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// ---- what a step exchanges -----------------------------------------------------------------------------------------

struct Part {
  bool send = false;
  std::size_t bytes = 0;
};
struct Group {  // one exchange of a rank
  Op op;
  std::vector<Part> parts;
  std::size_t sent() const {
    std::size_t bytes = 0;
    for (const Part& part : parts) bytes += part.send ? part.bytes : 0;
    return bytes;
  }
};

// Sums travel as messages here, as they do between processes.
class Listening final : public Transport {
 public:
  Listening(Transport& inner, std::int64_t step, std::vector<Group>& heard)
      : inner_(inner), step_(step), heard_(heard) {}
  CommResult exchange(Queue& queue, Comm comm, const Op& op, std::span<const Piece> pieces, DiesAt dies) override {
    if (op.step == step_ && !pieces.empty()) {
      Group& group = heard_.emplace_back();
      group.op = op;
      for (const Piece& piece : pieces) group.parts.push_back({piece.send, piece.hi - piece.lo});
    }
    return inner_.exchange(queue, comm, op, pieces, dies);
  }
  bool has_native(Comm, const Op&) const override { return false; }
  CommResult tree_all_reduce(Queue&, Comm, const Op&, const TreeReduce&) override { return CommResult::invalid_usage; }
  Comm create(const Op& op, const CommSpec& spec, TimeNs by) override { return inner_.create(op, spec, by); }
  CommResult async_error(Comm comm) override { return inner_.async_error(comm); }
  CommResult revoke(Comm comm) override { return inner_.revoke(comm); }
  CommResult abort(std::span<const Comm> comms) override { return inner_.abort(comms); }
  CommResult finalize(Comm comm) override { return inner_.finalize(comm); }
  CommResult destroy(Comm comm) override { return inner_.destroy(comm); }
  Comm split(const Op& op, Comm parent, int color, int key, TimeNs by) override {
    return inner_.split(op, parent, color, key, by);
  }
  Comm shrink(const Op& op, Comm parent, std::span<const int> exclude, TimeNs by) override {
    return inner_.shrink(op, parent, exclude, by);
  }
  Unmatched unmatched(Comm comm) const override { return inner_.unmatched(comm); }

 private:
  Transport& inner_;
  std::int64_t step_;
  std::vector<Group>& heard_;
};

// The groups, in the order in which the rank's host asks for them.
std::vector<Group> exchanges_of(const Scenario& scenario, std::int64_t step, int rank) {
  std::vector<std::vector<Group>> heard(std::size_t(scenario.world.ranks()));
  std::deque<Listening> listening;
  std::deque<seeksim::harness::NoteTaker> notes;
  seeksim::sim::World world(scenario.world);
  world.decorate([&](int of, Seams inner) {
    Listening& ears = listening.emplace_back(inner.transport, step, heard[std::size_t(of)]);
    return Seams{inner.clock, inner.device, ears, inner.storage, inner.control};
  });
  world.run([&](Rank& of) { train(of, scenario.train, notes.emplace_back(true, -1, false)); });
  return heard[std::size_t(rank)];
}

Scenario stage(const std::string& file, int number) {
  seeksim::harness::LoadOptions load;
  load.sets = {fmt::format("deepspeed.zero_optimization.stage={}", number)};
  return seeksim::harness::load_scenario(file, load);
}

// ---- the two sides -------------------------------------------------------------------------------------------------

// The largest number of bytes that a group moves one way.
std::size_t room_for(const std::vector<Group>& groups) {
  std::size_t most = 0;
  for (const Group& group : groups) {
    std::size_t out = 0, in = 0;
    for (const Part& part : group.parts) (part.send ? out : in) += part.bytes;
    most = std::max({most, out, in});
  }
  return most;
}

class Plain {
 public:
  Plain(int rank, std::size_t room) : peer_(1 - rank), out_(room, 1), in_(room, 2) {}
  void exchange(const std::vector<Group>& groups) {
    for (const Group& group : groups) {
      std::size_t out = 0, in = 0;
      requests_.clear();
      for (const Part& part : group.parts) {
        MPI_Request& request = requests_.emplace_back();
        if (part.send)
          MPI_Isend(out_.data() + out, int(part.bytes), MPI_BYTE, peer_, 7, MPI_COMM_WORLD, &request);
        else
          MPI_Irecv(in_.data() + in, int(part.bytes), MPI_BYTE, peer_, 7, MPI_COMM_WORLD, &request);
        (part.send ? out : in) += part.bytes;
      }
      MPI_Waitall(int(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    }
  }

 private:
  int peer_;
  std::vector<char> out_, in_;
  std::vector<MPI_Request> requests_;
};

class Ours {
 public:
  Ours(Wire& wire, int rank, std::size_t room)
      : rank_(rank),
        device_(loop_, signals_, rank, {3 * room, room, room}),
        transport_(loop_, wire, signals_, recorder_, rank, 1),
        out_(device_.allocate(room, MemoryTag::scratch, "out")),
        in_(device_.allocate(room, MemoryTag::scratch, "in")) {
    CommSpec spec;
    spec.name = "bench";
    spec.id = 1;
    spec.members = {0, 1};
    Op op;
    op.kind = OpKind::comm_create;
    op.rank = rank_;
    comm_ = transport_.create(op, spec, kForever);
  }
  void exchange(const std::vector<Group>& groups) {
    Queue& queue = device_.communication_queue();
    for (const Group& group : groups) {
      std::size_t out = 0, in = 0;
      pieces_.clear();
      for (const Part& part : group.parts) {
        std::size_t& at = part.send ? out : in;
        pieces_.push_back({1 - rank_, part.send, part.send ? out_.get() : in_.get(), at, at + part.bytes});
        at += part.bytes;
      }
      Op op = group.op;
      op.rank = rank_;
      op.sequence = ++sequence_;
      transport_.exchange(queue, comm_, op, pieces_, DiesAt::never);
      device_.wait(queue.record(), kForever, 1);
    }
  }

 private:
  int rank_;
  std::uint64_t sequence_ = 0;
  WallClock wall_;
  ProgressLoop loop_{wall_};
  Signals signals_;
  Recorder recorder_;
  HostDevice device_;
  MessageTransport transport_;
  BufferPtr out_, in_;
  Comm comm_;
  std::vector<Piece> pieces_;
};

// ---- exchanges -----------------------------------------------------------------------------------------------------

struct Load {
  std::string name;
  std::vector<Group> groups;
  int repeats;
};

Load swap(const char* name, std::size_t bytes, int repeats) {
  Group group;
  group.op.kind = OpKind::send;
  group.parts = {{true, bytes}, {false, bytes}};
  return {name, {group}, repeats};
}

std::vector<Load> loads(const std::string& file, int rank) {
  std::vector<Load> all = {swap("1 KiB", 1 << 10, 2000), swap("16 KiB", 1 << 14, 1000), swap("256 KiB", 1 << 18, 200),
                           swap("4 MiB", 1 << 22, 20), swap("32 MiB", 1 << 25, 3)};
  for (int number = 0; number < 4; ++number) {
    Load load{"", exchanges_of(stage(file, number), 1, rank), 3};
    std::size_t bytes = 0;
    for (const Group& group : load.groups) bytes += group.sent();
    load.name = fmt::format("step of stage {}: {} groups, {:.2f} MiB", number, load.groups.size(),
                            double(bytes) / double(1 << 20));
    all.push_back(std::move(load));
  }
  return all;
}

int exchanges(const std::string& file) {
  MpiWorld world;
  const int rank = world.rank();
  if (world.size() != 2) return std::puts("start it with mpirun -np 2"), 2;
  const std::vector<Load> all = loads(file, rank);
  std::size_t room = 0;
  for (const Load& load : all) room = std::max(room, room_for(load.groups));
  Plain plain(rank, room);
  Ours ours(world.wire(), rank, room);
  if (rank == 0) std::printf("%-42s %12s %12s %8s\n", "each way", "plain us", "ours us", "ratio");
  for (const Load& load : all) {
    Times theirs, mine;
    for (int round = -2; round < kRounds; ++round) {  // two to warm up
      MPI_Barrier(MPI_COMM_WORLD);
      const double a = seconds_of([&] {
        for (int i = 0; i < load.repeats; ++i) plain.exchange(load.groups);
      });
      MPI_Barrier(MPI_COMM_WORLD);
      const double b = seconds_of([&] {
        for (int i = 0; i < load.repeats; ++i) ours.exchange(load.groups);
      });
      if (round < 0) continue;
      theirs.push_back(a / load.repeats * 1e6);
      mine.push_back(b / load.repeats * 1e6);
    }
    if (rank == 0)
      std::printf("%-42s %12.2f %12.2f %8.3f\n", load.name.c_str(), median(theirs), median(mine),
                  median(mine) / median(theirs));
  }
  return 0;
}

// ---- starts --------------------------------------------------------------------------------------------------------

// "+8-8": eight bytes there, eight back.
std::string word(const Group& group) {
  std::string text;
  for (const Part& part : group.parts) text += fmt::format("{}{}", part.send ? '+' : '-', part.bytes);
  return text;
}
Group group_of(const char* text) {
  Group group;
  for (char* next = nullptr; *text != 0; text = next) {
    const long bytes = std::strtol(text, &next, 10);
    if (next == text) break;
    group.parts.push_back({bytes > 0 || *text == '+', std::size_t(std::labs(bytes))});
  }
  return group;
}

int plain_program(int count, char** words) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<Group> groups;
  for (int i = 0; i < count; ++i) groups.push_back(group_of(words[i]));
  // The words describe rank 0; the other rank receives what rank 0 sends.
  for (Group& group : groups) {
    for (Part& part : group.parts) part.send = part.send == (rank == 0);
  }
  Plain(rank, room_for(groups)).exchange(groups);
  MPI_Finalize();
  return 0;
}

int starts(const std::string& self, const std::string& seeksim, const std::string& file) {
  const std::string mpirun =
      std::string("mpirun --oversubscribe") + (::geteuid() == 0 ? " --allow-run-as-root" : "") + " -np 2 '";
  const std::string quiet = " >/dev/null 2>&1 </dev/null";
  std::string plain = mpirun + self + "' --plain";
  for (const Group& group : exchanges_of(seeksim::harness::load_scenario(file), 0, 0)) plain += ' ' + word(group);
  plain += quiet;
  const std::string ours = mpirun + seeksim + "' run '" + file + "' --backend mpi" + quiet;
  Times theirs, mine;
  for (int round = -1; round < kRounds; ++round) {
    int failed = 0;
    const double a = seconds_of([&] { failed += std::system(plain.c_str()); });
    const double b = seconds_of([&] { failed += std::system(ours.c_str()); });
    if (failed != 0) return std::puts("a start failed"), 1;
    if (round < 0) continue;
    theirs.push_back(a * 1e3);
    mine.push_back(b * 1e3);
  }
  std::printf("start to end: plain %.1f ms, seeksim with one step %.1f ms, ratio %.2f\n", median(theirs), median(mine),
              median(mine) / median(theirs));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 4 && std::strcmp(words[1], "--starts") == 0) return starts(words[0], words[2], words[3]);
  if (count >= 2 && std::strcmp(words[1], "--plain") == 0) return plain_program(count - 2, words + 2);
  if (count == 2 && words[1][0] != '-') return exchanges(words[1]);
  std::puts("mpirun -np 2 bench_mpi_bench SCENARIO, or bench_mpi_bench --starts SEEKSIM SCENARIO");
  return 2;
}
#endif
