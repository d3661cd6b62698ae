/* settings - see settings.h. */
#include "coordinator/settings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define AT(member) .offset = offsetof(struct settings, member)
#define GROUP(name, rows, text)                                                                    \
    const struct option_group name = {text, rows, sizeof rows / sizeof rows[0]}

static const struct option general_rows[] = {
    {"help", 'h', OPTION_FLAG, AT(help), .help = "say this, and end"},
    {"version", 0, OPTION_FLAG, AT(version), .help = "say which version this is, and end"},
    {"verbose", 'v', OPTION_FLAG, AT(verbose), .help = "say more on standard error, with counts"},
    {"log-json", 0, OPTION_FLAG, AT(log_json),
     .help = "what goes to standard error is a JSON object a line: time, level, rank, host, who, "
             "event, text"},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), .help = "say nothing on standard error but errors"},
};
GROUP(group_general, general_rows, "General");

static const struct option model_rows[] = {
    {"model", 'm', OPTION_TEXT, AT(model), .value = "MODEL",
     .help = "the model file (GGUF); needed"},
};
GROUP(group_model, model_rows, "Model");

static const struct option line_rows[] = {
    {"ctx", 0, OPTION_U32, AT(ctx), .value = "N", .min = 2, .max = 1U << 24,
     .unset = "what the work needs, at most what the model was trained for",
     .help = "positions of a sequence"},
    {"slots", 0, OPTION_U32, AT(slots), .value = "N", .min = 1, .max = SEQUENCES_MAX,
     .unset = "as many as the work has", .help = "sequences in the line at once; others wait"},
    {"kv", 0, OPTION_CHOICE, AT(kv), .value = "f16|f32|q8_0",
     .help = "number format of the key/value cache; q8_0 takes about half of f16"},
    {"matmul", 0, OPTION_CHOICE, AT(matmul), .value = "packed|blas|auto",
     .help =
         "products of f32, f16 and bf16 weights: by our packed kernels, by OpenBLAS (results then "
         "depend on the batch and its chunks), or by what suits the instruction set"},
    {"kv-tokens", 0, OPTION_U32, AT(kv_tokens), .value = "N", .min = 1, .max = 1U << 30,
     .unset = "--ctx times the slots",
     .help =
         "positions that the cache holds over all sequences; where they want more, the youngest "
         "wait, with the same results"},
    {"wire", 0, OPTION_CHOICE, AT(wire), .value = "f32|bf16|q8_0",
     .help = "how activations travel between stages; f32 changes nothing, the others make results "
             "depend a little on the number of stages"},
    {"threads", 0, OPTION_U32, AT(threads), .value = "N", .min = 1, .max = 1024,
     .unset = "the CPUs of the rank, shared with its neighbours", .help = "threads of each stage"},
    {"chunk", 0, OPTION_U32, AT(chunk), .value = "N", .min = 1, .max = 65536,
     .unset = "by what batches cost the stages", .help = "rows of a batch at most"},
    {"stages", 0, OPTION_U32, AT(stages), .value = "P", .min = 1, .max = STAGES_MAX, .unset = "1",
     .help = "stages inside this process; not under mpirun, where each rank but the first is one"},
    {"split", 0, OPTION_TEXT, AT(split), .value = "A,B,C|auto", .unset = "by bytes",
     .help = "layers of each stage, by hand; auto: by speeds that are measured first, as tandem "
             "plan; may leave ranks out"},
    {"weights", 0, OPTION_CHOICE, AT(weights), .value = "auto|local|stream",
     .help =
         "where a worker gets its weights: its own host's MODEL (local), the coordinator, which "
         "reads them for it (stream), or the coordinator where MODEL cannot be opened (auto)"},
    {"cache", 0, OPTION_TEXT, AT(cache), .value = "FOLDER", .unset = "none",
     .help =
         "keep streamed weights on each worker's own disk, and take them from there when the same "
         "layers of the same file are wanted again"},
    {"cache-size", 0, OPTION_U32, AT(cache_mib), .value = "MIB", .min = 1, .max = UINT32_MAX,
     .help = "of that folder at most; what was not used for the longest time goes first"},
    {"idle", 0, OPTION_CHOICE, AT(idle), .value = "sleep|yield|spin",
     .help = "how far a waiting rank may back off"},
    {"stall-timeout", 0, OPTION_F32, AT(stall_timeout_s), .value = "SECONDS", .min = 1, .max = 3600,
     .help = "a rank that says nothing for so long has stalled, and ends the line"},
    {"link-emulate", 0, OPTION_TEXT, AT(link_emulate), .value = "DELAY,RATE", .unset = "off",
     .help =
         "delay and pace the batches of every hop as a slower wire would: 50us,1gbit or 50us or "
         ",1gbit; control messages stay as fast as they are"},
    {"stats", 0, OPTION_FLAG, AT(stats),
     .help = "at the end, say where the time went: stages, hops, and what a token cost"},
    {"trace", 0, OPTION_TEXT, AT(trace), .value = "FILE", .unset = "off",
     .help = "write a timeline of all ranks (Chrome trace, for Perfetto and cluster/plot-trace)"},
    {"trace-layers", 0, OPTION_FLAG, AT(trace_layers), .help = "with every layer in it"},
};
GROUP(group_line, line_rows, "Line");

static const struct option prompt_rows[] = {
    {"prompt", 'p', OPTION_LIST, AT(prompts), .value = "TEXT",
     .help = "a prompt; several -p are several sequences at once"},
    {"file", 'f', OPTION_TEXT, AT(file), .value = "FILE", .unset = "standard input",
     .help = "read the prompt from FILE (- is standard input)"},
    {"ids", 0, OPTION_LIST, AT(ids), .value = "1,2,3",
     .help = "a prompt as token ids, taken as they are"},
    {"no-bos", 0, OPTION_FLAG, AT(no_bos),
     .help = "do not put the special tokens around a prompt that the file asks for"},
    {"parse-special", 0, OPTION_FLAG, AT(parse_special),
     .help = "control tokens written out in a prompt become their id"},
};
GROUP(group_prompts, prompt_rows, "Prompt");

static const struct option sampling_rows[] = {
    {"temp", 't', OPTION_F32, AT(sampling.temperature), .value = "T", .max = INFINITY,
     .help = "temperature; 0 always takes the best token"},
    {"top-k", 0, OPTION_U32, AT(sampling.top_k), .value = "K", .max = INT32_MAX, .unset = "off",
     .help = "draw from the K best tokens"},
    {"top-p", 0, OPTION_F32, AT(sampling.top_p), .value = "P", .max = 1, .above_min = true,
     .unset = "off", .help = "draw from the best tokens that make up this probability"},
    {"min-p", 0, OPTION_F32, AT(sampling.min_p), .value = "P", .max = 1, .unset = "off",
     .help = "drop tokens below this share of the best one's probability"},
    {"typical", 0, OPTION_F32, AT(sampling.typical_p), .value = "P", .max = 1, .above_min = true,
     .unset = "off", .help = "draw from the most typical tokens that make up this probability"},
    {"repeat-penalty", 0, OPTION_F32, AT(sampling.repeat_penalty), .value = "R", .max = INFINITY,
     .above_min = true, .unset = "off",
     .help = "divide the scores of recent tokens (multiply them below 0)"},
    {"frequency-penalty", 0, OPTION_F32, AT(sampling.frequency_penalty), .value = "F",
     .min = -INFINITY, .max = INFINITY, .unset = "off",
     .help = "take this from a token's score for each time it came lately"},
    {"presence-penalty", 0, OPTION_F32, AT(sampling.presence_penalty), .value = "F",
     .min = -INFINITY, .max = INFINITY, .unset = "off",
     .help = "take this from a token's score if it came lately"},
    {"repeat-last-n", 0, OPTION_U32, AT(sampling.penalty_last_n), .value = "N", .max = 1U << 24,
     .help = "how many tokens back the penalties look"},
    {"logit-bias", 0, OPTION_LIST, AT(biases), .value = "ID=V",
     .help = "add V to the score of token ID; -inf bans it; may be repeated"},
    {"seed", 0, OPTION_U64, AT(sampling.seed), offsetof(struct settings, seed_given), .value = "S",
     .unset = "drawn, and reported on standard error",
     .help = "the same seed draws the same tokens, on any line"},
};
GROUP(group_sampling, sampling_rows, "Sampling");

static const struct option generate_rows[] = {
    {"predict", 'n', OPTION_I32, AT(n_tokens), .value = "N", .min = -1, .max = INT32_MAX,
     .help =
         "tokens at most; -1: until the context is full (without --ctx it has room for 4096 more)"},
    {"stop", 0, OPTION_LIST, AT(stops), .value = "TEXT",
     .help = "end before this text; may be repeated"},
    {"ignore-eos", 0, OPTION_FLAG, AT(ignore_eos), .help = "ban the tokens that end a text"},
    {"top-probs", 0, OPTION_U32, AT(sampling.top_probs), .value = "K", .max = LOGIT_TOP_MAX,
     .unset = "off", .help = "print the K most probable tokens of each step on standard error"},
    {"json", 0, OPTION_FLAG, AT(json),
     .help = "print one JSON object a sequence instead of the text"},
};
GROUP(group_generate, generate_rows, "Output");

static const struct option batch_rows[] = {
    {"batch", 0, OPTION_TEXT, AT(batch), .value = "FILE.jsonl", .unset = "",
     .help = "the requests of this file, one JSON object a line, in place of -p, -f and --ids"},
    {"out", 'o', OPTION_TEXT, AT(out), .value = "OUT.jsonl", .unset = "",
     .help = "where their results go as they finish (- is standard output); a file that is there "
             "already is continued; needed"},
    {"with-ids", 0, OPTION_FLAG, AT(with_ids), .help = "with the token ids of prompt and text"},
    {"grace", 0, OPTION_F32, AT(grace_s), .value = "SECONDS", .max = 1e6,
     .help = "after SIGUSR1, let what is under way go on for so long, and begin nothing new"},
};
GROUP(group_batch, batch_rows, "Batch");

static const struct option logits_rows[] = {
    {"top", 0, OPTION_U32, AT(top), .value = "K", .min = 1, .max = LOGIT_TOP_MAX,
     .unset = "8 without --hash and -o",
     .help = "print the K best tokens after each position: POSITION ID:SCORE ..."},
    {"hash", 0, OPTION_FLAG, AT(hash),
     .help = "print a digest of the bits of each row: POSITION DIGEST"},
    {"out", 'o', OPTION_TEXT, AT(out), .value = "FILE",
     .help = "write the rows to FILE, as little-endian float32"},
    {"beside", 0, OPTION_U32, AT(beside), .value = "N", .max = SEQUENCES_MAX - 1, .unset = "0",
     .help =
         "for tests: run N other random sequences at the same time, which must not change a bit"},
    {"seed", 0, OPTION_U64, AT(sampling.seed), offsetof(struct settings, seed_given), .value = "S",
     .help = "of the sequences of --beside"},
};
GROUP(group_logits, logits_rows, "Output");

static const struct option tokenize_rows[] = {
    {"pieces", 0, OPTION_FLAG, AT(pieces),
     .help = "print a line for each token: its id and its piece of text"},
};
GROUP(group_tokenize, tokenize_rows, "Output");

static const struct option detokenize_rows[] = {
    {"file", 'f', OPTION_TEXT, AT(file), .value = "FILE", .unset = "standard input",
     .help = "read ids from FILE (- is standard input) where none is given"},
    {"special", 0, OPTION_FLAG, AT(special), .help = "show control tokens"},
};
GROUP(group_detokenize, detokenize_rows, "Text");

static const struct option inspect_rows[] = {
    {"ranks", 0, OPTION_U32, AT(ranks), .value = "P", .min = 1, .max = STAGES_MAX + 1, .unset = "1",
     .help = "say what each of P ranks would hold; rank 0 coordinates, unless it is alone"},
    {"ctx", 0, OPTION_U32, AT(ctx), .value = "N", .min = 2, .max = 1U << 24,
     .unset = "what the model was trained for",
     .help = "positions of each sequence that they make room for"},
    {"slots", 0, OPTION_U32, AT(slots), .value = "N", .min = 1, .max = SEQUENCES_MAX, .unset = "1",
     .help = "sequences that they make room for"},
    {"kv", 0, OPTION_CHOICE, AT(kv), .value = "f16|f32|q8_0",
     .help = "number format of the key/value cache; q8_0 takes about half of f16"},
    {"split", 0, OPTION_TEXT, AT(split), .value = "A,B,C", .unset = "by bytes",
     .help = "layers of each stage, by hand"},
    {"tensors", 0, OPTION_FLAG, AT(tensors), .help = "list every tensor"},
    {"families", 0, OPTION_FLAG, AT(families),
     .help = "no file: say which model families and number formats there are"},
    {"json", 0, OPTION_FLAG, AT(json), .help = "print one JSON object"},
};
GROUP(group_inspect, inspect_rows, "Output");

static const struct option perplexity_rows[] = {
    {"file", 'f', OPTION_TEXT, AT(file), .value = "FILE",
     .help = "the text (- is standard input), every byte of it"},
    {"ids-file", 0, OPTION_TEXT, AT(ids_file), .value = "FILE",
     .help = "token ids instead: numbers between blanks, commas or newlines; # begins a comment"},
    {"json", 0, OPTION_FLAG, AT(json), .help = "print one JSON object"},
};
GROUP(group_perplexity, perplexity_rows, "Input and output");

static const struct option bench_rows[] = {
    {"pp", 0, OPTION_TEXT, AT(pp), .value = "N,...", .unset = "128,512, as far as the context goes",
     .help = "prompts of so many tokens; 0: none"},
    {"tg", 0, OPTION_TEXT, AT(tg), .value = "N,...", .unset = "64",
     .help = "generate so many tokens a sequence, behind a prompt of one; 0: none"},
    {"seqs", 0, OPTION_TEXT, AT(seqs), .value = "N,...", .unset = "1,2,4,8",
     .help = "with so many sequences at once (--tg)"},
    {"repeat", 0, OPTION_U32, AT(repeat), .value = "N", .min = 1, .max = 1000,
     .help = "measure each so many times, after a warm-up that does not count"},
    {"json", 0, OPTION_TEXT, AT(json_file), .value = "FILE", .unset = "",
     .help = "write all numbers as one JSON object (- is standard output)"},
    {"csv", 0, OPTION_TEXT, AT(csv_file), .value = "FILE", .unset = "",
     .help = "the same as CSV, a line for each run, stage, hop and limit"},
    {"kernels", 0, OPTION_FLAG, AT(kernels), .help = "measure each kernel by itself, and no model"},
};
GROUP(group_bench, bench_rows, "Measuring");

static const struct option plan_rows[] = {
    {"ranks", 0, OPTION_U32, AT(ranks), .value = "N", .min = 1, .max = STAGES_MAX + 1, .unset = "",
     .help = "for N ranks on this host, which is measured; rank 0 coordinates, unless it is alone"},
    {"cluster", 0, OPTION_TEXT, AT(cluster), .value = "FILE", .unset = "",
     .help = "for the hosts that FILE describes (tandem probe writes one)"},
    {"ctx", 0, OPTION_U32, AT(ctx), .value = "N", .min = 2, .max = 1U << 24,
     .unset = "what the model was trained for, at most 4096",
     .help = "positions of each sequence; half of them are filled where time is judged"},
    {"slots", 0, OPTION_U32, AT(slots), .value = "N", .min = 1, .max = SEQUENCES_MAX, .unset = "1",
     .help = "sequences at once"},
    {"kv", 0, OPTION_CHOICE, AT(kv), .value = "f16|f32|q8_0",
     .help = "number format of the key/value cache"},
    {"json", 0, OPTION_FLAG, AT(json), .help = "print one JSON object"},
};
GROUP(group_plan, plan_rows, "Plan");

static const struct option probe_rows[] = {
    {"model", 'm', OPTION_TEXT, AT(model), .value = "MODEL", .unset = "q8_0 weights",
     .help = "measure with the number format and the size of this model's weights"},
    {"out", 'o', OPTION_TEXT, AT(out), .value = "FILE", .unset = "standard output",
     .help = "the cluster file to write"},
    {"threads", 0, OPTION_U32, AT(threads), .value = "N", .min = 1, .max = 1024,
     .unset = "the CPUs of the rank, shared with its neighbours", .help = "threads of each rank"},
};
GROUP(group_probe, probe_rows, "Measuring");

/* The limits keep a model's bytes below 2^63. */
static const struct option synth_rows[] = {
    {"preset", 0, OPTION_TEXT, AT(preset), .value = "NAME",
     .help = "the shape of a published model: tinyllama-1.1b, llama-3.2-1b, llama-2-7b, gpt2-124m "
             "or moe-8x1b; the flags below change it"},
    {"family", 0, OPTION_TEXT, AT(shape.family), .value = "F",
     .help = "the family, as general.architecture has it: llama, gpt2, ..."},
    {"layers", 0, OPTION_U32, AT(shape.n_layer), .value = "N", .min = 1, .max = 4096, .unset = "",
     .help = "layers"},
    {"embd", 0, OPTION_U32, AT(shape.n_embd), .value = "N", .min = 1, .max = 1 << 18, .unset = "",
     .help = "width"},
    {"heads", 0, OPTION_U32, AT(shape.n_head), .value = "N", .min = 1, .max = 1 << 14, .unset = "",
     .help = "heads of attention"},
    {"heads-kv", 0, OPTION_U32, AT(shape.n_head_kv), .value = "N", .min = 1, .max = 1 << 14,
     .unset = "as many as heads", .help = "key/value heads"},
    {"head-dim", 0, OPTION_U32, AT(shape.head_dim), .value = "N", .min = 1, .max = 1 << 14,
     .unset = "width / heads", .help = "width of a head"},
    {"ff", 0, OPTION_U32, AT(shape.n_ff), .value = "N", .min = 1, .max = 1 << 20, .unset = "",
     .help = "width inside the feed-forward network"},
    {"experts", 0, OPTION_U32, AT(shape.n_expert), .value = "N", .min = 1, .max = 512,
     .unset = "none", .help = "feed-forward networks side by side"},
    {"experts-used", 0, OPTION_U32, AT(shape.n_expert_used), .value = "N", .min = 1, .max = 512,
     .unset = "1", .help = "how many of them a token uses"},
    {"ctx", 0, OPTION_U32, AT(shape.n_ctx), .value = "N", .min = 1, .max = 1 << 24, .unset = "2048",
     .help = "the longest context"},
    {"vocab", 0, OPTION_U32, AT(shape.n_vocab), .value = "N", .min = 1, .max = 1 << 24,
     .unset = "the tokenizer's", .help = "tokens; those beyond the tokenizer's are never used"},
    {"tied", 0, OPTION_FLAG, AT(shape.tied),
     .help = "no output matrix: the token embedding serves as one"},
    {"tokenizer", 0, OPTION_TEXT, AT(tokenizer), .value = "FILE", .unset = "the demo model's",
     .help = "a GGUF file whose tokenizer the model gets"},
    {"seed", 0, OPTION_U64, AT(sampling.seed), .value = "S", .unset = "0",
     .help = "the same seed gives the same weights"},
    {"type", 0, OPTION_CHOICE, AT(type), offsetof(struct settings, type_given),
     .value = "f32|f16|bf16|q8_0|q4_0", .unset = "",
     .help = "number format of the matrices; needed"},
    {"out", 'o', OPTION_TEXT, AT(out), .value = "FILE", .help = "the file to write; needed"},
    {"threads", 0, OPTION_U32, AT(threads), .value = "N", .min = 1, .max = 1024,
     .unset = "the CPUs there are", .help = "threads that compute"},
};
GROUP(group_synth, synth_rows, "Model");

static const struct option quantize_rows[] = {
    {"type", 0, OPTION_CHOICE, AT(type), offsetof(struct settings, type_given),
     .value = "q8_0|q4_0|q4_k|q6_k", .unset = "", .help = "number format of most matrices; needed"},
    {"threads", 0, OPTION_U32, AT(threads), .value = "N", .min = 1, .max = 1024,
     .unset = "the CPUs there are", .help = "threads that compute"},
};
GROUP(group_quantize, quantize_rows, "Output");

struct settings settings_default(void)
{
    struct settings s = {.sampling = sampling_default(),
                         .n_tokens = 128,
                         .repeat = 5,
                         .grace_s = 30,
                         .stall_timeout_s = 4.5F,
                         .cache_mib = 65536};
    return s;
}

void settings_free(struct settings *s)
{
    option_list_free(&s->prompts);
    option_list_free(&s->ids);
    option_list_free(&s->biases);
    option_list_free(&s->stops);
    option_list_free(&s->operands);
}

const char settings_environment_help[] =
    "  TANDEM_BLOCK_SEED=N   hand out key/value blocks in a random order\n"
    "  TANDEM_ISA=NAME       run the kernels of this instruction set (generic, avx2, avx512, amx)\n"
    "  TANDEM_STATUS_FILE=F  rank 0 writes its exit status into the file F, where there is one\n"
    "  TANDEM_TEST_FAULT=[RANK:]PLACE:ACTION\n"
    "                        at load, idle, control, compute, prefill, decode or send: sleep so "
    "many\n"
    "                        ms, error, exit, kill or stop\n";

int settings_read_environment(struct settings *s, struct err *err)
{
    const char *seed = getenv("TANDEM_BLOCK_SEED");
    if (seed == NULL || seed[0] == '\0') return ERR_NONE;
    char *end;
    errno = 0;
    s->shuffle_seed = strtoull(seed, &end, 10);
    CHECK(*end == '\0' && errno == 0, err, ERR_USAGE,
          "TANDEM_BLOCK_SEED wants a whole number, got '%s'", seed);
    s->shuffle_blocks = true;
    return ERR_NONE;
}
