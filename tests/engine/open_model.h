/* open_model - a model that a test cannot go on without. Included after cmocka. */
#ifndef TANDEM_TESTS_ENGINE_OPEN_MODEL_H
#define TANDEM_TESTS_ENGINE_OPEN_MODEL_H

#include "engine/model.h"

static inline struct model *open_model(const char *path)
{
    struct model *m;
    struct err err;
    if (model_open(&m, path, &err) != ERR_NONE) fail_msg("%s", err.text);
    return m;
}

#endif
