// The little Markdown that generated pages are made of. Lines of text fold at 100 columns; rows of tables do not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace seeksim::harness {

// Plain text as Markdown that shows it as it is: `*`, `<` and `>` outside of `code` are escaped, and `|` where the text
// goes into a table.
std::string plain(std::string_view text, bool in_table = false);

// "`text`", also where the text holds backquotes.
std::string code_span(std::string_view text);

// Words of `text` in lines of at most 100 columns, each after the first one indented by `indent`; ends with a newline.
std::string paragraph(std::string_view text, int indent = 0);

// "| a | b |", and a table's first row with the line below it. Cells are Markdown already.
std::string table_row(const std::vector<std::string>& cells);
std::string table_header(const std::vector<std::string>& cells);

}  // namespace seeksim::harness
