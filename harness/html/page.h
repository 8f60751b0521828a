// The skeleton of a page: title, contents, sections, tables. One file: style and script are inside, and its policy
// forbids to load anything.
#pragma once

#include <string>
#include <vector>

namespace seeksim::harness::html {

// All parts are HTML: escaped by those who make them (escape.h).
class Page {
 public:
  // title, subtitle: plain text, escaped here.
  Page(std::string title, std::string subtitle) : title_(std::move(title)), subtitle_(std::move(subtitle)) {}
  // id: a word of letters. body empty: the section is left out.
  void section(const std::string& id, const std::string& heading, const std::string& body);
  // The whole file.
  std::string text() const;

 private:
  std::string title_, subtitle_, contents_, body_;
};

using Cells = std::vector<std::string>;

// A table with a caption, which may be empty. The first cell of a row is its heading.
std::string table(const std::string& caption, const Cells& headings, const std::vector<Cells>& rows);
// A part that is closed at first; it prints open.
std::string folded_part(const std::string& summary, const std::string& body);
std::string paragraph(const std::string& html);
// "PASS" or another word in a box of its colour, with a sentence.
std::string verdict_box(bool good, const std::string& word, const std::string& html);

// What stands in every page (style.cpp).
extern const char* const kStyle;
extern const char* const kScript;

}  // namespace seeksim::harness::html
