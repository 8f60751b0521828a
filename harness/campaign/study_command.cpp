#include "harness/campaign/study_command.h"

#include "harness/campaign/picture.h"
#include "harness/campaign/study_report.h"
#include "harness/html/other_pages.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/shell.h"
#include "harness/report/terminal.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {

ExitStatus study_command(const StudyArguments& arguments, const Style& style) {
  const runtime::Interrupts interrupts;
  if (!arguments.csv.empty()) probe_writable(arguments.csv, "--csv " + arguments.csv);
  if (!arguments.json.empty()) probe_writable(arguments.json, "--json " + arguments.json);
  if (!arguments.html.empty()) probe_writable(arguments.html, "--html " + arguments.html);
  if (!arguments.pictures.empty()) make_folder(arguments.pictures, "--pictures " + arguments.pictures);
  const campaign::StudyResult result = campaign::run_study(arguments.file, arguments.sets, arguments.processes);
  if (runtime::interrupted() != 0) return ExitStatus::no_progress;
  put(study_head(result, style));
  put_data(study_table(result));
  put(study_tail(result, style));
  if (!arguments.csv.empty()) write_file(arguments.csv, study_csv(result));
  if (!arguments.json.empty()) write_file(arguments.json, dump(study_json(result)));
  if (!arguments.html.empty()) {
    std::vector<std::string> words = {"seeksim", "study", arguments.file, "--html", arguments.html};
    for (const std::string& set : arguments.sets) words.insert(words.end(), {"--set", set});
    write_file(
        arguments.html,
        html::study_page(study_json(result), {goodput_picture(result), lost_picture(result), survival_picture(result)},
                         command_line(words)));
  }
  if (!arguments.pictures.empty()) {
    write_file(arguments.pictures + "/goodput.svg", goodput_picture(result));
    write_file(arguments.pictures + "/lost.svg", lost_picture(result));
    write_file(arguments.pictures + "/survival.svg", survival_picture(result));
  }
  return status_of(result);
}

}  // namespace seeksim::harness
