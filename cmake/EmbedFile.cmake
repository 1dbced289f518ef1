# Files that become part of the program, as `extern const std::string_view sandglass::<symbol>`.
#
#   sandglass_embed_file(<variable> <symbol> <file>)
#
# appends to <variable> the generated source that defines the symbol; it follows changes of the
# file. The file is text without NUL bytes.

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${INPUT}" contents)
  file(WRITE "${OUTPUT}" "#include <string_view>
namespace sandglass {
extern const std::string_view ${SYMBOL};
constinit const std::string_view ${SYMBOL} = R\"embedded_file(${contents})embedded_file\";
}  // namespace sandglass
")
  return()
endif()

set(sandglass_embed_script ${CMAKE_CURRENT_LIST_FILE})

function(sandglass_embed_file variable symbol file)
  get_filename_component(input ${file} ABSOLUTE)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DSYMBOL=${symbol}
            -P ${sandglass_embed_script}
    DEPENDS ${input} ${sandglass_embed_script}
    VERBATIM)
  set(${variable} ${${variable}} ${output} PARENT_SCOPE)
endfunction()
