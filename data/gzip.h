/* Data files that are not plain: gzip, read as if it were the file in it, and what a file may be
 * that is neither. */
#ifndef DT_DATA_GZIP_H
#define DT_DATA_GZIP_H

#include "data/idx.h"

extern const struct dt_packing dt_gzip;

#endif
