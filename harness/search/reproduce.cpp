#include "harness/search/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

using What = HangCause::What;

constexpr const char* kWhatToDo = "Its story says what is known, and what would tell more next time.";

BadInput not_known(const std::string& why) { return BadInput("--reproduce", why, kWhatToDo); }

// The operation that most ranks wait in, those left out that something speaks against.
std::string common_operation(const HangPicture& picture) {
  std::map<std::string, int> votes;
  for (const HangPlace& place : picture.all) {
    if (std::find(picture.accused.begin(), picture.accused.end(), place.rank) == picture.accused.end())
      ++votes[place.operation];
  }
  votes.erase("");
  const auto most =
      std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == votes.end() ? "" : most->first;
}

// Of ranks that wait in different things of one group, and of which none has the majority: those that are not as the
// lowest one is.
HangCause cause_of_camps(const HangPicture& picture) {
  const HangPlace& first = picture.all.front();
  HangCause cause;
  bool operation = false, number = false, size = false;
  for (const HangPlace& place : picture.all) {
    if (place.group != first.group) throw not_known("the ranks wait in different groups, and nobody is accused");
    if (place.operation == first.operation && place.number == first.number && place.sizes == first.sizes) continue;
    cause.ranks.push_back(place.rank);
    operation = operation || place.operation != first.operation;
    number = number || place.number != first.number;
    size = size || place.sizes != first.sizes;
  }
  if (!operation && number && first.group.empty())
    throw not_known("ranks wait under different numbers, and it is not said that these are of one group");
  cause.what = operation ? What::other_operation : number ? What::other_order : What::other_size;
  cause.operation = first.operation;
  return cause;
}

// Whether those whom nothing speaks against wait in several groups. Throws where they stand apart inside of one.
bool several_groups(const HangPicture& picture, const HangCause& cause) {
  std::map<std::string, HangPlace> groups;
  for (const HangPlace& place : picture.all) {
    if (std::find(cause.ranks.begin(), cause.ranks.end(), place.rank) != cause.ranks.end()) continue;
    const HangPlace& first = groups.emplace(place.group, place).first->second;
    if (place.operation != first.operation || place.number != first.number)
      throw not_known(fmt::format("ranks {} and {}, which nothing speaks against, wait in different operations",
                                  first.rank, place.rank));
  }
  return groups.size() > 1;
}

bool all_alike(const HangPicture& picture) {
  return std::all_of(picture.all.begin(), picture.all.end(), [&](const HangPlace& place) {
    const HangPlace& first = picture.all.front();
    return place.operation == first.operation && place.number == first.number && place.group == first.group;
  });
}

// Nobody is accused. Whoever is silent has not come, or what the others brought differs.
HangCause cause_without_accused(const HangPicture& picture) {
  if (picture.all.size() < 2) throw not_known("of fewer than two ranks it is known where they wait");
  if (!all_alike(picture)) return cause_of_camps(picture);
  if (picture.silent.empty()) throw not_known("it is not known who is to blame");
  HangCause cause;
  cause.ranks = picture.silent;
  cause.operation = common_operation(picture);
  cause.one_of_several = true;
  return cause;
}

HangCause cause_by_kind(const HangPicture& picture) {
  HangCause cause;
  cause.ranks = picture.accused;
  cause.operation = common_operation(picture);
  switch (picture.kind) {
    case HangKind::nothing_stuck:
      throw not_known("nothing hangs, so there is nothing to reproduce");
    case HangKind::cycle:
      throw not_known(
          "the ranks wait in a cycle over several groups: no fault of a scenario changes the order of those");
    case HangKind::no_partner:
      throw not_known("a send or a receive has no partner: scenarios have these in pipelines only");
    case HangKind::cannot_be_known:
      return cause_without_accused(picture);
    case HangKind::all_came:
      if (picture.all.size() < 2) throw not_known("of fewer than two ranks it is known where they wait");
      cause.what = What::messages_lost;
      cause.ranks.clear();
      cause.one_of_several = true;
      return cause;
    case HangKind::never_came:
      cause.what = What::never_comes;
      break;
    case HangKind::no_dump:
      cause.what = What::gone;
      cause.ranks = picture.silent;
      cause.one_of_several = true;
      break;
    case HangKind::first_error:
      cause.what = What::gone;
      break;
    case HangKind::other_operation:
      cause.what = What::other_operation;
      break;
    case HangKind::other_size:
      cause.what = What::other_size;
      break;
    case HangKind::other_type:
      cause.what = What::other_type;
      break;
    case HangKind::shifted:
      cause.what = What::other_order;
      break;
  }
  if (cause.ranks.empty()) throw not_known("no rank is named");
  return cause;
}

// How a step of a scenario calls an operation that moves data likewise, and in which stage it has one.
struct StepOperation {
  const char* of_hang;
  const char* of_step;
  int stage;
};
constexpr StepOperation kStepOperations[] = {
    {"all_reduce", "all_reduce", 0}, {"reduce_scatter", "reduce_scatter", 2}, {"all_gather", "publish", 1}};

const StepOperation& step_operation(const HangCause& cause) {
  for (const StepOperation& one : kStepOperations) {
    if (cause.operation == one.of_hang) return one;
  }
  return kStepOperations[0];
}

Json faults_of(const HangCause& cause) {
  const std::string op = step_operation(cause).of_step;
  Json faults = Json::array();
  if (cause.what == What::messages_lost) {
    faults.push_back({{"kind", "message_drop"}, {"step", 1}, {"op", op}, {"count", 0}});
    return faults;
  }
  static const std::map<What, std::pair<const char*, const char*>> kKinds = {
      {What::never_comes, {"collective_timeout", "never"}},
      {What::gone, {"rank_crash", "before"}},
      {What::other_operation, {"collective_mismatch", "op"}},
      {What::other_size, {"collective_mismatch", "count"}},
      {What::other_type, {"collective_mismatch", "dtype"}},
      {What::other_order, {"collective_mismatch", "swap_order"}}};
  const auto& [kind, mode] = kKinds.at(cause.what);
  for (const int rank : cause.ranks)
    faults.push_back({{"kind", kind}, {"rank", rank}, {"step", 1}, {"op", op}, {"mode", mode}});
  return faults;
}

bool is_absence(What what) { return what == What::never_comes || what == What::gone; }
bool is_mismatch(What what) { return !is_absence(what) && what != What::messages_lost; }

// As many ranks a node as divide the world, 8 at most.
int ranks_per_node(int world) {
  int best = 1;
  for (int n = 1; n <= 8; ++n) {
    if (world % n == 0) best = n;
  }
  return best;
}

}  // namespace

HangCause cause_of(const HangPicture& picture) {
  HangCause cause = cause_by_kind(picture);
  if (picture.world > kReproducedRanksMost)
    throw not_known(fmt::format("the job has {} ranks; at most {} are simulated", picture.world, kReproducedRanksMost));
  if (int(cause.ranks.size()) >= picture.world)
    throw not_known("all ranks are accused alike, so none waits for another");
  cause.several_groups = several_groups(picture, cause);
  const auto known = [&](const StepOperation& one) { return cause.operation == one.of_hang; };
  if (!cause.operation.empty() && std::none_of(std::begin(kStepOperations), std::end(kStepOperations), known)) {
    cause.stands_in = "all_reduce";
  }
  return cause;
}

std::string text_of(const HangCause& cause) {
  const std::string who = ranks_text(cause.ranks);
  const bool one = cause.ranks.size() == 1;
  const auto says = [&](const char* of_one, const char* of_many, const char* what) {
    return fmt::format("{} {} {}", who, one ? of_one : of_many, what);
  };
  switch (cause.what) {
    case What::never_comes:
      return says("never joins", "never join", "the operation");
    case What::gone:
      return says("ends", "end", "before the operation");
    case What::other_operation:
      return says("brings", "bring", "another operation");
    case What::other_size:
      return says("brings", "bring", "another size");
    case What::other_type:
      return says("brings", "bring", "another type");
    case What::other_order:
      return says("begins", "begin", "the next operation first");
    case What::messages_lost:
      return "all ranks join, and the network loses their messages";
  }
  return "";
}

Json reproduction(const HangPicture& picture, const HangCause& cause, const std::string& name, const std::string& why) {
  const int world = std::max(picture.world, 2), per_node = ranks_per_node(world);
  Json s;
  s["name"] = name;
  s["why"] = why;
  s["training_seed"] = 1;
  s["model"] = {{"family", "gpt2"}, {"layers", 2}, {"width", 16}, {"heads", 2}, {"context", 16}, {"vocab", 256}};
  s["data"] = {{"text", "golden/corpus.txt"}};
  // As NCCL: nobody compares what ranks bring, so that a mismatch hangs.
  s["world"] = {{"nodes", world / per_node}, {"ranks_per_node", per_node}, {"network", "ib"}, {"collectives", "nccl"}};
  s["deepspeed"] = {{"train_batch_size", world},
                    {"train_micro_batch_size_per_gpu", 1},
                    {"zero_optimization", {{"stage", step_operation(cause).stage}}},
                    {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.001}}}}}};
  s["steps"] = 3;
  s["faults"] = faults_of(cause);
  s["recovery"] = {{"policy", "stop"}, {"watchdog_s", 600}};
  s["checks"] = {"faults_fired"};
  if (is_absence(cause.what)) {
    std::vector<std::string> ranks;
    for (const int rank : cause.ranks) ranks.push_back(std::to_string(rank));
    s["checks"].push_back(fmt::format("culprit:{}", fmt::join(ranks, ",")));
  }
  // Of operations in another order NCCL shows nothing but a hang.
  if (is_mismatch(cause.what) && cause.what != What::other_order)
    s["expect"] = {{"check_fails", {"collectives_match", "finished"}}};
  else
    s["expect"] = {{"stops", "the recovery policy is to stop"}};
  return s;
}

}  // namespace seeksim::harness
