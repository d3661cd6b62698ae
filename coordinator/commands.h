/* commands - the one table of commands: what each is called, which flags it has, and where it
 * begins.
 *
 * Adding a command is adding an entry.
 * Station before: main (argv). Station after: front/. */
#ifndef TANDEM_COORDINATOR_COMMANDS_H
#define TANDEM_COORDINATOR_COMMANDS_H

#include "coordinator/front/front.h"
#include "coordinator/settings.h"

struct command {
    const char *name;
    const char *usage;                    /* behind the name, in --help */
    const char *summary;                  /* one line */
    const char *details;                  /* the paragraphs of its --help */
    const struct option_group *groups[8]; /* NULL ends them */
    uint32_t operands_min, operands_max;
    bool needs_model; /* -m must be given */
    bool needs_line;  /* every rank takes part; otherwise rank 0 alone */
    front_run_fn *run;
};

/* command_needs_line() - does it take a line, with these settings? Some of a command's flags do
 * not. */
bool command_needs_line(const struct command *command, const struct settings *settings);

size_t command_count(void);
const struct command *command_at(size_t index);

/* commands_parse() - argv to a command and its settings. *command is NULL for `tandem --help` and
 * `tandem --version`; also after an error, where none was named. settings is set up in every case:
 * settings_free(). ERR_USAGE, ERR_MEMORY; the text says where to read on. */
int commands_parse(int argc, char *const *argv, const struct command **command,
                   struct settings *settings, struct err *err);

/* commands_print_help() - of command; NULL: of tandem itself. */
void commands_print_help(FILE *out, const struct command *command);

#endif
