#include "harness/report/terminal.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "harness/report/fold.h"

namespace seeksim::harness {

// TERM=dumb shows no colours. What mpirun starts has a terminal of its own, whose output goes wherever mpirun's goes.
bool shows_colour() {
  const char* term = std::getenv("TERM");
  return std::getenv("NO_COLOR") == nullptr && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr &&
         (term == nullptr || std::string_view(term) != "dumb");
}

Style style_of_stdout() {
  Style style;
  style.colour = ::isatty(STDOUT_FILENO) == 1 && shows_colour();
  return style;
}

void put(std::string_view text) { put_data(folded(text, columns_of_stdout())); }

void put_data(std::string_view data) {
  std::fwrite(data.data(), 1, data.size(), stdout);
  std::fflush(stdout);
}

void note(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void complain(const std::string& text) {
  const std::string line = folded("seeksim: " + text + '\n', columns_of_stdout());
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace seeksim::harness
