// What a page of docs/ quotes of the program, between a mark and `<!-- end -->`.
#pragma once

#include <string>

namespace seeksim::harness::calibration::testing {

// Expects that it is `now`. With SEEKSIM_MEND=1 in the environment the page is written again instead.
void page_quotes(const std::string& page, const std::string& mark, const std::string& now);

}  // namespace seeksim::harness::calibration::testing
