#include <gtest/gtest.h>
TEST(IncludeArrows, Placeholder) {}
TEST(IncludeSlow, Placeholder) {}
