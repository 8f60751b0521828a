// What commands print: the result on standard output, complaints on standard error.
#pragma once

#include <string>
#include <string_view>

#include "harness/report/report.h"

namespace seeksim::harness {

bool shows_colour();      // false: NO_COLOR is set, TERM is dumb, or mpirun reads the terminal
Style style_of_stdout();  // in colour where it is a terminal and NO_COLOR is not set
// Text for people on standard output, folded to its width (harness/report/fold.h).
void put(std::string_view text);
// JSON, Markdown and tables: as they are.
void put_data(std::string_view data);
void note(std::string_view text);  // on standard error, where the result itself is on standard output
void complain(const std::string& text);

}  // namespace seeksim::harness
