/* A function in the place of the program's or the C library's: the linker's --wrap. */
#ifndef DT_TESTS_WRAP_H
#define DT_TESTS_WRAP_H

/* Begins the definition of what is called for `name`, which is still there as __real_<name>. */
#define WRAP(type, name, ...)                                     \
    type __real_##name(__VA_ARGS__); /* NOLINT: linker's names */ \
    type __wrap_##name(__VA_ARGS__); /* NOLINT */                 \
    type __wrap_##name(__VA_ARGS__)  /* NOLINT */

#endif
