// A ds_config.json as people have it, brought to the one form that the rows of keys read: field names beside their
// aliases, old forms, values in quotes, "auto", and keys that DeepSpeed passes over.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/input/document.h"

namespace seeksim::harness {

struct Forms {
  std::vector<std::string> notes;              // what a reader should know, a line each
  std::vector<Problem> problems;               // what DeepSpeed refuses and the rows cannot know
  std::map<std::string, std::string> written;  // pointer in the new form -> where the user wrote the value
};

// Changes the "deepspeed" section of the document.
Forms bring_to_form(Document& document);

// Problems that the rows found, told of the keys and lines that the user wrote.
std::vector<Problem> as_written(std::vector<Problem> problems, const Forms& forms, const Document& document);

}  // namespace seeksim::harness
