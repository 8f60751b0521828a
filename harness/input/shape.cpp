#include "harness/input/shape.h"

#include <cmath>

namespace seeksim::harness {

Json Shape::plain(Json value) {
  if (!value.is_number_float()) return value;
  const double number = value.get<double>();
  return number == std::floor(number) && std::fabs(number) <= shapes::kExact ? Json(std::int64_t(number)) : value;
}

Shape Shape::with(const char* key, Json value) const {
  Shape shape = *this;
  shape.schema_[key] = std::move(value);
  return shape;
}

Shape Shape::limits(const char* least_key, int least, const char* most_key, int most) const {
  Shape shape = least > 0 ? with(least_key, least) : *this;
  return most > 0 ? shape.with(most_key, most) : shape;
}

Shape Shape::or_null() const {
  Shape shape = *this;
  if (shape.schema_.contains("enum")) shape.schema_["enum"].insert(shape.schema_["enum"].begin(), nullptr);
  if (!shape.schema_.contains("type")) return shape;
  Json& type = shape.schema_["type"];
  if (!type.is_array()) type = Json::array({type});
  type.push_back("null");
  return shape;
}

Shape Shape::required() const {
  Shape shape = *this;
  shape.required_ = true;
  return shape;
}

Shape Shape::unset() const {
  Shape shape = *this;
  shape.unset_ = true;
  return shape;
}

namespace shapes {
namespace {

Shape of_type(const char* type) {
  Json schema;
  schema["type"] = type;
  return Shape(std::move(schema));
}

}  // namespace

Shape flag() { return of_type("boolean"); }
Shape text() { return of_type("string"); }
Shape number() { return of_type("number"); }
Shape integer() { return of_type("integer"); }
Shape integer(double least) { return integer().least(least); }
Shape integer(double least, double most) { return integer().least(least).most(most); }
Shape object() { return of_type("object"); }
Shape list(const Shape& of) { return of_type("array").with("items", of.schema()); }
Shape object_of(const Shape& values) { return object().with("additionalProperties", values.schema()); }

Shape choice(const std::vector<std::string>& words) {
  Json schema;
  schema["enum"] = words;
  return Shape(std::move(schema));
}
Shape choice(std::initializer_list<int> numbers) {
  Json schema;
  schema["enum"] = std::vector<int>(numbers);
  return Shape(std::move(schema));
}

Shape object_with(const std::vector<std::pair<const char*, Shape>>& keys) {
  Json required = Json::array(), properties = Json::object();
  for (const auto& [key, shape] : keys) {
    if (shape.is_required()) required.push_back(key);
    properties[key] = shape.schema();
  }
  const Shape known = required.empty() ? object() : object().with("required", required);
  return known.with("properties", properties);
}

Shape either(const Shape& one, const Shape& other) {
  Json both = one.schema();
  for (const auto& [key, value] : other.schema().items()) {
    if (key != "type") both[key] = value;
  }
  Json types = Json::array();
  for (const Shape* shape : {&one, &other}) {
    const Json& type = shape->schema().at("type");
    if (type.is_array()) types.insert(types.end(), type.begin(), type.end());
    if (!type.is_array()) types.push_back(type);
  }
  both["type"] = types;
  return Shape(both);
}

}  // namespace shapes
}  // namespace seeksim::harness
