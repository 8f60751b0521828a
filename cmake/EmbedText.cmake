# cmake -DINPUT=file -DOUTPUT=file.cpp -DNAME=kSymbol -P EmbedText.cmake
# Writes a C++ source that defines seeksim::harness::<NAME> as the text of INPUT ("{}" without one).
set(text "{}")
if(INPUT)
  file(READ "${INPUT}" text)
endif()
file(WRITE "${OUTPUT}" "// Generated. Edit the file that it was made from.
namespace seeksim::harness {
extern const char* const ${NAME};
const char* const ${NAME} = R\"seeksim_text(${text})seeksim_text\";
}  // namespace seeksim::harness
")
