// What ranks of a group do in tests, wherever they are: each returns "ok", or what went wrong.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/core/collectives.h"

namespace seeksim::pytorch::rank_bodies {

// Runs `rank(place)` in a process each and returns what each returned; "signal 9" for one that was killed.
inline std::vector<std::string> in_processes(int ranks, const std::function<std::string(int)>& rank) {
  std::vector<std::pair<pid_t, int>> children;
  for (int place = 0; place < ranks; ++place) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t child = fork();
    if (child == 0) {
      std::string said;
      try {
        said = rank(place);
      } catch (const std::exception& e) {
        said = e.what();
      }
      if (write(ends[1], said.data(), said.size()) != ssize_t(said.size())) _exit(3);
      _exit(0);
    }
    close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  std::vector<std::string> said;
  for (const auto& [child, end] : children) {
    std::string& text = said.emplace_back();
    char some[4096];
    for (ssize_t n; (n = read(end, some, sizeof some)) > 0;) text.append(some, std::size_t(n));
    close(end);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) text = "signal " + std::to_string(WTERMSIG(status));
  }
  return said;
}

inline Call call(Group& group, std::uint64_t seq = 1) {
  Call c;
  c.seq = seq;
  group.begin(c);
  return c;
}
inline Bytes raw(std::vector<float>& v) { return std::as_writable_bytes(std::span<float>(v)); }

inline std::vector<float> numbers(int rank, std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = float(i % 1000) + 1000.0F * float(rank);
  return x;
}
inline float sum_at(int ranks, std::size_t i) {
  return float(ranks) * float(i % 1000) + 1000.0F * float(ranks * (ranks - 1) / 2);
}

// Small: one round that everybody computes. Middle: work is shared. Large: several rounds.
inline constexpr std::size_t kSizes[] = {0, 1, 100, 20000, 600000};

inline std::string sums_and_keeps_that_up(Group& group) {
  std::uint64_t seq = 0;
  for (int again = 0; again < 3; ++again) {
    for (const std::size_t size : kSizes) {
      std::vector<float> x = numbers(group.place(), size);
      Call c = call(group, ++seq);
      c.expected.numel = std::int64_t(size);
      all_reduce(group, c, {}, std::vector<Bytes>{raw(x)});
      group.end(c);
      for (std::size_t i = 0; i < size; ++i) {
        if (x[i] != sum_at(group.size(), i)) return "size " + std::to_string(size) + " at " + std::to_string(i);
      }
    }
  }
  return "ok";
}

// What place `from` gives to place `to`: as many numbers as no other pair, some of them several rounds' worth.
inline std::vector<float> ragged_part(int from, int to) {
  return numbers(from * 7 + to, std::size_t((from * 3 + to) * 40000));
}

// For groups of three.
inline std::string exchanges_ragged_parts(Group& group) {
  constexpr int kRanks = 3;
  const int me = group.place();
  std::vector<std::vector<float>> gives, takes;
  std::vector<ConstBytes> in;
  std::vector<Bytes> out;
  for (int r = 0; r < kRanks; ++r) {
    gives.push_back(ragged_part(me, r));
    takes.emplace_back(ragged_part(r, me).size());
  }
  for (int r = 0; r < kRanks; ++r) {
    in.push_back(raw(gives[std::size_t(r)]));
    out.push_back(raw(takes[std::size_t(r)]));
  }
  Call exchange = call(group, 1);
  all_to_all(group, exchange, in, out);
  for (int r = 0; r < kRanks; ++r) {
    if (takes[std::size_t(r)] != ragged_part(r, me)) return "all_to_all from " + std::to_string(r);
  }
  std::vector<float> dealt(ragged_part(1, me).size());
  Call deal = call(group, 2);
  scatter(group, deal, me == 1 ? in : std::vector<ConstBytes>{}, raw(dealt), 1);
  if (dealt != ragged_part(1, me)) return "scatter";
  std::vector<std::vector<float>> all;
  std::vector<Bytes> outs;
  for (int r = 0; r < kRanks; ++r) all.emplace_back(ragged_part(r, 0).size());
  for (auto& x : all) outs.push_back(raw(x));
  Call gather_all = call(group, 3);
  all_gather(group, gather_all, in[0], outs);
  for (int r = 0; r < kRanks; ++r) {
    if (all[std::size_t(r)] != ragged_part(r, 0)) return "all_gather from " + std::to_string(r);
  }
  return "ok";
}

// For groups of three.
inline std::string reduces_and_scatters(Group& group) {
  constexpr std::size_t kPart = 200001;
  std::vector<float> x = numbers(group.place(), kPart * 3), mine(kPart);
  std::vector<ConstBytes> in;
  for (std::size_t r = 0; r < 3; ++r) in.push_back(raw(x).subspan(r * kPart * 4, kPart * 4));
  Call c = call(group);
  reduce_scatter(group, c, {}, in, raw(mine));
  for (std::size_t i = 0; i < kPart; ++i) {
    if (mine[i] != sum_at(3, kPart * std::size_t(group.place()) + i)) return "at " + std::to_string(i);
  }
  return "ok";
}

// Between the first two places of a group.
inline std::string sends_messages(Group& group) {
  const Group::Message m{DType::fp32, 0, "message"};
  for (const std::size_t size : kSizes) {
    std::vector<float> x = numbers(3, size), y(size);
    if (group.place() == 0) {
      group.send(1, raw(x), m);
      group.receive(1, raw(y), m);
    } else {
      group.receive(group.sender_of_any(m), raw(y), m);
      group.send(0, raw(y), m);
    }
    if (x != y) return "size " + std::to_string(size);
  }
  return "ok";
}

inline std::string sums_once(Group& group, std::size_t size = 100) {
  std::vector<float> x = numbers(group.place(), size);
  Call c = call(group);
  c.step = 2;
  c.expected.numel = std::int64_t(size);
  all_reduce(group, c, {}, std::vector<Bytes>{raw(x)});
  return "ok";
}

}  // namespace seeksim::pytorch::rank_bodies
