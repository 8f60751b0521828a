// As integrations/deepspeed.py of transformers 5.23 fills them (trainer_config_process, trainer_config_finalize).
#include "harness/loading/deepspeed/auto_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "harness/loading/deepspeed/pointers.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

using namespace shapes;

struct Argument {
  const char* name;
  const char* of_trainer;
  Json standard;  // TrainingArguments'
  Shape shape;
  const char* text;
};

const std::vector<Argument>& arguments() {
  static const std::vector<Argument> table = {
      {"lr", "learning_rate", 5e-5, number().least(0), "optimizer.params.lr and scheduler.params.warmup_max_lr."},
      {"batch", "per_device_train_batch_size", 8, integer(1), "train_micro_batch_size_per_gpu."},
      {"accumulation", "gradient_accumulation_steps", 1, integer(1), "gradient_accumulation_steps."},
      {"clipping", "max_grad_norm", 1, number().least(0), "gradient_clipping."},
      {"beta1", "adam_beta1", 0.9, number().least(0).below(1), "The first of optimizer.params.betas."},
      {"beta2", "adam_beta2", 0.999, number().least(0).below(1), "The second of optimizer.params.betas."},
      {"eps", "adam_epsilon", 1e-8, number().least(0), "optimizer.params.eps."},
      {"weight_decay", "weight_decay", 0, number().least(0), "optimizer.params.weight_decay."},
      {"warmup", "warmup_steps", 0, number().least(0),
       "scheduler.params.warmup_num_steps, at least 1; below 1: a share of all steps."},
      {"bf16", "bf16", false, flag(), "bf16.enabled."},
      {"fp16", "fp16", false, flag(), "fp16.enabled."},
  };
  return table;
}

// What the Trainer was told, and what of it was used.
class Arguments {
 public:
  explicit Arguments(const Document& document) : document_(document) {}

  Json operator()(const std::string& name) {
    used_.insert(name);
    if (is_given(name)) return given()[name];
    const auto row = std::find_if(arguments().begin(), arguments().end(),
                                  [&](const Argument& argument) { return name == argument.name; });
    return row->standard;
  }
  bool is_given(const std::string& name) const { return given().is_object() && given().contains(name); }
  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : given().items()) {
      if (!used_.contains(name)) names.push_back(name);
    }
    return names;
  }
  // Integers of the scenario itself; 0: not there.
  std::int64_t whole(const char* pointer) const {
    const Json::json_pointer at(pointer);
    if (!document_.json().contains(at)) return 0;
    const Json& value = document_.json().at(at);
    return value.is_number_integer() ? std::clamp<std::int64_t>(value.get<std::int64_t>(), 0, 1'000'000'000) : 0;
  }

 private:
  const Json& given() const {
    static const Json kNone = Json::object();
    const auto found = document_.json().find("auto");
    return found != document_.json().end() && found->is_object() ? *found : kNone;
  }

  const Document& document_;
  std::set<std::string> used_;
};

// What stands in the place of an "auto"; null: nothing, DeepSpeed finds the value itself.
struct Place {
  const char* pointer;  // below the section
  std::function<Json(Arguments&)> value;
  bool is_batch = false;  // DeepSpeed's arithmetic finds it
};

std::int64_t width(const Arguments& a) { return a.whole("/model/width"); }
bool is_zero3(const Arguments& a) { return a.whole("/deepspeed/zero_optimization/stage") == 3; }

Json warmup_steps(Arguments& a) {
  const Json given = a("warmup");
  const double steps = given.is_number() ? given.get<double>() : 0;
  const double all = double(a.whole("/steps"));
  return std::int64_t(std::max(1.0, steps < 1 ? std::ceil(steps * all) : std::min(steps, 1e9)));
}
Json all_steps(Arguments& a) { return a.whole("/steps") > 0 ? Json(a.whole("/steps")) : Json(nullptr); }

Json bucket(Arguments& a) { return width(a) > 0 ? Json(width(a) * width(a)) : Json(nullptr); }
Json prefetch(Arguments& a) {
  return is_zero3(a) && width(a) > 0 ? Json(std::int64_t(0.9 * double(width(a)) * double(width(a)))) : Json(nullptr);
}
Json persistence(Arguments& a) { return is_zero3(a) && width(a) > 0 ? Json(10 * width(a)) : Json(nullptr); }

// The Trainer's value, but where train_batch_size is a number, the other two follow from it unless they were given.
Json batch_size(Arguments& a, const char* name) {
  const bool follows = a.whole("/deepspeed/train_batch_size") > 0 && !a.is_given(name);
  return follows ? Json(nullptr) : a(name);
}

std::function<Json(Arguments&)> argument(const char* name) {
  return [name](Arguments& a) { return a(name); };
}

const std::vector<Place>& places() {
  static const std::vector<Place> table = {
      {"/train_micro_batch_size_per_gpu", [](Arguments& a) { return batch_size(a, "batch"); }, true},
      {"/gradient_accumulation_steps", [](Arguments& a) { return batch_size(a, "accumulation"); }, true},
      {"/train_batch_size", [](Arguments&) { return Json(nullptr); }, true},
      {"/gradient_clipping", argument("clipping")},
      {"/optimizer/params/lr", argument("lr")},
      {"/optimizer/params/betas",
       [](Arguments& a) {
         return Json::array({a("beta1"), a("beta2")});
       }},
      {"/optimizer/params/eps", argument("eps")},
      {"/optimizer/params/weight_decay", argument("weight_decay")},
      {"/scheduler/params/warmup_min_lr", [](Arguments&) { return Json(0); }},
      {"/scheduler/params/warmup_max_lr", argument("lr")},
      {"/scheduler/params/total_num_steps", all_steps},
      {"/scheduler/params/warmup_num_steps", warmup_steps},
      {"/fp16/enabled", argument("fp16")},
      {"/bf16/enabled", argument("bf16")},
      {"/zero_optimization/reduce_bucket_size", bucket},
      {"/zero_optimization/stage3_prefetch_bucket_size", prefetch},
      {"/zero_optimization/stage3_param_persistence_threshold", persistence},
  };
  return table;
}

void find_auto(const Json& value, const std::string& pointer, std::vector<std::string>& found) {
  if (value.is_string() && value == "auto") found.push_back(pointer);
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) find_auto(member, pointer + '/' + pointer_step(key), found);
}

std::string named(const std::string& pointer) { return dotted(pointer.substr(std::string(kSection).size())); }

// What became of them.
struct Filling {
  std::vector<std::string> filled, left;
  bool batch_follows = false;

  // One line for all.
  std::string note() const {
    std::vector<std::string> parts;
    if (!filled.empty()) parts.push_back(fmt::format("{}", fmt::join(filled, ", ")));
    if (batch_follows) parts.emplace_back("the other batch sizes follow");
    if (!left.empty()) parts.push_back(fmt::format("DeepSpeed's default for {}", fmt::join(left, ", ")));
    if (parts.empty()) return "";
    return fmt::format("\"auto\" is filled as Hugging Face's Trainer does (--auto lr=1e-4,batch=4 changes it): {}",
                       fmt::join(parts, "; "));
  }
};

Filling fill(Document& document, std::vector<std::string> found, Arguments& given) {
  Filling filling;
  for (const Place& place : places()) {
    const std::string pointer = kSection + std::string(place.pointer);
    if (std::erase(found, pointer) == 0) continue;
    const Json value = place.value(given);
    if (value.is_null()) {
      erase_at(document.json(), pointer);
      if (place.is_batch)
        filling.batch_follows = true;
      else
        filling.left.push_back(named(pointer));
    } else {
      document.json()[Json::json_pointer(pointer)] = value;
      filling.filled.push_back(fmt::format("{}={}", named(pointer), value.dump()));
    }
  }
  for (const std::string& pointer : found) {
    erase_at(document.json(), pointer);
    filling.left.push_back(named(pointer));
  }
  return filling;
}

}  // namespace

const Keys<Scenario>& auto_keys() {
  static const Keys<Scenario> keys = [] {
    std::vector<Key<Scenario>> rows;
    for (const Argument& one : arguments()) {
      rows.push_back({one.name, by_hand, one.shape.standard(one.standard), kNoBit,
                      fmt::format("The Trainer's {}: fills {}", one.of_trainer, one.text)});
    }
    return Keys<Scenario>(std::move(rows));
  }();
  return keys;
}

std::vector<std::string> sets_of_auto(const std::vector<std::string>& options) {
  std::vector<std::string> sets;
  std::vector<Problem> problems;
  for (const std::string& option : options) {
    std::istringstream parts(option);
    for (std::string part; std::getline(parts, part, ',');) {
      const std::size_t equals = std::min(part.find('='), part.size());
      const std::string name = part.substr(0, equals);
      const auto row = std::find_if(arguments().begin(), arguments().end(), [&](const Argument& argument) {
        return name == argument.name || name == argument.of_trainer;
      });
      std::vector<std::string> known;
      for (const Argument& argument : arguments()) known.emplace_back(argument.name);
      if (row == arguments().end()) {
        const std::string near = closest(name, known);
        problems.push_back({"--auto " + option, "", fmt::format("there is no {}", in_quotes(name)),
                            near.empty() ? fmt::format("Known: {}.", fmt::join(known, ", "))
                                         : fmt::format("Did you mean \"{}\"?", near)});
      } else if (equals + 1 >= part.size()) {
        problems.push_back(
            {"--auto " + option, "", fmt::format("{} has no value", name), "For example lr=1e-4,batch=4."});
      } else {
        sets.push_back(fmt::format("auto.{}={}", row->name, part.substr(equals + 1)));
      }
    }
  }
  if (!problems.empty()) throw BadInput(std::move(problems));
  return sets;
}

void fill_auto(Document& document, std::vector<std::string>& notes, std::vector<Problem>& problems) {
  const auto section = document.json().find("deepspeed");
  if (section == document.json().end()) return;
  std::vector<std::string> found;
  find_auto(*section, kSection, found);
  Arguments given(document);
  const std::string note = fill(document, found, given).note();
  if (!note.empty()) notes.push_back(note);
  for (const std::string& name : given.unused()) {
    problems.push_back(document.problem("/auto/" + name, "fills nothing: no value that it stands for is \"auto\"",
                                        "Use --set deepspeed.KEY=VALUE, or write \"auto\" there."));
  }
}

}  // namespace seeksim::harness
