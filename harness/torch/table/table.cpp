#include "harness/torch/table/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "harness/input/document.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/torch/child.h"
#include "harness/torch/python.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;
using pytorch::SumOrder;

constexpr double kLimit_s = 3600;     // of one run
constexpr double kHalfUnit = 0x1p-9;  // half a unit in the last place of bf16: what rounding a weight moves it at most
constexpr double kStays_s = 60;       // how long the process that has imported torch waits for the next run

// Orders of sums that measure what an order moves. On two ranks a rotation changes nothing: a sum of two commutes.
std::vector<SumOrder> orders_for(int ranks) {
  if (ranks <= 2) return {SumOrder::two_parts, SumOrder::three_parts};
  return {SumOrder::rotated, SumOrder::two_parts, SumOrder::three_parts};
}

// Whether an earlier command has made this run to its end. A mark that cannot be read is none.
bool was_made(const std::string& file, const Json& mark) {
  try {
    return fs::exists(file) && Document::load(file).json() == mark;
  } catch (const BadInput&) {
    return false;
  }
}

class TableRun {
 public:
  TableRun(const TableRequest& request, Table table, const Print& print);
  Outcome run();

 private:
  // One run in its folder, made or found. problem: why it cannot be used; empty: it can.
  struct Ran {
    std::string folder, problem;
    std::vector<RankRun> ranks;
  };
  Ran ran(const Cell& cell, SumOrder order);
  std::string make(const Cell& cell, SumOrder order, const std::string& folder, const Json& mark);
  void run_row(const Cell& first);
  CellResult judged(const Cell& cell, const Ran& reference);
  void hold(CellResult& result, const Ran& reference, const Ran& other);
  // What other orders of sums move in this row's reference; null: they could not be run, and `problem` says why.
  const Allowance* allowance(const Cell& first, const Ran& reference, std::string& problem);
  // What rounding moves in this row's reference; null as above, or where the row is the one without rounding.
  const Allowance* rounding(const Cell& first, const Ran& reference, std::string& problem);
  void tell(CellResult result);
  Outcome outcome() const;

  const TableRequest& request_;
  Table table_;
  const Print& print_;
  std::string python_;
  Built built_;
  std::vector<CellResult> results_;
  std::map<std::string, Allowance> allowances_;  // by the row's name
};

TableRun::TableRun(const TableRequest& request, Table table, const Print& print)
    : request_(request), table_(std::move(table)), print_(print) {
  if (!fs::is_regular_file(table_.script))
    throw BadInput(table_.file, fmt::format("there is no script {}", table_.script), "Name it as seen from this file.");
  python_ = find_python(request.python);
  built_ = build_backend(python_);
  make_folder(request.out, "--out");
}

std::string TableRun::make(const Cell& cell, SumOrder order, const std::string& folder, const Json& mark) {
  std::error_code ignored;
  fs::remove(folder + "/cell.json", ignored);
  std::vector<std::string> command = {request_.program,
                                      "torch",
                                      "run",
                                      "--np",
                                      std::to_string(ranks_of(cell)),
                                      "--python",
                                      python_,
                                      "--out",
                                      folder,
                                      "--warm",
                                      fmt::format("{}", kStays_s),
                                      "--set",
                                      fmt::format("torch.sums={}", pytorch::name(order))};
  for (const std::string& module : table_.imports) command.insert(command.end(), {"--import", module});
  command.emplace_back("--");
  const std::vector<std::string> script = command_of(table_, cell);
  command.insert(command.end(), script.begin(), script.end());
  const Captured said = capture(command, {{"COLUMNS", "0"}}, kLimit_s);
  if (said.out_of_time) return fmt::format("it took more than {} s", kLimit_s);
  if (!said.ending.good()) {
    const std::string words = fs::exists(folder + "/report.json")
                                  ? Document::load(folder + "/report.json").json().value("sentence", "")
                                  : said.last_words();
    return fmt::format("seeksim torch run ended {}{}", how(said.ending), words.empty() ? "" : ": " + words);
  }
  write_file(folder + "/cell.json", dump(mark));  // last: a run without it is made again
  return "";
}

TableRun::Ran TableRun::ran(const Cell& cell, SumOrder order) {
  Ran found;
  found.folder = fs::absolute(request_.out + '/' + folder_name(table_, cell) +
                              (order == SumOrder::canonical ? "" : "_" + std::string(pytorch::name(order))))
                     .string();
  const Json mark = {{"command", command_of(table_, cell)},
                     {"np", ranks_of(cell)},
                     {"sums", std::string(pytorch::name(order))},
                     {"module", built_.module}};
  if (!was_made(found.folder + "/cell.json", mark)) found.problem = make(cell, order, found.folder, mark);
  if (found.problem.empty()) found.ranks = read_ranks(found.folder, 0);
  return found;
}

const Allowance* TableRun::allowance(const Cell& first, const Ran& reference, std::string& problem) {
  const std::string name = row_name(table_, first);
  if (const auto known = allowances_.find(name); known != allowances_.end()) return &known->second;
  std::vector<std::string> folders;
  for (const SumOrder order : orders_for(ranks_of(first))) {
    const Ran other = ran(first, order);
    if (!other.problem.empty()) {
      problem = fmt::format("the order {} of sums could not be measured: {}", pytorch::name(order), other.problem);
      return nullptr;
    }
    folders.push_back(other.folder);
  }
  return &allowances_.emplace(name, allowance_of(reference.ranks, reference.folder, folders)).first->second;
}

CellResult TableRun::judged(const Cell& cell, const Ran& reference) {
  CellResult result;
  result.cell = cell;
  const Rule rule = table_.expected_of(cell);
  result.expected = rule.grade;
  result.why = rule.why;
  if (!reference.problem.empty()) {
    result.problem = fmt::format("{} failed: {}", table_.compared().values.front(), reference.problem);
    return result;
  }
  const Ran other = ran(cell, SumOrder::canonical);
  result.problem = other.problem;
  if (!result.problem.empty()) return result;
  try {
    hold(result, reference, other);
  } catch (const BadInput& wrong) {  // of one cell: the others are worth something
    result.problem = wrong.problems().front().what;
  }
  result.state = state_of(result);
  return result;
}

const Allowance* TableRun::rounding(const Cell& first, const Ran& reference, std::string& problem) {
  Cell exact = first;
  for (const auto& [name, value] : table_.rounding_by) exact[name] = value;
  if (exact == first) return nullptr;
  const std::string name = "rounding, " + row_name(table_, first);
  if (const auto known = allowances_.find(name); known != allowances_.end()) return &known->second;
  const Ran unrounded = ran(exact, SumOrder::canonical);
  problem = unrounded.problem;
  if (!problem.empty()) return nullptr;
  Allowance measured;
  measured.least = measured.least_of_losses = kHalfUnit;
  measured.add(compare_runs(reference.ranks, unrounded.ranks, reference.folder, unrounded.folder).distances);
  measured.spread();
  return &allowances_.emplace(name, std::move(measured)).first->second;
}

void TableRun::hold(CellResult& result, const Ran& reference, const Ran& other) {
  const auto compare = [&](const Allowance* allowed) {
    return compare_runs(reference.ranks, other.ranks, reference.folder, other.folder, allowed);
  };
  result.found = compare(nullptr);
  if (result.found->grade == Grade::bits || result.expected == Grade::bits) return;
  Cell first = result.cell;
  first[table_.compared().name] = table_.compared().values.front();
  const bool rounds = result.expected == Grade::rounding;
  const Allowance* allowed =
      rounds ? rounding(first, reference, result.problem) : allowance(first, reference, result.problem);
  if (allowed == nullptr) return;
  result.found = compare(allowed);
  if (rounds) result.found->grade = *result.found->of_allowed <= 1 ? Grade::rounding : Grade::different;
}

void TableRun::run_row(const Cell& first) {
  const Ran reference = ran(first, SumOrder::canonical);
  for (std::size_t i = 1; i < table_.compared().values.size(); ++i) {
    Cell cell = first;
    cell[table_.compared().name] = table_.compared().values[i];
    const std::string cannot = table_.cannot_run(cell);
    if (cannot.empty()) {
      tell(judged(cell, reference));
      continue;
    }
    CellResult left_out;
    left_out.cell = cell;
    left_out.state = CellResult::State::left_out;
    left_out.why = cannot;
    tell(std::move(left_out));
  }
}

void TableRun::tell(CellResult result) {
  if (result.state != CellResult::State::left_out) print_(cell_text(table_, result, request_.style));
  results_.push_back(std::move(result));
}

Outcome TableRun::outcome() const {
  Outcome outcome;
  outcome.name = fs::path(table_.file).stem().string();
  outcome.report = table_json(table_, results_, built_.torch);
  const auto count = [&](CellResult::State state) {
    return std::count_if(results_.begin(), results_.end(), [&](const CellResult& one) { return one.state == state; });
  };
  const auto red = count(CellResult::State::red);
  const auto known = std::ssize(results_) - count(CellResult::State::left_out);
  // A table in which nothing could be run proves nothing.
  outcome.status = red > 0 || known == 0 ? ExitStatus::check_failed : ExitStatus::as_expected;
  write_file(request_.out + "/table.txt", table_text(table_, results_));
  outcome.report["sentence"] = fmt::format("{} of {} cells as expected", known - red, known);
  write_file(request_.out + "/table.json", dump(outcome.report));
  return outcome;
}

Outcome TableRun::run() {
  for (const Cell& first : table_.rows()) {
    run_row(first);
    outcome();  // what is known is kept, whatever ends this command
  }
  Outcome done = outcome();
  print_(fmt::format("\n{} {}: {} ({}/table.txt)\n", done.status == ExitStatus::as_expected ? "PASS" : "FAIL",
                     done.name, done.report["sentence"].get<std::string>(), request_.out));
  return done;
}

}  // namespace

CellResult::State state_of(const CellResult& result) {
  if (!result.problem.empty() || !result.found || result.found->grade > result.expected) return CellResult::State::red;
  if (result.found->only_in_a + result.found->only_in_b > 0) return CellResult::State::red;
  return result.found->grade < result.expected ? CellResult::State::nearer : CellResult::State::as_expected;
}

Outcome run_table(const TableRequest& request, const Print& print) {
  Table table = load_table(resolve(request.file, "", "torch table"));
  for (const std::string& only : request.only) keep_only(table, only);
  return TableRun(request, std::move(table), print).run();
}

}  // namespace seeksim::harness::torch
