/* Which release this program is. What it was built from, --version says too. */
#ifndef DT_BASE_VERSION_H
#define DT_BASE_VERSION_H

extern const char dt_version[]; /* "0.1.0" */

#endif
