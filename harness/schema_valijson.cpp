// valijson stands alone in this file: it is all templates and takes the compiler longer than the rest of the folder.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "harness/schema.h"

namespace seeksim::harness {

std::vector<SchemaProblem> validate(const Json& schema, const Json& value) {
  const nlohmann::json plain_schema = schema, plain_value = value;  // the adapter knows only this type
  valijson::Schema compiled;
  valijson::SchemaParser parser;
  parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(plain_schema), compiled);
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
