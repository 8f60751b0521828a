// What the documentation says a reader can type does what it says, and what it shows is what the program prints.
// With SEEKSIM_MEND=1 in the environment the samples are written again instead.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/harness/docs/page_commands.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::docs {
namespace {

namespace fs = std::filesystem;
using harness::testing::read_all;
using harness::testing::TemporaryFolder;

std::string path(const std::string& file) { return seeksim::paths::source_dir() + '/' + file; }

struct Answer {
  int status = -1;
  std::string output;
};

// A folder that looks like the repository, with the program under test in the launcher's place; what commands write
// stays in it.
class Shell {
 public:
  Shell() {
    for (const auto& entry : fs::directory_iterator(seeksim::paths::source_dir())) {
      const std::string name = entry.path().filename().string();
      const bool is_program = name == "seeksim" || name.starts_with("build") || name.starts_with(".");
      if (!is_program) fs::create_symlink(entry.path(), folder_.file(name));
    }
    fs::create_directories(folder_.file("build/release"));
    for (const char* place : {"seeksim", "build/release/seeksim"})
      fs::create_symlink(seeksim::paths::program(), folder_.file(place));
  }

  Answer run(const std::string& command) const {
    const std::string setting = "cd '" + folder_.path() + "'\nexport COLUMNS=100 NO_COLOR=1\n";
    const std::string script = folder_.write("command.sh", setting + command + '\n');
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(("sh '" + script + "' 2>&1").c_str(), "r"), pclose);
    Answer answer;
    std::array<char, 4096> chunk;
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe.get()))
      answer.output.append(chunk.data(), got);
    return answer;
  }

  // With the status, which a pipe would hide.
  Answer run_for_status(const std::string& command) const {
    Answer answer = run(command + "\necho \"status $?\"");
    const std::size_t at = answer.output.rfind("status ");
    answer.status = std::atoi(answer.output.c_str() + at + 7);
    answer.output.resize(at);
    return answer;
  }

 private:
  TemporaryFolder folder_;
};

// Instruction sets that a sample asks for and this processor lacks.
bool can_run(const std::string& command) {
  if (command.find("=avx512") != std::string::npos) return __builtin_cpu_supports("avx512f");
  if (command.find("=avx2") != std::string::npos) return __builtin_cpu_supports("avx2");
  return true;
}

std::vector<std::string> pages() {
  std::vector<std::string> found = {"README.md"};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(path("docs"), none))
    if (entry.path().extension() == ".md") found.push_back("docs/" + entry.path().filename().string());
  std::sort(found.begin() + 1, found.end());
  return found;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

class PagesSlow : public ::testing::TestWithParam<std::string> {};

TEST_P(PagesSlow, HaveCommandsThatEndAsTheySay) {
  const Shell shell;
  for (const PageCommand& command : commands_of(read_all(path(GetParam())))) {
    const Answer answer = shell.run_for_status(command.text);
    EXPECT_EQ(answer.status, command.status) << GetParam() << ':' << command.line << ": " << command.text << '\n'
                                             << answer.output;
  }
}

TEST_P(PagesSlow, HaveSamplesThatTheProgramPrints) {
  const Shell shell;
  const std::string page = read_all(path(GetParam()));
  std::vector<std::string> shown;
  for (const Sample& sample : samples_of(page)) {
    shown.push_back(sample.shown);
    if (!can_run(sample.command)) continue;
    const std::string now = as_shown(sample.command, shell.run(sample.command).output);
    const std::string difference = first_difference(sample.shown, now);
    if (difference.empty()) continue;
    shown.back() = now;
    EXPECT_TRUE(std::getenv("SEEKSIM_MEND") != nullptr)
        << GetParam() << ':' << sample.line << ": " << sample.command << ": " << difference
        << "\nSEEKSIM_MEND=1 in the environment of this test writes the page again.";
  }
  if (std::getenv("SEEKSIM_MEND") != nullptr) std::ofstream(path(GetParam())) << with_samples(page, shown);
}

INSTANTIATE_TEST_SUITE_P(All, PagesSlow, ::testing::ValuesIn(pages()), test_name);

// ---- the two readers of a page --------------------------------------------------------------------------------------

constexpr const char* kPage = R"(# A page
```sh
./seeksim run a.json --set x=1   # exit status 3: nothing moves
./seeksim build                  # not a command of the program
./seeksim run b.json \
    --seed 2
ls
```

The second run ends
with exit status 1.

<!-- not run: there is no GPU -->
```sh
./seeksim run c.json --device cuda
```
<!-- sample: ./seeksim run d.json | tail -1 -->
```text
$ ./seeksim run d.json | tail -1
PASS d
     (wall 1.5 s)
```
<!-- end -->
That was it.
)";

TEST(Pages, AreReadForCommandsAndTheirStatus) {
  const std::vector<PageCommand> commands = commands_of(kPage);
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(commands[0].line, 3);
  EXPECT_EQ(commands[0].text, "./seeksim run a.json --set x=1 ");
  EXPECT_EQ(commands[0].status, 3);
  EXPECT_EQ(commands[1].line, 5);
  EXPECT_EQ(commands[1].text, "./seeksim run b.json     --seed 2");
  EXPECT_EQ(commands[1].status, 1);
}

TEST(Pages, AreReadForSamples) {
  const std::vector<Sample> samples = samples_of(kPage);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].command, "./seeksim run d.json | tail -1");
  EXPECT_EQ(first_difference(samples[0].shown, as_shown(samples[0].command, "PASS d (wall 2.25 s)")), "");
  EXPECT_NE(first_difference(samples[0].shown, as_shown(samples[0].command, "PASS e (wall 1.5 s)")), "");
  EXPECT_NE(first_difference(samples[0].shown, as_shown(samples[0].command, "PASS d")), "");
}

TEST(Pages, ChangeOnlyWithinSamplesWhenTheseAreWrittenAgain) {
  const std::vector<Sample> samples = samples_of(kPage);
  EXPECT_EQ(with_samples(kPage, {samples[0].shown}), kPage);
  const std::string page = with_samples(kPage, {as_shown(samples[0].command, "FAIL d\n")});
  EXPECT_NE(page.find("| tail -1\nFAIL d\n```\n<!-- end -->\nThat was it.\n"), std::string::npos) << page;
  EXPECT_THROW(samples_of("<!-- sample: x -->\n"), std::runtime_error);
}

}  // namespace
}  // namespace seeksim::docs
