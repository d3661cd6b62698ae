/* fuzz_file - the fuzzer's bytes as files, so that the reader opens and maps them as it does any
 * other: NAME-00001-of-00002.gguf, and, from the second "GGUF" in the bytes on, the part after it.
 *
 * The files lie in memory; a folder in TMPDIR has links to them. */
#ifndef TANDEM_TESTS_FUZZ_FUZZ_FILE_H
#define TANDEM_TESTS_FUZZ_FUZZ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FUZZ_FILES = 2, FUZZ_PATH_MAX = 256 };

static char fuzz_folder[FUZZ_PATH_MAX / 2];
static char fuzz_path[FUZZ_FILES][FUZZ_PATH_MAX];
static int fuzz_fd[FUZZ_FILES];

static inline void fuzz_remove_links(void)
{
    for (int i = 0; i < FUZZ_FILES; i++) unlink(fuzz_path[i]);
    rmdir(fuzz_folder);
}

static inline void fuzz_make_links(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(fuzz_folder, sizeof fuzz_folder, "%s/fuzz-XXXXXX", tmp == NULL ? "/tmp" : tmp);
    if (mkdtemp(fuzz_folder) == NULL) abort();
    for (int i = 0; i < FUZZ_FILES; i++) {
        char target[32];
        fuzz_fd[i] = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(target, sizeof target, "/proc/self/fd/%d", fuzz_fd[i]);
        snprintf(fuzz_path[i], FUZZ_PATH_MAX, "%s/m-%05d-of-%05d.gguf", fuzz_folder, i + 1,
                 FUZZ_FILES);
        if (fuzz_fd[i] < 0 || symlink(target, fuzz_path[i]) != 0) abort();
    }
    atexit(fuzz_remove_links);
}

/* fuzz_file() - the path of the first file, until the next call. Each file gets so many zeros
 * behind its bytes, which stand for tensor data that nobody has to invent. */
static inline const char *fuzz_file(const uint8_t *data, size_t size, size_t zeros)
{
    if (fuzz_folder[0] == '\0') fuzz_make_links();
    const uint8_t *second = size > 4 ? memmem(data + 4, size - 4, "GGUF", 4) : NULL;
    const size_t first_size = second != NULL ? (size_t)(second - data) : size;
    const uint8_t *bytes[FUZZ_FILES] = {data, second};
    const size_t sizes[FUZZ_FILES] = {first_size, size - first_size};
    for (int i = 0; i < FUZZ_FILES; i++)
        if (ftruncate(fuzz_fd[i], 0) != 0 ||
            (sizes[i] > 0 && pwrite(fuzz_fd[i], bytes[i], sizes[i], 0) != (ssize_t)sizes[i]) ||
            ftruncate(fuzz_fd[i], (off_t)(sizes[i] + zeros)) != 0)
            abort();
    return fuzz_path[0];
}

#endif
