# One folder of src/ is one library, sandglass_<name>, and one test program, <name>_test.
#
#   sandglass_module(<name> SOURCES a.cc ... [TESTS a_test.cc ...] [DEPENDS sandglass_base ...])
#
# DEPENDS names what the folder may include; includes are written from src/ ("base/error.h").
function(sandglass_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPENDS;TEST_DEPENDS" ${ARGN})
  add_library(sandglass_${name} STATIC ${ARG_SOURCES})
  target_include_directories(sandglass_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(sandglass_${name} PUBLIC ${ARG_DEPENDS})
  if(SANDGLASS_TESTS AND ARG_TESTS)
    add_executable(${name}_test ${ARG_TESTS})
    target_link_libraries(${name}_test PRIVATE sandglass_${name} ${ARG_TEST_DEPENDS} GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE
      SANDGLASS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" SANDGLASS_BINARY_DIR="${PROJECT_BINARY_DIR}")
    # For oneDNN in the tests of ops: its OpenMP threads sleep when they wait for each other. Several
    # tests run at a time, and a thread that spins would take the processor from the one it waits for.
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60
      PROPERTIES TIMEOUT 600 ENVIRONMENT "OMP_WAIT_POLICY=passive")
  endif()
endfunction()
