/* options - flags as table rows: parsing, range checks and --help all read the same rows.
 *
 * Knows nothing of any command.
 * Station before: main (argv). Station after: settings, which has the rows, and commands, which say
 * who uses which. */
#ifndef TANDEM_COORDINATOR_OPTIONS_H
#define TANDEM_COORDINATOR_OPTIONS_H

#include "engine/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The kind of an option is the C type of its target. */
enum option_kind {
    OPTION_FLAG,   /* bool; takes no value */
    OPTION_TEXT,   /* const char * */
    OPTION_LIST,   /* struct option_list; may be given several times */
    OPTION_U32,    /* uint32_t */
    OPTION_I32,    /* int32_t */
    OPTION_U64,    /* uint64_t; up to 2^63 - 1, so that JSON can carry it */
    OPTION_F32,    /* float; finite */
    OPTION_CHOICE, /* int: which of the words in value, "f16|f32" */
};

/* Values as given, pointing into argv. Zero-initialise; free with option_list_free(). */
struct option_list {
    const char **items;
    uint32_t n;
};
int option_list_push(struct option_list *list, const char *item, struct err *err); /* ERR_MEMORY */
void option_list_free(struct option_list *list);

struct option {
    const char *name; /* "temp" for --temp */
    char letter;      /* 'm' for -m; 0: none */
    enum option_kind kind;
    size_t offset;       /* of the target in the struct of settings */
    size_t given_offset; /* of a bool that is set when the option is given; 0: nobody asks */
    const char *value;   /* what --help calls the value; OPTION_CHOICE: the words */
    double min, max;     /* U32, I32, F32: the range */
    bool above_min;      /* min itself is not allowed */
    const char *unset; /* what the default means, for --help; NULL: the value itself; "": nothing */
    const char *help;
};

/* Rows under one title of --help. */
struct option_group {
    const char *title;
    const struct option *rows;
    size_t n;
};

/* options_parse() - argv[0 .. argc) into settings by the rows of groups (NULL ends them); what is
 * no flag, and all after "--", goes to *operands. Values are "--name VALUE", "--name=VALUE", "-n
 * VALUE" or "-nVALUE". Returns ERR_USAGE (flag unknown, value absent, no number or out of range:
 * named), ERR_MEMORY. */
int options_parse(const struct option_group *const *groups, int argc, char *const *argv,
                  void *settings, struct option_list *operands, struct err *err);

/* options_print_help() - the rows of a group, with the values in defaults. */
void options_print_help(FILE *out, const struct option_group *group, const void *defaults);

/* options_print_wrapped() - text in lines of at most OPTIONS_HELP_WIDTH, the first one beginning at
 * column `column` and the others indented to `indent`. A newline in text begins a new line. */
enum { OPTIONS_HELP_WIDTH = 96 };
void options_print_wrapped(FILE *out, const char *text, int column, int indent);

#endif
