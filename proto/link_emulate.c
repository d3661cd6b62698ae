/* link_emulate - see link_emulate.h. */
#include "proto/link_emulate.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Clocks of two hosts drift apart by less than this; without it, one early arrival would count for
 * ever. */
enum { DRIFT_PER_MILLION = 100 };

/* ---- the text ---- */

struct unit {
    const char *name;
    double factor;
};

static const struct unit delay_units[] = {
    {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
static const struct unit rate_units[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};

/* "2.5gbit", all of it, in the smallest unit; negative when it is no number with a unit. */
static double read_quantity(const char *text, size_t len, const struct unit *units)
{
    char copy[32];
    size_t digits = strspn(text, "0123456789.");
    if (digits == 0 || digits >= len || len >= sizeof copy) return -1;
    memcpy(copy, text, len);
    copy[len] = '\0';
    char *end;
    double x = strtod(copy, &end);
    if (end != copy + digits) return -1;
    for (; units->name != NULL; units++)
        if (strcmp(end, units->name) == 0) return x * units->factor;
    return -1;
}

int link_emulation_parse(const char *text, struct link_emulation *e, struct err *err)
{
    *e = (struct link_emulation){0};
    if (text == NULL) return ERR_NONE;
    const char *comma = strchr(text, ',');
    size_t len = comma == NULL ? strlen(text) : (size_t)(comma - text);
    CHECK(len > 0 || comma != NULL, err, ERR_USAGE,
          "--link-emulate wants DELAY,RATE, for instance 50us,1gbit, and got nothing");
    if (len > 0) {
        double delay = read_quantity(text, len, delay_units);
        CHECK(delay >= 0 && delay <= 1e10, err, ERR_USAGE,
              "--link-emulate %.60s: the delay '%.*s' is no number with ns, us, ms or s, "
              "from 0 to 10s",
              text, len > 40 ? 40 : (int)len, text);
        e->delay_ns = (uint64_t)(delay + 0.5);
    }
    if (comma != NULL) {
        double rate = read_quantity(comma + 1, strlen(comma + 1), rate_units);
        CHECK(rate >= 1e3 && rate <= 1e12, err, ERR_USAGE,
              "--link-emulate %.60s: the rate '%.40s' is no number with kbit, mbit or gbit, "
              "from 1kbit to 1000gbit",
              text, comma + 1);
        e->rate_bit_s = (uint64_t)(rate + 0.5);
    }
    return ERR_NONE;
}

/* ---- the wire ---- */

/* Every running kernel has a random name of its own, and one monotonic clock. */
static uint64_t name_clock(void)
{
    char id[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, id, sizeof id);
    close(fd);
    uint64_t hash = 0xcbf29ce484222325u;
    for (ssize_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)id[i]) * 0x100000001b3u;
    return n > 0 ? hash : 0;
}

void link_wire_open(struct link_wire *w, const struct link_emulation *e)
{
    *w = (struct link_wire){.emulation = *e, .clock = name_clock()};
}

/* When the frame was sent, by our clock. */
static uint64_t translate_stamp(struct link_wire *w, const struct link_stamp *stamp,
                                uint64_t now_ns)
{
    uint64_t sent = stamp->sent_ns;
    if (stamp->clock != w->clock || w->clock == 0) {
        uint64_t seen = now_ns - sent;
        w->offset_ns += (now_ns - w->offset_at_ns) / (1000000 / DRIFT_PER_MILLION);
        if (!w->offset_known || (int64_t)(seen - w->offset_ns) < 0) w->offset_ns = seen;
        w->offset_known = true;
        w->offset_at_ns = now_ns;
        sent += w->offset_ns;
    }
    return sent < now_ns ? sent : now_ns;
}

uint64_t link_wire_due(struct link_wire *w, const struct link_stamp *stamp, uint64_t n,
                       uint64_t now_ns)
{
    uint64_t begin = translate_stamp(w, stamp, now_ns);
    if (begin < w->free_ns) begin = w->free_ns;
    uint64_t rate = w->emulation.rate_bit_s;
    w->free_ns = begin + (rate == 0 ? 0 : (uint64_t)((double)n * 8e9 / (double)rate));
    return w->free_ns + w->emulation.delay_ns;
}
