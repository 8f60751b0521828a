// Options of PyTorch's torchrun, DeepSpeed's launcher, Open MPI's mpirun and Slurm's srun and sbatch.
#include "harness/doctor/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "harness/doctor/shell_words.h"

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

// A whole number from 1 on; nothing else.
std::optional<std::int64_t> count_of(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 1 && value <= 1'000'000 ? std::optional(value) : std::nullopt;
}

bool is_local(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// The options of one command: "--name value", "--name=value", "-n value". '-' and '_' are alike in long names.
class Options {
 public:
  Options(const std::vector<std::string>& words, std::size_t first) : words_(words), first_(first) {}

  std::string text(std::initializer_list<const char*> names) const {
    for (std::size_t i = first_; i < words_.size(); ++i) {
      for (const char* name : names) {
        const std::string& word = words_[i];
        const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
        if (alike(word.substr(0, equals)) != alike(name)) continue;
        if (equals != std::string::npos) return word.substr(equals + 1);
        if (i + 1 < words_.size()) return words_[i + 1];
      }
    }
    return "";
  }
  std::int64_t count(std::initializer_list<const char*> names) const { return count_of(text(names)).value_or(0); }
  bool has(const char* name) const {
    return std::any_of(words_.begin() + std::ptrdiff_t(std::min(first_, words_.size())), words_.end(),
                       [&](const std::string& word) { return alike(word.substr(0, word.find('='))) == alike(name); });
  }

 private:
  static std::string alike(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
  }
  const std::vector<std::string>& words_;
  std::size_t first_;
};

// What Slurm was asked for, by #SBATCH lines and by srun.
struct Slurm {
  std::int64_t nodes = 0, tasks = 0, tasks_per_node = 0, gpus_per_node = 0;

  void read(const Options& o) {
    const auto take = [](std::int64_t& to, std::int64_t value) { to = value > 0 ? value : to; };
    take(nodes, o.count({"--nodes", "-N"}));
    take(tasks, o.count({"--ntasks", "-n"}));
    take(tasks_per_node, o.count({"--ntasks-per-node"}));
    const std::string gres = o.text({"--gres"}), gpus = o.text({"--gpus-per-node"});
    for (const std::string& one : {gres.starts_with("gpu") ? gres : "", gpus})
      take(gpus_per_node,
           count_of(one.substr(one.rfind(':') == std::string::npos ? 0 : one.rfind(':') + 1)).value_or(0));
  }
};

class LaunchReader {
 public:
  LaunchReader(std::string_view text, const std::string& file) : file_(file), lines_(shell_lines(text)) {}

  Launch read() {
    for (ShellLine& line : lines_) {
      for (std::string& word : line.words) word = expanded(word, launch_.environment);
      number_ = line.number;
      if (!assign(line.words)) command(line.words);
    }
    if (launch_.launcher.empty()) {
      number_ = 0;
      say(Weight::note, "", "no launcher was found: torchrun, deepspeed, mpirun or srun", "");
    }
    settle();
    return std::move(launch_);
  }

 private:
  void say(Weight weight, std::string option, std::string what, std::string next) {
    const std::string place = number_ > 0 ? fmt::format("{}:{}", file_, number_) : file_;
    launch_.advice.push_back({weight, {place, std::move(option), std::move(what), std::move(next)}});
  }

  // "export A=b", "A=b C=d": true, where nothing else stands on the line. Leading assignments are taken away.
  bool assign(std::vector<std::string>& words) {
    if (!words.empty() && (words[0] == "export" || words[0] == "env")) words.erase(words.begin());
    while (!words.empty()) {
      const std::size_t equals = words[0].find('=');
      const std::string name = words[0].substr(0, equals);
      if (equals == std::string::npos || equals == 0 || name.find_first_of("-/.$") != std::string::npos) break;
      launch_.environment[name] = words[0].substr(equals + 1);
      words.erase(words.begin());
    }
    return words.empty();
  }

  // One command may start another: srun torchrun train.py.
  void command(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string name = words[i].substr(words[i].rfind('/') + 1);
      const Options options(words, i + 1);
      if (name == "#SBATCH" || name == "sbatch") slurm_.read(options);
      if (name == "srun") srun(options);
      if (name == "mpirun" || name == "mpiexec") mpirun(options);
      if (name == "deepspeed" && i + 1 < words.size()) deepspeed(options);
      const bool by_module = name == "torch.distributed.run" || name == "torch.distributed.launch";
      if (name == "torchrun" || by_module) torchrun(options);
    }
    script(Options(words, 0));
  }

  void srun(const Options& o) {
    slurm_.read(o);
    launch_.launcher = "srun";
  }

  void mpirun(const Options& o) {
    launch_.launcher = "mpirun";
    launch_.ranks = o.count({"-np", "-n", "--np"});
    launch_.ranks_per_node = o.count({"-npernode", "--npernode", "-N", "-ppn"});
    launch_.hostfile = o.text({"--hostfile", "-hostfile", "--machinefile"});
    if (launch_.ranks > 0 && launch_.ranks_per_node > 0 && launch_.ranks % launch_.ranks_per_node != 0)
      say(Weight::doubtful, "-np",
          fmt::format("{} ranks fill no whole number of nodes of {}", launch_.ranks, launch_.ranks_per_node), "");
    if (launch_.hostfile.empty()) return;
    for (const auto& [name, value] : launch_.environment) {
      if (name.starts_with("NCCL_") && !o.has("-x"))
        say(Weight::doubtful, name, "Open MPI does not pass it on to ranks of other hosts",
            fmt::format("Add -x {}.", name));
    }
  }

  void deepspeed(const Options& o) {
    launch_.launcher = "deepspeed";
    launch_.nodes = o.count({"--num_nodes"});
    launch_.ranks_per_node = o.count({"--num_gpus"});
    launch_.hostfile = o.text({"--hostfile", "-H"});
    const bool chosen = o.has("--include") || o.has("--exclude");
    if (chosen && (o.has("--num_nodes") || o.has("--num_gpus")))
      say(Weight::wrong, "--include", "DeepSpeed refuses it beside --num_nodes and --num_gpus", "Keep one of the two.");
    if (launch_.nodes > 1 && launch_.hostfile.empty())
      say(Weight::wrong, "--num_nodes",
          "without a hostfile (/job/hostfile, unless --hostfile names one) DeepSpeed starts ranks on this host only",
          "Name the hosts: --hostfile F, one line a host: host slots=8.");
    port(o, "--master_port");
  }

  void torchrun(const Options& o) {
    const bool under_srun = launch_.launcher == "srun";
    launch_.launcher = "torchrun";
    const std::string nodes = o.text({"--nnodes"}), local = o.text({"--nproc_per_node"});
    launch_.ranks_per_node = local.empty() ? 1 : count_of(local).value_or(0);
    launch_.nodes = nodes.empty() ? 1 : count_of(nodes).value_or(0);
    if (under_srun && slurm_.tasks_per_node > 1)
      say(Weight::wrong, "--ntasks-per-node",
          fmt::format("srun starts {} torchruns a node, and each of them starts {} ranks", slurm_.tasks_per_node,
                      launch_.ranks_per_node),
          "Use --ntasks-per-node=1: torchrun starts the ranks of its node.");
    if (slurm_.nodes > 1 && launch_.nodes == 1)
      say(Weight::wrong, "--nnodes",
          fmt::format("{} nodes are asked of Slurm, and each torchrun is a job of its own on 1 node", slurm_.nodes),
          fmt::format("Give --nnodes={} and a rendezvous: --rdzv_backend=c10d --rdzv_endpoint=HOST:29500.",
                      slurm_.nodes));
    if (slurm_.gpus_per_node > 0 && launch_.ranks_per_node > slurm_.gpus_per_node)
      say(Weight::wrong, "--nproc_per_node",
          fmt::format("{} ranks on a node with {} GPUs: ranks share a GPU", launch_.ranks_per_node,
                      slurm_.gpus_per_node),
          fmt::format("Use {}.", slurm_.gpus_per_node));
    meeting_point(o);
    port(o, "--master_port");
  }

  // How torchruns of several nodes find each other.
  void meeting_point(const Options& o) {
    const std::string endpoint = o.text({"--rdzv_endpoint"}), address = o.text({"--master_addr"});
    if (launch_.nodes == 1) return;
    const std::string host = endpoint.empty() ? address : endpoint.substr(0, endpoint.rfind(':'));
    if (o.has("--standalone"))
      say(Weight::wrong, "--standalone", "is for one node: each node would train alone", "Use --rdzv_endpoint.");
    else if (host.empty() && launch_.nodes > 1)
      say(Weight::wrong, "--nnodes",
          "several nodes, and neither --rdzv_endpoint nor --master_addr says where they meet",
          "Add --rdzv_backend=c10d --rdzv_endpoint=HOST:29500, the same on all nodes.");
    else if (is_local(host))
      say(Weight::wrong, endpoint.empty() ? "--master_addr" : "--rdzv_endpoint",
          fmt::format("{} is each node's own: the nodes do not find each other", host), "Name the first node.");
    else if (!address.empty() && endpoint.empty() && !o.has("--node_rank"))
      say(Weight::wrong, "--node_rank", "is not given: every node is node 0", "Add --node_rank=0, 1, ...");
  }

  void port(const Options& o, const char* name) {
    const std::string given = o.text({name});
    if (given.empty() || given.find('$') != std::string::npos) return;
    const std::optional<std::int64_t> port = count_of(given);
    if (!port || *port > 65535)
      say(Weight::wrong, name, "ports go from 1 to 65535", "For example 29500.");
    else if (*port < 1024)
      say(Weight::doubtful, name, "ports below 1024 are the superuser's", "For example 29500.");
    const auto set = launch_.environment.find("MASTER_PORT");
    if (set != launch_.environment.end() && set->second != given)
      say(Weight::doubtful, name, fmt::format("is {}, and MASTER_PORT is {}: the launcher's wins", given, set->second),
          "");
  }

  // The training script's own arguments, as Hugging Face's Trainer has them.
  void script(const Options& o) {
    if (launch_.launcher.empty()) return;
    for (const char* name : {"--deepspeed", "--deepspeed_config"}) {
      const std::string value = o.text({name});
      if (value.ends_with(".json")) launch_.config = value;
    }
    for (const char* name :
         {"learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm", "adam_beta1",
          "adam_beta2", "adam_epsilon", "weight_decay", "warmup_steps", "bf16", "fp16"}) {
      const std::string option = std::string("--") + name;
      if (!o.has(option.c_str())) continue;
      const std::string value = o.text({option.c_str()});
      const bool plain = value.empty() || value.starts_with('-');
      if (value.find_first_of("$, ") == std::string::npos)
        launch_.autos.push_back(fmt::format("{}={}", name,
                                            plain || value == "True" ? "true"
                                            : value == "False"       ? "false"
                                                                     : value));
    }
  }

  // What one launcher says of the world and another one has to.
  void settle() {
    if (launch_.launcher == "srun") {
      launch_.nodes = slurm_.nodes;
      launch_.ranks_per_node = slurm_.tasks_per_node;
      launch_.ranks = slurm_.tasks;
    }
    if (launch_.launcher == "torchrun" && launch_.nodes == 0) launch_.nodes = slurm_.nodes;
    if (launch_.ranks == 0) launch_.ranks = launch_.nodes * launch_.ranks_per_node;
    if (launch_.nodes > 0 && launch_.ranks_per_node > 0 && launch_.ranks != launch_.nodes * launch_.ranks_per_node)
      say(Weight::wrong, "--ntasks",
          fmt::format("{} is not {} nodes x {}", launch_.ranks, launch_.nodes, launch_.ranks_per_node), "");
  }

  const std::string file_;
  std::vector<ShellLine> lines_;
  int number_ = 0;  // of the line that is read
  Slurm slurm_;
  Launch launch_;
};

}  // namespace

Launch read_launch(std::string_view text, const std::string& file) { return LaunchReader(text, file).read(); }

}  // namespace seeksim::harness
