// Pickles: what Python wrote comes out as it was; what a stranger wrote does no harm.
#include "harness/analyse/pickle.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace seeksim::harness {
namespace {

using namespace std::string_literals;

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Written by Python 3.11: {"a": [1, -2, 300, 70000, 2**40, -2**40, 2**63, 2.5, None, True, False, "text", b"by"],
// "t": (1,), "u": (1, 2, 3, 4), "n": {"k": {}}, 5: "five", "again": the same list}; with protocol 2 without the bytes.
const struct {
  int protocol;
  const char* hex;
} kPythons[] = {
    {2,
     "80027d71002858010000006171015d7102284b014afeffffff4d2c014a701101008a060000000000018a060000000000ff8a"
     "090000000000000080004740040000000000004e888958040000007465787471036558010000007471044b01857105580100"
     "0000757106284b014b024b034b0474710758010000006e71087d710958010000006b710a7d710b734b055804000000666976"
     "65710c5805000000616761696e710d6802752e"},
    {3,
     "80037d71002858010000006171015d7102284b014afeffffff4d2c014a701101008a060000000000018a060000000000ff8a"
     "090000000000000080004740040000000000004e888958040000007465787471034302627971046558010000007471054b01"
     "8571065801000000757107284b014b024b034b0474710858010000006e71097d710a58010000006b710b7d710c734b055804"
     "00000066697665710d5805000000616761696e710e6802752e"},
    {4,
     "80049586000000000000007d94288c0161945d94284b014afeffffff4d2c014a701101008a060000000000018a0600000000"
     "00ff8a090000000000000080004740040000000000004e88898c0474657874944302627994658c0174944b0185948c017594"
     "284b014b024b034b0474948c016e947d948c016b947d94734b058c0466697665948c05616761696e946802752e"},
    {5,
     "80059586000000000000007d94288c0161945d94284b014afeffffff4d2c014a701101008a060000000000018a0600000000"
     "00ff8a090000000000000080004740040000000000004e88898c0474657874944302627994658c0174944b0185948c017594"
     "284b014b024b034b0474948c016e947d948c016b947d94734b058c0466697665948c05616761696e946802752e"},
};

// "" where it is read; else why not.
std::string refusal(const std::string& bytes, const PickleBounds& bounds = {}) {
  try {
    read_pickle(bytes, bounds);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(Pickle, ValuesOfAllProtocolsComeOutAsTheyWere) {
  for (const auto& python : kPythons) {
    const Tree v = read_pickle(bytes_of(python.hex));
    Tree list = {1, -2, 300, 70000, std::int64_t(1) << 40, -(std::int64_t(1) << 40), std::uint64_t(1) << 63, 2.5};
    for (const Tree& more : Tree{nullptr, true, false, "text"}) list.push_back(more);
    if (python.protocol > 2) list.push_back("by");
    EXPECT_EQ(v.at("a"), list) << python.protocol;
    EXPECT_EQ(v.at("again"), list) << python.protocol;
    EXPECT_EQ(v.at("t"), Tree::array({1}));
    EXPECT_EQ(v.at("u"), Tree::array({1, 2, 3, 4}));
    EXPECT_EQ(v.at("n"), Tree({{"k", Tree::object()}}));
    EXPECT_EQ(v.at("5"), "five");
  }
}

TEST(Pickle, WhatWouldRunIsRefusedByItsName) {
  EXPECT_NE(refusal("\x80\x02"
                    "cos\nsystem\n(X\x02\0\0\0lstR."s)
                .find("GLOBAL"),
            std::string::npos);
  const struct {
    std::string op, says;
  } ops[] = {{"R", "REDUCE"},    {"b", "BUILD"},           {"i", "INST"},       {"o", "OBJ"},
             {"Q", "BINPERSID"}, {"P", "PERSID"},          {"\x81", "NEWOBJ"},  {"\x82", "EXT"},
             {"\x8f", "set"},    {"\x93", "STACK_GLOBAL"}, {"\x97", "a buffer"}};
  for (const auto& op : ops) EXPECT_NE(refusal("\x80\x04N" + op.op + ".").find(op.says), std::string::npos) << op.says;
  EXPECT_NE(refusal("\x80\x04\xff.").find("unknown opcode 0xff"), std::string::npos);
}

TEST(Pickle, CutAnywhereItIsRefused) {
  for (const auto& python : kPythons) {
    const std::string whole = bytes_of(python.hex);
    for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_NE(refusal(whole.substr(0, n)), "") << n;
  }
}

// Each flip gives a value or a refusal: anything else ends this test's process.
TEST(Pickle, FlippedBitsGiveAValueOrARefusal) {
  std::uint64_t state = 1;
  const auto draw = [&] { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33; };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = bytes_of(kPythons[draw() % 4].hex);
    for (std::uint64_t flips = 1 + draw() % 4; flips-- > 0;) bytes[draw() % bytes.size()] ^= char(1u << draw() % 8);
    refused += refusal(bytes, {.values_max = 10000, .text_max = 1 << 20}).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 20000);
}

TEST(Pickle, ASmallFileCannotMeanALargeValue) {
  std::string doubling = "\x80\x02]q";
  doubling += '\0';
  for (int i = 1; i < 60; ++i) {  // each list holds the one before it twice
    doubling +=
        "](h" + std::string(1, char(i - 1)) + "h" + std::string(1, char(i - 1)) + "eq" + std::string(1, char(i));
  }
  doubling = "\x80\x02](" + doubling.substr(2) + "e.";
  EXPECT_NE(refusal(doubling, {.values_max = 100000, .depth_max = 100}).find("more than 100000 values"),
            std::string::npos);
  std::string wide = "\x80\x02]q" + std::string(1, '\0') + "(X" + "\0\x04\0\0"s + std::string(1024, 'x');
  wide += "q\x01" + std::string();
  for (int i = 0; i < 2000; ++i) wide += "h\x01";
  EXPECT_NE(refusal(wide + "e.", {.text_max = 1 << 20}).find("bytes of text"), std::string::npos);
}

TEST(Pickle, WhatHoldsItselfIsRefused) {
  EXPECT_NE(refusal("\x80\x02]q\0h\0a."s).find("nested deeper"), std::string::npos);
}

TEST(Pickle, StackMarksAndLengthsOutOfRangeAreRefused) {
  for (const char* end : {".",
                          "0.",
                          "e.",
                          "a.",
                          "s.",
                          "(.",
                          "((.",
                          "1.",
                          "2.",
                          "h\x07.",
                          "N(u.",
                          "}(Nu.",
                          "}(NNu.",
                          "]N.",
                          "Ns.",
                          "t",
                          "\x87.",
                          "X\xff\xff\xff\xff.",
                          "\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
                          "\x8a\xff."})
    EXPECT_NE(refusal(std::string("\x80\x02") + end), "") << end;
  EXPECT_NE(refusal("\x80\x02" + std::string(5000, '('), {.values_max = 1000}).find("more than 1000"),
            std::string::npos);
  EXPECT_NE(refusal("\x80\x01N."), "");
  EXPECT_NE(refusal("\x80\x06N."), "");
  EXPECT_EQ(refusal("\x80\x05N."), "");
}

}  // namespace
}  // namespace seeksim::harness
