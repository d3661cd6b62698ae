/* agreement - see agreement.h. */
#include "coordinator/line/agreement.h"

#include <inttypes.h>
#include <string.h>

static int name_worker(const struct member *m, int rc, struct err *err)
{
    if (rc != ERR_NONE) err_set_who(err, "worker %d @%.32s", m->rank, m->host);
    return rc;
}

static int check_hello(const struct member *m, const struct model *model, struct err *err)
{
    CHECK(strcmp(m->version, TANDEM_VERSION) == 0, err, ERR_DISAGREE,
          "runs tandem %s, the coordinator runs %s: install the same", m->version, TANDEM_VERSION);
    CHECK(m->hello.wants_model || m->hello.model_digest == model->digest, err, ERR_DISAGREE,
          "has a different model file (family %s, digest %016" PRIx64 "; the coordinator's: "
          "%s, %016" PRIx64 ")",
          m->family, m->hello.model_digest, model->family->name, model->digest);
    CHECK(m->hello.wants_model || m->hello.model_sample == model->sample, err, ERR_DISAGREE,
          "has other weights in its model file, behind the same header: copy the coordinator's "
          "file there, or use --weights stream");
    return ERR_NONE;
}

int agreement_check_hellos(struct roster *r, const struct model *model, struct err *err)
{
    for (uint32_t i = 0; i < roster_size(r); i++) {
        const struct member *m = roster_at(r, i);
        TRY(name_worker(m, check_hello(m, model, err), err));
    }
    return ERR_NONE;
}

/* find_digest() - what the first worker of the line that has read a tensor says of it; *whose: that
 * worker. */
static uint64_t find_digest(struct roster *r, uint32_t tensor, const struct member **whose)
{
    for (uint32_t i = 0; i < roster_size(r); i++) {
        *whose = roster_at(r, i);
        for (uint32_t k = 0; k < (*whose)->ready.n_digests; k++)
            if ((*whose)->digests[k].tensor == tensor) return (*whose)->digests[k].digest;
    }
    BUG_IF(true, "a tensor that nobody has read");
    return 0;
}

static int check_digest(struct roster *r, const struct tensor_digest *d, const struct model *model,
                        struct err *err)
{
    const struct gguf_tensor *t =
        d->tensor < TENSOR_COUNT ? model_tensor(model, (enum tensor_id)d->tensor, 0) : NULL;
    CHECK(t != NULL, err, ERR_PEER, "sent the digest of tensor %" PRIu32 ", which is not there",
          d->tensor);
    const struct member *other;
    const uint64_t digest = find_digest(r, d->tensor, &other);
    CHECK(d->digest == digest, err, ERR_DISAGREE,
          "tensor %.*s has digest %016" PRIx64 ", that of worker %d @%.32s has %016" PRIx64
          ": their model files differ: copy the same file to both hosts, or use --weights stream",
          (int)t->name.len, t->name.data, d->digest, other->rank, other->host, digest);
    return ERR_NONE;
}

int agreement_check_tensors(struct roster *r, const struct model *model, struct err *err)
{
    for (uint32_t i = 0; i < roster_size(r); i++) {
        const struct member *m = roster_at(r, i);
        for (uint32_t k = 0; k < m->ready.n_digests; k++)
            TRY(name_worker(m, check_digest(r, &m->digests[k], model, err), err));
    }
    return ERR_NONE;
}
