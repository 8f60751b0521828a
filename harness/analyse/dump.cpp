#include "harness/analyse/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "harness/input/problem.h"
#include "runtime/files/bounded_json.h"

namespace seeksim::harness {
namespace {

// Something that no flight recorder writes.
struct WrongDump : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr std::size_t kListMost = 400;  // characters of one list of sizes or types

const Tree* member(const Tree& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}
std::string text_of(const Tree& object, const char* key) {
  const Tree* found = member(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}
bool flag_of(const Tree& object, const char* key) {
  const Tree* found = member(object, key);
  return found != nullptr && found->is_boolean() && found->get<bool>();
}
std::optional<std::int64_t> number_of(const Tree& object, const char* key) {
  const Tree* found = member(object, key);
  if (found == nullptr) return std::nullopt;
  const auto number = runtime::whole_number<std::int64_t>(*found);
  if (!number)
    throw WrongDump(
        fmt::format("{} is {}", key, in_quotes(found->dump(-1, ' ', true, Tree::error_handler_t::replace))));
  return number;
}

// Control characters and bytes that are no text do not reach a terminal.
std::string tame(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > kListMost) text = text.substr(0, kListMost) + "...";
  return text;
}

std::string sizes_text(const Tree& entry, const char* key) {
  const Tree* sizes = member(entry, key);
  return sizes == nullptr ? "" : tame(sizes->dump(-1, ' ', true, Tree::error_handler_t::replace));
}
std::string types_text(const Tree& entry, const char* key) {
  const Tree* types = member(entry, key);
  std::string text;
  if (types == nullptr || !types->is_array()) return text;
  for (const Tree& type : *types) {
    if (text.size() > kListMost) break;
    if (type.is_string()) text += (text.empty() ? "" : ", ") + type.get<std::string>();
  }
  return tame(text);
}

// The innermost frame of the script: PyTorch's own ones say how, not where.
std::string frame_text(const Tree& entry) {
  const Tree* frames = member(entry, "frames");
  if (frames == nullptr || !frames->is_array()) return "";
  for (const Tree& frame : *frames) {
    const std::string file = text_of(frame, "filename");
    if (file.empty() || file.find("/torch/") != std::string::npos) continue;
    const std::string shown = file.size() > 60 ? "..." + file.substr(file.size() - 57) : file;
    return tame(fmt::format("{}:{} in {}", shown, number_of(frame, "line").value_or(0), text_of(frame, "name")));
  }
  return "";
}

// "[0, 1, 2]", as text or as a list.
std::vector<int> members_of(const Tree& config) {
  const Tree* ranks = member(config, "ranks");
  if (ranks == nullptr) return {};
  Tree list = *ranks;
  if (ranks->is_string())
    list = runtime::parse_bounded<Tree>(ranks->get<std::string>(), {"a list of ranks", kDumpFileBytesMax, 1});
  std::vector<int> members;
  if (!list.is_array()) return members;
  for (const Tree& rank : list) {
    const auto number = runtime::whole_number<int>(rank, 0, kDumpRanksMax - 1);
    if (!number) throw WrongDump("a group's ranks are no list of ranks");
    members.push_back(*number);
  }
  return members;
}

// Files carry the rank in their name: its last number.
int rank_of_name(const std::string& file) {
  std::string stem = file.substr(file.rfind('/') + 1);
  for (const char* ending : {".json", ".pickle", ".pkl", ".bin"}) {
    if (stem.ends_with(ending)) stem.resize(stem.size() - std::string_view(ending).size());
  }
  std::size_t begin = stem.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(stem[begin - 1])) != 0) --begin;
  int rank = 0;
  const auto [stop, error] = std::from_chars(stem.data() + begin, stem.data() + stem.size(), rank);
  if (begin == stem.size()) throw BadInput(file, "does not say whose dump it is", "End its name in the rank.");
  if (error != std::errc() || rank >= kDumpRanksMax)
    throw BadInput(file, fmt::format("its name ends in a number that is no rank below {}", kDumpRanksMax),
                   "End its name in the rank.");
  return rank;
}

class TorchDump {
 public:
  explicit TorchDump(Dump& dump) : dump_(dump) {}

  void read(const Tree& tree) {
    dump_.version = tame(text_of(tree, "version"));
    if (!dump_.version.starts_with("2."))
      throw WrongDump(fmt::format("its version is {}, and 2.1 and later are read", in_quotes(dump_.version)));
    if (const Tree* config = member(tree, "pg_config"); config != nullptr && config->is_object()) read_config(*config);
    const Tree* entries = member(tree, "entries");
    if (entries == nullptr || !entries->is_array()) throw WrongDump("it has no list \"entries\"");
    for (const Tree& entry : *entries) read_entry(entry);
    dump_.whole = first_ == 0 || dump_.entries.empty();
  }

 private:
  void read_config(const Tree& config) {
    for (const auto& [key, group] : config.items()) {
      const std::vector<int> members = members_of(group);
      const std::string name = text_of(group, "name");
      // gloo calls each of its groups "", and says only how many ranks the last one has.
      if (name.empty() && key.empty()) {
        dump_.world_least = std::max(dump_.world_least, int(members.size()));
        continue;
      }
      dump_.groups.push_back({tame(name.empty() ? key : name), tame(text_of(group, "desc")), members});
      index_.emplace(dump_.groups.back().name, int(dump_.groups.size()) - 1);
    }
  }

  int group_of(const Tree& entry) {
    std::string name, desc;
    const Tree* group = member(entry, "process_group");
    if (group != nullptr && group->is_array() && !group->empty()) {
      if ((*group)[0].is_string()) name = (*group)[0].get<std::string>();
      if (group->size() > 1 && (*group)[1].is_string()) desc = (*group)[1].get<std::string>();
    } else if (group != nullptr && group->is_string()) {
      name = group->get<std::string>();
    } else if (const auto id = number_of(entry, "pg_id")) {
      name = std::to_string(*id);
    }
    name = tame(name);
    const auto [found, is_new] = index_.emplace(name, int(dump_.groups.size()));
    if (is_new) dump_.groups.push_back({name, tame(desc), {}});
    return found->second;
  }

  void read_entry(const Tree& entry) {
    if (!entry.is_object()) throw WrongDump("an entry is no dict");
    DumpEntry e;
    e.group = group_of(entry);
    std::string profiling = tame(text_of(entry, "profiling_name"));
    const std::size_t colon = profiling.find(':');
    if (profiling.starts_with("gloo:")) dump_.gloo = true;
    e.operation = colon == std::string::npos ? profiling : profiling.substr(colon + 1);
    e.p2p = flag_of(entry, "is_p2p") || e.operation.starts_with("send ") || e.operation.starts_with("recv ");
    if (e.p2p) read_peer(e);
    const auto number = number_of(entry, e.p2p ? "p2p_seq_id" : "collective_seq_id");
    e.number = number ? *number : number_of(entry, "seq_id").value_or(0);
    const bool receives = e.operation == "recv";
    e.sizes = sizes_text(entry, receives ? "output_sizes" : "input_sizes");
    e.types = types_text(entry, receives ? "output_dtypes" : "input_dtypes");
    const std::string state = text_of(entry, "state");
    e.over = state == "completed" || (dump_.gloo && flag_of(entry, "retired"));
    e.started = e.over || state == "started";
    e.created_ns = number_of(entry, "time_created_ns").value_or(-1);
    e.frame = frame_text(entry);
    if (const auto id = number_of(entry, "record_id")) first_ = std::min(first_, *id);
    dump_.entries.push_back(std::move(e));
  }

  // "send 0->1", "recv 1<-0": ranks of the group.
  static void read_peer(DumpEntry& e) {
    const std::size_t arrow = e.operation.find_first_of("<-");
    if (arrow != std::string::npos && arrow + 2 <= e.operation.size())
      std::from_chars(e.operation.data() + arrow + 2, e.operation.data() + e.operation.size(), e.peer);
    e.operation = e.operation.substr(0, e.operation.find(' '));
  }

  Dump& dump_;
  std::map<std::string, int> index_;
  std::int64_t first_ = std::int64_t(1) << 62;  // record_id
};

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw BadInput(file, fmt::format("is no flight recorder dump: {}", why),
                 "Dumps are the pickles or the JSON of PyTorch's flight recorder, versions 2.1 and later.");
}

}  // namespace

bool looks_like_dump(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  return bytes.starts_with('\x80') || (first != std::string_view::npos && bytes[first] == '{');
}

Tree dump_tree(std::string_view bytes, const std::string& file) {
  try {
    if (bytes.starts_with('\x80')) return read_pickle(bytes);
    return runtime::parse_bounded<Tree>(bytes, {"the dump", kDumpFileBytesMax});
  } catch (const std::runtime_error& error) {
    refuse(file, bytes.starts_with('\x80') ? fmt::format("the pickle {}", error.what()) : error.what());
  }
}

Dump read_torch_dump(const Tree& tree, const std::string& file) {
  Dump dump;
  dump.file = file;
  dump.rank = rank_of_name(file);
  try {
    if (!tree.is_object()) throw WrongDump("it is no dict");
    TorchDump(dump).read(tree);
  } catch (const BadInput&) {
    throw;
  } catch (const Tree::exception& error) {
    refuse(file, error.what());
  } catch (const std::runtime_error& error) {
    refuse(file, error.what());
  }
  return dump;
}

}  // namespace seeksim::harness
