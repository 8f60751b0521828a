// Checkpoints that somebody else wrote: each of their claims is judged before it is believed. Manifests are sealed
// anew, so that nothing but the claim itself is wrong.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/files/safetensors.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr const char* kScenario =
    R"({ "name": "kept",
  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 64 },
  "data": { "synthetic": true },
  "world": { "nodes": 1, "ranks_per_node": 2, "network": "ib" },
  "deepspeed": { "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 1 },
                 "optimizer": { "type": "AdamW", "params": { "lr": 1e-2 } } },
  "steps": 4,
  "checkpoint": { "path": "kept", "every_steps": 2, "keep": 2, "async": false },
  "checks": [ "golden:bitwise" ] })";

class HostileCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    scenario_ = folder_.write("kept.json", kScenario);
    const Ran ran = seeksim({"run", scenario_, "--storage", "real", "--out", folder_.path()});
    ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
    ASSERT_TRUE(fs::exists(newest() + "/manifest.json"));
    ::alarm(60);  // who waits for ever is ended
  }
  void TearDown() override { ::alarm(0); }

  std::string kept() const { return folder_.file("kept"); }
  std::string newest() const { return kept() + "/step-0000000004"; }
  static std::string manifest_of(const std::string& step) { return step + "/manifest.json"; }

  void write(const std::string& path, const std::string& bytes) const {
    folder_.write(fs::relative(path, folder_.path()), bytes);
  }
  void seal(const std::string& path, json manifest) const {
    manifest.erase("digest");
    const std::string text = manifest.dump();
    manifest["digest"] = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
    write(path, manifest.dump());
  }
  // Writes a file of the newest checkpoint again, and what the manifest says of it.
  void rewrite(const std::function<std::string(std::string)>& change) const {
    json manifest = json::parse(read_all(manifest_of(newest())));
    for (json& file : manifest["files"]) {
      const std::string path = newest() + '/' + file["name"].get<std::string>();
      const std::string bytes = change(read_all(path));
      write(path, bytes);
      file["bytes"] = bytes.size();
      file["digest"] = fmt::format("{:016x}", runtime::digest_of_file(bytes));
    }
    seal(manifest_of(newest()), manifest);
  }
  void change_model(const char* key, const json& value) const {
    json manifest = json::parse(read_all(manifest_of(newest())));
    manifest["model"][key] = value;
    seal(manifest_of(newest()), manifest);
  }

  Ran verify() const { return seeksim({"checkpoint", "verify", kept()}); }
  // Goes on, one step further than was saved.
  Ran resume() const {
    return seeksim({"run", scenario_, "--storage", "real", "--out", folder_.path(), "--resume", "--set", "steps=5"});
  }
  // The newest one is refused with these words, by `verify` and by who goes on: from the one before, in its bits.
  void expect_refused(const std::string& words) const {
    for (const char* verb : {"verify", "inspect"}) {
      const Ran ran = seeksim({"checkpoint", verb, kept()});
      EXPECT_EQ(ran.status, 1) << ran.out << ran.err;
      EXPECT_NE(ran.out.find(words), std::string::npos) << words << '\n' << ran.out;
    }
    const Ran ran = resume();
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_NE(ran.out.find("after step 2 of an earlier run"), std::string::npos) << ran.out;
  }

  TemporaryFolder folder_;
  std::string scenario_;
};

// A checkpoint's header is padded to whole multiples of 8 bytes; this one is not, as other tools may write it.
std::string padded_by(std::string file, std::uint64_t bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  file.insert(std::size_t(8 + length), std::string(bytes, ' '));
  length += bytes;
  std::memcpy(file.data(), &length, 8);
  return file;
}

TEST_F(HostileCheckpoint, AnUntouchedOneIsGoneOnWith) {
  rewrite([](std::string file) { return padded_by(file, 8); });
  EXPECT_EQ(verify().status, 0);
  const Ran ran = resume();
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_NE(ran.out.find("after step 4 of an earlier run"), std::string::npos) << ran.out;
}

TEST_F(HostileCheckpoint, ValuesThatBeginBetweenTwoElementsAreNotReadShifted) {
  rewrite([](std::string file) { return padded_by(file, 2); });
  expect_refused("which is no multiple of the 4 bytes of an element");
}

TEST_F(HostileCheckpoint, WeightsThatAreIntegersAreRefused) {
  rewrite([](const std::string& file) {
    std::vector<runtime::TensorBytes> tensors = runtime::read_safetensors(file);
    for (runtime::TensorBytes& tensor : tensors) tensor.dtype = runtime::DType::i32;
    return runtime::write_safetensors(tensors);
  });
  const Ran converted = seeksim({"checkpoint", "convert", newest(), folder_.file("out.safetensors")});
  EXPECT_EQ(converted.status, 2) << converted.err;
  expect_refused("is I32; F32, F16 or BF16 is expected");
}

TEST_F(HostileCheckpoint, AModelThatThereCannotBeIsRefused) {
  const std::pair<const char*, json> wrong[] = {{"kv_heads", -1},       {"ffn", -8},     {"heads", 3}, {"heads", 0},
                                                {"layers", 2000000000}, {"width", 1e300}};
  for (const auto& [key, value] : wrong) {
    const std::string before = read_all(manifest_of(newest()));
    change_model(key, value);
    const Ran ran = verify();
    EXPECT_EQ(ran.status, 1) << key << ran.out;
    EXPECT_NE(ran.out.find("the manifest.model"), std::string::npos) << key << ran.out;
    write(manifest_of(newest()), before);
  }
  change_model("family", "zzz");
  const Ran ran = verify();
  EXPECT_EQ(ran.status, 1) << ran.out;
  EXPECT_NE(ran.out.find("family 'zzz', which is not known here"), std::string::npos) << ran.out;
}

// The manifest and the file's own header agree on 32 GiB, of which 126 bytes are there.
TEST_F(HostileCheckpoint, ASizeThatIsOnlyClaimedCostsNoMemory) {
  for (const std::uint64_t claimed : {std::uint64_t(32) << 30, std::uint64_t(1) << 58}) {
    json manifest = json::parse(read_all(manifest_of(newest())));
    json& file = manifest["files"][0];
    const std::string header = fmt::format(
        R"({{"wte.weight/weights/0":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", claimed / 4, claimed);
    std::string bytes(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, 8);
    bytes += header;
    write(newest() + '/' + file["name"].get<std::string>(), bytes);
    file["bytes"] = bytes.size() + claimed;
    seal(manifest_of(newest()), manifest);
    expect_refused(fmt::format("has {} bytes, not {}", bytes.size(), bytes.size() + claimed));
  }
}

TEST_F(HostileCheckpoint, ASparseFileIsNotReadToSeeThatItIsTooLong) {
  const std::string file = newest() + "/rank-00001.safetensors";
  fs::resize_file(file, std::uint64_t(64) << 30);
  expect_refused("has more than");
  fs::resize_file(manifest_of(newest()), std::uint64_t(64) << 30);
  expect_refused("16777216 bytes that are read at most");
}

TEST_F(HostileCheckpoint, DeepJsonIsRefusedAndNotCopied) {
  std::string text = read_all(manifest_of(newest()));
  text.resize(text.find_last_of('}'));
  write(manifest_of(newest()), text + ", \"deep\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  expect_refused("the manifest is nested deeper than 32 levels");
}

TEST_F(HostileCheckpoint, APipeInItsFolderKeepsNobodyWaiting) {
  for (const std::string& file : {newest() + "/rank-00000.safetensors", manifest_of(newest())}) {
    ASSERT_TRUE(fs::remove(file));
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_refused("Invalid argument");
  }
}

}  // namespace
}  // namespace seeksim::harness
