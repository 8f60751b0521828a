#include "harness/releases/exhibit.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/input/document.h"
#include "harness/input/files.h"
#include "harness/input/schema.h"

namespace seeksim::harness::releases {
namespace {

using namespace shapes;

constexpr const char* kFolder = "examples/pytorch/museum";
constexpr std::uint64_t kBytesMax = 1 << 20;
constexpr int kRanksMax = 8;

Shape words() { return text().length(1, 1000).required(); }
Shape arguments() { return list(text()).standard(Json::array()); }

// What rows cannot say by themselves.
void refuse_contradictions(const Exhibit& exhibit, Findings& findings) {
  if (!exhibit.check.empty() && (!exhibit.against.empty() || exhibit.against_ranks > 0))
    findings.add("/against", "an exhibit has either a second run or a check", "Leave one of against and check out.");
  if (exhibit.open() && exhibit.way_round == exhibit.arguments)
    findings.add("/good", "an open bug needs a way round it", "Name another release, or give way_round.");
  if (exhibit.check == "finished" && exhibit.says.empty())
    findings.add("/says", "a script can fail for many reasons", "Give words of the error that the bug raises.");
  const std::vector<std::string>& groups = exhibit_groups();
  if (std::find(groups.begin(), groups.end(), exhibit.group) == groups.end())
    findings.add("/group", "there is no such group", did_you_mean(exhibit.group, groups));
}

}  // namespace

const std::vector<std::string>& exhibit_groups() {
  static const std::vector<std::string> all = {"normalisation", "accumulation", "schedule", "data",     "state",
                                               "precision",     "sharding",     "offload",  "pipeline", "experts"};
  return all;
}

const Keys<Exhibit>& exhibit_keys() {
  static const Keys<Exhibit> keys = {
      {"group", at(&Exhibit::group), words(), kNoBit, "What it is about; see exhibit_groups()."},
      {"symptom", at(&Exhibit::symptom), words(), kNoBit, "What a user sees, or does not see."},
      {"cause", at(&Exhibit::cause), words(), kNoBit, "What the code does wrong."},
      {"fix", at(&Exhibit::fix), words(), kNoBit, "What was changed, or what one can do instead."},
      {"source", at(&Exhibit::source), words(), kNoBit, "Project and number of issues and pull requests."},
      {"package", at(&Exhibit::package), words(), kNoBit, "The package with the bug, by its name on PyPI."},
      {"bad", at(&Exhibit::bad), words(), kNoBit, "A release with the bug."},
      {"good", at(&Exhibit::good), words(), kNoBit, "A release without it; an open bug: the same."},
      {"pins", at(&Exhibit::pins), arguments(), kNoBit, "Other packages: name==version."},
      {"np", at(&Exhibit::ranks), integer(1, kRanksMax), kNoBit, "Ranks."},
      {"script", at(&Exhibit::script), words(), kNoBit, "The script, beside this file."},
      {"arguments", at(&Exhibit::arguments), arguments(), kNoBit, "Its arguments."},
      {"against", at(&Exhibit::against), arguments(), kNoBit,
       "Arguments of a second run that ought to train the same weights; made where there is no check."},
      {"against_np", at(&Exhibit::against_ranks), integer(0, kRanksMax), kNoBit, "Ranks of that run; 0: the same."},
      {"way_round", at(&Exhibit::way_round), arguments(), kNoBit,
       "An open bug: arguments in place of `arguments` with which it is not seen."},
      {"grade", at(&Exhibit::grade), choice({"bits", "reassociated", "rounding"}), kNoBit,
       "How near the weights of the two runs have to be."},
      {"losses", at(&Exhibit::losses), flag(), kNoBit, "Whether losses are compared too."},
      {"check", at(&Exhibit::check), text().standard(""), kNoBit, "The judge that is red, where nothing is compared."},
      {"says", at(&Exhibit::says), text().standard(""), kNoBit, "Words that the verdict has to contain."},
  };
  return keys;
}

Exhibit read_exhibit(const std::string& text, const std::string& file) {
  const Document document = Document::from_text(text, file);
  Findings findings(document);
  for (const SchemaProblem& problem : explain(exhibit_keys().shape().schema(), document.json()))
    findings.add(problem.pointer, problem.what, problem.next);
  Exhibit exhibit;
  exhibit_keys().read(Reader(document.json(), "", findings), exhibit);
  if (findings.empty()) refuse_contradictions(exhibit, findings);
  if (!findings.empty()) throw BadInput(findings.take());
  const std::size_t slash = file.rfind('/');
  exhibit.folder = slash == std::string::npos ? "." : file.substr(0, slash);
  exhibit.name = file.substr(slash == std::string::npos ? 0 : slash + 1);
  exhibit.name = exhibit.name.substr(0, exhibit.name.rfind(".json"));
  return exhibit;
}

namespace {
std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = closest(name, known), all = "`seeksim torch museum --list` lists them all.";
  return near.empty() ? all : fmt::format("Did you mean {}? {}", near, all);
}
}  // namespace

std::vector<Exhibit> exhibits(const std::vector<std::string>& names) {
  const std::string folder = own_file(kFolder, "seeksim torch museum");
  std::vector<std::string> known;
  for (const std::string& file : list_folder(folder))
    if (file.ends_with(".json")) known.push_back(file.substr(0, file.size() - 5));
  if (known.empty()) throw BadInput(folder, "there are no exhibits", "Run it in seeksim's source tree.");
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw BadInput("museum " + name, "there is no such exhibit", nearest(name, known));
  }
  std::vector<Exhibit> all;
  for (const std::string& name : names.empty() ? known : names) {
    const std::string file = folder + '/' + name + ".json";
    all.push_back(read_exhibit(read_file(file, kBytesMax), file));
  }
  return all;
}

std::vector<std::string> pins_with(const Exhibit& exhibit, const std::string& version) {
  std::vector<std::string> pins = exhibit.pins;
  pins.push_back(exhibit.package + "==" + version);
  return pins;
}

}  // namespace seeksim::harness::releases
