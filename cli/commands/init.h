/* Configurations to begin with, which the program carries: the files of cli/commands/start/. */
#ifndef DT_CLI_COMMANDS_INIT_H
#define DT_CLI_COMMANDS_INIT_H

/* X(name): cli/commands/start/<name>.json is the text dt_start_<name>, which CMakeLists.txt
 * embeds. */
#define DT_START_LIST(X) X(mnist) X(mlp) X(cifar)
#define DT_START_TEXT(name) extern const char dt_start_##name[];
DT_START_LIST(DT_START_TEXT)
#undef DT_START_TEXT

#endif
