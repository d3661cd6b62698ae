/* memory - see memory.h.
 *
 * A control group's limit binds everything below it, so the way goes from this process's own group
 * up to where the hierarchy is mounted. What a group uses includes its page cache, which the kernel
 * gives back when memory runs short: that part does not count as used. */
#include "engine/memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    PATH_BYTES = 4096,
    LINE_BYTES = 8192,
    /* What MPI and the C library map besides what is declared, in address space. */
    SPACE_RESERVE = 32 << 20,
    STACK_DEFAULT = 8 << 20,
};

/* v1 says "no limit" by a number near 2^63. */
static const uint64_t endless = UINT64_C(1) << 62;

static FILE *open_below(const char *root, const char *folder, const char *file)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
    return n > 0 && (size_t)n < sizeof path ? fopen(path, "r") : NULL;
}

/* read_field() - the number behind "key" at the start of a line of a file, times unit. */
static bool read_field(const char *root, const char *folder, const char *file, const char *key,
                       uint64_t unit, uint64_t *out)
{
    FILE *f = open_below(root, folder, file);
    if (f == NULL) return false;
    char line[LINE_BYTES];
    uint64_t number;
    bool found = false;
    size_t len = strlen(key);
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, key, len) == 0 && sscanf(line + len, " %" SCNu64, &number) == 1;
    fclose(f);
    if (found) *out = number * unit;
    return found;
}

static uint64_t status_bytes(const char *root, const char *key)
{
    uint64_t bytes = 0;
    read_field(root, "/proc/self", "status", key, 1024, &bytes);
    return bytes;
}

static uint64_t read_physical(const char *root)
{
    uint64_t bytes;
    if (read_field(root, "/proc", "meminfo", "MemAvailable:", 1024, &bytes)) return bytes;
    if (read_field(root, "/proc", "meminfo", "MemTotal:", 1024, &bytes)) return bytes;
    return MEMORY_UNLIMITED;
}

/* ---- control groups ---- */

/* The two kinds of hierarchy and what their files are called. */
struct hierarchy {
    const char *fs_type; /* in mountinfo */
    bool is_v1;
    const char *limit, *usage, *inactive_cache, *active_cache;
};
static const struct hierarchy hierarchies[] = {
    {"cgroup2", false, "memory.max", "memory.current", "inactive_file ", "active_file "},
    {"cgroup", true, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
     "total_active_file "},
};

/* Is word one of the list's, which commas separate? */
static bool is_listed(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (strncmp(p, word, len) == 0 && (p[len] == ',' || p[len] == '\0')) return true;
    }
    return false;
}

/* find_group() - this process's group: of a line "ID:controllers:path" the path. */
static bool find_group(const char *root, const struct hierarchy *h, char path[PATH_BYTES])
{
    FILE *f = open_below(root, "/proc/self", "cgroup");
    if (f == NULL) return false;
    char line[LINE_BYTES];
    bool found = false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL || strlen(group) > PATH_BYTES) continue;
        *group++ = '\0';
        controllers++;
        found = h->is_v1 ? is_listed(controllers, "memory") : controllers[0] == '\0';
        if (found) snprintf(path, PATH_BYTES, "%s", group);
    }
    fclose(f);
    return found;
}

/* find_mount() - where the hierarchy is mounted, and which of its groups is seen there. A line is
 * "id parent dev:dev seen-group mount-point options ... - type source super-options". */
static bool find_mount(const char *root, const struct hierarchy *h, char point[PATH_BYTES],
                       char seen[PATH_BYTES])
{
    FILE *f = open_below(root, "/proc/self", "mountinfo");
    if (f == NULL) return false;
    char line[LINE_BYTES], type[64], options[LINE_BYTES];
    bool found = false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        const char *tail = strstr(line, " - ");
        if (tail == NULL || sscanf(tail, " - %63s %*s %8191s", type, options) != 2) continue;
        if (strcmp(type, h->fs_type) != 0) continue;
        found = (!h->is_v1 || is_listed(options, "memory")) &&
                sscanf(line, "%*s %*s %*s %4095s %4095s", seen, point) == 2;
    }
    fclose(f);
    return found;
}

/* What a group may still take. */
static uint64_t group_left(const char *root, const struct hierarchy *h, const char *folder)
{
    uint64_t limit, used = 0, inactive = 0, active = 0;
    bool limited = read_field(root, folder, h->limit, "", 1, &limit); /* v2 says "max" for none */
    if (!limited || limit >= endless) return MEMORY_UNLIMITED;
    read_field(root, folder, h->usage, "", 1, &used);
    read_field(root, folder, "memory.stat", h->inactive_cache, 1, &inactive);
    read_field(root, folder, "memory.stat", h->active_cache, 1, &active);
    uint64_t cache = inactive + active;
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* name_group() - the end of a path says more than its beginning. */
static void name_group(char name[MEMORY_NAME_MAX], const char *group)
{
    enum { SHOWN = MEMORY_NAME_MAX - 16 };
    size_t len = strlen(group);
    const char *cut = len > SHOWN ? "..." : len == 0 ? "/" : "";
    snprintf(name, MEMORY_NAME_MAX, "cgroup %s%.*s", cut, SHOWN,
             len > SHOWN ? group + len - SHOWN : group);
}

/* read_groups() - from the own group up to the mount point. A container may see its own group as
 * the mount point's: then there is no way to walk. */
static void read_groups(struct memory_limits *out, const struct hierarchy *h, const char *root)
{
    char group[PATH_BYTES], point[PATH_BYTES], seen[PATH_BYTES], folder[PATH_BYTES];
    if (!find_group(root, h, group) || !find_mount(root, h, point, seen)) return;
    size_t cut = strcmp(seen, "/") == 0 ? 0 : strlen(seen);
    bool below = strncmp(group, seen, cut) == 0 && (group[cut] == '/' || group[cut] == '\0') &&
                 strstr(group, "/..") == NULL;
    char *way = below ? group + cut : strcpy(group, "/");
    if (strcmp(way, "/") == 0) way[0] = '\0';
    for (;;) {
        int n = snprintf(folder, sizeof folder, "%s%s", point, way);
        uint64_t left = (size_t)n < sizeof folder ? group_left(root, h, folder) : MEMORY_UNLIMITED;
        if (left < out->cgroup) {
            out->cgroup = left;
            name_group(out->cgroup_name, group);
        }
        char *slash = strrchr(way, '/');
        if (slash == NULL) return;
        *slash = '\0';
    }
}

/* ---- resource limits ---- */

static void take_smaller(struct memory_limits *out, uint64_t left, const char *name)
{
    if (left >= out->process) return;
    out->process = left;
    out->process_name = name;
}

static uint64_t left_of(uint64_t limit, uint64_t used)
{
    return limit > used ? limit - used : 0;
}

/* read_ulimits() - address space is also taken by mapped files (those of now are counted as held)
 * and by the stacks of threads to come. */
static void read_ulimits(struct memory_limits *out, uint32_t threads, const char *root)
{
    struct rlimit r, stack;
    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
        uint64_t one = STACK_DEFAULT;
        if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY)
            one = stack.rlim_cur;
        uint64_t used = status_bytes(root, "VmSize:") + threads * one + SPACE_RESERVE;
        take_smaller(out, left_of(r.rlim_cur, used), "ulimit -v");
    }
    if (getrlimit(RLIMIT_DATA, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
        take_smaller(out, left_of(r.rlim_cur, status_bytes(root, "VmData:")), "ulimit -d");
}

void memory_read_limits(struct memory_limits *out, uint32_t threads, const char *root)
{
    *out = (struct memory_limits){.physical = read_physical(root),
                                  .cgroup = MEMORY_UNLIMITED,
                                  .process = MEMORY_UNLIMITED,
                                  .process_name = ""};
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++)
        read_groups(out, &hierarchies[i], root);
    read_ulimits(out, threads, root);
}

uint64_t memory_smallest(const struct memory_limits *l, const char **name)
{
    uint64_t bytes = l->physical;
    *name = bytes == MEMORY_UNLIMITED ? "no limit" : "physical memory";
    if (l->cgroup < bytes) {
        bytes = l->cgroup;
        *name = l->cgroup_name;
    }
    if (l->process < bytes) {
        bytes = l->process;
        *name = l->process_name;
    }
    return bytes;
}

uint64_t memory_resident(void)
{
    return status_bytes("", "VmRSS:");
}

void memory_forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f == NULL) return;
    fputs("5", f);
    fclose(f);
}

uint64_t memory_resident_peak(void)
{
    return status_bytes("", "VmHWM:");
}
