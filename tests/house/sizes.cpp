#include "tests/house/sizes.h"

#include <algorithm>
#include <set>

#include "tests/house/lexer.h"

namespace seeksim::house {
namespace {

constexpr int kTableLinesLeast = 4;

enum class Scope { outside, type, enumeration, code, values };

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Walks over the tokens of a file and measures what its braces enclose.
class Walk {
 public:
  explicit Walk(std::string_view text) : lexed_(lex(text)) {
    std::erase_if(lexed_.tokens, [](const Token& token) { return token.directive; });
    lines_ = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  Sizes run() {
    sizes_.program_lines = lines_;
    block(Scope::outside);
    return std::move(sizes_);
  }

 private:
  const Token& at(std::size_t i) const { return lexed_.tokens[i]; }
  bool over() const { return here_ >= lexed_.tokens.size(); }

  // The rest of a scope, up to its closing brace; returns how many lines of tables it holds.
  int block(Scope scope, ClassSize* type = nullptr) {
    int table_lines = 0;
    std::size_t begin = here_;  // of the statement under way
    int parentheses = 0;
    while (!over() && at(here_).text != "}") {
      const std::string& text = at(here_).text;
      parentheses += text == "(" ? 1 : text == ")" ? -1 : 0;
      if (text == "{") {
        table_lines += opened(scope, begin);
        // After a body a new statement begins; after values and types the statement goes on.
        if (!over() && last_ != Scope::values && last_ != Scope::type && last_ != Scope::enumeration &&
            parentheses == 0)
          begin = here_;
        continue;
      }
      if (text == ";" && parentheses == 0) {
        if (type != nullptr) type->members += members_in(begin, here_);
        begin = here_ + 1;
      }
      if (text == ":" && scope == Scope::type && is_label(begin)) begin = here_ + 1;
      ++here_;
    }
    if (!over()) ++here_;
    return table_lines;
  }

  bool is_label(std::size_t begin) const {
    return here_ == begin + 1 && is_one_of(at(begin).text, {"public", "protected", "private"});
  }

  // A brace: what it opens follows from the statement before it. Returns the lines of tables inside.
  int opened(Scope around, std::size_t begin) {
    const std::size_t brace = here_++;
    const Scope scope = last_ = kind(around, begin, brace);
    const int line = at(std::min(begin, brace)).line;
    int tables = 0;
    if (scope == Scope::type) {
      ClassSize type{name_of_type(begin, brace), line, 0};
      tables = block(scope, &type);
      sizes_.classes.push_back(std::move(type));
    } else {
      tables = block(scope);
    }
    const int end = at(here_ - 1).line;
    if (scope == Scope::values && around != Scope::values && end - at(brace).line + 1 >= kTableLinesLeast) {
      tables = end - at(brace).line + 1;
      if (around != Scope::code) sizes_.program_lines -= tables;
    }
    if (scope == Scope::code && around != Scope::code && around != Scope::values) {
      sizes_.functions.push_back({name_of_function(begin, brace), line, end - line + 1 - tables});
      tables = 0;
    }
    last_ = scope;
    return tables;
  }

  Scope kind(Scope around, std::size_t begin, std::size_t brace) const {
    if (around == Scope::outside || around == Scope::type) {
      const Scope declared = declared_kind(begin, brace);
      if (declared != Scope::values) return declared;
    }
    if (brace == begin) return around == Scope::values ? Scope::values : Scope::code;
    const std::string& before = at(brace - 1).text;
    if (is_one_of(before, {")", "]", "const", "noexcept", "mutable", "override", "final", "else", "do", "try", ";"}))
      return Scope::code;
    return after_return_type(begin, brace) ? Scope::code : Scope::values;
  }

  // The kind of a brace outside functions.
  Scope declared_kind(std::size_t begin, std::size_t brace) const {
    int angles = 0, round = 0;
    bool parameters = false;
    for (std::size_t i = begin; i < brace; ++i) {
      const std::string& text = at(i).text;
      if (text == "<") ++angles;
      if (text == ">") angles = std::max(0, angles - 1);
      round += text == "(" ? 1 : text == ")" ? -1 : 0;
      if (angles > 0 || round > 0) continue;
      if (text == ")") parameters = true;
      if (parameters) continue;
      if (text == "=") return Scope::values;
      if (text == "namespace" || text == "extern") return Scope::outside;
      if (text == "enum") return Scope::enumeration;
      if (is_one_of(text, {"class", "struct", "union"})) return Scope::type;
    }
    if (!parameters) return Scope::values;
    return in_initialisers(begin, brace) ? Scope::values : Scope::code;
  }

  // "Lexer(text) : text_{text}": the brace of a member, not of the body.
  bool in_initialisers(std::size_t begin, std::size_t brace) const {
    if (!at(brace - 1).identifier || is_one_of(at(brace - 1).text, {"const", "noexcept", "override", "final", "try"}))
      return false;
    int round = 0;
    for (std::size_t i = begin; i < brace; ++i) {
      round += at(i).text == "(" ? 1 : at(i).text == ")" ? -1 : 0;
      if (round == 0 && at(i).text == ":" && i > begin) return true;
    }
    return false;
  }

  // "[](int x) -> Index {": a lambda that says what it returns.
  bool after_return_type(std::size_t begin, std::size_t brace) const {
    for (std::size_t i = brace; i-- > begin && brace - i < 12;) {
      if (at(i).text == "->") return i > 0 && is_one_of(at(i - 1).text, {")", "mutable", "noexcept"});
      if (!at(i).identifier && !is_one_of(at(i).text, {"::", "<", ">", "*", "&", ","})) return false;
    }
    return false;
  }

  std::string name_of_type(std::size_t begin, std::size_t brace) const {
    for (std::size_t i = begin; i + 1 < brace; ++i) {
      if (!is_one_of(at(i).text, {"class", "struct", "union"})) continue;
      if (i > begin && is_one_of(at(i - 1).text, {"<", ","})) continue;  // of a template's parameters
      std::string name = at(i + 1).text;
      for (std::size_t j = i + 2; j + 1 < brace && at(j).text == "::"; j += 2) name += "::" + at(j + 1).text;
      return name;
    }
    return "(without a name)";
  }

  std::string name_of_function(std::size_t begin, std::size_t brace) const {
    int angles = 0;
    for (std::size_t i = begin; i < brace; ++i) {
      if (at(i).text == "<") ++angles;
      if (at(i).text == ">") angles = std::max(0, angles - 1);
      if (at(i).text != "(" || angles > 0 || i == begin) continue;
      std::string name = at(i - 1).text;
      if (i >= begin + 3 && at(i - 2).text == "::") name = at(i - 3).text + "::" + name;
      return name;
    }
    return at(begin).text;
  }

  // Data members that one statement of a class declares.
  int members_in(std::size_t begin, std::size_t end) const {
    static const std::set<std::string, std::less<>> kOthers = {
        "using", "typedef", "friend", "static", "constexpr", "enum", "static_assert", "template", "operator"};
    if (begin >= end) return 0;
    int angles = 0, depth = 0, count = 1;
    bool value = false, body = false, braces = false;
    for (std::size_t i = begin; i < end; ++i) {
      const std::string& text = at(i).text;
      if (kOthers.contains(text) && depth == 0 && !value) return 0;
      if (is_one_of(text, {"class", "struct", "union"}) && i == begin) body = true;
      if (text == "=" && depth == 0) value = true;
      if (!value && text == "<") ++angles;
      if (!value && text == ">") angles = std::max(0, angles - 1);
      if (text == "(" && depth == 0 && angles == 0 && !value && !braces) return 0;  // a function
      if (is_one_of(text, {"(", "{", "["})) ++depth;
      if (text == "{") braces = true;
      if (is_one_of(text, {")", "}", "]"})) --depth;
      if (text == "," && depth == 0 && angles == 0) {
        ++count;
        value = false;
      }
    }
    // "struct X {...};" and "struct X;" declare no object.
    if (body) return at(end - 1).text == "}" || !braces ? 0 : count;
    return count;
  }

  Lexed lexed_;
  Sizes sizes_;
  std::size_t here_ = 0;
  Scope last_ = Scope::outside;
  int lines_ = 0;
};

bool is_measured(std::string_view path) {
  return path.starts_with("kernels/") || path.starts_with("runtime/") || path.starts_with("faults/") ||
         path.starts_with("sim/") || path.starts_with("harness/");
}

}  // namespace

Sizes measure(std::string_view text) { return Walk(text).run(); }

std::vector<Violation> check_sizes(std::string_view path, std::string_view text) {
  std::vector<Violation> out;
  const auto tell = [&](int line, const std::string& what, int is, int most) {
    if (is <= most) return;
    out.push_back({std::string(path), line, what + ": " + std::to_string(is) + ", at most " + std::to_string(most)});
  };
  if (path.starts_with("tests/")) {
    tell(1, "lines of a test", static_cast<int>(std::count(text.begin(), text.end(), '\n')), kTestLinesMost);
    return out;
  }
  if (!is_measured(path)) return out;
  const Sizes sizes = measure(text);
  tell(1, "lines of a source, without its tables", sizes.program_lines, kSourceLinesMost);
  for (const FunctionSize& function : sizes.functions) {
    const bool page = function.name == "Trainer::train_step";
    tell(function.line, "lines of " + function.name + "()", function.lines,
         page ? kTrainStepLinesMost : kFunctionLinesMost);
  }
  for (const ClassSize& type : sizes.classes) {
    tell(type.line, "data members of " + type.name, type.members, kMembersMost);
  }
  return out;
}

}  // namespace seeksim::house
