#include "runtime/files/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>

namespace seeksim::runtime {
namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + std::string(data_bytes, '\0');
}

std::string message_of(const std::string& file) {
  try {
    read_safetensors(file);
    return "";
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

TEST(Safetensors, RoundTripKeepsEveryBit) {
  rc::check([] {
    std::vector<TensorBytes> tensors;
    const int count = *rc::gen::inRange(0, 6);
    for (int i = 0; i < count; ++i) {
      TensorBytes t;
      t.name = "t\"\xc3\xa9" + std::to_string(i);
      t.dtype = *rc::gen::element(DType::f32, DType::i32, DType::i64, DType::f16, DType::bf16);
      std::size_t elements = 1;
      for (int d = *rc::gen::inRange(0, 4); d > 0; --d) {
        t.shape.push_back(*rc::gen::inRange<Index>(0, 5));
        elements *= std::size_t(t.shape.back());
      }
      t.bytes = *rc::gen::container<std::string>(elements * size_of(t.dtype), rc::gen::arbitrary<char>());
      tensors.push_back(t);
    }
    const std::string file = write_safetensors(tensors, {{"format", "pt"}});
    std::vector<TensorBytes> back = read_safetensors(file);
    RC_ASSERT(back.size() == tensors.size());
    for (const TensorBytes& t : tensors) {
      const auto same = [&](const TensorBytes& b) {
        return b.name == t.name && b.dtype == t.dtype && b.shape == t.shape && b.bytes == t.bytes;
      };
      RC_ASSERT(std::count_if(back.begin(), back.end(), same) == 1);
    }
    RC_ASSERT(write_safetensors(back, {{"format", "pt"}}) == file);
  });
}

TEST(Safetensors, WriterAlignsTheDataAndSortsAsTheFormatsOwn) {
  const std::string file = write_safetensors(
      {{"b", DType::f32, {1}, "1234"}, {"a", DType::i32, {1}, "5678"}, {"z", DType::i64, {1}, "12345678"}});
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(file.substr(8 + length), "1234567856781234");
}

TEST(Safetensors, HalvesAreWidened) {
  EXPECT_EQ(to_floats({"h", DType::f16, {2}, std::string("\x00\x3c\x00\xc0", 4)}).values,
            (std::vector<float>{1.0f, -2.0f}));
  EXPECT_EQ(to_floats({"b", DType::bf16, {2}, std::string("\x80\x3f\x00\xc0", 4)}).values,
            (std::vector<float>{1.0f, -2.0f}));
  EXPECT_THROW(to_floats({"i", DType::i32, {1}, "1234"}), std::runtime_error);
}

TEST(Safetensors, WriterRefusesWhatNobodyCouldRead) {
  EXPECT_THROW(write_safetensors({{"a", DType::f32, {1}, "1234"}, {"a", DType::f32, {1}, "1234"}}), std::runtime_error);
  EXPECT_THROW(write_safetensors({{"a", DType::f32, {2}, "1234"}}), std::runtime_error);
  EXPECT_THROW(write_safetensors({{"__metadata__", DType::f32, {1}, "1234"}}), std::runtime_error);
}

// A file that grew or shrank since its size was asked for.
TEST(Safetensors, NeedsItsFirstEightBytesWhateverTheFilesSize) {
  EXPECT_EQ(safetensors_front_bytes(file_of("{}", 0), 10), 10u);
  EXPECT_THROW(safetensors_front_bytes("1234567", 100), std::runtime_error);
  EXPECT_THROW(safetensors_front_bytes(file_of("{}", 0), 7), std::runtime_error);
}

struct Hostile {
  const char* what;
  std::string file;
  const char* says;
};

std::string tensor(const char* name, const char* dtype, const char* shape, const char* offsets) {
  return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

std::vector<Hostile> hostile_files() {
  const std::string ok = tensor("a", "F32", "[2]", "[0,8]");
  std::string huge = file_of("{}", 0);
  huge[6] = '\x7f';
  std::string claims_more = file_of("{}", 0);
  claims_more[0] = 90;
  return {
      {"nothing", "", "0 bytes long"},
      {"short length", "\x02\0\0\0", "truncated"},
      {"huge length", huge, "the format allows 100000000"},
      {"length past the end", claims_more, "truncated"},
      {"no brace", file_of(" {}", 0), "does not begin with '{'"},
      {"empty header", file_of("", 4), "does not begin with '{'"},
      {"no JSON", file_of("{\"a\":", 0), "not valid JSON"},
      {"bad UTF-8", file_of("{\"\xff\":1}", 0), "not valid JSON"},
      {"trailing text", file_of("{} x", 0), "not valid JSON"},
      {"same name twice", file_of("{" + ok + "," + ok + "}", 8), "twice"},
      {"same key twice", file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"I32\"}}", 0), "twice"},
      {"deep nesting", file_of("{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}", 0),
       "nested deeper"},
      {"tensor is a number", file_of("{\"a\":1}", 0), "not described by an object"},
      {"unknown key", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":1}}", 4),
       "unknown key 'x'"},
      {"no dtype", file_of("{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4), "no dtype"},
      {"another dtype", file_of("{" + tensor("a", "F8_E4M3", "[4]", "[0,4]") + "}", 4), "dtype 'F8_E4M3'"},
      {"no shape", file_of("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4), "no shape"},
      {"negative size", file_of("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8), "whole numbers"},
      {"half a size", file_of("{" + tensor("a", "F32", "[2.5]", "[0,10]") + "}", 10), "whole numbers"},
      {"NaN size", file_of("{" + tensor("a", "F32", "[NaN]", "[0,8]") + "}", 8), "not valid JSON"},
      {"word for a size", file_of("{" + tensor("a", "F32", "[\"2\"]", "[0,8]") + "}", 8), "whole numbers"},
      {"product wraps", file_of("{" + tensor("a", "F32", "[4294967296,4294967296,4]", "[0,0]") + "}", 0), "overflows"},
      {"size wraps", file_of("{" + tensor("a", "F32", "[4611686018427387904]", "[0,0]") + "}", 0), "overflows"},
      {"wraps beside a zero", file_of("{" + tensor("a", "F32", "[0,4294967296,4294967296]", "[0,0]") + "}", 0),
       "overflows"},
      {"too many dimensions", file_of("{" + tensor("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4),
       "8 dimensions"},
      {"no offsets", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0), "no data_offsets"},
      {"three offsets", file_of("{" + tensor("a", "F32", "[1]", "[0,4,8]") + "}", 8), "no data_offsets"},
      {"backwards", file_of("{" + tensor("a", "F32", "[1]", "[4,0]") + "}", 4), "ends before it begins"},
      {"past the data", file_of("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 7), "truncated"},
      {"offset near 2^64",
       file_of("{" + tensor("a", "F32", "[2]", "[18446744073709551608,18446744073709551615]") + "}", 8),
       "ends at byte"},
      {"too few bytes", file_of("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8), "its shape and dtype need 12"},
      {"overlap", file_of("{" + ok + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12), "overlaps"},
      {"hole", file_of("{" + ok + "," + tensor("b", "F32", "[1]", "[12,16]") + "}", 16), "hole of 4 bytes"},
      {"hole in front", file_of("{" + tensor("b", "F32", "[1]", "[4,8]") + "}", 8), "hole of 4 bytes"},
      {"rest", file_of("{" + ok + "}", 9), "1 bytes after the last tensor"},
      {"metadata not text", file_of("{\"__metadata__\":{\"a\":1}," + ok + "}", 8), "'a' is not a string"},
      {"metadata a list", file_of("{\"__metadata__\":[]," + ok + "}", 8), "not an object"},
  };
}

TEST(Safetensors, HostileFilesAreRefusedByNameOfTheirFault) {
  for (const Hostile& h : hostile_files()) {
    const std::string message = message_of(h.file);
    EXPECT_NE(message.find(h.says), std::string::npos) << h.what << ": \"" << message << "\"";
  }
}

TEST(Safetensors, EveryTruncationAndBitFlipIsRefusedOrRead) {
  const std::string file =
      write_safetensors({{"a", DType::f32, {2}, "12345678"}, {"b", DType::i64, {1}, "12345678"}}, {{"k", "v"}});
  for (std::size_t n = 0; n < file.size(); ++n) EXPECT_NE(message_of(file.substr(0, n)), "") << n;
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    message_of(flipped);  // must not crash; a flip in the data or a name is no error of the format
  }
}

TEST(Safetensors, ScalarsAndEmptyTensorsAreAllowed) {
  const auto tensors = read_safetensors(
      file_of("{" + tensor("e", "F32", "[0,3]", "[0,0]") + "," + tensor("s", "F32", "[]", "[0,4]") + "}   ", 4));
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_TRUE(tensors[1].shape.empty());
}

TEST(Safetensors, FloatsComeOnlyFromFloats) {
  EXPECT_THROW(to_floats({"a", DType::i32, {1}, "1234"}), std::runtime_error);
  const NamedTensor t{"a", {2}, {1.5f, -0.0f}};
  EXPECT_EQ(to_floats(to_bytes(t)).values, t.values);
}

}  // namespace
}  // namespace seeksim::runtime
