// One row a key. An object of a scenario is a table of rows (Keys), and from a row follow the schema, the reader, the
// writer, `seeksim list keys` and docs/reference/keys.md:
//
//   {"layers", at(&ModelPlan::layers), integer(1, 10'000).required(), kBits, "Transformer blocks."},
//
// The name; the member that it fills; what it may be; whether it may decide a bit of the weights, so that goldens are
// keyed by it; and the text for people. Without the key the member keeps what its struct begins with: that is the
// default which the schema shows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/input/bindings.h"
#include "harness/input/reader.h"
#include "harness/input/shape.h"

namespace seeksim::harness {

// Whether a key's value may decide a bit of the weights.
enum class Decides : std::uint8_t { nothing, bits };
inline constexpr Decides kBits = Decides::bits, kNoBit = Decides::nothing;

// The keyword of the schema that says so.
inline constexpr const char* kDecidesBits = "x-decides-bits";

template <class T>
struct Key {
  const char* name;
  Binding<T> to;
  Shape shape;
  Decides decides;
  std::string text;
};

// The keys of one object, which fill a T.
template <class T>
class Keys {
 public:
  Keys(std::initializer_list<Key<T>> rows) : rows_(rows) {}
  explicit Keys(std::vector<Key<T>> rows) : rows_(std::move(rows)) {}

  // Fills what rows can fill by themselves. What has the wrong type was reported against the schema and is left alone.
  void read(const Reader& object, T& to) const {
    for (const Key<T>& row : rows_) {
      if (row.to.read && object.has(row.name)) row.to.read(object, row.name, to);
    }
  }

  // Adds the keys that give these values, in the order of the rows.
  void write(const T& from, Json& object) const {
    for (const Key<T>& row : rows_) {
      if (row.to.value && (!row.to.written || row.to.written(from))) object[row.name] = row.to.value(from);
    }
  }
  Json written(const T& from) const {
    Json object = Json::object();
    write(from, object);
    return object;
  }

  // An object with these keys and no others.
  Shape shape() const {
    Json required = Json::array(), properties = Json::object();
    for (const Key<T>& row : rows_) {
      if (row.shape.is_required()) required.push_back(row.name);
      properties[row.name] = schema_of(row);
    }
    const Shape closed = shapes::object().with("additionalProperties", false);
    return (required.empty() ? closed : closed.with("required", required)).with("properties", properties);
  }

  const std::vector<Key<T>>& rows() const { return rows_; }

 private:
  static Json schema_of(const Key<T>& row) {
    Json schema = row.shape.schema();
    if (!row.shape.is_unset() && !schema.contains("default") && row.to.value) {
      const Json value = row.to.value(T{});
      if (!value.is_object() && !value.is_null()) schema["default"] = Shape::plain(value);
    }
    if (!row.text.empty()) schema["description"] = row.text;
    if (row.decides == Decides::bits) schema[kDecidesBits] = true;
    return schema;
  }

  std::vector<Key<T>> rows_;
};

// An object inside another, with keys of its own that fill a member.
template <class U, class T, class M, class... Rest>
Binding<T> inside(const Keys<U>& keys, M T::*first, Rest... rest) {
  return {[=, &keys](const Reader& object, const char* key, T& to) {
            keys.read(object.child(key), member(to, first, rest...));
          },
          [=, &keys](const T& from) { return keys.written(member(from, first, rest...)); },
          {}};
}

}  // namespace seeksim::harness
