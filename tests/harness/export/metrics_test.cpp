// Metrics for boards: lines of JSON, one a step and rank, and TensorBoard's event files, read back here and, where it
// is installed, by TensorBoard itself.
#include "harness/export/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "harness/export/event_file.h"
#include "harness/export/tensorboard.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::vector<Json> lines_of(const std::string& file) {
  std::vector<Json> lines;
  std::istringstream in(read_all(file));
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

// What is wrong with the lines of a run, held against its report; empty: nothing.
std::string wrong_with(const std::vector<Json>& lines, const Json& report) {
  const std::size_t steps = report["loss"].size(), ranks = report["world"]["ranks"].get<std::size_t>();
  if (lines.size() != steps * ranks) return fmt::format("{} lines", lines.size());
  std::size_t most = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const std::size_t step = i / ranks;
    const auto fail = [&](const char* what) { return fmt::format("{} of {}", what, line.dump()); };
    if (line["step"] != step || line["rank"] != i % ranks) return fail("the place");
    for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped", "committed_s"})
      if (line[key] != report[key][step]) return fail(key);
    if (line["step_s"].is_null() != (step == 0)) return fail("step_s");
    if (step > 0) {
      const double since = line["committed_s"].get<double>() - lines[(step - 1) * ranks]["committed_s"].get<double>();
      if (std::abs(line["step_s"].get<double>() - since) > 1e-12) return fail("step_s");
    }
    if (line["rank_committed_s"] < line["committed_s"]) return fail("rank_committed_s");
    if (line["memory_bytes"] > line["memory_peak_bytes"] || line["memory_bytes"] <= 0) return fail("memory");
    most = std::max(most, line["memory_peak_bytes"].get<std::size_t>());
    if (step > 0 && line["memory_peak_bytes"] < lines[i - ranks]["memory_peak_bytes"]) return fail("a peak that falls");
  }
  // What is gathered after the last step may need more.
  return most <= report["memory"]["peak_bytes_per_rank_max"].get<std::size_t>() ? "" : "a peak above the report's";
}

TEST(Metrics, HaveALineForEachStepAndRank) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const Ran ran =
      seeksim({"run", file, "--set", "checks=[]", "--metrics", folder.file("m.jsonl"), "--report", folder.file("r")});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const Json report = Json::parse(read_all(folder.file("r")));
  const std::vector<Json> lines = lines_of(folder.file("m.jsonl"));
  EXPECT_EQ(wrong_with(lines, report), "");
  for (const Json& line : lines) {
    EXPECT_EQ(line["samples"], 8 * (line["step"].get<int>() + 1));
    EXPECT_EQ(line["ranks_alike"], 1);
    EXPECT_TRUE(line["straggler_score"].is_null()) << "nobody looks for stragglers";
  }
  // Seen to fail: another rank's place, a number that is not the report's, a peak that falls, a line too few.
  const auto seen = [&](const char* key, const Json& value) {
    std::vector<Json> bad = lines;
    bad.back()[key] = value;
    return wrong_with(bad, report);
  };
  EXPECT_NE(seen("rank", 0).find("place"), std::string::npos);
  EXPECT_NE(seen("loss", 1.0).find("loss"), std::string::npos);
  EXPECT_NE(seen("memory_peak_bytes", 0).find("memory"), std::string::npos);
  EXPECT_NE(seen("rank_committed_s", 0).find("rank_committed_s"), std::string::npos);
  EXPECT_NE(wrong_with({lines.begin(), lines.end() - 1}, report), "");
}

// Scores are those of the report: their mean and their least, by rank.
TEST(Metrics, HaveTheScoresOfStragglers) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const Ran ran = seeksim({"run", file, "--set", "checks=[]", "--set", "recovery.straggler.score_below=0.3",
                           "--metrics", folder.file("m.jsonl"), "--report", folder.file("r")});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const Json report = Json::parse(read_all(folder.file("r")));
  std::map<int, std::vector<double>> scores;
  for (const Json& line : lines_of(folder.file("m.jsonl"))) {
    if (line["straggler_score"].is_number()) scores[line["rank"]].push_back(line["straggler_score"]);
  }
  ASSERT_FALSE(report["stragglers"]["scores"].empty());
  for (const Json& one : report["stragglers"]["scores"]) {
    const std::vector<double>& of_rank = scores[one["rank"]];
    ASSERT_EQ(of_rank.size(), one["steps"].get<std::size_t>());
    EXPECT_EQ(*std::min_element(of_rank.begin(), of_rank.end()), one["least"].get<double>());
  }
}

// A rank that is gone has no more lines, and steps that were undone are not there.
TEST(Metrics, EndWithTheRankAndForgetWhatWasUndone) {
  StepLog log;
  log.begin([](int rank) { return StepLog::Memory{std::size_t(rank), 10}; });
  const auto commit = [&](int rank, std::int64_t step, float loss) {
    runtime::StepRecord told;
    told.step = step;
    told.loss = loss;
    log.committed(rank, told);
  };
  log.scores(1, {0, 1}, {1.0, 0.5});
  for (const std::int64_t step : {0, 1, 2}) {
    for (const int rank : {0, 1}) commit(rank, step, 1);
  }
  log.rolled_back(1);
  commit(0, 1, 2);
  ASSERT_EQ(log.rows().size(), 3u);
  EXPECT_EQ(log.rows().at({1, 0}).told.loss, 2);
  EXPECT_FALSE(log.rows().at({1, 0}).score) << "the score was of the step that was undone";
  EXPECT_EQ(log.rows().at({0, 1}).memory->now, 1u);
  log.stands_for(0, 4);
  EXPECT_EQ(log.weight(0), 4);
  EXPECT_EQ(log.weight(1), 1);
  log.begin({});
  EXPECT_TRUE(log.rows().empty());
  EXPECT_EQ(log.weight(0), 1);
}

// In a run of shapes, ranks that stand for others have a line, with their number.
TEST(Metrics, OfRanksThatAreAlikeHaveALineOfOne) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const Ran ran = seeksim({"run", file, "--set", "checks=[]", "--set", "faults=[]", "--set", "numerics=shapes", "--set",
                           "world.steady=true", "--metrics", folder.file("m.jsonl"), "--report", folder.file("r")});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const Json report = Json::parse(read_all(folder.file("r")));
  std::map<int, int> ranks;  // by step
  for (const Json& line : lines_of(folder.file("m.jsonl"))) {
    ranks[line["step"]] += line["ranks_alike"].get<int>();
    EXPECT_TRUE(line["loss"].is_null());
  }
  ASSERT_FALSE(ranks.empty());
  for (const auto& [step, count] : ranks) EXPECT_EQ(count, report["world"]["ranks"]) << step;
}

TEST(Metrics, TellTheAlarmsOfAStepWhereThereAreAny) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const Ran ran = seeksim({"run", file, "--set", "checks=[\"alarms:step_s_max\"]", "--set", "alarms.step_s_max=1e-9",
                           "--metrics", folder.file("m.jsonl"), "--report", folder.file("r")});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("alarm step_s_max:"), std::string::npos) << ran.out;
  const std::vector<Json> lines = lines_of(folder.file("m.jsonl"));
  for (const Json& line : lines)
    EXPECT_EQ(line["alarms"], line["step"] == 0 ? Json::array() : Json::array({"step_s_max"}));
  const Json report = Json::parse(read_all(folder.file("r")));
  EXPECT_EQ(report["alarms"][0]["alarm"], "step_s_max");
  EXPECT_EQ(report["alarms"][0]["times"], report["loss"].size() - 1);
  const Ran red = seeksim({"run", file, "--set", "checks=[\"alarms:none\"]", "--set", "alarms.step_s_max=1e-9"});
  EXPECT_EQ(red.status, 1) << red.out;
}

TEST(Metrics, WordsStandForWhatIsNoNumber) {
  RunRecord run = good_run();
  run.steps[1].loss = std::numeric_limits<float>::quiet_NaN();
  run.steps[1].grad_norm = std::numeric_limits<float>::infinity();
  StepLog log;
  for (const runtime::StepRecord& step : run.steps) log.committed(0, step);
  std::istringstream in(metrics_lines(run, log));
  std::string first, second;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(Json::parse(second)["loss"], "NaN");
  EXPECT_EQ(Json::parse(second)["grad_norm"], "Infinity");
  run.has_values = false;
  const std::string shapes = metrics_lines(run, log);
  EXPECT_TRUE(Json::parse(shapes.substr(0, shapes.find('\n')))["loss"].is_null()) << "a run of shapes";
}

TEST(Metrics, AreOfOneRun) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  EXPECT_EQ(seeksim({"run", file, file, "--metrics", folder.file("m")}).status, 2);
  EXPECT_EQ(seeksim({"run", file, "--set", "sweep={\"seed\":[1,2]}", "--metrics", folder.file("m")}).status, 2);
  EXPECT_EQ(seeksim({"run", file, "--metrics", folder.file("no/such/folder")}).status, 2);
}

// ---- event files ---------------------------------------------------------------------------------------------------

TEST(EventFile, ChecksumsAreTheOnesOfTheStandard) {
  // RFC 3720, B.4: 32 zero bytes, and 32 of 0xff; masked as TFRecord does.
  const auto masked = [](std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; };
  EXPECT_EQ(masked_crc32c(std::string(32, '\0')), masked(0x8a9136aau));
  EXPECT_EQ(masked_crc32c(std::string(32, '\xff')), masked(0x62a8ab43u));
  EXPECT_EQ(masked_crc32c("123456789"), masked(0xe3069283u));
}

struct Scalar {
  std::string tag;
  std::int64_t step = 0;
  double at = 0;
  float value = 0;
};

// A reader of frames and of the few fields that are written; it trusts nothing.
class Frames {
 public:
  explicit Frames(std::string_view bytes) : left_(bytes) {}
  bool next(std::string_view& message) {
    if (left_.empty()) return false;
    const std::string_view length = take(8);
    EXPECT_EQ(masked_crc32c(length), number<std::uint32_t>(take(4))) << "of a length";
    message = take(number<std::uint64_t>(length));
    EXPECT_EQ(masked_crc32c(message), number<std::uint32_t>(take(4))) << "of a message";
    return true;
  }

 private:
  template <class T>
  static T number(std::string_view bytes) {
    T value{};
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view take(std::size_t n) {
    if (n > left_.size()) throw std::runtime_error("a frame ends too early");
    const std::string_view front = left_.substr(0, n);
    left_.remove_prefix(n);
    return front;
  }
  std::string_view left_;
};

// Calls back for each field of a message: its number and its bytes, or the number that they make.
template <class Take>
void fields_of(std::string_view message, Take take) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = std::uint8_t(message.at(0));
      message.remove_prefix(1);
      value |= std::uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (!message.empty()) {
    const std::uint64_t key = varint();
    const int type = int(key & 7);
    const std::uint64_t n = type == 0 ? varint() : type == 1 ? 8 : type == 5 ? 4 : varint();
    const std::string_view bytes = type == 0 ? std::string_view() : message.substr(0, n);
    if (type != 0) message.remove_prefix(n);
    take(int(key >> 3), bytes, n);
  }
}

std::vector<Scalar> scalars_in(const std::string& bytes, std::string& version) {
  std::vector<Scalar> all;
  Frames frames(bytes);
  for (std::string_view event; frames.next(event);) {
    Scalar one;
    fields_of(event, [&](int field, std::string_view inside, std::uint64_t n) {
      if (field == 1) std::memcpy(&one.at, inside.data(), 8);
      if (field == 2) one.step = std::int64_t(n);
      if (field == 3) version = inside;
      if (field != 5) return;
      fields_of(inside, [&](int, std::string_view value, std::uint64_t) {
        fields_of(value, [&](int part, std::string_view content, std::uint64_t) {
          if (part == 1) one.tag = content;
          if (part == 2) std::memcpy(&one.value, content.data(), 4);
        });
      });
    });
    if (!one.tag.empty()) all.push_back(one);
  }
  return all;
}

TEST(EventFile, HoldsWhatWasWritten) {
  EventFile file;
  file.scalar("train/loss", 3, 1.5, 2.25f);
  file.scalar("x", 1'000'000'000'000, 0, -1.0f);
  std::string version;
  const std::vector<Scalar> all = scalars_in(file.bytes(), version);
  EXPECT_EQ(version, "brain.Event:2");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].tag, "train/loss");
  EXPECT_EQ(all[0].step, 3);
  EXPECT_EQ(all[0].at, 1.5);
  EXPECT_EQ(all[0].value, 2.25f);
  EXPECT_EQ(all[1].step, 1'000'000'000'000);
  EXPECT_EQ(all[1].value, -1.0f);
}

constexpr const char* kEvents = "/events.out.tfevents.0.seeksim";

TEST(TensorBoard, HasTheLossesOfTheRunAndOfEachRow) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  ASSERT_EQ(seeksim({"run", file, "--set", "checks=[]", "--set", "sweep={\"training_seed\":[1,2]}", "--tensorboard",
                     folder.file("tb"), "--report", folder.file("r")})
                .status,
            0);
  const Json report = Json::parse(read_all(folder.file("r")));
  for (int row = 0; row < 2; ++row) {
    std::string version;
    std::vector<float> losses;
    const std::string bytes = read_all(folder.file("tb/row-00" + std::to_string(row)) + kEvents);
    for (const Scalar& one : scalars_in(bytes, version)) {
      if (one.tag == "train/loss") losses.push_back(one.value);
    }
    EXPECT_EQ(Json(losses), report["rows"][std::size_t(row)]["loss"]);
  }
}

// What the program at the other end of a pipe prints.
std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 4096> chunk;
  while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe)) out.append(chunk.data(), n);
  ::pclose(pipe);
  return out;
}

TEST(TensorBoard, ReadsTheFileItself) {
  const char* named = std::getenv("SEEKSIM_READERS_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (output_of(python + " -c 'import tensorboard; print(1)' 2>/dev/null") != "1\n")
    GTEST_SKIP() << python << " has no tensorboard; SEEKSIM_READERS_PYTHON names one that has";
  TemporaryFolder folder;
  RunRecord run = good_run();
  run.steps[2].loss = 1.25f;
  write_tensorboard(folder.file("tb"), run);
  const std::string script = folder.write("read.py", R"(import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print([e.value for e in events.Scalars("train/loss") if e.step == 2])
print(sorted(events.Tags()["scalars"])[:1])
)");
  EXPECT_EQ(output_of(python + ' ' + script + ' ' + folder.file("tb") + " 2>/dev/null"),
            "[1.25]\n['memory/peak_bytes/all']\n");
}

// ---- DeepSpeed's monitors ------------------------------------------------------------------------------------------

// The working folder while it lives: monitors write below it.
class WorksIn {
 public:
  explicit WorksIn(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  WorksIn(const WorksIn&) = delete;
  WorksIn& operator=(const WorksIn&) = delete;
  ~WorksIn() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

constexpr const char* kBoth =
    R"(deepspeed={"train_batch_size":8,"optimizer":{"type":"AdamW","params":{"lr":0.001}},"fp16":{"enabled":true},
"scheduler":{"type":"WarmupLR","params":{"warmup_num_steps":4,"warmup_type":"linear"}},
"csv_monitor":{"enabled":true,"output_path":"logs/","job_name":"bert"},
"tensorboard":{"enabled":true,"output_path":"logs/tb"}})";

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) names.push_back(std::filesystem::relative(entry.path(), folder).native());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Lines of a file of csv_monitor, as step and value.
std::vector<std::pair<std::int64_t, double>> columns_of(const std::string& file, const std::string& header) {
  std::vector<std::pair<std::int64_t, double>> rows;
  std::istringstream in(read_all(file));
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, header + '\r');
  while (std::getline(in, line)) {
    EXPECT_TRUE(line.ends_with('\r')) << line;
    const std::size_t comma = line.find(',');
    rows.emplace_back(std::stoll(line), std::stod(line.substr(comma + 1)));
  }
  return rows;
}

TEST(Monitors, WriteWhatDeepSpeedWrites) {
  TemporaryFolder folder;
  const WorksIn here(folder.path());
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const Ran ran = seeksim({"run", file, "--set", "checks=[]", "--set", kBoth, "--report", folder.file("r")});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("csv_monitor writes files to logs/bert/"), std::string::npos) << ran.out;
  const Json report = Json::parse(read_all(folder.file("r")));
  const auto losses = columns_of("logs/bert/Train_Samples_train_loss.csv", "step,train_loss");
  const auto rates = columns_of("logs/bert/Train_Samples_lr.csv", "step,lr");
  const auto scales = columns_of("logs/bert/Train_Samples_loss_scale.csv", "step,loss_scale");
  const std::size_t steps = report["loss"].size();
  ASSERT_GE(steps, 3u);
  ASSERT_EQ(losses.size(), steps);
  ASSERT_EQ(rates.size(), steps);
  ASSERT_EQ(scales.size(), steps);
  for (std::size_t i = 0; i < steps; ++i) {
    EXPECT_EQ(losses[i].first, std::int64_t(8 * (i + 1)));
    EXPECT_EQ(losses[i].second, report["loss"][i].get<double>());
    if (i + 1 == steps) continue;
    EXPECT_EQ(rates[i].second, report["lr"][i + 1].get<double>()) << "as the schedule stands after the step";
    EXPECT_EQ(scales[i].second, report["loss_scale"][i + 1].get<double>());
  }
  EXPECT_GT(rates.back().second, report["lr"].back().get<double>()) << "the warm-up goes on";
  std::string version;
  std::vector<std::pair<std::int64_t, double>> events;
  for (const Scalar& one : scalars_in(read_all("logs/tb/DeepSpeedJobName/" + std::string(kEvents)), version)) {
    if (one.tag == "Train/Samples/train_loss") events.emplace_back(one.step, double(one.value));
  }
  EXPECT_EQ(events, losses);
}

TEST(Monitors, WriteNothingWhereTheyAreOffOrNothingIsTrained) {
  TemporaryFolder folder, other;
  const WorksIn here(folder.path());
  const std::string file = other.write("s.json", small_text_with(8, ""));
  ASSERT_EQ(
      seeksim({"run", file, "--set", "checks=[]", "--set", "deepspeed.csv_monitor={\"output_path\":\"logs\"}"}).status,
      0);
  ASSERT_EQ(seeksim({"run", file, "--set", "checks=[]", "--set", kBoth, "--check-only"}).status, 0);
  ASSERT_EQ(seeksim({"golden", file, "--set", kBoth, "--explain"}).status, 0);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>());
}

TEST(Monitors, GiveEachRowAFolder) {
  TemporaryFolder folder, other;
  const WorksIn here(folder.path());
  const std::string file = other.write("s.json", small_text_with(8, ""));
  ASSERT_EQ(seeksim({"run", file, "--set", "checks=[]", "--set", "deepspeed.csv_monitor={\"enabled\":true}", "--set",
                     "sweep={\"training_seed\":[1,2]}"})
                .status,
            0);
  EXPECT_EQ(
      names_in(folder.path()),
      (std::vector<std::string>{
          "DeepSpeedJobName/row-000/Train_Samples_lr.csv", "DeepSpeedJobName/row-000/Train_Samples_train_loss.csv",
          "DeepSpeedJobName/row-001/Train_Samples_lr.csv", "DeepSpeedJobName/row-001/Train_Samples_train_loss.csv"}));
}

// A scenario may be a stranger's: it does not choose where on the disk it writes.
TEST(Monitors, NeverLeaveTheWorkingFolder) {
  TemporaryFolder folder, other;
  std::filesystem::create_directory(folder.file("here"));
  const WorksIn here(folder.file("here"));
  const std::string file = other.write("s.json", small_text_with(8, ""));
  for (const std::string& path : {folder.file("there"), std::string("../there"), std::string("logs/../../there")}) {
    const Ran ran = seeksim({"run", file, "--set", "checks=[]", "--set",
                             "deepspeed.csv_monitor={\"enabled\":true,\"output_path\":\"" + path + "\"}"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.out.find("csv_monitor writes nothing"), std::string::npos) << ran.out;
  }
  std::filesystem::create_directory(folder.file("there"));
  std::filesystem::create_symlink(folder.file("there"), "link");
  const Ran linked = seeksim({"run", file, "--set", "checks=[]", "--set",
                              "deepspeed.csv_monitor={\"enabled\":true,\"output_path\":\"link/logs\"}"});
  EXPECT_EQ(linked.status, 2) << linked.out;
  EXPECT_NE(linked.err.find("leads out of the working folder"), std::string::npos) << linked.err;
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>()) << "no file anywhere";
}

TEST(Monitors, AreWrittenBackAsTheyWereRead) {
  TemporaryFolder folder;
  const WorksIn here(folder.path());
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  ASSERT_EQ(seeksim({"run", file, "--set", "checks=[]", "--set", kBoth, "--out", "out"}).status, 0);
  const Json written = Json::parse(read_all("out/scenario.json"))["deepspeed"];
  EXPECT_EQ(written["csv_monitor"], (Json{{"enabled", true}, {"output_path", "logs/"}, {"job_name", "bert"}}));
  EXPECT_EQ(written["tensorboard"]["job_name"], "DeepSpeedJobName");
}

}  // namespace
}  // namespace seeksim::harness
