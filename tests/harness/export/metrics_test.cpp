// Metrics for boards: lines of JSON, one a step, and TensorBoard's event files, read back here and, where it
// is installed, by TensorBoard itself.
#include "harness/export/metrics.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
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

TEST(Metrics, HaveALineForEachStep) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const Ran ran =
      seeksim({"run", file, "--set", "checks=[]", "--metrics", folder.file("m.jsonl"), "--report", folder.file("r")});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const Json report = Json::parse(read_all(folder.file("r")));
  const std::vector<Json> lines = lines_of(folder.file("m.jsonl"));
  ASSERT_EQ(lines.size(), report["loss"].size());
  for (std::size_t step = 0; step < lines.size(); ++step) {
    const Json& line = lines[step];
    EXPECT_EQ(line["step"], step);
    for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped", "committed_s"})
      EXPECT_EQ(line[key], report[key][step]) << key;
    EXPECT_EQ(line["samples"], 8 * (step + 1));
    EXPECT_EQ(line["step_s"].is_null(), step == 0);
    if (step == 0) continue;
    EXPECT_NEAR(line["step_s"].get<double>(),
                line["committed_s"].get<double>() - lines[step - 1]["committed_s"].get<double>(), 1e-12);
  }
}

TEST(Metrics, TellTheAlarmsOfAStepWhereThereAreAny) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text_with(8, ""));
  const Ran ran = seeksim({"run", file, "--set", "checks=[\"alarms:step_s_max\"]", "--set", "alarms.step_s_max=1e-9",
                           "--metrics", folder.file("m.jsonl"), "--report", folder.file("r")});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("alarm step_s_max:"), std::string::npos) << ran.out;
  const std::vector<Json> lines = lines_of(folder.file("m.jsonl"));
  EXPECT_EQ(lines.at(0)["alarms"], Json::array());
  EXPECT_EQ(lines.at(1)["alarms"], Json::array({"step_s_max"}));
  const Json report = Json::parse(read_all(folder.file("r")));
  EXPECT_EQ(report["alarms"][0]["alarm"], "step_s_max");
  EXPECT_EQ(report["alarms"][0]["times"], lines.size() - 1);
  const Ran red = seeksim({"run", file, "--set", "checks=[\"alarms:none\"]", "--set", "alarms.step_s_max=1e-9"});
  EXPECT_EQ(red.status, 1) << red.out;
}

TEST(Metrics, WordsStandForWhatIsNoNumber) {
  RunRecord run = good_run();
  run.steps[1].loss = std::numeric_limits<float>::quiet_NaN();
  run.steps[1].grad_norm = std::numeric_limits<float>::infinity();
  std::istringstream in(metrics_lines(run));
  std::string first, second;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(Json::parse(second)["loss"], "NaN");
  EXPECT_EQ(Json::parse(second)["grad_norm"], "Infinity");
  run.has_values = false;
  const std::string shapes = metrics_lines(run);
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
  const char* named = std::getenv("SEEKSIM_TENSORBOARD_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (output_of(python + " -c 'import tensorboard; print(1)' 2>/dev/null") != "1\n")
    GTEST_SKIP() << python << " has no tensorboard; SEEKSIM_TENSORBOARD_PYTHON names one that has";
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

}  // namespace
}  // namespace seeksim::harness
