/* err - result codes and the one-line error that travels with them.
 *
 * Every function that can fail returns an int code (ERR_NONE is 0) and takes a
 * `struct err *` last. CHECK formats the text once, where the fault is found;
 * TRY only forwards. Both are for files, peers and users. BUG_IF is for our own
 * mistakes: it stays in release builds and ends the job through one hook.
 * Next station: log, which prints "who: text" as one line. */
#ifndef TANDEM_ENGINE_ERR_H
#define TANDEM_ENGINE_ERR_H

/* X(name, exit status, what it means) - the statuses are part of the command
 * line's contract (README, "Exit statuses"). */
#define ERR_LIST(X)                                                                                \
    X(NONE, 0, "no error")                                                                         \
    X(USAGE, 1, "wrong use: a flag, a prompt or a request")                                        \
    X(FILE, 2, "a file cannot be used")                                                            \
    X(ABSENT, 2, "a file cannot be opened")                                                        \
    X(SHAPE, 2, "a tensor does not have the shape its family asks for")                            \
    X(UNSUPPORTED, 2, "the file asks for something this program does not have")                    \
    X(NUMERIC, 2, "a score is not finite")                                                         \
    X(CAPACITY, 3, "it does not fit: memory, context or layers")                                   \
    X(MEMORY, 3, "the system has no memory left")                                                  \
    X(RANK, 4, "a rank failed or died")                                                            \
    X(PEER, 4, "a peer sent something it must not send")                                           \
    X(STALL, 5, "a rank stopped answering")                                                        \
    X(DISAGREE, 6, "ranks disagree: model, version or settings")                                   \
    X(UNFINISHED, 75,                                                                              \
      "ended in good order before all was done, as asked: the next start does the rest")           \
    X(INTERRUPTED, 130, "interrupted")

enum err_code {
#define ERR_ENUM(name, status, text) ERR_##name,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
        ERR_CODE_COUNT
};

enum { ERR_TEXT_MAX = 512, ERR_WHO_MAX = 96 };

/* One error: the code and what happened ("what, where, numbers, what to do"). who is empty for an
 * error of the rank that prints it, which then says its own name. Plain data; no ownership. */
struct err {
    enum err_code code;
    char who[ERR_WHO_MAX];
    char text[ERR_TEXT_MAX];
};

/* err_set() - format the text, cut at ERR_TEXT_MAX, clear who, and return code. err may be NULL. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* err_set_who() - it happened on another rank: "worker 3 @node07, layers 16..23". err may
 * be NULL. */
void err_set_who(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* err_exit_status() - the process exit status of a code; 1 for an unknown code. */
int err_exit_status(enum err_code code);

/* err_code_name() - "FILE", "RANK", ...; "?" for an unknown code. Static storage. */
const char *err_code_name(enum err_code code);

/* CHECK(condition, err, ERR_X, "format", ...) - return ERR_X with a text unless condition holds. */
#define CHECK(condition, err, code, ...)                                                           \
    do {                                                                                           \
        if (!(condition)) return err_set((err), (code), __VA_ARGS__);                              \
    } while (0)

/* TRY(call) - forward a failure unchanged. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_rc_ = (call);                                                                      \
        if (try_rc_ != ERR_NONE) return try_rc_;                                                   \
    } while (0)

/* BUG_IF(condition, "what") - our own mistake: print file, line and what, run the
 * hook (main sets it to end the whole job), then abort. */
#define BUG_IF(condition, what)                                                                    \
    do {                                                                                           \
        if (condition) err_bug(__FILE__, __LINE__, (what));                                        \
    } while (0)

void err_set_bug_hook(void (*hook)(void));
_Noreturn void err_bug(const char *file, int line, const char *what);

#endif
