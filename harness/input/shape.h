// What a value of a scenario may be, written in C++ and kept as JSON Schema. Only keywords that explain() (schema.h)
// checks can be used: teach it a new keyword first.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "harness/input/json.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

class Shape {
 public:
  explicit Shape(Json schema) : schema_(std::move(schema)) {}

  // Bounds of a number.
  Shape least(double bound) const { return with("minimum", plain(bound)); }
  Shape most(double bound) const { return with("maximum", plain(bound)); }
  Shape above(double bound) const { return with("exclusiveMinimum", plain(bound)); }
  Shape below(double bound) const { return with("exclusiveMaximum", plain(bound)); }
  // Bytes of a text, entries of a list, keys of an object; most = 0: without limit.
  Shape length(int least, int most = 0) const { return limits("minLength", least, "maxLength", most); }
  Shape entries(int least, int most = 0) const { return limits("minItems", least, "maxItems", most); }
  Shape keys(int least, int most = 0) const { return limits("minProperties", least, "maxProperties", most); }
  // For people.
  Shape described(const char* text) const { return with("description", text); }
  // null will do too: DeepSpeed's word for a key that is not there.
  Shape or_null() const;

  // The key has to be there.
  Shape required() const;
  // What holds without the key, where that is not what the struct begins with.
  Shape standard(Json value) const { return with("default", plain(std::move(value))); }
  // Without the key there is no value, or one that depends on other keys: the text says which.
  Shape unset() const;

  bool is_required() const { return required_; }
  bool is_unset() const { return unset_ || required_; }
  const Json& schema() const { return schema_; }

  // One more keyword of the schema.
  Shape with(const char* key, Json value) const;
  // 5, not 5.0: as a person writes it.
  static Json plain(Json value);

 private:
  Shape limits(const char* least_key, int least, const char* most_key, int most) const;

  Json schema_;
  bool required_ = false;
  bool unset_ = false;
};

// How rows say them.
namespace shapes {

Shape flag();
Shape text();
Shape number();
Shape integer();
Shape integer(double least);
Shape integer(double least, double most);
Shape choice(const std::vector<std::string>& words);
Shape choice(std::initializer_list<int> numbers);
Shape list(const Shape& of);
// An object with any keys, or with any keys whose values are all alike.
Shape object();
Shape object_of(const Shape& values);
// An object with any keys, of which these are known.
Shape object_with(const std::vector<std::pair<const char*, Shape>>& keys);
// One or the other. Both may not bound the same thing.
Shape either(const Shape& one, const Shape& other);

// 2^53: up to here a JSON number is exact everywhere.
inline constexpr double kExact = 9007199254740992;

}  // namespace shapes
}  // namespace seeksim::harness
