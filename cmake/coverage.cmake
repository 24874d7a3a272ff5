# For scripts/error-coverage, which includes it after project(): dist/, train/ and checkpoint/ count their lines and branches for gcov,
# without optimization, which would merge them. What ends by _exit writes its counts first.
function(dt_count_lines)
  foreach(room dist train checkpoint)
    target_compile_options(dt_${room} PRIVATE --coverage -fprofile-update=atomic -O0 -U_FORTIFY_SOURCE)
    target_link_options(dt_${room} INTERFACE --coverage)
  endforeach()
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/dump_counts.c" CONTENT
    "void __gcov_dump(void);\n_Noreturn void __real__exit(int);\n_Noreturn void __wrap__exit(int);\n_Noreturn void __wrap__exit(int code)\n{\n    __gcov_dump();\n    __real__exit(code);\n}\n")
  target_sources(dtrain PRIVATE "${CMAKE_BINARY_DIR}/dump_counts.c")
  target_link_options(dtrain PRIVATE LINKER:--wrap=_exit)
endfunction()
cmake_language(DEFER CALL dt_count_lines)
