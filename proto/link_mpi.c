/* link_mpi - the link between ranks; the only file that knows MPI.
 *
 * Three duplicated communicators, one tag. Receives are posted ahead into slots and polled in the
 * order in which they were posted: MPI matches in that order, so it is the order of arrival (for
 * each pair, where the source is any). A slot is posted again when its frame is done. Sends leave
 * from slots of their own, nonblocking. Nothing here blocks between open and close; progress is
 * made by polling.
 * Stations: link.c above; the same file in another rank on the other side. */
#include "proto/link_internal.h"

#include <mpi.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    TAG = 0,
    TAG_RAW = 1,              /* apart from the frames, for which receives are posted */
    CONTROL_SLOTS = 16,       /* of a worker, each way */
    CONTROL_SLOTS_MAX = 256,  /* of the coordinator, who has more for each worker */
    CONTROL_SLOTS_WORKER = 2, /* these many more */
    WEIGHTS_SLOTS = 8,        /* of a worker */
    WEIGHTS_SLOTS_MAX = 64,   /* of the coordinator, who has as many for each worker */
    SENDING_STEP_US = 100,
    NONE = -1,
};

struct direction {
    uint8_t *slots;        /* [n_slots][stride] */
    MPI_Request *requests; /* [n_slots], MPI_REQUEST_NULL where idle */
    size_t frame_max, stride;
    int n_slots;
};

struct channel {
    MPI_Comm comm;
    struct direction in, out;
    int oldest; /* the receive that was posted first */
    int begun;  /* the send slot that the caller is filling, or NONE */
};

struct mpi_link {
    struct link link;
    struct channel channel[LINK_CHANNELS];
    struct err failure; /* met where no error can be returned; told at the next call that can */
};

static struct mpi_link *as_mpi(struct link *l)
{
    return (struct mpi_link *)l;
}

/* An MPI result as ours: "MPI_Isend of 123 bytes with rank 2: text of MPI". */
static int check_mpi(int rc, const char *call, size_t bytes, int rank, struct err *err)
{
    if (rc == MPI_SUCCESS) return ERR_NONE;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int len = 0;
    MPI_Error_string(rc, text, &len);
    return err_set(err, ERR_RANK, "%s of %zu bytes with rank %d: %s", call, bytes, rank, text);
}

static int tell_failure(const struct mpi_link *m, struct err *err)
{
    CHECK(m->failure.code == ERR_NONE, err, m->failure.code, "%s", m->failure.text);
    return ERR_NONE;
}

static uint8_t *slot_at(const struct direction *d, int slot)
{
    return d->slots + (size_t)slot * d->stride;
}

static int direction_open(struct direction *d, size_t frame_max, int n_slots, struct err *err)
{
    *d = (struct direction){
        .frame_max = frame_max, .stride = link_slot_stride(frame_max), .n_slots = n_slots};
    d->requests = calloc((size_t)n_slots, sizeof *d->requests);
    d->slots = link_take((size_t)n_slots, d->stride);
    if (d->requests == NULL || d->slots == NULL) {
        d->n_slots = 0;
        return err_set(err, ERR_MEMORY, "no memory for %d frames of %zu bytes", n_slots, frame_max);
    }
    for (int i = 0; i < n_slots; i++) d->requests[i] = MPI_REQUEST_NULL;
    return ERR_NONE;
}

static void direction_free(struct direction *d)
{
    free(d->slots);
    free(d->requests);
    *d = (struct direction){0};
}

/* Whom a channel listens to. */
static int source_of(const struct link *l, enum link_channel channel)
{
    if (channel == LINK_DATA) return l->previous;
    return l->rank == 0 ? MPI_ANY_SOURCE : 0;
}

static int post_receive(struct mpi_link *m, enum link_channel channel, int slot, struct err *err)
{
    struct channel *ch = &m->channel[channel];
    struct direction *in = &ch->in;
    int source = source_of(&m->link, channel);
    int rc = MPI_Irecv(slot_at(in, slot), (int)in->frame_max, MPI_BYTE, source, TAG, ch->comm,
                       &in->requests[slot]);
    return check_mpi(rc, "MPI_Irecv", in->frame_max, source, err);
}

static int channel_open(struct mpi_link *m, enum link_channel channel, size_t in_max, int in_slots,
                        size_t out_max, int out_slots, struct err *err)
{
    struct channel *ch = &m->channel[channel];
    TRY(direction_open(&ch->in, in_max, in_slots, err));
    TRY(direction_open(&ch->out, out_max, out_slots, err));
    for (int i = 0; i < in_slots; i++) TRY(post_receive(m, channel, i, err));
    return ERR_NONE;
}

static int mpi_open_data(struct link *l, size_t in_max, size_t out_max, unsigned in_slots,
                         unsigned out_slots, struct err *err)
{
    return channel_open(as_mpi(l), LINK_DATA, in_max, (int)in_slots, out_max, (int)out_slots, err);
}

static int mpi_open_weights(struct link *l, struct err *err)
{
    struct channel *ch = &as_mpi(l)->channel[LINK_WEIGHTS];
    int slots = l->rank == 0 ? WEIGHTS_SLOTS * (l->size - 1) : WEIGHTS_SLOTS;
    if (slots > WEIGHTS_SLOTS_MAX) slots = WEIGHTS_SLOTS_MAX;
    if (l->rank == 0) return direction_open(&ch->out, LINK_WEIGHTS_FRAME_MAX, slots, err);
    TRY(direction_open(&ch->in, LINK_WEIGHTS_FRAME_MAX, slots, err));
    for (int i = 0; i < slots; i++) TRY(post_receive(as_mpi(l), LINK_WEIGHTS, i, err));
    return ERR_NONE;
}

/* Receives that nothing will arrive for any more. */
static void cancel_receives(struct direction *in)
{
    for (int i = 0; i < in->n_slots; i++) {
        if (in->requests[i] == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&in->requests[i]);
        MPI_Wait(&in->requests[i], MPI_STATUS_IGNORE);
    }
}

static void mpi_close_weights(struct link *l)
{
    struct channel *ch = &as_mpi(l)->channel[LINK_WEIGHTS];
    cancel_receives(&ch->in);
    MPI_Waitall(ch->out.n_slots, ch->out.requests, MPI_STATUSES_IGNORE);
    direction_free(&ch->in);
    direction_free(&ch->out);
}

/* ---- sending ---- */

/* A send slot that is free, or NONE. */
static int find_free_slot(struct mpi_link *m, struct direction *out)
{
    for (int i = 0; i < out->n_slots; i++) {
        int complete = 0;
        int rc = MPI_Test(&out->requests[i], &complete, MPI_STATUS_IGNORE);
        if (check_mpi(rc, "MPI_Isend", out->frame_max, m->link.rank, &m->failure) != ERR_NONE)
            return NONE;
        if (complete) return i;
    }
    return NONE;
}

static uint8_t *mpi_send_begin(struct link *l, enum link_channel channel, int to, size_t *capacity)
{
    (void)to; /* the slots are shared by all addressees */
    struct mpi_link *m = as_mpi(l);
    struct channel *ch = &m->channel[channel];
    if (ch->begun == NONE) ch->begun = find_free_slot(m, &ch->out);
    if (ch->begun == NONE) return NULL;
    *capacity = ch->out.frame_max;
    return slot_at(&ch->out, ch->begun);
}

static int mpi_send(struct link *l, enum link_channel channel, int to, size_t len, struct err *err)
{
    struct mpi_link *m = as_mpi(l);
    struct channel *ch = &m->channel[channel];
    BUG_IF(ch->begun == NONE, "link_send without link_send_begin");
    BUG_IF(len > ch->out.frame_max, "link_send of more than the buffer holds");
    TRY(tell_failure(m, err));
    int slot = ch->begun;
    int rank = channel == LINK_DATA ? l->next : to;
    ch->begun = NONE;
    int rc = MPI_Isend(slot_at(&ch->out, slot), (int)len, MPI_BYTE, rank, TAG, ch->comm,
                       &ch->out.requests[slot]);
    return check_mpi(rc, "MPI_Isend", len, rank, err);
}

/* A test of idle requests does nothing: what is arriving moves on by looking at what is awaited. */
static void advance_arrivals(struct mpi_link *m)
{
    struct channel *ch = &m->channel[LINK_CONTROL];
    int complete;
    MPI_Request_get_status(ch->in.requests[ch->oldest], &complete, MPI_STATUS_IGNORE);
}

static unsigned mpi_pending_sends(struct link *l)
{
    struct mpi_link *m = as_mpi(l);
    unsigned pending = 0;
    for (int c = 0; c < LINK_CHANNELS; c++) {
        struct direction *out = &m->channel[c].out;
        for (int i = 0; i < out->n_slots; i++) {
            int complete = 0;
            int rc = MPI_Test(&out->requests[i], &complete, MPI_STATUS_IGNORE);
            if (check_mpi(rc, "MPI_Isend", out->frame_max, l->rank, &m->failure) != ERR_NONE)
                return pending + 1;
            pending += !complete;
        }
    }
    advance_arrivals(m);
    return pending;
}

/* ---- receiving ---- */

static int mpi_receive(struct link *l, enum link_channel channel, int *from, const uint8_t **frame,
                       size_t *len, struct err *err)
{
    struct mpi_link *m = as_mpi(l);
    struct channel *ch = &m->channel[channel];
    TRY(tell_failure(m, err));
    int arrived = 0, bytes = 0;
    MPI_Status status;
    int rc = MPI_Test(&ch->in.requests[ch->oldest], &arrived, &status);
    TRY(check_mpi(rc, "MPI_Irecv", ch->in.frame_max, source_of(l, channel), err));
    if (!arrived) return ERR_NONE;
    rc = MPI_Get_count(&status, MPI_BYTE, &bytes);
    TRY(check_mpi(rc, "MPI_Get_count", ch->in.frame_max, status.MPI_SOURCE, err));
    CHECK(bytes >= 0, err, ERR_PEER, "a frame of an unknown length from rank %d",
          status.MPI_SOURCE);
    *from = status.MPI_SOURCE;
    *len = (size_t)bytes;
    *frame = slot_at(&ch->in, ch->oldest);
    return ERR_NONE;
}

static void mpi_receive_done(struct link *l, enum link_channel channel)
{
    struct mpi_link *m = as_mpi(l);
    struct channel *ch = &m->channel[channel];
    int slot = ch->oldest;
    ch->oldest = (slot + 1) % ch->in.n_slots;
    if (m->failure.code == ERR_NONE) post_receive(m, channel, slot, &m->failure);
}

/* MPI cannot wake a sleeper: short steps, and the next look makes progress; shorter ones while a
 * large frame may need this end to go on. */
static void mpi_sleep(struct link *l, uint32_t step_us, uint32_t timeout_us)
{
    (void)timeout_us;
    if (step_us > SENDING_STEP_US && mpi_pending_sends(l) > 0) step_us = SENDING_STEP_US;
    struct timespec step = {step_us / 1000000, (long)(step_us % 1000000) * 1000};
    nanosleep(&step, NULL);
}

/* ---- plain MPI, for comparison ---- */

static int mpi_raw_send(struct link *l, int to, const uint8_t *bytes, size_t n, struct err *err)
{
    int rc = MPI_Send(bytes, (int)n, MPI_BYTE, to, TAG_RAW, as_mpi(l)->channel[LINK_DATA].comm);
    return check_mpi(rc, "MPI_Send", n, to, err);
}

static int mpi_raw_receive(struct link *l, int from, uint8_t *bytes, size_t capacity, size_t *n,
                           struct err *err)
{
    int count = 0;
    MPI_Status status;
    int rc = MPI_Recv(bytes, (int)capacity, MPI_BYTE, from, TAG_RAW,
                      as_mpi(l)->channel[LINK_DATA].comm, &status);
    TRY(check_mpi(rc, "MPI_Recv", capacity, from, err));
    TRY(check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count", capacity, from, err));
    CHECK(count >= 0, err, ERR_PEER, "a message of an unknown length from rank %d", from);
    *n = (size_t)count;
    return ERR_NONE;
}

static int mpi_raw_has_arrived(struct link *l, int from, bool *arrived, struct err *err)
{
    int flag = 0;
    int rc =
        MPI_Iprobe(from, TAG_RAW, as_mpi(l)->channel[LINK_DATA].comm, &flag, MPI_STATUS_IGNORE);
    *arrived = flag;
    return check_mpi(rc, "MPI_Iprobe", 0, from, err);
}

/* ---- open and close ---- */

static void mpi_close(struct link *l, bool abandon)
{
    /* MPI may still write to the slots of an abandoned link: they stay, reachable, until the
     * process ends. */
    static struct mpi_link *abandoned;
    struct mpi_link *m = as_mpi(l);
    if (abandon) {
        abandoned = m;
        (void)abandoned;
        return;
    }
    for (int c = 0; c < LINK_CHANNELS; c++) {
        struct channel *ch = &m->channel[c];
        cancel_receives(&ch->in);
        MPI_Waitall(ch->out.n_slots, ch->out.requests, MPI_STATUSES_IGNORE);
        MPI_Comm_free(&ch->comm);
    }
    MPI_Finalize();
    for (int c = 0; c < LINK_CHANNELS; c++) {
        direction_free(&m->channel[c].in);
        direction_free(&m->channel[c].out);
    }
    free(m);
}

static const struct link_ops mpi_ops = {
    .open_data = mpi_open_data,
    .open_weights = mpi_open_weights,
    .close_weights = mpi_close_weights,
    .send_begin = mpi_send_begin,
    .send = mpi_send,
    .receive = mpi_receive,
    .receive_done = mpi_receive_done,
    .sleep = mpi_sleep,
    .pending_sends = mpi_pending_sends,
    .raw_send = mpi_raw_send,
    .raw_receive = mpi_raw_receive,
    .raw_has_arrived = mpi_raw_has_arrived,
    .close = mpi_close,
};

bool link_mpi_launched(void)
{
    /* Open MPI's mpirun; PMIx (srun --mpi=pmix, prterun); PMI (srun --mpi=pmi2, Hydra). */
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (getenv(signs[i]) != NULL) return true;
    return false;
}

/* A frame above the eager limit of Open MPI waits until its sender looks again, and ours computes
 * meanwhile: so most frames of a decode step are to leave at once, in one piece. What the user has
 * set stays as it is; other MPIs do not read these. */
static void raise_eager_limits(void)
{
    static const char *const settings[][2] = {
        {"OMPI_MCA_btl_vader_eager_limit", "131072"},
        {"OMPI_MCA_btl_vader_rndv_eager_limit", "131072"},
        {"OMPI_MCA_btl_vader_max_send_size", "131072"},
        {"OMPI_MCA_btl_vader_free_list_inc", "8"},
        {"OMPI_MCA_btl_vader_segment_size", "8388608"},
        {"OMPI_MCA_btl_tcp_eager_limit", "131072"},
        {"OMPI_MCA_btl_tcp_rndv_eager_limit", "131072"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        setenv(settings[i][0], settings[i][1], 0);
}

/* MPI itself: initialised for one thread that calls it, errors returned. */
static int start_mpi(int *rank, int *size, struct err *err)
{
    int level = 0;
    raise_eager_limits();
    int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    CHECK(rc == MPI_SUCCESS, err, ERR_RANK, "MPI_Init_thread failed with code %d", rc);
    CHECK(level >= MPI_THREAD_FUNNELED, err, ERR_UNSUPPORTED,
          "this MPI gives thread level %d, want MPI_THREAD_FUNNELED (%d)", level,
          MPI_THREAD_FUNNELED);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    TRY(check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, rank), "MPI_Comm_rank", 0, 0, err));
    return check_mpi(MPI_Comm_size(MPI_COMM_WORLD, size), "MPI_Comm_size", 0, *rank, err);
}

static int open_channels(struct mpi_link *m, struct err *err)
{
    int rank = m->link.rank;
    for (int c = 0; c < LINK_CHANNELS; c++) {
        struct channel *ch = &m->channel[c];
        ch->begun = NONE;
        TRY(check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &ch->comm), "MPI_Comm_dup", 0, rank, err));
        MPI_Comm_set_errhandler(ch->comm, MPI_ERRORS_RETURN);
    }
    int slots = CONTROL_SLOTS;
    if (rank == 0) slots += CONTROL_SLOTS_WORKER * (m->link.size - 1);
    if (slots > CONTROL_SLOTS_MAX) slots = CONTROL_SLOTS_MAX;
    return channel_open(m, LINK_CONTROL, LINK_CONTROL_FRAME_MAX, slots, LINK_CONTROL_FRAME_MAX,
                        slots, err);
}

int link_mpi_open(struct link **out, enum link_idle idle, struct err *err)
{
    *out = NULL;
    int rank = 0, size = 0;
    TRY(start_mpi(&rank, &size, err));
    if (size == 1) {
        MPI_Finalize();
        return ERR_NONE;
    }
    struct mpi_link *m = calloc(1, sizeof *m);
    CHECK(m != NULL, err, ERR_MEMORY, "no memory for a link");
    m->link = (struct link){.ops = &mpi_ops, .rank = rank, .size = size, .idle = idle};
    link_set_neighbours(&m->link, (rank + size - 1) % size, (rank + 1) % size);
    int rc = open_channels(m, err);
    if (rc != ERR_NONE) {
        mpi_close(&m->link, true);
        return rc;
    }
    *out = &m->link;
    return ERR_NONE;
}

void link_mpi_abort(int status)
{
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized) MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}
