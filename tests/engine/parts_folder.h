/* parts_folder - a model cut into three files in a folder of their own, for tests. Included after
 * cmocka. */
#ifndef TANDEM_TESTS_ENGINE_PARTS_FOLDER_H
#define TANDEM_TESTS_ENGINE_PARTS_FOLDER_H

#include "tests/engine/split_gguf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARTS = 3 };

struct parts {
    char folder[64], stem[96], path[PARTS][SPLIT_PATH_MAX];
    struct split_part part[PARTS];
    struct gguf *whole;
};

static inline void write_part(struct parts *p, uint32_t i)
{
    struct err err;
    if (split_write(p->path[i], p->whole, &p->part[i], &err) != ERR_NONE) fail_msg("%s", err.text);
}

static inline void parts_begin(struct parts *p, const char *model)
{
    struct err err;
    strcpy(p->folder, "/tmp/tandem-parts-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->stem, sizeof p->stem, "%s/m", p->folder);
    if (gguf_open(&p->whole, model, &err) != ERR_NONE) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < PARTS; i++) {
        split_path(p->path[i], p->stem, i, PARTS);
        p->part[i] = split_plan(p->whole, i, PARTS);
        write_part(p, i);
    }
}

static inline void parts_end(struct parts *p)
{
    for (int i = 0; i < PARTS; i++) unlink(p->path[i]);
    rmdir(p->folder);
    gguf_close(p->whole);
}

#endif
