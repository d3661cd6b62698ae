/* synth_order - a model of a given shape with random weights: the order that the command line
 * gives.
 *
 * Station before: commands. Station after: worker/synth, through main. */
#include "coordinator/front/front.h"

#include "coordinator/front/making_report.h"
#include "engine/quant_formats.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 160 };

/* ---- the shape ---- */

static int read_shape(const struct settings *s, struct model_shape *shape, struct err *err)
{
    *shape = (struct model_shape){0};
    if (s->preset != NULL) {
        const struct model_shape *preset = model_preset_find(s->preset);
        char names[256] = "";
        for (size_t i = 0, at = 0; model_preset_name(i) != NULL && at < sizeof names; i++)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i > 0 ? ", " : "",
                                   model_preset_name(i));
        CHECK(preset != NULL, err, ERR_USAGE, "--preset wants one of %s, got '%s'", names,
              s->preset);
        *shape = *preset;
    }
    model_shape_overlay(shape, &s->shape);
    return ERR_NONE;
}

/* ---- the tokenizer ---- */

/* The demo model, seen from the program's folder: beside it, installed, in a build folder. */
static const char *const demo_places[] = {
    "demo-q8_0.gguf",
    "../share/tandem/models/demo-q8_0.gguf",
    "../cluster/models/demo-q8_0.gguf",
};

static bool is_readable(const char *path)
{
    return access(path, R_OK) == 0;
}

static int find_demo(char path[PATH_MAX], struct err *err)
{
    char folder[PATH_MAX] = "";
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    char *slash = n > 0 ? strrchr(folder, '/') : NULL;
    if (slash != NULL) {
        *slash = '\0';
        for (size_t i = 0; i < sizeof demo_places / sizeof demo_places[0]; i++) {
            const int len = snprintf(path, PATH_MAX, "%s/%s", folder, demo_places[i]);
            if (len < PATH_MAX && is_readable(path)) return ERR_NONE;
        }
    }
    snprintf(path, PATH_MAX, "%s/%s", TANDEM_MODELS_DIR, demo_places[0]);
    CHECK(is_readable(path), err, ERR_USAGE,
          "the demo model %s is not beside the program in %s: give --tokenizer FILE",
          demo_places[0], folder);
    return ERR_NONE;
}

/* ---- the command ---- */

int synth_run(const struct settings *s, const struct line_starter *starter, struct err *err)
{
    /* In the order of the words of --type. */
    static const uint32_t formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0,
                                       FORMAT_Q4_0};
    struct model_shape shape;
    char name[NAME_BYTES], demo[PATH_MAX];
    CHECK(s->out != NULL, err, ERR_USAGE, "-o FILE is needed");
    CHECK(s->type_given, err, ERR_USAGE, "--type is needed");
    TRY(read_shape(s, &shape, err));
    if (s->tokenizer == NULL) TRY(find_demo(demo, err));
    const uint64_t seed = s->sampling.seed;
    snprintf(name, sizeof name, "random %.80s, seed %" PRIu64,
             s->preset != NULL      ? s->preset
             : shape.family != NULL ? shape.family
                                    : "model",
             seed);

    struct making_report report;
    struct made_file made;
    const struct synth_order order = {
        .shape = shape,
        .name = name,
        .format = formats[s->type],
        .seed = seed,
        .tokenizer = s->tokenizer != NULL ? s->tokenizer : demo,
        .out = s->out,
        .how = making_report_begin(&report, s),
    };
    const int rc = starter->synth(&order, &made, err);
    making_report_end(&report, s->out, rc == ERR_NONE ? &made : NULL);
    return rc;
}
