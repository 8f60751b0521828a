#include "harness/html/page.h"

#include <fmt/format.h>

#include "harness/html/escape.h"

namespace seeksim::harness::html {

void Page::section(const std::string& id, const std::string& heading, const std::string& body) {
  if (body.empty()) return;
  contents_ += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, heading);
  body_ += fmt::format("<section id=\"{0}\" aria-labelledby=\"{0}-h\">\n<h2 id=\"{0}-h\">{1}</h2>\n{2}\n</section>\n",
                       id, heading, body);
}

std::string Page::text() const {
  // The policy holds what the page promises: nothing is loaded from anywhere.
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n", escaped(title_), kStyle);
  out += fmt::format("<header>\n<h1>{}</h1>\n<p class=\"sub\">{}</p>\n", escaped(title_), escaped(subtitle_));
  out += fmt::format("<nav aria-label=\"Contents\"><ul>{}</ul></nav>\n</header>\n<main>\n", contents_);
  out += body_;
  out += "</main>\n<footer><p>Made by seeksim. The JSON report has every number of this page.</p></footer>\n";
  return out + fmt::format("<script>{}</script>\n</body>\n</html>\n", kScript);
}

std::string table(const std::string& caption, const Cells& headings, const std::vector<Cells>& rows) {
  std::string out = "<div class=\"wide\" tabindex=\"0\"><table>\n";
  if (!caption.empty()) out += "<caption>" + caption + "</caption>\n";
  out += "<thead><tr>";
  for (const std::string& heading : headings) out += "<th scope=\"col\">" + heading + "</th>";
  out += "</tr></thead>\n<tbody>\n";
  for (const Cells& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += i == 0 ? "<th scope=\"row\">" + row[i] + "</th>" : "<td>" + row[i] + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string folded_part(const std::string& summary, const std::string& body) {
  return "<details><summary>" + summary + "</summary>\n" + body + "</details>\n";
}

std::string verdict_box(bool good, const std::string& word, const std::string& html) {
  return "<div class=\"verdict " + std::string(good ? "pass" : "fail") + "\"><b>" + word + "</b>" + html + "</div>\n";
}

std::string paragraph(const std::string& html) { return "<p>" + html + "</p>\n"; }

}  // namespace seeksim::harness::html
