// What shells are given: completion is asked for words as a shell asks, and the manual page is read by troff.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/commands/words/completion.h"
#include "harness/commands/words/man_page.h"
#include "tests/support/processes.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using testing::TemporaryFolder;

bool is_there(const char* program) { return shell(std::string("command -v ") + program).status == 0; }

// What bash offers behind these words, the last of which is being typed.
std::string offered(const TemporaryFolder& folder, const std::string& words) {
  folder.write("seeksim.bash", testing::seeksim({"completion", "bash"}).out);
  folder.write("ask.sh",
               "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _seeksim\n"
               "echo \"${COMPREPLY[*]}\"\n");
  const seeksim::Ran ran = shell("bash " + folder.file("ask.sh") + " " + folder.file("seeksim.bash") + " " + words);
  EXPECT_EQ(ran.status, 0) << ran.text;
  return ran.text.substr(0, ran.text.find('\n'));
}

TEST(Completion, BashOffersCommandsOptionsAndTheirWords) {
  const TemporaryFolder folder;
  EXPECT_EQ(offered(folder, "seeksim expl"), "explore");
  EXPECT_EQ(offered(folder, "seeksim torch comp"), "compare");
  EXPECT_EQ(offered(folder, "seeksim run --verify"), "--verify-determinism");
  EXPECT_EQ(offered(folder, "seeksim run s.json --backend ''"), "sim mpi nccl");
  EXPECT_EQ(offered(folder, "seeksim run --device e"), "emulated");
  EXPECT_EQ(offered(folder, "seeksim launch --backend ''"), "mpi nccl");
  EXPECT_NE(offered(folder, "seeksim torch run --").find("--np"), std::string::npos);
}

TEST(Completion, LeavesFilesAndTheUsersOwnArgumentsToTheShell) {
  const TemporaryFolder folder;
  EXPECT_EQ(offered(folder, "seeksim run --out run"), "");
  EXPECT_EQ(offered(folder, "seeksim torch run --np 2 -- train.py --"), "");
  EXPECT_EQ(offered(folder, "seeksim run run --row"), "--row") << "a scenario may be called as a command";
}

// Descriptions with every quote.
std::vector<CommandWords> hostile() {
  OptionWords option;
  option.names = {"--its", "-i"};
  option.text = "a \"quoted\" it's `one` $HOME \\ 50%: {} 'two'\n.SH NOT A SECTION";
  option.choices = {"a", "c"};
  option.takes_value = true;
  return {{"", "program", {}, {"run"}}, {"run", ".it's: 100% \\fine", {option}, {}}};
}

TEST(Completion, EachShellReadsItsScript) {
  const TemporaryFolder folder;
  int read = 0;
  for (const std::string name : {"bash", "zsh", "fish"}) {
    if (!is_there(name.c_str())) continue;
    ++read;
    const std::string whole = folder.write("whole." + name, testing::seeksim({"completion", name}).out);
    EXPECT_EQ(shell(name + " -n " + whole).text, "") << name;
    const std::string odd = folder.write("odd." + name, completion_script(name, hostile()));
    EXPECT_EQ(shell(name + " -n " + odd).text, "") << name << ": " << testing::read_all(odd);
  }
  EXPECT_GE(read, 1) << "bash is missing";
  const std::string broken = folder.write("broken.bash", "_seeksim() {\n  case x in\n");
  EXPECT_NE(shell("bash -n " + broken).text, "");
}

TEST(Completion, FishOffersTheSame) {
  if (!is_there("fish")) GTEST_SKIP() << "there is no fish here";
  const TemporaryFolder folder;
  const std::string script = folder.write("seeksim.fish", testing::seeksim({"completion", "fish"}).out);
  const auto ask = [&](const std::string& line) {
    return shell("HOME=" + folder.path() + " fish -c 'source " + script + "; complete -C \"" + line + "\"'").text;
  };
  EXPECT_TRUE(ask("seeksim expl").starts_with("explore\t")) << ask("seeksim expl");
  EXPECT_TRUE(ask("seeksim torch comp").starts_with("compare\t"));
  EXPECT_TRUE(ask("seeksim run --device em").starts_with("emulated"));
}

TEST(ManPage, HasEveryCommandAndOptionOfTheReferencePage) {
  const std::string page = testing::read_all(seeksim::paths::source_dir() + "/docs/reference/command-line.md");
  std::string manual;
  for (const char c : testing::seeksim({"man"}).out)
    if (c != '\\') manual += c;
  int commands = 0, options = 0;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t end = page.find('\n', at);
    const std::string line = page.substr(at, end - at);
    at = end == std::string::npos ? page.size() : end + 1;
    if (line.starts_with("## ")) {
      ++commands;
      EXPECT_NE(manual.find(".SS " + line.substr(3) + '\n'), std::string::npos) << line;
    } else if (line.starts_with("| `--")) {
      ++options;
      const std::string name = line.substr(3, line.find_first_of("`,", 3) - 3);
      EXPECT_NE(manual.find("fB" + name + "fR"), std::string::npos) << line;
    }
  }
  EXPECT_GT(commands, 20);
  EXPECT_GT(options, 100);
}

TEST(ManPage, TroffReadsItWithoutAWarning) {
  if (!is_there("groff")) GTEST_SKIP() << "there is no groff here";
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    return shell("groff -man -Tascii -ww -z " + folder.write("page.1", text)).text;
  };
  EXPECT_EQ(read(testing::seeksim({"man"}).out), "");
  EXPECT_EQ(read(man_page(hostile(), "seeksim 1")), "");
  EXPECT_EQ(man_page(hostile(), "seeksim 1").find("\n.SH NOT"), std::string::npos);
  EXPECT_NE(read(".TH A 1\n.SH A\n.NOSUCH request\n"), "");
}

}  // namespace
}  // namespace seeksim::harness
