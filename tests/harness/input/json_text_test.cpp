// JSON that people write by hand: problems are reported with line and column, and nothing hostile gets through.
#include "harness/input/json_text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace seeksim::harness {
namespace {

std::string error_of(const std::string& text) {
  try {
    const JsonText parsed = parse_json(text, "f");
    return parsed.problems.empty() ? "" : parsed.problems[0].text();
  } catch (const BadInput& bad) {
    return bad.what();
  }
}

TEST(JsonText, KnowsLinesOfNestedValues) {
  const JsonText parsed = parse_json("{\n \"a\": [1,\n  {\"b\":\n 2}],\n \"c/d\": 3}", "f");
  EXPECT_EQ(parsed.lines.at("/a"), 2);
  EXPECT_EQ(parsed.lines.at("/a/1"), 3);
  EXPECT_EQ(parsed.lines.at("/a/1/b"), 3);
  EXPECT_EQ(parsed.lines.at("/c~1d"), 5);
  EXPECT_EQ(parsed.value["a"][1]["b"], 2);
}

TEST(JsonText, ReadsEveryKindOfValue) {
  const Json value =
      parse_json(
          R"({"s":"a\u00e9\ud83d\ude00\n\\","i":-7,"u":18446744073709551615,"d":1.5e-3,"w":5e8,"t":true,"n":null,"e":[],"o":{}})",
          "f")
          .value;
  EXPECT_EQ(value["s"], "a\xc3\xa9\xf0\x9f\x98\x80\n\\");
  EXPECT_EQ(value["i"], -7);
  EXPECT_EQ(value["u"], 18446744073709551615ull);
  EXPECT_EQ(value["d"], 1.5e-3);
  EXPECT_TRUE(value["w"].is_number_integer());
  EXPECT_EQ(value["w"], 500000000);
  EXPECT_EQ(value["t"], true);
  EXPECT_TRUE(value["n"].is_null());
}

TEST(JsonText, TellsWhatIsWrongAndWhere) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "f:1:1: the file is empty"},
      {"  \n ", "f:2:2: the file is empty"},
      {"{\n\"a\": 1,\n}", "f:3:1: a key in double quotes was expected, found '}'. A comma before a closing bracket"},
      {"{\"a\": 1\n\"b\": 2}", "f:2:1: ',' or '}' was expected after the value of \"a\""},
      {"{\"a\" 1}", "f:1:6: ':' was expected after the key \"a\""},
      {"{\"a\": [1, 2}", "',' or ']' was expected in a list, found '}'"},
      {"{\"a\": [1,]}", "a value was expected, found ']'. A comma before a closing bracket"},
      {"{\"a\": ", "the file ends in the middle of a value"},
      {"{\"a\": \"xyz", "the file ends inside a string"},
      {"{\"a\": \"x\ny\"}", "the line ends inside a string"},
      {"{\"a\": tru}", "a value was expected, found 't'"},
      {"{a: 1}", "a key in double quotes was expected, found 'a'"},
      {"{} x", "f:1:4: 'x' after the end of the JSON value"},
      {"// hello\n{}", "comments are not JSON"},
      {"{\"a\": 01}", "a number may not begin with 0"},
      {"{\"a\": 1.}", "a digit was expected in a number"},
      {"{\"a\": -}", "a digit was expected in a number"},
      {"{\"a\": 1e999}", "too large or too small"},
      {"{\"a\": 99999999999999999999}", "does not fit into 64 bits"},
      {"{\"a\": \"\\x\"}", "an unknown escape"},
      {"{\"a\": \"\\ud800\"}", "surrogate"},
      {"{\"a\": \"\\u12\"}", "four hexadecimal digits"},
      {"{\"a\": \"\xff\"}", "byte 0xff is not UTF-8"},
      {"{\"a\": \"\xc0\xaf\"}", "is not UTF-8"},
      {"{\"a\": \"\xed\xa0\x80\"}", "is not UTF-8"},
      {std::string("{\"a\":\0 1}", 9), "a value was expected, found byte 0x00"},
      {std::string("{\"a\0\": 1}", 9), "byte 0x00 inside a string"},
      {"{\"a\": 1,\n\"b\": 2,\n\"a\": 3}", "f:3: a: this key is here twice"},
  };
  for (const auto& [text, message] : table) {
    EXPECT_NE(error_of(text).find(message), std::string::npos)
        << text << "\n  gave: " << error_of(text) << "\n  not:  " << message;
  }
}

TEST(JsonText, SurvivesWhatIsMeantToHurt) {
  EXPECT_NE(error_of(std::string(1'000'000, '[')).find("nested deeper than 64"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  EXPECT_NE(error_of(deep).find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(error_of(std::string(kJsonBytesMax + 1, ' ')).find("at most"), std::string::npos);
  EXPECT_EQ(error_of("\xef\xbb\xbf{}"), "") << "the byte order mark of some editors";
}

TEST(JsonText, NeverCrashesOnRandomBytes) {
  EXPECT_TRUE(rc::check([](const std::string& text) { error_of(text); }));
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& keys) {
    // What nlohmann writes, we read back to the same.
    Json json = Json::object();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::string key =
          Json::parse(Json(keys[i]).dump(-1, ' ', true, Json::error_handler_t::replace)).get<std::string>();
      json[key] = double(i) / 3;
    }
    RC_ASSERT(parse_json(json.dump(), "f").value == json);
    RC_ASSERT(parse_json(json.dump(1, '\t', true), "f").value == json);
  }));
}

TEST(DidYouMean, FindsNearWords) {
  const std::vector<std::string> known = {"rank", "peer", "micro_batch", "probability"};
  EXPECT_EQ(closest("rnak", known), "rank");
  EXPECT_EQ(closest("microbatch", known), "micro_batch");
  EXPECT_EQ(closest("Micro-Batch", known), "micro_batch");
  EXPECT_EQ(closest("probabilty", known), "probability");
  EXPECT_EQ(closest("colour", known), "");
  EXPECT_EQ(closest(std::string(10'000, 'x'), known), "");
}

}  // namespace
}  // namespace seeksim::harness
