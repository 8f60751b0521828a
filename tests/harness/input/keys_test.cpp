// A row is enough: from it follow the schema, the reader and the writer.
#include "harness/input/keys.h"

#include <gtest/gtest.h>

#include "harness/input/schema.h"

namespace seeksim::harness {
namespace {

using namespace shapes;

enum class Color : std::uint8_t { red, green, count_ };
const char* name(Color color) { return color == Color::red ? "red" : "green"; }

struct Wheel {
  double radius = 0.5;
};

struct Car {
  int doors = 4;
  bool open = false;
  Color color = Color::red;
  runtime::TimeNs idle_ns = runtime::kSecond / 2;
  std::vector<std::string> owners;
  std::optional<int> towed;
  Wheel wheel;
};

const Keys<Wheel>& wheel_keys() {
  static const Keys<Wheel> keys = {{"radius", at(&Wheel::radius), number().above(0), kNoBit, "In metres."}};
  return keys;
}

const Keys<Car>& car_keys() {
  static const Keys<Car> keys = {
      {"doors", at(&Car::doors), integer(2, 5), kBits, "How many."},
      {"open", at(&Car::open).unless_standard(), flag(), kNoBit, "Without a roof."},
      {"color", in_words(&Car::color), choice(words_of<Color>()).required(), kNoBit, "Of the body."},
      {"idle_s", in_seconds(&Car::idle_ns), number().least(0), kNoBit, "Until the engine stops."},
      {"owners", at(&Car::owners).unless_standard(), list(text()), kNoBit, "The last one first."},
      {"towed", at(&Car::towed).unless_standard(), integer(0), kNoBit, "The number of what it tows."},
      {"wheel", inside(wheel_keys(), &Car::wheel), wheel_keys().shape(), kNoBit, "Each of the four."},
      {"serial", by_hand, text().unset(), kNoBit, "Read elsewhere."},
  };
  return keys;
}

Car read(const std::string& text) {
  const Document document = Document::from_text(text, "car.json");
  Findings findings(document);
  Car car;
  car_keys().read(Reader(document.json(), "", findings), car);
  return car;
}

TEST(Keys, FillTheMembersThatTheyName) {
  const Car car = read(
      R"({"doors": 2, "color": "green", "idle_s": 1.5, "owners": ["a", "b"], "towed": 7, "wheel": {"radius": 2}})");
  EXPECT_EQ(car.doors, 2);
  EXPECT_EQ(car.color, Color::green);
  EXPECT_EQ(car.idle_ns, 1'500'000'000);
  EXPECT_EQ(car.owners, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(car.towed, 7);
  EXPECT_EQ(car.wheel.radius, 2);
}

TEST(Keys, LeaveAMemberAloneWhereTheKeyIsMissingOrOfAnotherType) {
  const Car car = read(R"({"doors": "two", "color": "mauve", "wheel": []})");
  EXPECT_EQ(car.doors, 4);
  EXPECT_EQ(car.color, Color::red);
  EXPECT_EQ(car.idle_ns, 500'000'000);
  EXPECT_EQ(car.wheel.radius, 0.5);
}

TEST(Keys, WriteWhatReadsBackInTheOrderOfTheRows) {
  Car car;
  EXPECT_EQ(car_keys().written(car).dump(), R"({"doors":4,"color":"red","idle_s":0.5,"wheel":{"radius":0.5}})");
  car.open = true;
  car.towed = 3;
  car.owners = {"a"};
  const std::string text = car_keys().written(car).dump();
  EXPECT_EQ(text,
            R"({"doors":4,"open":true,"color":"red","idle_s":0.5,"owners":["a"],"towed":3,"wheel":{"radius":0.5}})");
  EXPECT_EQ(car_keys().written(read(text)).dump(), text);
}

TEST(Keys, MakeTheSchemaWithTheStructsDefaults) {
  const Json schema = car_keys().shape().schema();
  EXPECT_EQ(schema["required"], Json({"color"}));
  EXPECT_EQ(
      schema["properties"]["doors"].dump(),
      R"({"type":"integer","minimum":2,"maximum":5,"default":4,"description":"How many.","x-decides-bits":true})");
  EXPECT_EQ(schema["properties"]["idle_s"]["default"], 0.5);
  EXPECT_FALSE(schema["properties"]["towed"].contains("default"));
  EXPECT_FALSE(schema["properties"]["serial"].contains("default"));
  EXPECT_EQ(explain(schema, Json{{"color", "mauve"}, {"doors", 6}, {"wheel", {{"radius", 0}}}, {"horn", 1}}).size(),
            4u);
}

}  // namespace
}  // namespace seeksim::harness
