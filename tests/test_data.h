/* test_data - where tests find their data: TANDEM_TEST_DATA (the large set), or tests/data
 * (committed). A test whose file is in neither skips by name; it never passes silently. */
#ifndef TANDEM_TESTS_TEST_DATA_H
#define TANDEM_TESTS_TEST_DATA_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* test_data_path() - the path of name ("families/llama.gguf"), NULL where it is absent. The
 * committed copy is preferred. Static storage, four calls deep. */
static inline const char *test_data_path(const char *name)
{
    static char path[4][1024];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", TEST_DATA_COMMITTED, name);
    if (access(p, R_OK) == 0) return p;
    const char *root = getenv("TANDEM_TEST_DATA");
    if (root == NULL) root = TEST_DATA_COMMITTED "/../../../shared/data";
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return access(p, R_OK) == 0 ? p : NULL;
}

/* SKIP_WITHOUT(path variable, name) - skip the cmocka case, saying which file is missing. */
#define SKIP_WITHOUT(var, name)                                                                    \
    const char *var = test_data_path(name);                                                        \
    if (var == NULL) {                                                                             \
        print_message("skipped: %s is absent (TANDEM_TEST_DATA)\n", name);                         \
        skip();                                                                                    \
    }

#endif
