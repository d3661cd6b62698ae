/* commands - see commands.h. */
#include "coordinator/commands.h"

#include <string.h>

static const struct command commands[] = {
    {
        .name = "generate",
        .usage = "-m MODEL [-p PROMPT | -f FILE | --batch FILE -o OUT] [options]",
        .summary = "continue prompts, from the command line or from a file of requests",
        .details =
            "Continues each prompt with text, which goes to standard output as it comes and ends "
            "with a newline; everything else goes to standard error. Without -p, -f and --ids the "
            "prompt is standard input; one newline at the end of a file is dropped. Several "
            "prompts run at once, and their texts come in the order of the prompts, each as if it "
            "were alone and behind a line \"== 1 ==\".\n"
            "A text ends at a token that ends texts or at a stop string (finish reason \"stop\"), "
            "after -n tokens or when the context is full (\"length\").\n"
            "--json prints for each sequence one line: prompt_ids, cached_tokens (how many of "
            "these another sequence had left in the cache), ids (the one that ended the text, "
            "too), text, finish_reason, seed (null for greedy) and timings.\n"
            "--batch FILE.jsonl -o OUT.jsonl runs many requests. A line of FILE is an object with "
            "prompt (text) or ids, and whatever its request wants to be different from the command "
            "line: id, max_tokens, temperature, top_k, top_p, min_p, typical_p, repeat_penalty, "
            "frequency_penalty, presence_penalty, repeat_last_n, logit_bias ({\"ID\": V}), seed, "
            "stop (a text or several), ignore_eos. A line of OUT has id (or else the number of the "
            "line), line, key (a digest of model, prompt and settings), text, finish_reason, "
            "prompt_tokens, tokens and seed; or, for a line that cannot be run, id, line and "
            "error. Where no line can be run, the status is that of the first one's error (1 or "
            "3); "
            "one that can is enough for 0. Started again, it does what OUT lacks, and refuses an "
            "OUT whose results have another key than their requests. SIGUSR1 ends it early, with "
            "status 75 where something is left.",
        .groups = {&group_model, &group_prompts, &group_generate, &group_batch, &group_sampling,
                   &group_line, &group_general},
        .needs_model = true,
        .needs_line = true,
        .run = generate_run,
    },
    {
        .name = "logits",
        .usage = "-m MODEL --ids 1,2,3 | -p TEXT [options]",
        .summary = "print the raw scores after every position of a prompt",
        .details =
            "Runs one prompt and gives the model's raw scores (one row of the vocabulary's "
            "length) after each of its positions. One newline at the end of a file is dropped.",
        .groups = {&group_model, &group_prompts, &group_logits, &group_line, &group_general},
        .needs_model = true,
        .needs_line = true,
        .run = logits_run,
    },
    {
        .name = "perplexity",
        .usage = "-m MODEL -f FILE | --ids-file FILE [options]",
        .summary = "measure how well a model predicts a text",
        .details =
            "The ids are cut into windows that follow one another. A window is BOS, where the "
            "model's file asks for one, and then as many ids as --ctx still holds. Each window is "
            "evaluated on its own from position 0, and every id that has one before it in its "
            "window is scored once, given all before it: so with BOS every id is scored, without "
            "it all but the first of each window. A BOS among the ids of --ids-file begins a new "
            "window.\n"
            "The negative log-likelihood of an id is the log-sum-exp of the whole row of scores "
            "minus the score of the id. nll_sum adds them up in double precision, in order; "
            "perplexity is exp(nll_sum / tokens), over the scored tokens.",
        .groups = {&group_model, &group_perplexity, &group_line, &group_general},
        .needs_model = true,
        .needs_line = true,
        .run = perplexity_run,
    },
    {
        .name = "bench",
        .usage = "-m MODEL [--pp 128,512] [--tg 64] [--seqs 1,2,4,8] [options] | --kernels",
        .summary = "measure a line: tokens a second, where the time goes, what a hop costs",
        .details =
            "Reads prompts of random tokens (pp) and generates tokens (tg), which no end token "
            "stops, and prints median and spread. Then it measures what the line could do at best: "
            "how fast each stage can read its weights (decoding one sequence reads all that it "
            "needs of them for each token), and what plain MPI messages of the same sizes take "
            "between neighbours. Before it loads, it measures what tandem probe measures, and says "
            "beside each test what tandem plan makes of that (predicted). A hop's latency counts "
            "from the frame being handed to the link until the next rank, which waited for it, has "
            "it. With --wire bf16 or q8_0 it also sends up to 64 random tokens twice along the "
            "line, narrow and in f32, and says how far the scores are apart (rms, as a share of "
            "the spread of those in f32) and at how many positions another token comes first.\n"
            "--kernels measures no model: each kernel by itself, for every instruction set of this "
            "CPU, on one thread, beside what the core reads and multiplies at best, and beside "
            "OpenBLAS.",
        .groups = {&group_model, &group_bench, &group_line, &group_general},
        .needs_model = true,
        .needs_line = true,
        .run = bench_run,
    },
    {
        .name = "tokenize",
        .usage = "-m MODEL [-p TEXT | -f FILE] [options]",
        .summary = "turn text into token ids",
        .details =
            "Prints the ids of each text on one line, with the special tokens that a prompt would "
            "get (--no-bos leaves them out). A file counts to its last byte, newline and all. "
            "The model's file may hold a vocabulary alone.",
        .groups = {&group_model, &group_prompts, &group_tokenize, &group_general},
        .needs_model = true,
        .run = tokenize_run,
    },
    {
        .name = "detokenize",
        .usage = "-m MODEL [ID]...",
        .summary = "turn token ids into text",
        .details = "Prints the text of the ids; without any, they are read from -f FILE or "
                   "standard input. Ids may stand between blanks, commas or newlines. Bytes that "
                   "are no UTF-8 become U+FFFD.",
        .groups = {&group_model, &group_detokenize, &group_general},
        .operands_max = UINT32_MAX,
        .needs_model = true,
        .run = detokenize_run,
    },
    {
        .name = "inspect",
        .usage = "FILE [options] | --families",
        .summary = "say what a model file holds, and what each rank would hold of it",
        .details = "Prints family, dimensions, tokenizer, number formats and bytes of each layer, "
                   "and the memory that each rank of a line needs. Reads no tensor's data.",
        .groups = {&group_inspect, &group_general},
        .operands_min = 1,
        .operands_max = 1,
        .run = inspect_run,
    },
    {
        .name = "plan",
        .usage = "-m MODEL --ranks N | --cluster FILE [options]",
        .summary =
            "say who would hold what, and how fast the line would be, before anything is loaded",
        .details =
            "Cuts the layers so that the slowest stage is as fast as it can be within the memory "
            "of each rank, and says for each what it holds and what it may use, how fast the line "
            "decodes and reads a prompt, which stage holds it up, and the largest context that "
            "fits. A rank that would only slow the line is left out. Reads no tensor's data.\n"
            "A cluster file has a line for each host, in the order of the line:\n"
            "  node01 ranks=1 threads=8 memory=16GiB read=21.5 gops=900 link=30,1.1 local=1,5\n"
            "ranks: workers there, each with so many threads. cpus: of the host, for all of them. "
            "memory: what they may use together. read, gops: what one of them reads of weights in "
            "GB/s and computes in 10^9 operations a second while its neighbours rest; few=200: the "
            "same as gops for the first eight rows of a product; busy=0.8,0.9: what is left of "
            "reading and computing while as many work as there are CPUs for. link, local: "
            "microseconds and GB/s to other hosts and between ranks of this one. A line whose name "
            "is * sets what holds for the lines after it; # begins a comment.",
        .groups = {&group_model, &group_plan, &group_general},
        .needs_model = true,
        .run = plan_run,
    },
    {
        .name = "probe",
        .usage = "[-m MODEL] [-o FILE] [options]",
        .summary = "measure the hosts of a line and write the cluster file that plan reads",
        .details =
            "Run it as the line is run: mpirun -n N tandem probe -o FILE. Each worker says "
            "what memory "
            "it may take, and measures for half a second how fast products with weights of "
            "-m's number "
            "format are; those of one host do so one by one, and then together, as far as "
            "its CPUs go; then the hops are measured. Loads nothing. tandem plan --help says "
            "what the "
            "file's words mean; it can be changed and added to by hand.",
        .groups = {&group_probe, &group_general},
        .needs_line = true,
        .run = probe_run,
    },
    {
        .name = "synth",
        .usage = "--preset NAME | --family F --layers N ... --type TYPE -o FILE.gguf [options]",
        .summary = "make a model of any shape with random weights",
        .details = "Such a model takes the time and the memory of a real one of its shape, and "
                   "talks nonsense: for measuring without a download. The file is GGUF, readable "
                   "by other programs, too; it grows as FILE.part. Memory does not grow with it.",
        .groups = {&group_synth, &group_general},
        .run = synth_run,
    },
    {
        .name = "quantize",
        .usage = "IN.gguf OUT.gguf --type q8_0|q4_0|q4_k|q6_k [options]",
        .summary = "make a model file smaller",
        .details =
            "Writes the model again with its matrices in the given number format. What matters "
            "more gets more: the token embedding and the output q6_k (q8_0 for q8_0); for q4_k, in "
            "some layers the values and the way down q6_k; norms, biases and the choice of experts "
            "f32. Rows that are no whole number of blocks become q8_0, or else f16.",
        .groups = {&group_quantize, &group_general},
        .operands_min = 2,
        .operands_max = 2,
        .run = quantize_run,
    },
};

static const struct option_group *const no_command_groups[] = {&group_general, NULL};

size_t command_count(void)
{
    return sizeof commands / sizeof commands[0];
}

const struct command *command_at(size_t index)
{
    return &commands[index];
}

bool command_needs_line(const struct command *c, const struct settings *s)
{
    return c->needs_line && !s->kernels;
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < command_count(); i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

/* add_hint() - an error of wrong use ends with where to read on. */
static int add_hint(int rc, const struct command *command, struct err *err)
{
    if (rc != ERR_USAGE) return rc;
    char text[ERR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", err->text);
    return err_set(err, ERR_USAGE, "%.400s; see tandem %s%s--help", text,
                   command == NULL ? "" : command->name, command == NULL ? "" : " ");
}

static int check_use(const struct command *c, const struct settings *s, struct err *err)
{
    const uint32_t n = s->operands.n, needed = s->families ? 0 : c->operands_min;
    CHECK(!c->needs_model || s->model != NULL || s->kernels, err, ERR_USAGE, "-m MODEL is needed");
    CHECK(n >= needed, err, ERR_USAGE, "a file name is needed");
    CHECK(n <= c->operands_max, err, ERR_USAGE, "'%s' is one argument too many",
          s->operands.items[c->operands_max]);
    return ERR_NONE;
}

static int parse_command(const struct command *c, int argc, char *const *argv, struct settings *s,
                         struct err *err)
{
    TRY(options_parse(c->groups, argc, argv, s, &s->operands, err));
    if (s->help || s->version) return ERR_NONE;
    TRY(check_use(c, s, err));
    TRY(link_emulation_parse(s->link_emulate, &s->emulation, err));
    return settings_read_environment(s, err);
}

int commands_parse(int argc, char *const *argv, const struct command **command,
                   struct settings *settings, struct err *err)
{
    *command = NULL;
    *settings = settings_default();
    CHECK(argc >= 2, err, ERR_USAGE, "which command? see tandem --help");
    if (argv[1][0] == '-') {
        int rc = options_parse(no_command_groups, argc - 1, argv + 1, settings, &settings->operands,
                               err);
        if (rc == ERR_NONE && !settings->help && !settings->version)
            rc = err_set(err, ERR_USAGE, "the command comes first: tandem COMMAND [options]");
        return add_hint(rc, NULL, err);
    }
    *command = find(argv[1]);
    CHECK(*command != NULL, err, ERR_USAGE, "'%s' is no command; see tandem --help", argv[1]);
    return add_hint(parse_command(*command, argc - 2, argv + 2, settings, err), *command, err);
}

static void print_own_help(FILE *out)
{
    fprintf(out, "Usage: tandem COMMAND [options]\n"
                 "       mpirun -n N tandem COMMAND [options]\n\n");
    options_print_wrapped(
        out,
        "Runs one language model across many machines, one behind another. Under mpirun, rank 0 "
        "coordinates and each other rank holds a slice of the layers; without it, or with -n 1, "
        "the whole line runs inside one process.",
        0, 0);
    fprintf(out, "\nCommands:\n");
    for (size_t i = 0; i < command_count(); i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\ntandem COMMAND --help lists the command's options.\n");
    struct settings defaults = settings_default();
    options_print_help(out, &group_general, &defaults);
    fprintf(out, "\nExit status:\n");
    fprintf(out, "  0 done; 1 wrong use; 2 a file cannot be used; 3 it does not fit; 4 a rank "
                 "failed or died;\n"
                 "  5 a rank stalled; 6 ranks disagree; 75 a batch ended early, as asked; 130 "
                 "interrupted\n");
    fprintf(out, "\nIn the environment, mostly for tests:\n%s", settings_environment_help);
}

void commands_print_help(FILE *out, const struct command *command)
{
    if (command == NULL) {
        print_own_help(out);
        return;
    }
    fprintf(out, "Usage: tandem %s %s\n\n", command->name, command->usage);
    options_print_wrapped(out, command->details, 0, 0);
    struct settings defaults = settings_default();
    for (const struct option_group *const *g = command->groups; *g != NULL; g++)
        options_print_help(out, *g, &defaults);
}
