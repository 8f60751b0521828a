#include "harness/commands/plan_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>

#include "harness/calibration/scenario_times.h"
#include "harness/calibration/torch_trace.h"
#include "harness/html/other_pages.h"
#include "harness/input/document.h"
#include "harness/input/ds_config_text.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/shell.h"
#include "harness/loading/deepspeed/auto_values.h"
#include "harness/loading/deepspeed/forms.h"
#include "harness/loading/estimate.h"
#include "harness/loading/features/hugging_face.h"
#include "harness/loading/load.h"
#include "harness/loading/model_and_data.h"
#include "harness/report/report.h"
#include "harness/report/terminal.h"
#include "harness/search/plan_report.h"
#include "harness/search/planner.h"
#include "runtime/layout/parameters.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using runtime::seconds;

// ---- what is asked -------------------------------------------------------------------------------------------------

const std::vector<std::string> kModelKeys = {"layers", "width", "heads", "vocab", "context"};

// "layers=24,width=1024,...": all five.
Json model_of_sizes(const std::string& text, std::vector<Problem>& problems) {
  Json model = Json::object();
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string key = part.substr(0, equals), value = part.substr(std::min(equals + 1, part.size()));
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (std::find(kModelKeys.begin(), kModelKeys.end(), key) == kModelKeys.end()) {
      std::vector<std::string> known = kModelKeys;
      for (const NamedModel& m : named_models()) known.emplace_back(m.name);
      problems.push_back(
          {"--model " + text, "", fmt::format("there is no {}", in_quotes(key)), did_you_mean(key, known)});
    } else if (error != std::errc() || end != value.data() + value.size() || number < 1) {
      problems.push_back(
          {"--model " + text, "", fmt::format("{} is no size", in_quotes(part)), "For example layers=24."});
    } else {
      model[key] = number;
    }
  }
  for (const std::string& key : kModelKeys) {
    if (problems.empty() && !model.contains(key))
      problems.push_back({"--model " + text, "", key + " is missing", fmt::format("Add {}=N.", key)});
  }
  return model;
}

// --model as --set options, before the user's own: a name, sizes, or the path of a config.json or of a folder with one.
std::vector<std::string> sets_of_model(const std::string& text, std::vector<Problem>& problems) {
  const auto& named = named_models();
  const std::string name = plain_model_name(text);
  const auto found = std::find_if(named.begin(), named.end(), [&](const NamedModel& one) { return name == one.name; });
  std::error_code none;
  const bool path =
      text.find('/') != std::string::npos || text.ends_with(".json") || std::filesystem::exists(text, none);
  if (text.find('=') == std::string::npos && path && (found == named.end() || std::filesystem::exists(text, none)))
    return {"model=" + Json(text).dump()};
  const Json model = found != named.end() ? found->model() : model_of_sizes(text, problems);
  if (model.contains("model_type")) return {"model=" + model.dump()};  // in Hugging Face's form
  std::vector<std::string> sets;
  for (const auto& [key, value] : model.items()) sets.push_back(fmt::format("model.{}={}", key, value.dump()));
  return sets;
}

bool is_scenario(const Json& json) { return json.contains("model") || json.contains("world") || json.contains("name"); }

// A scenario around a ds_config.json. Peer copies are seeksim's own: a user of DeepSpeed has none.
std::string wrapped(const std::string& file) {
  const Json scenario = {{"name", "plan"},
                         {"model", Json::object()},
                         {"data", {{"synthetic", true}}},
                         {"world", {{"nodes", 1}, {"ranks_per_node", 1}}},
                         {"deepspeed", file},
                         {"recovery", {{"policy", "stop"}}}};
  return scenario.dump();
}

// What the plan is about, ready to be loaded.
struct Request {
  std::string text, file;
  std::vector<std::string> sets;
  Json written;  // the deepspeed section, as the user has it
  Json formed;   // the same with "auto" filled
  std::size_t memory_bytes = 0;
  std::vector<std::string> notes;
};

std::int64_t whole(const Json& section, const char* key) {
  const auto found = section.find(key);
  return found != section.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// One batch for all: the global batch and the micro-batch stay as they are written, accumulation follows. ranks: that
// share it.
void cut_batch(Request& request, std::int64_t ranks, std::vector<Problem>& problems) {
  const std::int64_t train = whole(request.formed, "train_batch_size"),
                     micro = whole(request.formed, "train_micro_batch_size_per_gpu"),
                     steps = whole(request.formed, "gradient_accumulation_steps");
  if (train < 1 || ranks < 1) return;  // DeepSpeed's arithmetic fills in the rest, or says what is wrong
  const std::string place = request.file;
  if (train % ranks != 0) {
    problems.push_back({place, "deepspeed.train_batch_size",
                        fmt::format("{} samples cannot be cut evenly over {} data-parallel GPUs", train, ranks),
                        fmt::format("For example {}.", (train / ranks + 1) * ranks)});
    return;
  }
  const std::int64_t share = train / ranks;
  const std::int64_t size = micro > 0 ? micro : steps > 0 && share % steps == 0 ? share / steps : share;
  if (share % size != 0) {
    problems.push_back(
        {place, "deepspeed.train_micro_batch_size_per_gpu",
         fmt::format("a GPU's {} samples ({} / {}) cannot be cut into micro-batches of {}", share, train, ranks, size),
         "Use a divisor."});
    return;
  }
  request.sets.push_back(fmt::format("deepspeed.train_micro_batch_size_per_gpu={}", size));
  request.sets.push_back(fmt::format("deepspeed.gradient_accumulation_steps={}", share / size));
  if (steps > 0 && steps != share / size)
    request.notes.push_back(
        fmt::format("gradient_accumulation_steps is {} on {} data-parallel GPUs, not {}: train_batch_size stays {}",
                    share / size, ranks, steps, train));
}

// What the loader will read. Its problems are told when it does.
void read_forms(Request& request) {
  Document document = Document::from_text(request.text, request.file, request.sets);
  request.notes = bring_to_form(document).notes;
  for (std::string& note : bring_model_to_form(document, true, model_key_names()).notes)
    request.notes.push_back(std::move(note));
  request.formed = document.json().value("deepspeed", Json::object());
}

void set_world(Request& request, const PlanArguments& a, const Json& world, std::vector<Problem>& problems) {
  const std::int64_t stages = std::max<std::int64_t>(1, whole(world, "pipeline")),
                     ways = std::max<std::int64_t>(1, whole(world, "tensor")),
                     copy = stages * ways;  // ranks that hold one copy of the model together
  const std::int64_t replicas = whole(world, "replicas");
  std::int64_t nodes = whole(world, "nodes");
  std::int64_t ranks = replicas > 0 ? replicas * copy : nodes * whole(world, "ranks_per_node");
  if (a.gpus > 0) {
    ranks = a.gpus;
    nodes = ranks > 8 && ranks % 8 == 0 ? ranks / 8 : 1;
  }
  if (a.nodes > 0) nodes = a.nodes;
  if (nodes > 0 && ranks % nodes != 0) {
    if (a.nodes <= 0) return;  // the loader says what is wrong with the scenario's world
    problems.push_back({fmt::format("--nodes {}", nodes), "", fmt::format("{} GPUs cannot be spread evenly", ranks),
                        "Give a divisor of --gpus."});
    return;
  }
  if (ranks % copy != 0) {
    if (a.gpus <= 0) return;  // likewise
    problems.push_back(
        {fmt::format("--gpus {}", ranks), "",
         fmt::format("a copy of the model takes {} GPUs ({} pipeline stages x {} tensor-parallel)", copy, stages, ways),
         fmt::format("Use a multiple of {}.", copy)});
    return;
  }
  if (nodes > 0) {
    request.sets.push_back(fmt::format("world.nodes={}", nodes));
    request.sets.push_back(replicas > 0 ? fmt::format("world.replicas={}", ranks / copy)
                                        : fmt::format("world.ranks_per_node={}", ranks / nodes));
  }
  cut_batch(request, ranks / copy, problems);
}

// A scenario's own judgements are of no interest here, nor what breaks in it.
void set_dry(Request& request, const Json& document) {
  const std::pair<const char*, const char*> resets[] = {{"sweep", "[]"},    {"checks", "[]"}, {"faults", "[]"},
                                                        {"expect", "pass"}, {"quirks", "[]"}, {"provenance", "false"},
                                                        {"golden", "{}"}};
  for (const auto& [key, value] : resets) {
    if (document.contains(key)) request.sets.push_back(fmt::format("{}={}", key, value));
  }
  if (document.value("model", Json::object()).contains("init")) request.sets.emplace_back("model.init=\"\"");
  for (const char* set : {"numerics=shapes", "tf32=false", "steps=2", "data={\"synthetic\":true}", "world.noise=0"})
    request.sets.emplace_back(set);
}

Request read_request(const PlanArguments& a) {
  Request request;
  std::vector<Problem> problems;
  request.file = a.file;
  request.text = read_file(a.file, kJsonBytesMax);
  const bool of_deepspeed = !is_scenario(parse_ds_config(request.text, a.file).value);
  if (of_deepspeed) {
    request.text = wrapped(a.file);
    const auto need = [&](bool missing, const char* option, const char* what) {
      if (missing)
        problems.push_back(
            {a.file, "", fmt::format("a ds_config.json does not say {}", what), fmt::format("Add {}.", option)});
    };
    need(a.model.empty(),
         "--model llama-3-8b, gpt2-xl, a config.json or layers=..,width=..,heads=..,vocab=..,context=..",
         "which model it trains");
    need(a.gpus < 1, "--gpus N", "on how many GPUs it runs");
    need(a.memory.empty(), "--memory 80GB", "how much memory one has");
  }
  request.sets = sets_of_auto(a.autos);
  if (!a.model.empty()) {
    const std::vector<std::string> of_model = sets_of_model(a.model, problems);
    request.sets.insert(request.sets.end(), of_model.begin(), of_model.end());
  }
  request.sets.insert(request.sets.end(), a.sets.begin(), a.sets.end());
  const Document document = Document::from_text(request.text, a.file, request.sets);
  problems.insert(problems.end(), document.problems().begin(), document.problems().end());
  const Json& json = document.json();
  request.written = json.value("deepspeed", Json::object());
  if (!a.memory.empty()) {
    try {
      request.memory_bytes = bytes_of(a.memory);
    } catch (const BadInput& bad) {
      problems.insert(problems.end(), bad.problems().begin(), bad.problems().end());
    }
  }
  read_forms(request);
  set_world(request, a, json.value("world", Json::object()), problems);
  set_dry(request, json);
  if (!problems.empty()) throw BadInput(std::move(problems));
  return request;
}

// ---- what comes out ------------------------------------------------------------------------------------------------

// The user's section with what the plan changes; and that change alone. Sizes of the batch go along where they moved.
Json patch_for_user(const Request& request, const Scenario& chosen, const Json& patch) {
  Json all = patch;
  const std::pair<const char*, int> sizes[] = {{"train_micro_batch_size_per_gpu", chosen.train.layout.micro_batch},
                                               {"gradient_accumulation_steps", chosen.accumulation}};
  for (const auto& [key, value] : sizes) {
    if (request.written.contains(key) && request.written[key] != value) all[key] = value;
  }
  return all;
}

std::string header(const Scenario& s, const Request& request) {
  const runtime::ModelPlan& m = s.train.definition.model;
  std::string text = fmt::format(
      "{}: {} parameters ({} layers, width {}, {} heads, context {}, vocabulary {}), {} GPUs "
      "({} x {}) of {}\n",
      s.name, count_text(estimate(s).parameters), m.layers, m.width, m.heads, m.context, m.vocab, s.world.ranks(),
      s.world.nodes, s.world.ranks_per_node, decimal_text(double(request.memory_bytes)));
  text += fmt::format("  times assume {:.4g} TFLOP/s and {:.4g} GB/s of memory a GPU, network {}\n",
                      s.world.device.flops_per_ns / 1e3, s.world.device.bytes_per_ns, s.world.network);
  for (const std::string& note : request.notes) text += fmt::format("  note  {}\n", note);
  return text + '\n';
}

// What makes the same plan again.
std::string command_of(const PlanArguments& a) {
  std::vector<std::string> words = {"seeksim", "plan", a.file};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--model", a.model);
  add("--gpus", a.gpus > 0 ? std::to_string(a.gpus) : "");
  add("--nodes", a.nodes > 0 ? std::to_string(a.nodes) : "");
  add("--memory", a.memory);
  add("--ledger", a.ledger == "seeksim" ? "" : a.ledger);
  for (const std::string& set : a.sets) add("--set", set);
  for (const std::string& set : a.autos) add("--auto", set);
  if (a.all) words.emplace_back("--all");
  add("--platform", a.platform);
  for (const std::string& file : a.nccl_tests) add("--nccl-tests", file);
  for (const std::string& file : a.torch_traces) add("--torch-trace", file);
  words.insert(words.end(), {"--html", a.html});
  return command_line(words);
}

// The platform that --platform names, with measured curves; none where it does not.
std::optional<calibration::Platform> platform_of(const PlanArguments& a) {
  if (a.platform.empty()) {
    if (a.nccl_tests.empty() && a.torch_traces.empty()) return std::nullopt;
    throw BadInput(a.nccl_tests.empty() ? "--torch-trace" : "--nccl-tests", "curves replace those of a platform",
                   "Add --platform h100.");
  }
  calibration::Platform platform = calibration::platform_of(a.platform, "--platform " + a.platform);
  for (const std::string& file : a.nccl_tests)
    platform.curves.push_back(calibration::read_nccl_tests(read_file(file, kJsonBytesMax), file));
  return platform;
}

// Which ranks of a trace share a node follows from how many GPUs a node of the scenario has.
void add_traces(const PlanArguments& a, const Scenario& given, calibration::Platform& platform) {
  calibration::TraceCurves traces;
  for (const std::string& file : a.torch_traces) traces.read(read_file(file, calibration::kTraceBytesMax), file);
  const int domain = platform.node_named ? platform.node : std::min(platform.node, given.world.ranks_per_node);
  for (calibration::Curve& curve : traces.curves(domain)) platform.curves.push_back(std::move(curve));
}

// What a configuration takes on that platform, as text; in the report too.
std::string platform_text(const std::optional<calibration::Platform>& platform, const Scenario& chosen, Json& report) {
  if (!platform) return "";
  const std::string unknown = calibration::unknown_part(chosen);
  if (!unknown.empty()) return fmt::format("  no calibrated time: the model of times does not know {}\n", unknown);
  const calibration::ScenarioTimes times = calibration::scenario_times(chosen, *platform);
  report["platform"] = calibration::json(times);
  return calibration::text(times);
}

LedgerOf ledger_of(const PlanArguments& a) {
  if (a.ledger == "platform" && a.platform.empty())
    throw BadInput("--ledger platform", "there is no platform", "Add --platform h100, or a100.");
  return a.ledger == "platform"    ? LedgerOf::platform
         : a.ledger == "deepspeed" ? LedgerOf::deepspeed
                                   : LedgerOf::seeksim;
}

// What a GPU holds there; nothing where the model does not know all of the scenario.
std::vector<LedgerLine> platform_ledger(const Scenario& scenario, const calibration::Platform& platform) {
  if (!calibration::unknown_part(scenario).empty()) return {};
  std::vector<LedgerLine> lines;
  for (const calibration::MemoryLine& line : calibration::memory_lines(calibration::scenario_times(scenario, platform)))
    lines.push_back({line.name, line.bytes, line.what});
  return lines;
}

}  // namespace

std::size_t bytes_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const std::pair<const char*, double> units[] = {
      {"B", 1}, {"MB", 1e6}, {"GB", 1e9}, {"MiB", 1u << 20}, {"GiB", 1u << 30}};
  for (const auto& [name, factor] : units) {
    if (error == std::errc() && unit == name && number > 0 && number * factor < 1e18)
      return std::size_t(number * factor);
  }
  throw BadInput("--memory " + text, "a size with its unit is expected", "For example 80GB, 79.1GiB or 40000MB.");
}

ExitStatus plan_command(const PlanArguments& a) {
  if (!a.report.empty()) probe_writable(a.report, "--report");
  if (!a.html.empty()) probe_writable(a.html, "--html");
  std::optional<calibration::Platform> platform = platform_of(a);
  PlanOptions plan_options = {ledger_of(a), a.all, nullptr};
  if (platform) plan_options.platform = [&](const Scenario& scenario) { return platform_ledger(scenario, *platform); };
  Request request = read_request(a);
  const LoadPatched load = [&](const Json& patch) {
    LoadOptions options;
    options.sets = request.sets;
    for (std::string& set : sets_of_patch(patch)) options.sets.push_back(std::move(set));
    return load_scenario_text(request.text, request.file, options);
  };
  const Scenario given = load(Json::object());
  if (platform) add_traces(a, given, *platform);
  if (request.memory_bytes == 0) request.memory_bytes = given.world.device.capacity_bytes;
  put(header(given, request));
  const Plan plan = make_plan(given, load, request.memory_bytes, plan_options);
  put_data(plan_table(plan, request.memory_bytes) + '\n');

  Json report = {{"schema", "seeksim-plan-1"},
                 {"gpus", given.world.ranks()},
                 {"nodes", given.world.nodes},
                 {"memory_bytes", request.memory_bytes},
                 {"parameters", std::int64_t(estimate(given).parameters)},
                 {"step_flops", flops_json(given)}};
  for (const PlanRow& row : plan.rows) report["candidates"].push_back(row_json(row, request.memory_bytes));
  const bool fits = plan.recommended >= 0;
  report["exit_code"] = code(fits ? ExitStatus::as_expected : ExitStatus::check_failed);
  report["recommended"] = fits ? Json(plan.recommended) : Json(nullptr);
  if (fits) {
    const PlanRow& row = plan.rows[std::size_t(plan.recommended)];
    const Scenario chosen = load(row.candidate.patch);
    const Json patch = patch_for_user(request, chosen, row.candidate.patch);
    report["patch"] = patch;
    report["ds_config"] = request.written;
    report["ds_config"].merge_patch(patch);
    put_data(ledgers_text(row, request.memory_bytes));
    put(flops_text(row, given));
    put(platform_text(platform, chosen, report));
    put(fmt::format("\nrecommended: {}\n", row.candidate.name));
    put_data(patch.empty() ? "no change is needed\n"
                           : fmt::format("to be merged into the ds_config:\n{}\n", patch.dump(2)));
    if (patch.contains("activation_checkpointing"))
      put("number_checkpoints alone recomputes nothing in DeepSpeed: the model has to ask for it, by "
          "model.gradient_checkpointing_enable() of transformers or deepspeed.checkpointing.checkpoint()\n");
  } else {
    const PlanRow& row = plan.rows.at(std::size_t(std::max(plan.closest, 0)));
    report["closest"] = plan.closest;
    if (row.run) {
      put_data(ledgers_text(row, request.memory_bytes));
      put(flops_text(row, given));
      put(platform_text(platform, load(row.candidate.patch), report));
      const double needs = row.bytes(plan_options.ledger) - double(request.memory_bytes);
      put(std::isfinite(needs)
              ? fmt::format("\nno configuration fits; the closest is {}, which needs {} more\n", row.candidate.name,
                            decimal_text(needs))
              : "\nthe platform's memory is unknown for each of these configurations; --ledger deepspeed knows more\n");
    }
    put("more GPUs, a smaller model or a shorter context would help\n");
  }
  if (!a.report.empty()) write_file(a.report, dump(report));
  if (!a.html.empty()) write_file(a.html, html::plan_page(report, command_of(a)));
  return fits ? ExitStatus::as_expected : ExitStatus::check_failed;
}

}  // namespace seeksim::harness
