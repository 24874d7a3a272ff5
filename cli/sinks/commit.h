/* What the program was built from. */
#ifndef DT_CLI_SINKS_COMMIT_H
#define DT_CLI_SINKS_COMMIT_H

extern const char dt_commit[]; /* as `git describe --always --dirty` has it, or "unknown" */

#endif
