// Reference pages, made of the rows that the program itself reads: docs/reference/ cannot say anything else than the
// program does. `seeksim reference` writes them; a test holds the stored ones to these.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness {

// A page or a picture below docs/reference/.
struct Page {
  std::string name;  // "keys.md", "memory.svg"
  std::string text;
};

// What follows the title of each page: the page's maker and its source.
std::string page_head(const std::string& title, const std::string& introduction);

Page keys_page();          // keys of a scenario, from their rows
Page faults_page();        // from the catalogue of faults
Page checks_page();        // from the table of checks
Page quirks_page();        // from the catalogue of quirks
Page planted_bugs_page();  // from the catalogue of planted bugs
Page torch_page();         // keys, judges and faults of seeksim torch
Page studies_page();       // keys and figures of seeksim study
Page calibration_page();   // predicted times and memory against published ones
Page steps_picture();      // the same of steps, as SVG
Page memory_picture();     // and of memory

// The table of scenarios/README.md: each scenario of `folder` and its subfolders (but museum/, which has a table of its
// own) with its `why`, folder by folder.
std::string scenarios_table(const std::string& folder);

// `text` with what stands between the lines `<!-- NAME -->` and `<!-- end -->` replaced. Throws BadInput, which names
// `file`, where the two lines are not there.
std::string with_part_replaced(const std::string& text, const std::string& name, const std::string& part,
                               const std::string& file);

}  // namespace seeksim::harness
