// What variables of the environment really do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "harness/doctor/lint.h"

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

std::optional<std::int64_t> whole(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class EnvironmentLint {
 public:
  explicit EnvironmentLint(const Environment& environment) : environment_(environment) {}

  std::vector<Advice> advice() {
    gone();
    words();
    infiniband();
    interfaces();
    debugging();
    timeouts();
    devices();
    sharing();
    ranks();
    agree();
    misspelt();
    return std::move(found_);
  }

 private:
  const std::string* value(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? nullptr : &found->second;
  }
  std::optional<std::int64_t> number(const std::string& name) const {
    const std::string* text = value(name);
    return text ? whole(*text) : std::nullopt;
  }
  void say(Weight weight, const std::string& name, std::string what, std::string next) {
    const std::string* text = value(name);
    found_.push_back({weight, {name + (text ? "=" + *text : ""), "", std::move(what), std::move(next)}});
  }

  // Names that no program reads any more, or ever read.
  struct Gone {
    const char *name, *what, *next;
  };
  static const std::vector<Gone>& gone_names() {
    static const std::vector<Gone> all = {
        {"NCCL_TIMEOUT", "NCCL has no such variable, and no timeout of its own",
         "Pass timeout= to init_process_group, or set DEEPSPEED_TIMEOUT (minutes)."},
        {"NCCL_BLOCKING_WAIT", "PyTorch does not read it under this name any more", "Set TORCH_NCCL_BLOCKING_WAIT."},
        {"NCCL_ASYNC_ERROR_HANDLING", "PyTorch does not read it under this name any more",
         "Set TORCH_NCCL_ASYNC_ERROR_HANDLING."},
        {"NCCL_DESYNC_DEBUG", "PyTorch does not read it under this name any more", "Set TORCH_NCCL_DESYNC_DEBUG."},
        {"NCCL_TREE_THRESHOLD", "was removed in NCCL 2.5", "Remove it."},
        {"NCCL_LL_THRESHOLD", "was removed in NCCL 2.5", "Remove it."},
        {"NCCL_IB_CUDA_SUPPORT", "was removed in NCCL 2.4", "Set NCCL_NET_GDR_LEVEL, if anything."},
        {"NCCL_IB_GDR_LEVEL", "was renamed in NCCL 2.4", "Set NCCL_NET_GDR_LEVEL."},
    };
    return all;
  }
  void gone() {
    for (const Gone& one : gone_names()) {
      if (value(one.name)) say(Weight::wrong, one.name, one.what, one.next);
    }
  }

  // Variables that know only these words.
  void words() {
    static const std::map<std::string, std::vector<std::string>> all = {
        {"NCCL_DEBUG", {"VERSION", "WARN", "INFO", "ABORT", "TRACE"}},
        {"TORCH_DISTRIBUTED_DEBUG", {"OFF", "INFO", "DETAIL"}},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", {"0", "1", "2", "3"}},
    };
    for (const auto& [name, known] : all) {
      const std::string* text = value(name);
      if (text == nullptr) continue;
      std::string upper = *text;
      std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return char(std::toupper(c)); });
      if (std::find(known.begin(), known.end(), upper) != known.end()) continue;
      say(Weight::wrong, name, "is not a value that it accepts", did_you_mean(upper, known));
    }
  }

  // The time-out is an exponent of the adapter's unit, in five bits; each of the retries waits that long.
  void infiniband() {
    const std::int64_t retries = number("NCCL_IB_RETRY_CNT").value_or(7);
    if (value("NCCL_IB_RETRY_CNT") && (retries < 0 || retries > 7))
      say(Weight::wrong, "NCCL_IB_RETRY_CNT", "InfiniBand counts retries in three bits", "Use 0 to 7.");
    if (value("NCCL_IB_TIMEOUT") == nullptr) return;
    const std::optional<std::int64_t> exponent = number("NCCL_IB_TIMEOUT");
    if (!exponent || *exponent < 0 || *exponent > 31) {
      say(Weight::wrong, "NCCL_IB_TIMEOUT",
          "is an exponent, not a time: a retry waits 4.096 us x 2^n, and n goes from 1 to 31",
          "For example 22: 17 s a retry, two minutes in all.");
      return;
    }
    if (*exponent == 0) {
      say(Weight::doubtful, "NCCL_IB_TIMEOUT", "0 waits for ever", "For example 22: 17 s a retry.");
      return;
    }
    const double retry_s = 4.096e-6 * std::ldexp(1.0, int(*exponent));
    const double all_s = retry_s * double(std::max<std::int64_t>(retries, 1));
    if (all_s > 600) {
      say(Weight::doubtful, "NCCL_IB_TIMEOUT",
          fmt::format("a lost link is noticed after {:.4g} s ({} retries of {:.4g} s), long after the watchdog of ten "
                      "minutes, which then blames a rank that waited",
                      all_s, retries, retry_s),
          "Use 22 or less.");
    }
  }

  // "eth0,eth1", "=eth0", "^lo,docker": what is asked for by its whole name has to be there.
  void interfaces() {
    const std::string* text = value("NCCL_SOCKET_IFNAME");
    if (text == nullptr || text->empty() || text->front() == '^') return;
    std::vector<std::string> known;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net", none_))
      known.push_back(entry.path().filename());
    if (known.empty()) return;
    std::sort(known.begin(), known.end());
    const bool whole = text->front() == '=';
    for (std::size_t at = whole ? 1 : 0; at <= text->size();) {
      const std::size_t comma = std::min(text->find(',', at), text->size());
      const std::string one = text->substr(at, comma - at);
      at = comma + 1;
      const bool here = std::any_of(known.begin(), known.end(), [&](const std::string& name) {
        return whole ? name == one : name.starts_with(one);
      });
      if (one.empty() || here) continue;
      say(Weight::doubtful, "NCCL_SOCKET_IFNAME",
          fmt::format("this host has no interface {}; NCCL then finds none, and no rank gets beyond init",
                      in_quotes(one)),
          fmt::format("Here are {}.", fmt::join(known, ", ")));
    }
  }

  void debugging() {
    struct Switch {
      const char *name, *off, *what;
    };
    static const Switch all[] = {
        {"NCCL_P2P_DISABLE", "0", "turns off transfers between the GPUs of a node; meant for debugging"},
        {"NCCL_SHM_DISABLE", "0", "turns off shared memory between the GPUs of a node; meant for debugging"},
        {"NCCL_IB_DISABLE", "0", "turns off InfiniBand: everything goes over sockets"},
        {"CUDA_LAUNCH_BLOCKING", "0", "each kernel waits for the one before: slow, and it hides races"},
    };
    for (const Switch& one : all) {
      const std::string* text = value(one.name);
      if (text && *text != one.off && !text->empty())
        say(Weight::doubtful, one.name, one.what, "Remove it when the search is over.");
    }
    for (const char* name : {"NCCL_ALGO", "NCCL_PROTO"}) {
      if (value(name)) {
        say(Weight::doubtful, name, "meant for debugging; since NCCL 2.24 an impossible choice fails at start",
            "Remove it when the search is over.");
      }
    }
    if (const std::string* text = value("TORCH_DISTRIBUTED_DEBUG"); text && *text == "DETAIL")
      say(Weight::doubtful, "TORCH_DISTRIBUTED_DEBUG", "compares each collective over all ranks first, which is slow",
          "Remove it when the search is over.");
  }

  void timeouts() {
    if (const auto waits = number("TORCH_NCCL_BLOCKING_WAIT"); waits && *waits != 0) {
      say(Weight::doubtful, "TORCH_NCCL_BLOCKING_WAIT",
          "the host waits for each collective, which is slow; and no watchdog dumps its flight recorder",
          "Remove it: TORCH_NCCL_ASYNC_ERROR_HANDLING=3, the default, ends a rank that waits too long.");
    }
    constexpr std::int64_t kHeartbeat_s = 60;  // garbage collection, compilation and loading of modules take as long
    const auto heartbeat_s = number("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC");
    if (value("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC") && (!heartbeat_s || *heartbeat_s < kHeartbeat_s)) {
      say(heartbeat_s ? Weight::doubtful : Weight::wrong, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
          heartbeat_s ? "seconds without a sign of the watchdog's thread end the process; it is silent that long while "
                        "CUDA loads modules or Python holds its lock"
                      : "seconds are expected, a whole number",
          "Use 600, or TORCH_NCCL_ENABLE_MONITORING=0 while you search.");
    }
    if (number("TORCH_NCCL_ASYNC_ERROR_HANDLING") == 0) {
      say(Weight::doubtful, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "0 lets a rank that waits for a dead one wait for ever",
          "Use 3, the default, or 1.");
    }
    const std::optional<std::int64_t> minutes = number("DEEPSPEED_TIMEOUT");
    if (value("DEEPSPEED_TIMEOUT") && (!minutes || *minutes < 1))
      say(Weight::wrong, "DEEPSPEED_TIMEOUT", "minutes are expected, a whole number", "For example 10.");
    else if (minutes && *minutes >= 300)
      say(Weight::doubtful, "DEEPSPEED_TIMEOUT",
          fmt::format("is in minutes: {:.4g} hours until a hang is noticed", double(*minutes) / 60), "For example 30.");
  }

  void devices() {
    const std::string* text = value("CUDA_VISIBLE_DEVICES");
    if (text == nullptr) return;
    std::set<std::string> seen;
    for (std::size_t at = 0; at <= text->size();) {
      const std::size_t comma = std::min(text->find(',', at), text->size());
      const std::string one = text->substr(at, comma - at);
      at = comma + 1;
      if (one.empty() || one == "-1") {
        say(Weight::wrong, "CUDA_VISIBLE_DEVICES", "CUDA hides all devices from an empty entry or -1 on",
            "List the devices, or remove it.");
        return;
      }
      if (one == "all") {
        say(Weight::wrong, "CUDA_VISIBLE_DEVICES", "\"all\" is a word of container runtimes; CUDA finds no device",
            "Remove it.");
        return;
      }
      if (!seen.insert(one).second) {
        say(Weight::wrong, "CUDA_VISIBLE_DEVICES", fmt::format("device {} is listed twice: CUDA then shows none", one),
            "List each once.");
        return;
      }
    }
  }

  // Several ranks on one GPU, for NCCL 2.30 or newer.
  void sharing() {
    constexpr const char* kShares = "NCCL_MULTI_RANK_GPU_ENABLE";
    if (value(kShares) == nullptr || number(kShares) == 0) return;
    if (number(kShares) != 1) return say(Weight::wrong, kShares, "means nothing there", "Use 0 or 1.");
    const std::optional<std::int64_t> ctas = number("NCCL_MAX_CTAS");
    if (ctas && *ctas <= 4) {
      say(Weight::note, kShares, "lets several ranks share a GPU, from NCCL 2.30 on; NVIDIA calls it experimental", "");
    } else {
      say(Weight::doubtful, kShares,
          "lets several ranks share a GPU, from NCCL 2.30 on; more than two may hang for want of multiprocessors",
          "Set NCCL_MAX_CTAS to 2, 3 or 4.");
    }
  }

  // What torchrun and DeepSpeed's launcher tell each process.
  void ranks() {
    static const std::vector<std::string> needed = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    std::string missing;
    std::size_t given = 0;
    for (const std::string& name : needed) {
      if (value(name))
        ++given;
      else
        missing += (missing.empty() ? "" : ", ") + name;
    }
    const bool by_launcher = value("RANK") != nullptr || value("WORLD_SIZE") != nullptr;
    if (by_launcher && given < needed.size())
      say(Weight::wrong, value("RANK") ? "RANK" : "WORLD_SIZE", fmt::format("without {}", missing),
          "Start with torchrun, or give all four: ranks that do not find each other wait until they time out.");
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
      const std::optional<std::int64_t> n = number(name);
      if (value(name) && (!n || *n < 0)) say(Weight::wrong, name, "a whole number is expected", "");
    }
    below("RANK", "WORLD_SIZE");
    below("LOCAL_RANK", "LOCAL_WORLD_SIZE");
    below("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    if (const auto port = number("MASTER_PORT"); port && (*port < 1 || *port > 65535))
      say(Weight::wrong, "MASTER_PORT", "ports go from 1 to 65535", "For example 29500.");
    const std::string* address = value("MASTER_ADDR");
    const bool own = address && (*address == "localhost" || address->rfind("127.", 0) == 0 || *address == "::1");
    const auto all = number("WORLD_SIZE"), here = number("LOCAL_WORLD_SIZE");
    if (own && all && here && *all > *here) {
      say(Weight::wrong, "MASTER_ADDR",
          fmt::format("each of the {} nodes would wait for its own rank 0",
                      (*all + *here - 1) / std::max<std::int64_t>(*here, 1)),
          "Give the first node's address.");
    }
  }

  void below(const std::string& rank, const std::string& size) {
    const auto r = number(rank), n = number(size);
    if (r && n && *r >= *n) say(Weight::wrong, rank, fmt::format("{} is {}: ranks count from 0", size, *n), "");
  }

  // Two launchers, one inside the other.
  void agree() {
    static const std::pair<const char*, const char*> pairs[] = {{"RANK", "OMPI_COMM_WORLD_RANK"},
                                                                {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
                                                                {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}};
    for (const auto& [torch, mpi] : pairs) {
      const auto a = number(torch), b = number(mpi);
      if (a && b && *a != *b)
        say(Weight::wrong, torch, fmt::format("and {}={}: two launchers, and they differ", mpi, *b),
            "Start with one of them; DeepSpeed refuses this.");
    }
  }

  void misspelt() {
    static const std::vector<std::string> known = {"NCCL_DEBUG",
                                                   "NCCL_DEBUG_SUBSYS",
                                                   "NCCL_DEBUG_FILE",
                                                   "NCCL_SOCKET_IFNAME",
                                                   "NCCL_SOCKET_FAMILY",
                                                   "NCCL_SOCKET_NTHREADS",
                                                   "NCCL_NSOCKS_PERTHREAD",
                                                   "NCCL_IB_HCA",
                                                   "NCCL_IB_TIMEOUT",
                                                   "NCCL_IB_RETRY_CNT",
                                                   "NCCL_IB_GID_INDEX",
                                                   "NCCL_IB_TC",
                                                   "NCCL_IB_SL",
                                                   "NCCL_IB_DISABLE",
                                                   "NCCL_IB_QPS_PER_CONNECTION",
                                                   "NCCL_IB_PCI_RELAXED_ORDERING",
                                                   "NCCL_IB_ADAPTIVE_ROUTING",
                                                   "NCCL_NET",
                                                   "NCCL_NET_PLUGIN",
                                                   "NCCL_NET_GDR_LEVEL",
                                                   "NCCL_NET_GDR_READ",
                                                   "NCCL_P2P_DISABLE",
                                                   "NCCL_P2P_LEVEL",
                                                   "NCCL_SHM_DISABLE",
                                                   "NCCL_BUFFSIZE",
                                                   "NCCL_NTHREADS",
                                                   "NCCL_MIN_NCHANNELS",
                                                   "NCCL_MAX_NCHANNELS",
                                                   "NCCL_CROSS_NIC",
                                                   "NCCL_CHECKS_DISABLE",
                                                   "NCCL_LAUNCH_MODE",
                                                   "NCCL_ALGO",
                                                   "NCCL_PROTO",
                                                   "NCCL_TOPO_FILE",
                                                   "NCCL_GRAPH_FILE",
                                                   "NCCL_COLLNET_ENABLE",
                                                   "NCCL_NVLS_ENABLE",
                                                   "NCCL_CUMEM_ENABLE",
                                                   "NCCL_COMM_BLOCKING",
                                                   "NCCL_MAX_CTAS",
                                                   "NCCL_MULTI_RANK_GPU_ENABLE",
                                                   "NCCL_CONF_FILE",
                                                   "NCCL_SET_STACK_SIZE",
                                                   "NCCL_RAS_ENABLE",
                                                   "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                                                   "TORCH_NCCL_BLOCKING_WAIT",
                                                   "TORCH_NCCL_DESYNC_DEBUG",
                                                   "TORCH_NCCL_TRACE_BUFFER_SIZE",
                                                   "TORCH_NCCL_DUMP_ON_TIMEOUT",
                                                   "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
                                                   "TORCH_NCCL_ENABLE_MONITORING",
                                                   "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                                                   "TORCH_DISTRIBUTED_DEBUG",
                                                   "DEEPSPEED_TIMEOUT",
                                                   "MASTER_ADDR",
                                                   "MASTER_PORT",
                                                   "WORLD_SIZE",
                                                   "LOCAL_RANK",
                                                   "LOCAL_WORLD_SIZE",
                                                   "CUDA_VISIBLE_DEVICES",
                                                   "CUDA_DEVICE_ORDER",
                                                   "CUDA_LAUNCH_BLOCKING"};
    for (const auto& [name, text] : environment_) {
      const auto begins = [&name](const char* prefix) {
        const std::size_t length = std::string_view(prefix).size();
        return name.starts_with(prefix) || edit_distance(name.substr(0, length), prefix) <= 2;
      };
      const bool theirs = begins("NCCL_") || begins("TORCH_NCCL_") || name.rfind("MASTER_", 0) == 0 ||
                          name.rfind("CUDA_VISIBLE", 0) == 0;
      const bool was =
          std::any_of(gone_names().begin(), gone_names().end(), [&](const Gone& g) { return g.name == name; });
      if (!theirs || was || std::find(known.begin(), known.end(), name) != known.end()) continue;
      if (const std::string meant = slip_of(name, known); !meant.empty())
        say(Weight::doubtful, name, "is not a variable that seeksim knows", fmt::format("Did you mean {}?", meant));
    }
  }

  const Environment& environment_;
  std::vector<Advice> found_;
  std::error_code none_;
};

}  // namespace

const char* name(Advice::Weight weight) {
  switch (weight) {
    case Weight::wrong:
      return "wrong";
    case Weight::doubtful:
      return "doubtful";
    case Weight::note:
      return "note";
  }
  return "?";
}

std::string slip_of(const std::string& name, const std::vector<std::string>& known) {
  constexpr std::size_t kSlips = 2;
  std::string meant = closest(name, known);
  return !meant.empty() && edit_distance(name, meant) <= kSlips ? meant : "";
}

std::vector<Advice> lint_environment(const Environment& environment) { return EnvironmentLint(environment).advice(); }

}  // namespace seeksim::harness
