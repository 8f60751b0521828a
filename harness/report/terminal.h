// What commands print: the result on standard output, complaints on standard error.
#pragma once

#include <string>
#include <string_view>

#include "harness/report/report.h"

namespace seeksim::harness {

// In colour where it is a terminal that shows them, and NO_COLOR is not set.
Style style_of_stdout();
// Text for people on standard output, folded to its width (harness/report/fold.h).
void put(std::string_view text);
// JSON, Markdown and tables: as they are.
void put_data(std::string_view data);
void note(std::string_view text);  // on standard error, where the result itself is on standard output
void complain(const std::string& text);

}  // namespace seeksim::harness
