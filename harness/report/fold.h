// Long lines of a report, folded to the width of the terminal.
#pragma once

#include <string>
#include <string_view>

namespace seeksim::harness {

// Breaks each line that is wider than `columns` at its spaces. What follows is indented to where the text of the line
// began: behind its label, the name of a check, or a time. Colours take no column. Commands to be copied
// ("  replay    seeksim run ...") and words that are wider than the line stay whole. 0: nothing is folded.
std::string folded(std::string_view text, int columns);

// How wide standard output is: COLUMNS where it is set to a number (0: never fold), else the terminal's width, else
// 100.
int columns_of_stdout();

}  // namespace seeksim::harness
