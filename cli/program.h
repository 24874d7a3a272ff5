/* The commands of the program, also those of lab/, ops/ and report/, which nothing else in cli/
 * knows. */
#ifndef DT_CLI_PROGRAM_H
#define DT_CLI_PROGRAM_H

#include "cli/args.h"

extern const struct dt_program dt_program;

#endif
