// SHA-256 and HMAC against the vectors of FIPS 180-4 and RFC 4231.
#include "runtime/backend/wire/secret.h"

#include <gtest/gtest.h>

#include <string>

namespace seeksim::runtime {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string hex(const Digest256& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    for (const int shift : {4, 0}) text += "0123456789abcdef"[std::to_integer<int>(byte) >> shift & 15];
  }
  return text;
}

TEST(Sha256, HasTheDigestsOfTheStandard) {
  EXPECT_EQ(hex(sha256(bytes_of(""))), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes_of("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(bytes_of(std::string(1'000'000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hmac, HasTheDigestsOfRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), bytes_of("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex(hmac_sha256(std::string(131, '\xaa'), bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Digest, IsTheSameOnlyWhenEveryByteIs) {
  const Digest256 one = sha256(bytes_of("abc"));
  EXPECT_TRUE(same_digest(one, one));
  for (std::size_t i = 0; i < one.size(); ++i) {
    Digest256 other = one;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(same_digest(one, other)) << i;
  }
}

}  // namespace
}  // namespace seeksim::runtime
