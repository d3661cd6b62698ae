/* memory - how much memory this process may still take, who says so, and how much it holds.
 *
 * Linux only: /proc, control groups (v1 and v2) and resource limits. What cannot be read limits
 * nothing.
 * Station before: none. Stations after: worker (says so in HELLO), coordinator/line (refuses what
 * does not fit), front/inspect. */
#ifndef TANDEM_ENGINE_MEMORY_H
#define TANDEM_ENGINE_MEMORY_H

#include <stdint.h>

#define MEMORY_UNLIMITED UINT64_MAX

enum { MEMORY_NAME_MAX = 256 };

/* Bytes that may still be taken; what is held already does not count. MEMORY_UNLIMITED: no such
 * limit. The first two are shared: by all processes of the host, and by all of the group. */
struct memory_limits {
    uint64_t physical;
    uint64_t cgroup;                   /* of the tightest group that this process is in */
    char cgroup_name[MEMORY_NAME_MAX]; /* "cgroup /x/y"; a long path is cut at its front */
    uint64_t process;                  /* of this process alone */
    const char *process_name;          /* "ulimit -v" or "ulimit -d"; static storage */
};

/* memory_read_limits() - read them all. threads: how many this process may start, since their
 * stacks count under ulimit -v. root: "" for the system's own files; a test's folder otherwise. */
void memory_read_limits(struct memory_limits *out, uint32_t threads, const char *root);

/* memory_smallest() - the tightest of the limits and its name ("physical memory", "cgroup /x/y",
 * "ulimit -v"), which lives as long as l; MEMORY_UNLIMITED and "no limit" where there is none. */
uint64_t memory_smallest(const struct memory_limits *l, const char **name);

/* Resident bytes of this process, now and at most since it began; 0 where unknown. */
uint64_t memory_resident(void);
uint64_t memory_resident_peak(void);

/* memory_forget_peak() - count from now on; where the system cannot, the peak stays what it was. */
void memory_forget_peak(void);

#endif
