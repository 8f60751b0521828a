// The folder of a check's runs: the user's, or a temporary one that is removed unless something in it has to be looked
// at.
#pragma once

#include <string>

namespace seeksim::harness::torch {

class KeptFolder {
 public:
  // given: --out; empty: a temporary folder, with `word` in its name. Throws BadInput where it cannot be made.
  KeptFolder(const std::string& given, const std::string& word);
  ~KeptFolder();
  KeptFolder(const KeptFolder&) = delete;
  KeptFolder& operator=(const KeptFolder&) = delete;

  const std::string& path() const { return path_; }  // absolute
  bool temporary() const { return temporary_; }
  void keep() { kept_ = true; }

 private:
  std::string path_;
  bool temporary_;
  bool kept_ = false;
};

}  // namespace seeksim::harness::torch
