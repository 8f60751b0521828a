// valijson stands alone in this file: it is all templates and takes the compiler longer than the rest of the folder.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "harness/input/schema.h"

namespace seeksim::harness {

namespace {

// A schema as valijson wants it. The scenario's is compiled once: each row of a sweep and each explored case asks for
// it.
class Compiled {
 public:
  explicit Compiled(const Json& schema) {
    const nlohmann::json plain = schema;  // the adapter knows only this type
    valijson::SchemaParser().populateSchema(valijson::adapters::NlohmannJsonAdapter(plain), schema_);
  }
  const valijson::Schema& get() const { return schema_; }

 private:
  valijson::Schema schema_;
};

const Compiled& compiled_scenario_schema() {
  static const Compiled compiled(scenario_schema());
  return compiled;
}

}  // namespace

std::vector<SchemaProblem> validate(const Json& schema, const Json& value) {
  std::optional<Compiled> other;
  if (&schema != &scenario_schema()) other.emplace(schema);
  const valijson::Schema& compiled = other ? other->get() : compiled_scenario_schema().get();
  const nlohmann::json plain_value = value;
  valijson::Validator validator(valijson::Validator::kStrongTypes);
  valijson::ValidationResults results;
  std::vector<SchemaProblem> problems;
  if (validator.validate(compiled, valijson::adapters::NlohmannJsonAdapter(plain_value), &results)) return problems;
  valijson::ValidationResults::Error error;
  while (results.popError(error)) {
    std::string pointer;
    for (const std::string& step : error.context) {
      if (step.size() > 2 && step.front() == '[') pointer += '/' + step.substr(1, step.size() - 2);
    }
    problems.push_back({pointer, error.description, ""});
  }
  return problems;
}

}  // namespace seeksim::harness
