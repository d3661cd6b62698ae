/* batch_input - see batch_input.h. */
#include "coordinator/front/batch_input.h"

#include "coordinator/front/sampling_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* read_base() - the biases of the command line. --ignore-eos is a line's to change, so its bans are
 * kept apart. */
static int read_base(struct batch_input *in, struct err *err)
{
    const struct session *s = in->session;
    const int32_t n_vocab = (int32_t)s->model->hp.n_vocab;
    struct settings plain = *s->settings;
    struct sampling sampling;
    plain.ignore_eos = false;
    TRY(sampling_settings_read(&plain, s->tokenizer, n_vocab, &sampling, &in->base, err));
    in->n_base = sampling.n_bias;
    for (int32_t id = 0; id < n_vocab; id++) in->n_ends += tokenizer_is_end(s->tokenizer, id);
    in->ends = calloc((size_t)in->n_ends + 1, sizeof *in->ends);
    CHECK(in->ends != NULL, err, ERR_MEMORY, "no memory for %u logit biases", in->n_ends);
    for (int32_t id = 0, n = 0; id < n_vocab; id++)
        if (tokenizer_is_end(s->tokenizer, id)) in->ends[n++] = (struct logit_bias){id, -INFINITY};
    return ERR_NONE;
}

int batch_input_open(struct batch_input *in, const char *path, const struct session *s,
                     struct err *err)
{
    struct stat st;
    *in = (struct batch_input){.session = s, .path = path};
    /* Not blocking: a named pipe without a writer would wait for one. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(fd >= 0, err, ERR_FILE, "%s: %s", path, strerror(errno));
    const bool plain = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (plain) in->file = fdopen(fd, "rb");
    if (in->file == NULL) close(fd);
    CHECK(plain, err, ERR_FILE, "%s is no plain file, and lines are read twice: put them into one",
          path);
    CHECK(in->file != NULL, err, ERR_MEMORY, "%s: no memory to read it", path);
    return read_base(in, err);
}

void batch_input_close(struct batch_input *in)
{
    if (in->file != NULL) fclose(in->file);
    free(in->text);
    free(in->base);
    free(in->ends);
}

/* ---- lines ---- */

static int make_room(struct batch_input *in, size_t bytes, struct err *err)
{
    if (bytes <= in->capacity) return ERR_NONE;
    size_t capacity = in->capacity * 2 > bytes ? in->capacity * 2 : bytes + 4096;
    char *more = realloc(in->text, capacity);
    CHECK(more != NULL, err, ERR_MEMORY, "%s: no memory for a line of %zu bytes", in->path, bytes);
    in->text = more;
    in->capacity = capacity;
    return ERR_NONE;
}

/* read_line() - up to the newline; what is beyond the limit is counted and not kept. */
static int read_line(struct batch_input *in, struct batch_place *place, bool *blank, bool *end,
                     struct err *err)
{
    int c;
    *place = (struct batch_place){.offset = in->offset, .line = in->line + 1};
    *blank = true;
    while ((c = getc_unlocked(in->file)) != EOF && c != '\n') {
        if (place->len < BATCH_LINE_BYTES_MAX) {
            TRY(make_room(in, (size_t)place->len + 1, err));
            in->text[place->len] = (char)c;
        }
        place->len++;
        *blank = *blank && (c == ' ' || c == '\t' || c == '\r');
    }
    CHECK(!ferror(in->file), err, ERR_FILE, "%s: %s", in->path, strerror(errno));
    *end = c == EOF && place->len == 0;
    in->offset += place->len + (c == '\n');
    in->line++;
    return ERR_NONE;
}

int batch_input_next(struct batch_input *in, struct batch_place *place, bool *end, struct err *err)
{
    bool blank;
    do {
        CHECK(in->line < UINT32_MAX - 1, err, ERR_CAPACITY, "%s has more than %u lines: cut it",
              in->path, in->line);
        TRY(read_line(in, place, &blank, end, err));
    } while (!*end && blank);
    return ERR_NONE;
}

int batch_input_again(struct batch_input *in, const struct batch_place *place, struct err *err)
{
    CHECK(fseeko(in->file, (off_t)place->offset, SEEK_SET) == 0, err, ERR_FILE, "%s: %s", in->path,
          strerror(errno));
    CHECK(fread(in->text, 1, place->len, in->file) == place->len, err, ERR_FILE,
          "%s: line %u is not there any more: do not change the file meanwhile", in->path,
          place->line);
    return ERR_NONE;
}

/* ---- requests ---- */

/* ban_ends() - behind all other biases. */
static int ban_ends(const struct batch_input *in, struct batch_request *r, struct err *err)
{
    struct logit_bias *more =
        realloc(r->bias, ((size_t)r->sampling.n_bias + in->n_ends + 1) * sizeof *more);
    CHECK(more != NULL, err, ERR_MEMORY, "no memory for %u logit biases", in->n_ends);
    memcpy(more + r->sampling.n_bias, in->ends, in->n_ends * sizeof *more);
    r->sampling.bias = r->bias = more;
    r->sampling.n_bias += in->n_ends;
    return ERR_NONE;
}

int batch_input_prepare(struct batch_input *in, const struct batch_place *place,
                        struct batch_request *r, struct err *err)
{
    const struct session *s = in->session;
    const uint32_t n_vocab = s->model->hp.n_vocab;
    *r = (struct batch_request){0};
    CHECK(place->len <= BATCH_LINE_BYTES_MAX, err, ERR_CAPACITY,
          "a line of %llu bytes, the limit is %d", (unsigned long long)place->len,
          BATCH_LINE_BYTES_MAX);
    TRY(batch_request_read(r, in->text, (size_t)place->len, s->settings, in->base, in->n_base,
                           err));
    if (r->ignore_eos) TRY(ban_ends(in, r, err));
    TRY(sampling_check(&r->sampling, (int32_t)n_vocab, err));
    if (r->text != NULL)
        TRY(tokenizer_encode(s->tokenizer, r->text, r->text_len, !s->settings->no_bos,
                             s->settings->parse_special, &r->ids, err));
    CHECK(r->ids.n > 0, err, ERR_USAGE,
          "the prompt is empty, and nothing is put before it (BOS) to begin with");
    CHECK(r->ids.n <= INT32_MAX, err, ERR_CAPACITY, "the prompt has %zu tokens", r->ids.n);
    for (size_t i = 0; i < r->ids.n; i++)
        CHECK((uint32_t)r->ids.ids[i] < n_vocab, err, ERR_USAGE,
              "ids: token %d is beyond the vocabulary of %u", r->ids.ids[i], n_vocab);
    return ERR_NONE;
}
