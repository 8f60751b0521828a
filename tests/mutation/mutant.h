// Copied into a scratch tree by instrument.py; no part of seeksim includes it.
//
// SEEKSIM_MUTANT=N makes the program behave as mutant N; without it, it behaves as written. SEEKSIM_MUTANTS_REACHED
// names a file of one byte a mutant, in which those are 1 that were asked for: shared memory, so that it survives a
// crash.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

inline const int seeksim_active_mutant = [] {
  const char* number = std::getenv("SEEKSIM_MUTANT");
  return number == nullptr ? 0 : std::atoi(number);
}();

inline long seeksim_reached_bytes = 0;

inline unsigned char* const seeksim_reached_mutants = []() -> unsigned char* {
  const char* path = std::getenv("SEEKSIM_MUTANTS_REACHED");
  const int file = path == nullptr ? -1 : ::open(path, O_RDWR);
  struct ::stat about = {};
  if (file < 0 || ::fstat(file, &about) != 0) return nullptr;
  void* bytes = ::mmap(nullptr, std::size_t(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (bytes == MAP_FAILED) return nullptr;
  seeksim_reached_bytes = about.st_size;
  return static_cast<unsigned char*>(bytes);
}();

inline bool seeksim_mutant(int number) {
  if (number < seeksim_reached_bytes) seeksim_reached_mutants[number] = 1;
  return number == seeksim_active_mutant;
}
