// Files that are no files: nothing waits for the other end of a pipe, and nothing is read from a device.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>

#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/machine/regular_file.h"

namespace seeksim::runtime {
namespace {

class SpecialFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "seeksim-files-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
    std::filesystem::create_symlink("/dev/zero", folder_ + "/device");
    std::ofstream(folder_ + "/file") << "hello";
    ::alarm(20);  // who waits for ever is ended
  }
  void TearDown() override {
    ::alarm(0);
    std::filesystem::remove_all(folder_);
  }
  std::string folder_;
};

TEST_F(SpecialFiles, AStorageNeitherReadsNorWritesThem) {
  PosixStorage storage(folder_);
  std::byte byte{};
  for (const char* name : {"pipe", "device"}) {
    const std::function<void()> acts[] = {[&] { storage.read(name); },
                                          [&] {
                                            storage.read_at(name, 0, {&byte, 1});
                                          },
                                          [&] { storage.write(name, "x"); },
                                          [&] {
                                            storage.write_at(name, 0, {&byte, 1});
                                          }};
    for (const auto& act : acts) EXPECT_THROW(act(), SeamError) << name;
  }
  EXPECT_THROW(storage.sync("pipe"), SeamError);
  EXPECT_EQ(storage.read("file"), "hello");
  EXPECT_EQ(storage.read_at("file", 4, {&byte, 1}), 1u);
  EXPECT_EQ(storage.read_at("file", ~std::uint64_t(0), {&byte, 1}), 0u);
  storage.sync(".");
  storage.sync("file");
}

TEST_F(SpecialFiles, SayWhatTheyAre) {
  const auto refused = [&](const char* name) {
    try {
      RegularFile file(folder_ + '/' + name);
      return FileRefused{"not", 0, false};
    } catch (const FileRefused& why) {
      return why;
    }
  };
  EXPECT_TRUE(refused("pipe").special);
  EXPECT_TRUE(refused("device").special);
  EXPECT_EQ(refused(".").error, EISDIR);
  EXPECT_EQ(refused("nothing").error, ENOENT);
  EXPECT_EQ(RegularFile(folder_ + "/file").bytes(), 5u);
}

}  // namespace
}  // namespace seeksim::runtime
