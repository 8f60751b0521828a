#include "harness/analyse/pickle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

namespace seeksim::harness {
namespace {

using Index = std::uint32_t;

enum class Kind : std::uint8_t { none, boolean, integer, unsigned_integer, number, text, list, dict };

// A value on the way: strings stay in the file, members are other values. A dict's are key, value, key, value.
struct Value {
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // boolean, integer, unsigned_integer
  double number = 0;
  std::string_view text;
  std::vector<Index> members;
};

// What a pickle could ask to be done, and is not done here.
const char* refused(unsigned char op) {
  switch (op) {
    case 'c':
      return "GLOBAL, which names a class or a function";
    case 'R':
      return "REDUCE, which calls a function";
    case 'b':
      return "BUILD, which fills an object";
    case 'i':
      return "INST, which makes an object";
    case 'o':
      return "OBJ, which makes an object";
    case 'P':
      return "PERSID, which names an object elsewhere";
    case 'Q':
      return "BINPERSID, which names an object elsewhere";
    case 0x81:
      return "NEWOBJ, which makes an object";
    case 0x92:
      return "NEWOBJ_EX, which makes an object";
    case 0x93:
      return "STACK_GLOBAL, which names a class or a function";
    case 0x82:
    case 0x83:
    case 0x84:
      return "EXT, which names a registered class";
    case 0x8f:
    case 0x90:
    case 0x91:
      return "a set";
    case 0x97:
    case 0x98:
      return "a buffer outside the file";
    default:
      return nullptr;
  }
}

class Unpickler {
 public:
  Unpickler(std::string_view bytes, const PickleBounds& bounds) : bytes_(bytes), bounds_(bounds) {}

  Tree run() {
    if (!looks_like_pickle(bytes_)) fail("does not begin with PROTO 2 to 5");
    at_ = 2;
    for (;;) {
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') break;
      if (!scalar(op) && !text(op) && !container(op) && !memo(op) && !stack(op)) {
        if (const char* what = refused(op)) fail(fmt::format("has {}", what));
        fail(fmt::format("has the unknown opcode 0x{:02x}", op));
      }
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("ends with something other than one value");
    return out(stack_.back(), 0);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{} at byte {}", what, at_));
  }

  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_) fail("ends too early");
    const std::string_view part = bytes_.substr(at_, std::size_t(n));
    at_ += std::size_t(n);
    return part;
  }
  std::uint64_t little(int n) {
    std::uint64_t value = 0;
    const std::string_view part = take(std::uint64_t(n));
    for (int i = n; i-- > 0;) value = value << 8 | static_cast<unsigned char>(part[std::size_t(i)]);
    return value;
  }

  void room_for_one(std::size_t have) const {
    if (have >= bounds_.values_max) fail(fmt::format("has more than {} values", bounds_.values_max));
  }
  void push(Index value) {
    room_for_one(stack_.size());
    stack_.push_back(value);
  }
  Value& make(Kind kind) {
    room_for_one(values_.size());
    push(Index(values_.size()));
    values_.emplace_back().kind = kind;
    return values_.back();
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Index pop() {
    if (stack_.size() <= floor()) fail("takes from an empty stack");
    const Index top = stack_.back();
    stack_.pop_back();
    return top;
  }
  // What was pushed since the last mark.
  std::vector<Index> pop_to_mark() {
    if (marks_.empty()) fail("has no mark");
    const auto from = stack_.begin() + std::ptrdiff_t(marks_.back());
    std::vector<Index> members(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return members;
  }

  bool scalar(unsigned char op) {
    switch (op) {
      case 'N':
        make(Kind::none);
        return true;
      case 0x88:
      case 0x89:
        make(Kind::boolean).integer = op == 0x88;
        return true;
      case 'J':
        make(Kind::integer).integer = std::int32_t(little(4));
        return true;
      case 'K':
        make(Kind::integer).integer = std::int64_t(little(1));
        return true;
      case 'M':
        make(Kind::integer).integer = std::int64_t(little(2));
        return true;
      case 0x8a:
        long_integer(little(1));
        return true;
      case 0x8b:
        long_integer(little(4));
        return true;
      case 'G': {
        std::uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
        make(Kind::number).number = std::bit_cast<double>(bits);
        return true;
      }
      default:
        return false;
    }
  }

  // Little-endian, two's complement.
  void long_integer(std::uint64_t n) {
    const std::string_view digits = take(n);
    const bool negative = !digits.empty() && (static_cast<unsigned char>(digits.back()) & 0x80) != 0;
    std::uint64_t value = negative ? ~std::uint64_t(0) : 0;
    double wide = 0;
    for (std::size_t i = digits.size(); i-- > 0;) {
      const auto digit = static_cast<unsigned char>(digits[i]);
      value = value << 8 | digit;
      wide = wide * 256 + digit;
    }
    // Bytes beyond the eighth that only repeat the sign add nothing.
    const bool sign_alone =
        digits.size() <= 8 || (digits.substr(8).find_first_not_of(negative ? '\xff' : '\0') == std::string_view::npos &&
                               (value >> 63 != 0) == negative);
    if (sign_alone) {
      make(Kind::integer).integer = std::int64_t(value);
    } else if (digits.size() == 9 && digits.back() == 0) {
      make(Kind::unsigned_integer).integer = std::int64_t(value);
    } else {
      make(Kind::number).number =
          negative ? wide - std::ldexp(1.0, int(std::min<std::size_t>(8 * digits.size(), 4096))) : wide;
    }
  }

  bool text(unsigned char op) {
    int length = 0;
    switch (op) {
      case 'U':
      case 'C':
      case 0x8c:
        length = 1;
        break;
      case 'T':
      case 'B':
      case 'X':
        length = 4;
        break;
      case 0x8d:
      case 0x8e:
      case 0x96:
        length = 8;
        break;
      default:
        return false;
    }
    const std::string_view part = take(little(length));
    make(Kind::text).text = part;
    return true;
  }

  bool container(unsigned char op) {
    switch (op) {
      case ']':
      case ')':
        make(Kind::list);
        return true;
      case '}':
        make(Kind::dict);
        return true;
      case 'l':
      case 't':
        whole(Kind::list, pop_to_mark());
        return true;
      case 'd':
        whole(Kind::dict, pop_to_mark());
        return true;
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<Index> members(std::size_t(op) - 0x84);
        for (std::size_t i = members.size(); i-- > 0;) members[i] = pop();
        whole(Kind::list, std::move(members));
        return true;
      }
      case 'a':
        add(Kind::list, {pop()});
        return true;
      case 'e':
        add(Kind::list, pop_to_mark());
        return true;
      case 's': {
        const Index value = pop(), key = pop();
        add(Kind::dict, {key, value});
        return true;
      }
      case 'u':
        add(Kind::dict, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  void whole(Kind kind, std::vector<Index> members) {
    make(kind);
    add(kind, members);
  }
  // To the list or dict on top of the stack.
  void add(Kind kind, const std::vector<Index>& members) {
    if (stack_.size() <= floor()) fail("adds to nothing");
    Value& to = values_[stack_.back()];
    if (to.kind != kind) fail("adds to something that is no list or dict");
    if (kind == Kind::dict && members.size() % 2 != 0) fail("has a key without a value");
    members_ += members.size();
    room_for_one(members_);
    to.members.insert(to.members.end(), members.begin(), members.end());
  }

  bool memo(unsigned char op) {
    switch (op) {
      case 'q':
        remember(little(1));
        return true;
      case 'r':
        remember(little(4));
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      case 'h':
        recall(little(1));
        return true;
      case 'j':
        recall(little(4));
        return true;
      default:
        return false;
    }
  }
  void remember(std::uint64_t name) {
    if (stack_.size() <= floor()) fail("remembers nothing");
    room_for_one(memo_.size());
    memo_[name] = stack_.back();
  }
  void recall(std::uint64_t name) {
    const auto found = memo_.find(name);
    if (found == memo_.end()) fail("recalls what it did not remember");
    push(found->second);
  }

  bool stack(unsigned char op) {
    switch (op) {
      case '(':
        room_for_one(marks_.size());
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      case '2':
        if (stack_.size() <= floor()) fail("doubles nothing");
        push(stack_.back());
        return true;
      case 0x95:
        take(8);
        return true;  // FRAME: how much to read ahead
      default:
        return false;
    }
  }

  // Values may be shared, so that a small file can mean a large value, and may hold themselves.
  Tree out(Index index, int depth) {
    if (depth > bounds_.depth_max) fail(fmt::format("is nested deeper than {} levels", bounds_.depth_max));
    room_for_one(written_++);
    const Value& v = values_[index];
    switch (v.kind) {
      case Kind::boolean:
        return v.integer != 0;
      case Kind::integer:
        return v.integer;
      case Kind::unsigned_integer:
        return std::uint64_t(v.integer);
      case Kind::number:
        return v.number;
      case Kind::text:
        return counted(v.text);
      case Kind::list: {
        Tree list = Tree::array();
        for (const Index member : v.members) list.push_back(out(member, depth + 1));
        return list;
      }
      case Kind::dict:
        return out_dict(v, depth);
      case Kind::none:
        break;
    }
    return nullptr;
  }
  Tree out_dict(const Value& v, int depth) {
    Tree dict = Tree::object();
    for (std::size_t i = 0; i < v.members.size(); i += 2) {
      const Value& key = values_[v.members[i]];
      if (key.kind != Kind::text && key.kind != Kind::integer) fail("has a key that is no text and no number");
      std::string name = key.kind == Kind::text ? counted(key.text) : std::to_string(key.integer);
      dict[std::move(name)] = out(v.members[i + 1], depth + 1);
    }
    return dict;
  }
  std::string counted(std::string_view text) {
    text_ += text.size();
    if (text_ > bounds_.text_max) fail(fmt::format("has more than {} bytes of text", bounds_.text_max));
    return std::string(text);
  }

  std::string_view bytes_;
  PickleBounds bounds_;
  std::size_t at_ = 0;
  std::vector<Value> values_;
  std::vector<Index> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Index> memo_;
  std::size_t members_ = 0;  // of all lists and dicts
  std::size_t written_ = 0;  // values of what comes out
  std::size_t text_ = 0;     // bytes of its strings
};

}  // namespace

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

Tree read_pickle(std::string_view bytes, const PickleBounds& bounds) { return Unpickler(bytes, bounds).run(); }

}  // namespace seeksim::harness
