// Values in quotes and numbers of another type are read as pydantic reads them. Expected values were seen in pydantic
// 2.14, value by value.
#include "harness/loading/deepspeed/lax.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

Json read(const char* type, Json value) {
  read_laxly({{"type", type}}, value);
  return value;
}

TEST(Lax, WholeNumbers) {
  for (const char* text : {"8", "8.0", " 8 ", "+8", "08", "8.00", "0_8"}) EXPECT_EQ(read("integer", text), 8) << text;
  EXPECT_EQ(read("integer", "1_000"), 1000);
  EXPECT_EQ(read("integer", "-1"), -1);
  EXPECT_EQ(read("integer", 8.0), 8);
  EXPECT_EQ(read("integer", 1e17), 100'000'000'000'000'000) << "beyond what a JSON number holds exactly";
  EXPECT_EQ(read("integer", true), 1);
  for (const char* text : {"1e3", "5.5", "1.", "_1", "1_", "1__0", "0x1", "", "auto"})
    EXPECT_EQ(read("integer", text), text) << "no whole number to pydantic either";
  EXPECT_EQ(read("integer", 1.5), 1.5);
}

TEST(Lax, Numbers) {
  EXPECT_EQ(read("number", "1e3"), 1000);
  EXPECT_EQ(read("number", ".5"), 0.5);
  EXPECT_EQ(read("number", "5."), 5);
  EXPECT_EQ(read("number", true), 1);
  for (const char* text : {"1e", "x", "0x1p3", ""}) EXPECT_EQ(read("number", text), text);
}

TEST(Lax, Booleans) {
  for (const char* text : {"1", "true", "TRUE", "on", "t", "y", "Yes"}) EXPECT_EQ(read("boolean", text), true) << text;
  for (const char* text : {"0", "false", "off", "F", "n", "no"}) EXPECT_EQ(read("boolean", text), false) << text;
  EXPECT_EQ(read("boolean", 1), true);
  EXPECT_EQ(read("boolean", 0.0), false);
  for (const Json& value : {Json(2), Json("1.0"), Json(" true"), Json("of"), Json(nullptr)})
    EXPECT_EQ(read("boolean", value), value);
}

TEST(Lax, MembersByTheirOwnTypesButTheScalesAsDeepSpeedLooksAtThem) {
  const Json schema = Json::parse(R"({"type": "object", "properties": {
    "a": {"type": "integer"}, "in": {"type": ["object", "null"], "properties": {"b": {"type": "boolean"}}},
    "min_loss_scale": {"type": "integer"}, "loss_scale": {"type": "number"}}})");
  Json value = Json::parse(R"({"a": "1", "in": {"b": "no", "c": "1"}, "min_loss_scale": true, "loss_scale": true})");
  read_laxly(schema, value);
  EXPECT_EQ(value.dump(), R"({"a":1,"in":{"b":false,"c":"1"},"min_loss_scale":true,"loss_scale":true})");
  value = Json::parse(R"({"min_loss_scale": "8.0", "loss_scale": "8.0"})");
  read_laxly(schema, value);
  EXPECT_EQ(value.dump(), R"({"min_loss_scale":"8.0","loss_scale":8.0})");
}

}  // namespace
}  // namespace seeksim::harness
