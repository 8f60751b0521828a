#include "harness/run/sweep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/shell.h"
#include "harness/loading/features/cpu_only.h"
#include "harness/loading/load.h"
#include "harness/report/progress.h"
#include "harness/report/sweep.h"
#include "harness/run/forked.h"
#include "harness/run/planned_run.h"
#include "harness/scenario/variants.h"

namespace seeksim::harness {
namespace {

// What is known of a row before it runs.
struct Row {
  std::string golden_key;  // empty: it needs no golden
  int ranks = 0;
  std::string why_not;  // the ranks that were asked for cannot run it; empty: they can
};

std::string why_not(const Scenario& scenario, const RanksOptions& ranks) {
  if (ComputesOn{ranks.device, ranks.backend}.gpus()) {
    if (std::string why = cpu_only(scenario); !why.empty()) return why;
  }
  return ranks.why_not ? ranks.why_not(scenario) : "";
}

class Rows {
 public:
  Rows(const Scenario& base, const LoadOptions& load)
      : base_(base), load_(load), settings_(rows_of(base.sweep, base.world.seed)), keys_(axis_keys(base.sweep)) {}

  std::size_t size() const { return settings_.size(); }
  const std::vector<Settings>& settings() const { return settings_; }
  std::string name(std::size_t row) const {
    return fmt::format("{} row {} ({})", base_.file, row, label(settings_[row], keys_));
  }
  // Throws BadInput.
  std::shared_ptr<const Scenario> scenario(std::size_t row) const {
    if (const auto kept = kept_.find(row); kept != kept_.end()) return kept->second;
    LoadOptions options = load_;
    options.row = &settings_[row];
    return std::make_shared<const Scenario>(load_scenario(base_.file, options));
  }
  // By its settings; by its number where the golden is the base's, which a row alone does not know.
  std::string command(std::size_t row, bool with_seed = true) const {
    std::string text = "seeksim run " + for_the_shell(base_.file);
    const auto set = [&](const std::string& one) { text += " --set " + for_the_shell(one); };
    if (load_.seed && with_seed) text += fmt::format(" --seed {}", *load_.seed);
    if (!load_.init.empty()) text += " --init " + for_the_shell(load_.init);
    for (const std::string& one : load_.sets) set(one);
    if (base_.golden.shared) return text + fmt::format(" --row {}", row);
    set("sweep=[]");
    if (base_.by_samples) set("batch_arithmetic=by_samples");
    for (const std::string& one : sets_of(settings_[row])) set(one);
    return text;
  }

  // Loads all, and keeps the first of them for the run: loading the smallest rows takes as long as running them. Throws
  // BadInput listing the rows that are no scenarios.
  std::vector<Row> load_all(const RanksOptions& ranks) {
    constexpr std::size_t kRowsTold = 10;
    std::vector<Row> rows;
    std::vector<Problem> problems;
    std::size_t bad_rows = 0;
    for (std::size_t row = 0; row < size(); ++row) {
      try {
        const std::shared_ptr<const Scenario> loaded = scenario(row);
        rows.push_back({needs_golden(*loaded) ? golden_key(one_rank(*loaded).train.definition) : "",
                        loaded->world.ranks(), why_not(*loaded, ranks)});
        kept_bytes_ += bytes_of(*loaded);
        if (kept_bytes_ <= kKeptBytesMax) kept_.emplace(row, loaded);
      } catch (const BadInput& bad) {
        if (++bad_rows > kRowsTold) continue;
        for (Problem problem : bad.problems()) {
          problem.what = fmt::format("{} [row {}: {}]", problem.what, row, label(settings_[row], keys_));
          problems.push_back(std::move(problem));
        }
      }
    }
    if (bad_rows == 0) return rows;
    problems.push_back({base_.file, "sweep", fmt::format("{} of {} rows are no scenarios", bad_rows, size()),
                        "Change the axes, or leave rows out with \"sweep_skip\": [ {\"key.path\": value, ...} ]."});
    throw BadInput(std::move(problems));
  }

 private:
  static constexpr std::size_t kKeptBytesMax = 64 << 20;

  // About.
  static std::size_t bytes_of(const Scenario& scenario) {
    constexpr std::size_t kRules = 8192;  // faults, checks, names
    const runtime::Definition& d = scenario.train.definition;
    return sizeof(Scenario) + kRules + d.data.bytes.size() + 4 * d.data.tokens.size() + d.initial_weights.size();
  }

  const Scenario& base_;
  const LoadOptions& load_;
  std::vector<Settings> settings_;
  std::vector<std::string> keys_;
  std::map<std::size_t, std::shared_ptr<const Scenario>> kept_;
  std::size_t kept_bytes_ = 0;
};

// The rows that there are enough processes for, and that these can run. The others are left out, and the report says
// so.
std::vector<std::size_t> rows_that_fit(const Scenario& base, const std::vector<Row>& rows, const RunOptions& options) {
  const ComputesOn on{options.ranks.device, options.ranks.backend};
  std::vector<std::size_t> fit;
  int least = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!options.many.shard.has(row)) continue;
    if (!rows[row].why_not.empty()) continue;
    if (options.ranks.max == 0 || rows[row].ranks <= options.ranks.max) fit.push_back(row);
    least = least == 0 ? rows[row].ranks : std::min(least, rows[row].ranks);
  }
  if (std::all_of(rows.begin(), rows.end(), [](const Row& row) { return !row.why_not.empty(); }))
    throw BadInput(on.option(), fmt::format("not supported, in no row of the sweep: {}", rows.front().why_not),
                   on.gpus() ? "Compute on the CPU." : "Use --backend sim.");
  if (least == 0) {
    throw BadInput(fmt::format("--shard {}/{}", options.many.shard.part + 1, options.many.shard.of),
                   fmt::format("the sweep has {} rows, and none is this shard's", rows.size()), "Use fewer shards.");
  }
  if (fit.empty()) {
    throw BadInput(
        base.file,
        fmt::format("each row of the sweep has {} ranks or more, and there are {} processes", least, options.ranks.max),
        fmt::format("Start it with mpirun -np {} or more.", least));
  }
  return fit;
}

// Goldens that several rows share, each run once before the rows fork. A golden of one row is that row's own work.
class SharedGoldens {
 public:
  // fit: the rows that are run.
  SharedGoldens(const Scenario& base, const Rows& rows, const std::vector<Row>& known,
                const std::vector<std::size_t>& fit, const RunOptions& options, const Print& print)
      : keys_(rows.size()), shared_(base.golden.shared) {
    for (const std::size_t row : fit) keys_[row] = known[row].golden_key;
    std::map<std::string, std::size_t> users;
    for (const std::string& key : keys_) users[shared_ ? "" : key] += !key.empty();
    if (shared_) {
      if (users[""] > 0) take("", find_golden(base, options, print), users[""]);
      return;
    }
    for (std::size_t row = 0; row < keys_.size(); ++row) {
      if (users[keys_[row]] < 2 || goldens_.count(keys_[row]) > 0) continue;
      take(keys_[row], find_golden(*rows.scenario(row), options, print), users[keys_[row]]);
    }
  }
  const Golden* of(std::size_t row) const {
    const auto found = goldens_.find(shared_ ? "" : keys_[row]);
    return keys_[row].empty() || found == goldens_.end() ? nullptr : &found->second;
  }
  const std::vector<Json>& told() const { return told_; }

 private:
  void take(const std::string& key, Golden golden, std::size_t users) {
    told_.push_back({{"key", golden.key}, {"stored", golden.stored}, {"origin", golden.origin}, {"rows", users}});
    goldens_.emplace(key, std::move(golden));
  }

  std::vector<std::string> keys_;
  bool shared_;
  std::map<std::string, Golden> goldens_;
  std::vector<Json> told_;
};

TooLarge too_large_of(const std::vector<Row>& rows, int ranks_max) {
  TooLarge out{0, ranks_max, 0};
  for (const Row& row : rows) {
    out.rows += ranks_max > 0 && row.ranks > ranks_max;
    out.ranks_wanted = std::max(out.ranks_wanted, row.ranks);
  }
  return out;
}

UnsupportedRows unsupported_of(const std::vector<Row>& rows, int ranks_max) {
  UnsupportedRows out;
  for (const Row& row : rows) {
    if (row.why_not.empty() || (ranks_max > 0 && row.ranks > ranks_max)) continue;
    if (out.rows++ == 0) out.why = row.why_not;
  }
  return out;
}

RunOptions options_of_a_row(const RunOptions& options, const Scenario& base, std::size_t row) {
  RunOptions mine = options;
  mine.progress = false;
  mine.many.is_row = true;
  mine.names = {};  // the sweep asks for one row
  // Real files of rows that run at once must not meet.
  const bool files = base.real_storage || (options.ranks.launch && !options.files.out.empty());
  mine.files.html = {};  // the sweep has one page
  mine.files.monitors_below =
      fmt::format("{}{}row-{:03}", options.files.monitors_below, options.files.monitors_below.empty() ? "" : "/", row);
  if (!options.files.tensorboard.empty())
    mine.files.tensorboard = fmt::format("{}/row-{:03}", options.files.tensorboard, row);
  mine.files.out = files ? fmt::format("{}/row-{}", options.files.out.empty() ? "." : options.files.out, row) : "";
  return mine;
}

Outcome run_row(const Scenario& base, const Rows& rows, const RunOptions& options, const Print& print) {
  const auto row = std::size_t(options.many.row);
  if (row >= rows.size()) {
    throw BadInput(fmt::format("--row {}", row), fmt::format("the sweep has {} rows", rows.size()),
                   fmt::format("Use 0..{}.", rows.size() - 1));
  }
  print(options.style.faint(fmt::format("  row {}: {}\n", row, rows.command(row))));
  const std::shared_ptr<const Scenario> scenario = rows.scenario(row);
  RunOptions mine = options;
  mine.many.is_row = true;
  mine.files.html.command = rows.command(row, false);  // its page adds the schedule, which has the seed
  std::optional<Golden> golden;
  if (base.golden.shared && needs_golden(*scenario)) golden = find_golden(base, options, print);
  mine.golden = golden ? &*golden : nullptr;
  return run_scenario(*scenario, mine, print);
}

void refuse_saving(const RunOptions& options) {
  if (!options.files.trace.empty())
    throw BadInput("--trace " + options.files.trace, "a sweep has many runs", "Draw one of them: --row N.");
  if (!options.files.metrics.empty())
    throw BadInput("--metrics " + options.files.metrics, "a sweep has many runs", "Name one of them: --row N.");
  if (options.files.saves()) throw BadInput("--save-...", "a sweep has many runs", "Name one of them: --row N.");
}

std::size_t combinations(const Sweep& sweep) {
  Sweep all = sweep;
  all.mode = Sweep::Mode::product;
  return rows_of(all, 0).size();
}

}  // namespace

Outcome run_sweep(const Scenario& base, const LoadOptions& load, const RunOptions& options, const Print& print) {
  const auto start = std::chrono::steady_clock::now();
  Rows rows(base, load);
  if (options.many.row >= 0) return run_row(base, rows, options, print);
  refuse_saving(options);
  if (!options.files.out.empty()) make_folder(options.files.out, "--out");
  std::string text;
  const Print tell = [&](std::string_view part) {
    text += part;
    print(part);
  };
  SweepResult result{base, combinations(base.sweep), {}, {}, {}, 0};
  tell(sweep_header_text(base, rows.settings(), result.combinations, options.style));
  const std::vector<Row> known = rows.load_all(options.ranks);
  const std::vector<std::size_t> fit = rows_that_fit(base, known, options);
  if (options.many.shard.of > 1)
    tell(fmt::format("  shard     {} of {}: {} of {} rows\n", options.many.shard.part + 1, options.many.shard.of,
                     fit.size(), rows.size()));
  result.too_large = too_large_of(known, options.ranks.max);
  result.unsupported = unsupported_of(known, options.ranks.max);
  const SharedGoldens goldens(base, rows, known, fit, options, tell);
  result.goldens = goldens.told();

  Progress bar(options.progress, base.name, std::int64_t(fit.size()), "row");
  std::int64_t red_rows = 0;
  bool named = false;
  Forked work;
  work.count = fit.size();
  work.jobs_each = 16;  // a row takes milliseconds: forking, and touching fresh memory, took a third of it
  work.processes = options.many.processes;
  // A process makes a context on the GPU, which takes longer than a row, and processes take turns there.
  constexpr int kProcessesOfAGpu = 2;
  if (work.processes == 0 && options.ranks.device == "cuda") work.processes = kProcessesOfAGpu;
  work.name = [&](std::size_t job) { return rows.name(fit[job]); };
  work.run = [&](std::size_t job, const Print& say) {
    const std::size_t row = fit[job];
    const auto once = [&] {
      RunOptions mine = options_of_a_row(options, base, row);
      mine.golden = goldens.of(row);
      return run_scenario(*rows.scenario(row), mine, say);
    };
    return retried(options.many.retries, say, [&] { return guarded(rows.name(row), rows.command(row), once); });
  };
  work.done = [&](std::size_t job, const std::string&, const Outcome& outcome) {
    const std::size_t row = fit[job];
    result.rows.push_back({row, rows.settings()[row], rows.command(row), outcome});
    red_rows += is_red(outcome);
    bar.update(0, std::int64_t(job + 1), red_rows);
    const std::string red = red_row_text(result, result.rows.back(), options.style);
    if (red.empty()) return;
    bar.finish();
    tell(red);
    if (named || !options.names || !wants_names(outcome)) return;
    named = true;
    tell(options.names(*rows.scenario(row), outcome.report).text);
  };
  if (options.ranks.launch)
    run_here(work);
  else
    run_forked(work);
  bar.finish();
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  tell(sweep_text(result, options.many.all_rows, options.style));

  Outcome outcome{status_of(result), base.name, sweep_json(result), {}};
  write_folder(options.files.out, to_json(base), text, outcome.report);
  write_page(options.files.html, outcome.report);
  return outcome;
}

}  // namespace seeksim::harness
