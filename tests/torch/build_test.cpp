// The cache of built backends: what is there is used at once, whatever else is being compiled.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class TorchBuild : public testing::ScriptRuns {
 protected:
  // What `python -m seeksim_torch.build` says of the backend for this torch.
  json build(int limit_s) {
    const Captured ran = capture({python_, "-m", "seeksim_torch.build"},
                                 {{"PYTHONPATH", paths::source_dir() + "/pytorch/python"}}, limit_s);
    EXPECT_FALSE(ran.out_of_time);
    EXPECT_STATUS(ran, 0);
    return json::parse(ran.out, nullptr, false);
  }
};

// As another process does that compiles. Where one really does, it is locked already.
class Locked {
 public:
  explicit Locked(const std::string& path) : file_(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) {
    EXPECT_TRUE(::flock(file_, LOCK_EX | LOCK_NB) == 0 || errno == EWOULDBLOCK) << path;
  }
  ~Locked() { ::close(file_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int file_;
};

TEST_F(TorchBuild, WhatIsBuiltIsUsedWhileAnythingIsCompiled) {
  const std::filesystem::path module = build(testing::kLimit_s)["module"].get<std::string>();
  const std::filesystem::path built = module.parent_path(), cache = built.parent_path();
  const auto before = std::filesystem::last_write_time(built / "build.json");
  const Locked whole((cache / ".lock").string()), own(built.string() + ".lock"), another((cache / "x.lock").string());
  const json again = build(60);
  ASSERT_TRUE(again.is_object());
  EXPECT_EQ(again["module"], module.string());
  EXPECT_EQ(again["built_s"], 0);
  EXPECT_GT(std::filesystem::last_write_time(built / "build.json"), before) << "what is used is not forgotten";
  std::filesystem::remove(cache / "x.lock");
}

}  // namespace
}  // namespace seeksim::harness::torch
