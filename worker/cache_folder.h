/* cache_folder - the folder of slices: who may write, and what must go.
 *
 * Files end in .slice (complete) or .part (being written, and locked by the writer). Whoever makes
 * room holds a lock on the folder, so that workers of one host, and jobs, see each other's files.
 * Station before: weights_cache. */
#ifndef TANDEM_WORKER_CACHE_FOLDER_H
#define TANDEM_WORKER_CACHE_FOLDER_H

#include "engine/err.h"

#include <stdint.h>

/* cache_folder_create() - a file of so many bytes that is to be renamed to path, in folder, which
 * is made where it is not there. Slices that were not used for the longest time are removed until
 * all fit below limit_bytes; left-overs of writers that ended are, too. *fd and *part_path are the
 * caller's. Returns ERR_CAPACITY (it does not fit: why), ERR_FILE, ERR_MEMORY. */
int cache_folder_create(const char *folder, const char *path, uint64_t bytes, uint64_t limit_bytes,
                        int *fd, char **part_path, struct err *err);

#endif
