/* split_model - cut a GGUF model into parts, for the shell tests.
 *
 *   split_model IN.gguf STEM N      writes STEM-00001-of-0000N.gguf and the others
 *
 * Station after: tandem, which is given the first part. */
#include "tests/engine/split_gguf.h"

#include <stdlib.h>

static int split_model(const char *in, const char *stem, uint32_t count, struct err *err)
{
    struct gguf *whole;
    TRY(gguf_open(&whole, in, err));
    int rc = ERR_NONE;
    for (uint32_t i = 0; i < count && rc == ERR_NONE; i++) {
        char path[SPLIT_PATH_MAX];
        struct split_part part = split_plan(whole, i, count);
        split_path(path, stem, i, count);
        rc = split_write(path, whole, &part, err);
    }
    gguf_close(whole);
    return rc;
}

int main(int argc, char **argv)
{
    uint32_t count = argc == 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    if (count == 0 || count > 99999) {
        fprintf(stderr, "usage: split_model IN.gguf STEM N\n");
        return 1;
    }
    struct err err;
    if (split_model(argv[1], argv[2], count, &err) == ERR_NONE) return 0;
    fprintf(stderr, "split_model: %s\n", err.text);
    return 1;
}
