/* memory reads the limits of a made-up system, and this process's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MIB UINT64_C(1048576)

/* A folder that looks like a system's root. */
static char root[64];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_memory_XXXXXX");
    return mkdtemp(root) == NULL;
}

static int drop_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* put() - a file below the root, with its folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static struct memory_limits read_made(void)
{
    struct memory_limits l;
    memory_read_limits(&l, 1, root);
    return l;
}

static void nothing_known_limits_nothing(void **state)
{
    (void)state;
    struct memory_limits l = read_made();
    const char *name;
    assert_true(l.physical == MEMORY_UNLIMITED && l.cgroup == MEMORY_UNLIMITED);
    if (l.process == MEMORY_UNLIMITED) {
        assert_true(memory_smallest(&l, &name) == MEMORY_UNLIMITED);
        assert_string_equal(name, "no limit");
    }
}

static void physical_memory_is_what_is_available(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:  8192 kB\nMemFree:  1024 kB\n");
    assert_int_equal(read_made().physical, 8 * MIB);
    put("/proc/meminfo", "MemTotal:  8192 kB\nMemFree:  1024 kB\nMemAvailable:   2048 kB\n");
    assert_int_equal(read_made().physical, 2 * MIB);
}

static const char mounts_v2[] =
    "22 1 0:5 / /proc rw - proc proc rw\n"
    "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

static void the_tightest_group_on_the_way_up_counts_in_v2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/user/job/step\n");
    put("/proc/self/mountinfo", mounts_v2);
    assert_true(read_made().cgroup == MEMORY_UNLIMITED); /* no such folders */
    put("/sys/fs/cgroup/user/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/user/job/memory.max", "104857600\n");
    put("/sys/fs/cgroup/user/job/memory.current", "31457280\n");
    put("/sys/fs/cgroup/user/memory.max", "209715200\n");
    struct memory_limits l = read_made();
    assert_int_equal(l.cgroup, 70 * MIB);
    assert_string_equal(l.cgroup_name, "cgroup /user/job");

    /* What the kernel can give back is not used; nor is more than all. */
    put("/sys/fs/cgroup/user/job/memory.stat",
        "anon 9\nactive_file 4194304\ninactive_file 6291456\n");
    assert_int_equal(read_made().cgroup, 80 * MIB);
    put("/sys/fs/cgroup/user/job/memory.stat", "inactive_file 99999999999\n");
    assert_int_equal(read_made().cgroup, 100 * MIB);

    put("/sys/fs/cgroup/user/job/step/memory.max", "0\n");
    assert_int_equal(read_made().cgroup, 0);
}

static void a_used_up_group_leaves_nothing(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/full\n");
    put("/proc/self/mountinfo", mounts_v2);
    put("/sys/fs/cgroup/full/memory.max", "1048576\n");
    put("/sys/fs/cgroup/full/memory.current", "9999999\n");
    assert_int_equal(read_made().cgroup, 0);
}

static void a_container_sees_its_own_group_as_the_mount(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", mounts_v2);
    put("/sys/fs/cgroup/memory.max", "52428800\n");
    struct memory_limits l = read_made();
    assert_int_equal(l.cgroup, 50 * MIB);
    assert_string_equal(l.cgroup_name, "cgroup /");
    put("/proc/self/cgroup", "0::/../elsewhere\n");
    assert_int_equal(read_made().cgroup, 50 * MIB);
}

static void groups_of_v1_are_read_where_their_controller_is_mounted(void **state)
{
    (void)state;
    put("/proc/self/cgroup",
        "9:name=systemd:/\n5:cpu,cpuacct:/wrong\n4:memory:/slurm/job_7/step_0\n0::/\n");
    put("/proc/self/mountinfo", "31 1 0:30 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                "32 1 0:31 / /cg/mem rw - cgroup cgroup rw,memory\n"
                                "33 1 0:32 / /cg/unified rw - cgroup2 cgroup2 rw\n");
    put("/cg/mem/memory.limit_in_bytes", "9223372036854771712\n");
    put("/cg/mem/slurm/memory.limit_in_bytes", "9223372036854771712\n");
    put("/cg/mem/slurm/job_7/memory.limit_in_bytes", "83886080\n");
    put("/cg/mem/slurm/job_7/memory.usage_in_bytes", "20971520\n");
    put("/cg/mem/slurm/job_7/memory.stat", "inactive_file 1\ntotal_inactive_file 10485760\n");
    put("/cg/mem/slurm/job_7/step_0/memory.limit_in_bytes", "9223372036854771712\n");
    put("/cg/cpu/wrong/memory.limit_in_bytes", "1\n");
    struct memory_limits l = read_made();
    assert_int_equal(l.cgroup, 70 * MIB);
    assert_string_equal(l.cgroup_name, "cgroup /slurm/job_7");
}

static void a_mount_of_a_part_of_the_tree_is_walked_from_there(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
    put("/proc/self/mountinfo", "32 1 0:31 /docker/abc /cg/mem rw - cgroup cgroup rw,memory\n");
    put("/cg/mem/memory.limit_in_bytes", "62914560\n");
    put("/cg/mem/inner/memory.limit_in_bytes", "73400320\n");
    struct memory_limits l = read_made();
    assert_int_equal(l.cgroup, 60 * MIB);
    assert_string_equal(l.cgroup_name, "cgroup /docker/abc");
}

static void damaged_system_files_limit_nothing(void **state)
{
    (void)state;
    static const char *const groups[] = {"",      ":", "4:memory", "0::", "4:memory:/x\n0::/x\n",
                                         "::::\n"};
    static const char *const mounts[] = {"", " - ", "1 2 3 - cgroup2\n", " - cgroup2 a b\n",
                                         "- cgroup cgroup memory"};
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
        for (size_t m = 0; m < sizeof mounts / sizeof mounts[0]; m++) {
            put("/proc/self/cgroup", groups[g]);
            put("/proc/self/mountinfo", mounts[m]);
            put("/proc/meminfo", "MemAvailable: much\n");
            struct memory_limits l = read_made();
            assert_true(l.cgroup == MEMORY_UNLIMITED && l.physical == MEMORY_UNLIMITED);
        }
}

static void a_long_group_path_keeps_its_end(void **state)
{
    (void)state;
    char group[400] = "", line[420], path[500];
    for (int i = 0; i < 30; i++) strcat(group, "/abcdefghi");
    strcat(group, "/end");
    snprintf(line, sizeof line, "0::%s\n", group);
    put("/proc/self/cgroup", line);
    put("/proc/self/mountinfo", mounts_v2);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
    put(path, "99\n");
    struct memory_limits l = read_made();
    assert_int_equal(l.cgroup, 99);
    assert_true(strlen(l.cgroup_name) < MEMORY_NAME_MAX);
    assert_non_null(strstr(l.cgroup_name, "abcdefghi/end"));
}

/* Runs a soft limit of this very process, and puts it back. */
static uint64_t left_under(unsigned resource, rlim_t limit, const char **name)
{
    struct rlimit old, now;
    struct memory_limits l;
    assert_int_equal(getrlimit(resource, &old), 0);
    now = (struct rlimit){.rlim_cur = limit, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(resource, &now), 0);
    memory_read_limits(&l, 1, root);
    assert_int_equal(setrlimit(resource, &old), 0);
    *name = l.process_name;
    return l.process;
}

static void ulimits_leave_what_is_not_held_yet(void **state)
{
    (void)state;
    const char *name;
    const rlim_t limit = UINT64_C(1) << 50;
    put("/proc/self/status", "VmPeak: 1 kB\nVmSize:\t  1024 kB\nVmData:     512 kB\n");
    uint64_t data = left_under(RLIMIT_DATA, limit, &name);
    assert_int_equal(data, limit - MIB / 2);
    assert_string_equal(name, "ulimit -d");
    uint64_t space = left_under(RLIMIT_AS, limit, &name);
    assert_string_equal(name, "ulimit -v");
    assert_in_range(space, limit - 1024 * MIB,
                    limit - 33 * MIB); /* a stack and some room for MPI */
    put("/proc/self/status", "VmSize: 9999999999999 kB\n");
    assert_int_equal(left_under(RLIMIT_AS, limit, &name), 0);
}

static void the_smallest_limit_gives_its_name(void **state)
{
    (void)state;
    struct memory_limits l = {.physical = 3,
                              .cgroup = 2,
                              .cgroup_name = "cgroup /x",
                              .process = 1,
                              .process_name = "ulimit -v"};
    const char *name;
    assert_int_equal(memory_smallest(&l, &name), 1);
    assert_string_equal(name, "ulimit -v");
    l.process = MEMORY_UNLIMITED;
    assert_int_equal(memory_smallest(&l, &name), 2);
    assert_string_equal(name, "cgroup /x");
    l.cgroup = MEMORY_UNLIMITED;
    assert_int_equal(memory_smallest(&l, &name), 3);
    assert_string_equal(name, "physical memory");
}

static void resident_memory_grows_by_what_is_touched(void **state)
{
    (void)state;
    uint64_t before = memory_resident();
    assert_true(before > 0);
    char *p = malloc(64 * MIB);
    assert_non_null(p);
    memset(p, 1, 64 * MIB);
    assert_in_range(memory_resident(), before + 60 * MIB, before + 80 * MIB);
    free(p);
    assert_true(memory_resident_peak() >= before + 60 * MIB);
}

static void this_system_has_some_memory(void **state)
{
    (void)state;
    struct memory_limits l;
    const char *name;
    memory_read_limits(&l, 1, "");
    assert_true(l.physical > MIB && l.physical < MEMORY_UNLIMITED);
    assert_true(memory_smallest(&l, &name) <= l.physical);
}

#define MADE(test) cmocka_unit_test_setup_teardown(test, make_root, drop_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MADE(nothing_known_limits_nothing),
        MADE(physical_memory_is_what_is_available),
        MADE(the_tightest_group_on_the_way_up_counts_in_v2),
        MADE(a_used_up_group_leaves_nothing),
        MADE(a_container_sees_its_own_group_as_the_mount),
        MADE(groups_of_v1_are_read_where_their_controller_is_mounted),
        MADE(a_mount_of_a_part_of_the_tree_is_walked_from_there),
        MADE(damaged_system_files_limit_nothing),
        MADE(a_long_group_path_keeps_its_end),
        MADE(ulimits_leave_what_is_not_held_yet),
        cmocka_unit_test(the_smallest_limit_gives_its_name),
        cmocka_unit_test(resident_memory_grows_by_what_is_touched),
        cmocka_unit_test(this_system_has_some_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
