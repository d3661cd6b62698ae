/* gguf_values - the keys of a GGUF file as numbers, texts and arrays, each type checked.
 *
 * Station before: gguf, which has found every value within the file. Next stations: hparams,
 * coordinator/text/vocab. */
#include "engine/gguf_kv.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes; /* of one value; 0: not a fixed size */
} types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

uint32_t gguf_type_bytes(enum gguf_type type)
{
    return types[type].bytes;
}

struct gguf_str gguf_kv_key(const struct gguf_kv *kv)
{
    return kv->key;
}

enum gguf_type gguf_kv_type(const struct gguf_kv *kv)
{
    return kv->is_array ? GGUF_ARRAY : kv->type;
}

enum gguf_type gguf_kv_element_type(const struct gguf_kv *kv)
{
    return kv->type;
}

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? types[type].name : "?";
}

/* An integer of any width: its value and whether it is below zero. */
struct integer {
    bool ok, negative;
    uint64_t bits; /* two's complement, sign-extended */
};

static struct integer load_integer(enum gguf_type type, const uint8_t *at)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v = {.u64 = 0};
    int64_t s;
    if (type == GGUF_STRING || type == GGUF_ARRAY) return (struct integer){.ok = false};
    memcpy(&v, at, gguf_type_bytes(type));
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL:
        return (struct integer){true, false, v.u8};
    case GGUF_U16:
        return (struct integer){true, false, v.u16};
    case GGUF_U32:
        return (struct integer){true, false, v.u32};
    case GGUF_U64:
        return (struct integer){true, false, v.u64};
    case GGUF_I8:
        s = v.i8;
        break;
    case GGUF_I16:
        s = v.i16;
        break;
    case GGUF_I32:
        s = v.i32;
        break;
    case GGUF_I64:
        s = v.i64;
        break;
    default:
        return (struct integer){.ok = false};
    }
    return (struct integer){true, s < 0, (uint64_t)s};
}

static int wrong_type(const struct gguf *g, const struct gguf_kv *kv, const char *want,
                      struct err *err)
{
    return err_set(err, ERR_FILE, "%s: key %.*s is %s%s, want %s: the file is damaged",
                   gguf_path(g), gguf_shown(kv->key), kv->key.data,
                   kv->is_array ? "an array of " : "", gguf_type_name(kv->type), want);
}

static int get_unsigned(const struct gguf *g, const char *key, uint64_t max, uint64_t *out,
                        struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) return ERR_NONE;
    if (kv->is_array || kv->type == GGUF_BOOL) return wrong_type(g, kv, "an integer", err);
    struct integer n = load_integer(kv->type, kv->value);
    if (!n.ok) return wrong_type(g, kv, "an integer", err);
    CHECK(!n.negative, err, ERR_FILE,
          "%s: key %s is %" PRId64 ", want 0 or more: the file is damaged", gguf_path(g), key,
          (int64_t)n.bits);
    CHECK(n.bits <= max, err, ERR_FILE,
          "%s: key %s is %" PRIu64 ", want at most %" PRIu64 ": the file is damaged", gguf_path(g),
          key, n.bits, max);
    *out = n.bits;
    return ERR_NONE;
}

int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *err)
{
    uint64_t value = *out;
    TRY(get_unsigned(g, key, UINT32_MAX, &value, err));
    *out = (uint32_t)value;
    return ERR_NONE;
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct err *err)
{
    return get_unsigned(g, key, UINT64_MAX, out, err);
}

int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) return ERR_NONE;
    if (kv->is_array || (kv->type != GGUF_F32 && kv->type != GGUF_F64))
        return wrong_type(g, kv, "f32", err);
    if (kv->type == GGUF_F32) {
        memcpy(out, kv->value, sizeof *out);
        return ERR_NONE;
    }
    double wide;
    memcpy(&wide, kv->value, sizeof wide);
    *out = (float)wide;
    return ERR_NONE;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) return ERR_NONE;
    if (kv->is_array || kv->type != GGUF_BOOL) return wrong_type(g, kv, "bool", err);
    CHECK(kv->value[0] <= 1, err, ERR_FILE,
          "%s: key %s is the bool %u, want 0 or 1: the file is damaged", gguf_path(g), key,
          kv->value[0]);
    *out = kv->value[0] == 1;
    return ERR_NONE;
}

/* The length was checked against the file when the string was first read. */
static struct gguf_str load_str(const uint8_t *at)
{
    uint64_t len;
    memcpy(&len, at, sizeof len);
    return (struct gguf_str){(const char *)at + sizeof len, len};
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL) return ERR_NONE;
    if (kv->is_array || kv->type != GGUF_STRING) return wrong_type(g, kv, "string", err);
    *out = load_str(kv->value);
    return ERR_NONE;
}

uint64_t gguf_array_length(const struct gguf_kv *kv)
{
    return kv->is_array ? kv->count : 0;
}

static const uint8_t *array_element(const struct gguf_kv *kv, uint64_t index)
{
    BUG_IF(!kv->is_array || index >= kv->count, "array index beyond the array");
    return kv->value + index * gguf_type_bytes(kv->type);
}

struct gguf_str gguf_kv_value(const struct gguf_kv *kv)
{
    const char *first = (const char *)kv->value;
    if (kv->type != GGUF_STRING)
        return (struct gguf_str){first, kv->count * gguf_type_bytes(kv->type)};
    if (kv->count == 0) return (struct gguf_str){first, 0};
    const struct gguf_str last = load_str(kv->is_array ? kv->strings[kv->count - 1] : kv->value);
    return (struct gguf_str){first, (size_t)(last.data + last.len - first)};
}

struct gguf_str gguf_array_str(const struct gguf_kv *kv, uint64_t index)
{
    BUG_IF(kv->strings == NULL || index >= kv->count, "not a string of an array");
    return load_str(kv->strings[index]);
}

float gguf_array_f32(const struct gguf_kv *kv, uint64_t index)
{
    float value;
    const uint8_t *at = array_element(kv, index);
    BUG_IF(kv->type != GGUF_F32, "not an array of f32");
    memcpy(&value, at, sizeof value);
    return value;
}

int64_t gguf_array_int(const struct gguf_kv *kv, uint64_t index)
{
    struct integer n = load_integer(kv->type, array_element(kv, index));
    BUG_IF(!n.ok, "not an array of integers");
    return (int64_t)n.bits;
}
