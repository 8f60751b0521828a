// What small runs cost and how they went, held to stored values: virtual times, overlaps, bytes, memory, recoveries and
// the fingerprint of every operation. Bits are held by goldens and limits by checks; nothing else would see a kernel
// that costs twice as much, a meter that stops too late or a message that two ranks exchange for nothing.
//
// SEEKSIM_MEND=1 in the environment writes them again: where a change is meant, the difference says what it costs.
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// A scenario or a row of one, and further arguments of `run`. Small ones: all of them take seconds.
constexpr const char* kRuns[] = {
    "rank_crash",
    "rank_crash --set world.sums=messages",
    "straggler",
    "zero_equivalence --row 0 --set world.sums=messages",
    "zero_equivalence --row 77",
    "zero_equivalence --row 201",
    "zero_equivalence --row 201 --set world.sums=messages",
    "equivalence/checkpoint_resume --row 4",
    "equivalence/checkpoint_resume --row 30",
    "equivalence/checkpointing_equivalence --row 21",
    "equivalence/checkpointing_equivalence --row 40",
    "equivalence/compression_equivalence --row 40",
    "equivalence/compression_equivalence --row 87",
    "equivalence/dropout_equivalence --row 33",
    "equivalence/experts --row 17",
    "equivalence/experts --row 60",
    "equivalence/fused_attention --row 3",
    "equivalence/fast_within_bounds --row 9",
    "equivalence/llama_equivalence --row 31",
    "equivalence/offload_equivalence --row 5",
    "equivalence/offload_equivalence --row 64",
    "equivalence/offload_equivalence --row 111",
    "equivalence/parallel_3d --row 100",
    "equivalence/pipeline_equivalence --row 7",
    "equivalence/pipeline_equivalence --row 62",
    "equivalence/precision_equivalence --row 120",
    "equivalence/precision_equivalence --row 301",
    "equivalence/tensor_equivalence --row 50",
    "equivalence/tensor_equivalence --row 101",
    "equivalence/ranks_without_parameters --row 3",
    "memory/nvme_faults --row 3",
    "memory/offload_parameters",
    "memory/zero_table_7_5b --row 1",
    "oom_natural",
    "numbers/divergence_rollback",
    "numbers/loss_scale_dynamics",
    "numbers/rerun_bad_rank",
    "network/late_joiner",
    "network/link_drop_permanent",
    "network/message_corrupt",
    "pace/pipeline_bubble --row 6",
    "pace/straggler_evicted",
    "quirks/accumulates_in_bf16",
    "deaths/checkpoint_restart --row 1",
    "deaths/peer_copies --row 0",
    "deaths/rank_returns --row 0",
    "deaths/spare_takes_over --row 2",
    "deaths/zero3_owner_dies",
};
// What a report says of a run beside its bits and its verdict.
constexpr const char* kFields[] = {
    "params_digest", "fingerprint",      "virtual_s",    "committed_s", "faults", "recoveries",
    "attempts",      "analysis",         "joins",        "comm",        "memory", "layout",
    "figures",       "accesses_checked", "comm_overlap", "copy_overlap"};

std::vector<std::string> words(const std::string& run) {
  std::vector<std::string> all;
  std::istringstream in(run);
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

// Zeros and what is left out say the same, and the stored file is read by people.
Json without_zeros(const Json& of) {
  if (!of.is_object()) return of;
  Json left = Json::object();
  for (const auto& [key, value] : of.items()) {
    const Json inner = without_zeros(value);
    const bool zero = inner.is_null() || (inner.is_number() && inner == 0) || (inner.is_object() && inner.empty());
    if (!zero && key != "what") left[key] = inner;
  }
  return left;
}

Json figures_of(const std::string& run) {
  TemporaryFolder folder;
  std::vector<std::string> arguments = words(run);
  arguments[0] = paths::source_dir() + "/scenarios/" + arguments[0] + ".json";
  arguments.insert(arguments.begin(), "run");
  arguments.insert(arguments.end(), {"-j", "1", "--no-names", "--report", folder.file("report.json")});
  const Ran ran = seeksim(arguments);
  EXPECT_EQ(ran.status, 0) << run << '\n' << ran.out << ran.err;
  const Json report = Json::parse(read_all(folder.file("report.json")));
  Json kept = Json::object();
  for (const char* field : kFields) kept[field] = report.at(field);
  return without_zeros(kept);
}

TEST(StoredFigures, OfSmallRunsAreTheSame) {
  const std::string file = paths::source_dir() + "/tests/harness/data/stored_figures.json";
  const bool mends = std::getenv("SEEKSIM_MEND") != nullptr;
  const Json stored = mends ? Json::object() : Json::parse(read_all(file));
  Json now = Json::object();
  for (const std::string run : kRuns) {
    now[run] = figures_of(run);
    if (mends) continue;
    ASSERT_TRUE(stored.contains(run)) << run << " is new: SEEKSIM_MEND=1 writes its figures";
    ASSERT_EQ(now[run], stored.at(run)) << run << " differs: " << Json::diff(stored.at(run), now[run]).dump(1)
                                        << "\nIf that is meant, SEEKSIM_MEND=1 writes the figures again.";
  }
  if (!mends) return;
  std::ofstream out(file);
  out << "{";
  const char* between = "\n";
  for (const auto& [run, figures] : now.items()) {
    out << between << Json(run) << ": {";
    const char* comma = "\n  ";
    for (const auto& [field, value] : figures.items()) {
      out << comma << Json(field) << ": " << value.dump();
      comma = ",\n  ";
    }
    out << "}";
    between = ",\n";
  }
  out << "\n}\n";
}

}  // namespace
}  // namespace seeksim::harness
