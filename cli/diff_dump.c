/* diff_dump.c - dumps: the first micro-batch that differs, what differs first in it, and which of its fields do at all.
 *
 * In a micro-batch the samples come first, because all else follows from them; then the fields, item by item; then counts and the state. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diff.h"
#include "npy.h"

enum { PATH_BYTES = 4096, PIECE_ITEMS = 1 << 16 };

/* Two folders of one micro-batch. */
typedef struct pair {
    const char *folder[2];
    json_t *batch[2]; /* batch.json */
    char where[128];  /* "step 12, rank 0, micro-batch 1" */
    int differences;
    bool failed;
} pair;

static void say(pair *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(pair *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", p->where);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    p->differences++;
}

static int64_t number_of_key(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

/* A value of batch.json; "nothing" where it is missing. */
static void value_text(const json_t *value, char text[200])
{
    char *const whole = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    snprintf(text, 200, "%s", whole ? whole : "nothing");
    free(whole);
}

/* --- which sample an item belongs to --- */

static void sample_name(const json_t *samples, size_t at, char text[160])
{
    const json_t *const sample = json_array_get(samples, at);
    const char *const id = json_string_value(json_object_get(sample, "id"));
    snprintf(text, 160, "row %" PRId64 ", sample %.96s", number_of_key(sample, "row"), id ? id : "(filler)");
}

/* Of a token: its sample and its place in it, or padding.  Rows that are joined to one are found by the offset alone. */
static void token_owner(const json_t *samples, const npy *array, uint64_t at, char text[160])
{
    const uint64_t length = array->shape[array->ndim - 1], rows = array->shape[array->ndim - 2];
    const int64_t token = (int64_t)(at % length), row = (int64_t)(at / length % rows);
    size_t i;
    const json_t *sample;
    json_array_foreach((json_t *)samples, i, sample) {
        const int64_t offset = number_of_key(sample, "offset");
        if ((rows > 1 && number_of_key(sample, "row") != row) || token < offset || token >= offset + number_of_key(sample, "tokens")) continue;
        sample_name(samples, i, text);
        const size_t used = strlen(text);
        snprintf(text + used, 160 - used, ", token %" PRId64, token - offset);
        return;
    }
    snprintf(text, 160, "row %" PRId64 ", padding", row);
}

/* A filler image has one visual token between two marks, filler of a row one token. */
static uint64_t visual_tokens_of(const json_t *sample)
{
    const char *const status = json_string_value(json_object_get(sample, "status"));
    if (status && strcmp(status, "filler") == 0) return number_of_key(sample, "tokens") > 1;
    return (uint64_t)number_of_key(sample, "visual_tokens");
}

/* Of a patch: patches lie in the order of the samples, as many each as it has visual tokens, times what the model merges. */
static void patch_owner(const json_t *samples, uint64_t patches, uint64_t patch, char text[160])
{
    uint64_t all = 0, before = 0;
    size_t i;
    const json_t *sample;
    json_array_foreach((json_t *)samples, i, sample) all += visual_tokens_of(sample);
    snprintf(text, 160, "patch %" PRIu64, patch);
    if (!all || patches % all) return;
    json_array_foreach((json_t *)samples, i, sample) {
        const uint64_t own = visual_tokens_of(sample) * (patches / all);
        if (patch < before + own) {
            sample_name(samples, i, text);
            const size_t used = strlen(text);
            snprintf(text + used, 160 - used, ", patch %" PRIu64 " of it", patch - before);
            return;
        }
        before += own;
    }
}

static void owner(const pair *p, const char *field, const npy *array, uint64_t at, char text[160])
{
    static const char *const of_tokens[] = {"input_ids", "labels", "loss_mask", "attention_mask", "mm_token_type_ids", "position_ids"};
    const json_t *const samples = json_object_get(p->batch[0], "samples");
    text[0] = 0;
    for (size_t i = 0; i < sizeof of_tokens / sizeof *of_tokens; i++)
        if (strcmp(field, of_tokens[i]) == 0 && array->ndim >= 2) token_owner(samples, array, at, text);
    if (strncmp(field, "pixel_", 6) == 0 && array->ndim == 2)
        patch_owner(samples, array->shape[0], at / array->shape[1], text);
}

/* --- fields --- */

/* Compare item by item. */
static void compare_items(pair *p, const char *field, npy array[2])
{
    uint8_t *const piece[2] = {malloc(PIECE_ITEMS * array[0].item_bytes), malloc(PIECE_ITEMS * array[0].item_bytes)};
    const size_t size = array[0].item_bytes;
    uint64_t first = 0, different = 0;
    char values[2][40] = {"", ""};
    const char *const note = json_string_value(json_object_get(p->batch[0], "note"));
    const bool bfloat16 = strcmp(field, "pixel_values") == 0 && array[0].kind == 'u' && note && strstr(note, "bfloat16");
    bool good = piece[0] && piece[1];
    for (uint64_t done = 0; good && done < array[0].count;) {
        const uint64_t left = array[0].count - done;
        const size_t count = left < PIECE_ITEMS ? (size_t)left : PIECE_ITEMS;
        good = npy_read(&array[0], piece[0], count) == count && npy_read(&array[1], piece[1], count) == count;
        for (size_t i = 0; good && memcmp(piece[0], piece[1], count * size) != 0 && i < count; i++) {
            if (memcmp(piece[0] + i * size, piece[1] + i * size, size) == 0 || different++ > 0) continue;
            first = done + i;
            for (int k = 0; k < 2; k++) npy_text(&array[k], piece[k] + i * size, bfloat16, values[k]);
        }
        done += count;
    }
    free(piece[0]);
    free(piece[1]);
    p->failed |= !good;
    if (!good) fprintf(stderr, "stoker diff: %s.npy cannot be read\n", field);
    if (!good || !different) return;
    char place[200], of[160];
    npy_place_text(&array[0], first, place);
    owner(p, field, &array[0], first, of);
    say(p, "%s%s%s%s is %s in A and %s in B; %" PRIu64 " of %" PRIu64 " values differ", of, of[0] ? ": " : "", field, place, values[0],
        values[1], different, array[0].count);
}

static void compare_field(pair *p, const char *field)
{
    npy array[2];
    char path[PATH_BYTES], words[NPY_WORDS], form[2][200];
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%.3900s/%s.npy", p->folder[k], field);
        if (npy_open(&array[k], path, words)) continue;
        if (k) npy_close(&array[0]);
        p->failed = true;
        (void)diff_fails(path, words);
        return;
    }
    npy_form_text(&array[0], form[0]);
    npy_form_text(&array[1], form[1]);
    if (strcmp(form[0], form[1]) != 0) say(p, "%s is %s in A and %s in B", field, form[0], form[1]);
    else compare_items(p, field, array);
    npy_close(&array[0]);
    npy_close(&array[1]);
}

static int keep_fields(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return length > 4 && length < 100 && strcmp(entry->d_name + length - 4, ".npy") == 0;
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

static void compare_fields(pair *p)
{
    struct dirent **names[2] = {NULL, NULL};
    int count[2], at[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        count[k] = scandir(p->folder[k], &names[k], keep_fields, alphasort);
        if (count[k] < 0) p->failed = true;
    }
    while (at[0] < count[0] || at[1] < count[1]) {
        const char *const a = at[0] < count[0] ? names[0][at[0]]->d_name : NULL, *const b = at[1] < count[1] ? names[1][at[1]]->d_name : NULL;
        const int order = !a ? 1 : !b ? -1 : strcmp(a, b);
        const char *const name = order <= 0 ? a : b;
        char field[100];
        snprintf(field, sizeof field, "%.*s", (int)strlen(name) - 4, name);
        if (order == 0) compare_field(p, field);
        else say(p, "only %s has the field %s", order < 0 ? "A" : "B", field);
        at[0] += order <= 0;
        at[1] += order >= 0;
    }
    for (int k = 0; k < 2; k++) free_names(names[k], count[k] < 0 ? 0 : count[k]);
}

/* --- batch.json --- */

static void compare_value(pair *p, const char *of, const char *key, const json_t *a, const json_t *b)
{
    char values[2][200];
    if ((a && b && json_equal(a, b)) || (!a && !b)) return;
    value_text(a, values[0]);
    value_text(b, values[1]);
    say(p, "%s%s%s is %s in A and %s in B", of, of[0] ? ": " : "", key, values[0], values[1]);
}

/* The first sample that differs, and all that differs in it. */
static void compare_samples(pair *p)
{
    json_t *const a = json_object_get(p->batch[0], "samples"), *const b = json_object_get(p->batch[1], "samples");
    const size_t count[2] = {json_array_size(a), json_array_size(b)};
    for (size_t i = 0; i < count[0] && i < count[1]; i++) {
        json_t *const x = json_array_get(a, i), *const y = json_array_get(b, i);
        if (json_equal(x, y)) continue;
        char of[200];
        const char *key;
        json_t *value;
        snprintf(of, sizeof of, "row %" PRId64 ", sample %zu", number_of_key(x, "row"), i);
        json_object_foreach(x, key, value) compare_value(p, of, key, value, json_object_get(y, key));
        json_object_foreach(y, key, value) {
            if (!json_object_get(x, key)) compare_value(p, of, key, NULL, value);
        }
        return;
    }
    if (count[0] == count[1]) return;
    char next[160];
    sample_name(count[0] > count[1] ? a : b, count[0] < count[1] ? count[0] : count[1], next);
    say(p, "A has %zu samples and B has %zu: only %s has %s", count[0], count[1], count[0] > count[1] ? "A" : "B", next);
}

static void compare_states(pair *p)
{
    stk_state state[2];
    stk_error err;
    const char *text[2];
    for (int k = 0; k < 2; k++) {
        text[k] = json_string_value(json_object_get(p->batch[k], "state"));
        if (!text[k]) text[k] = "";
    }
    if (strcmp(text[0], text[1]) == 0) return;
    bool known = true;
    for (int k = 0; known && k < 2; k++) known = stk_state_parse(&state[k], text[k], strlen(text[k]), &err) == STK_OK;
    if (!known) {
        say(p, "the states after it differ, and are not both of this release");
        return;
    }
    char where[160];
    snprintf(where, sizeof where, "%s: the state after it: ", p->where);
    p->differences += diff_states(&state[0], &state[1], where) == DIFF_DIFFERENT;
}

static void compare_keys(pair *p, const char *const *key, size_t count)
{
    for (size_t i = 0; i < count; i++)
        compare_value(p, "", key[i], json_object_get(p->batch[0], key[i]), json_object_get(p->batch[1], key[i]));
}

static int compare_micro_batch(const char *a, const char *b)
{
    static const char *const place[] = {"step", "rank", "world", "micro", "epoch"};
    static const char *const counts[] = {"tokens", "visual_tokens", "images", "loss_tokens", "step_loss_tokens", "note"};
    pair p = {.folder = {a, b}};
    for (int k = 0; k < 2; k++) {
        char path[PATH_BYTES], words[256];
        json_error_t error;
        snprintf(path, sizeof path, "%.3900s/batch.json", p.folder[k]);
        p.batch[k] = json_load_file(path, 0, &error);
        if (p.batch[k]) continue;
        snprintf(words, sizeof words, "line %d: %.160s", error.line, error.text);
        json_decref(p.batch[0]);
        return diff_fails(path, words);
    }
    snprintf(p.where, sizeof p.where, "step %" PRId64 ", rank %" PRId64 ", micro-batch %" PRId64, number_of_key(p.batch[0], "step"),
             number_of_key(p.batch[0], "rank"), number_of_key(p.batch[0], "micro"));
    compare_keys(&p, place, sizeof place / sizeof *place);
    compare_samples(&p);
    compare_fields(&p);
    compare_keys(&p, counts, sizeof counts / sizeof *counts);
    compare_states(&p);
    /* The digests follow from all that was compared, unless a file was changed after the dump. */
    if (!p.differences)
        compare_value(&p, "", "digests", json_object_get(p.batch[0], "digests"), json_object_get(p.batch[1], "digests"));
    json_decref(p.batch[0]);
    json_decref(p.batch[1]);
    return p.failed ? DIFF_FAILED : p.differences ? DIFF_DIFFERENT : DIFF_EQUAL;
}

/* --- folders --- */

bool is_micro_batch(const char *folder)
{
    char path[PATH_BYTES];
    return snprintf(path, sizeof path, "%s/batch.json", folder) < PATH_BYTES && access(path, F_OK) == 0;
}

/* "step-00000012.rank-000.micro-001", and nothing behind it: a dump that was cut leaves a name that ends in .tmp. */
static bool place_of(const char *name, uint64_t place[3])
{
    unsigned long long number[3];
    int length = 0;
    if (sscanf(name, "step-%llu.rank-%llu.micro-%llu%n", &number[0], &number[1], &number[2], &length) != 3 || name[length]) return false;
    for (int i = 0; i < 3; i++) place[i] = number[i];
    return true;
}

static int keep_micro_batches(const struct dirent *entry)
{
    uint64_t place[3];
    return place_of(entry->d_name, place);
}

static int compare_places(const char *a, const char *b)
{
    uint64_t x[3], y[3];
    if (!place_of(a, x) || !place_of(b, y)) return strcmp(a, b);
    for (int i = 0; i < 3; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

static int by_place(const struct dirent **a, const struct dirent **b)
{
    return compare_places((*a)->d_name, (*b)->d_name);
}

bool is_dump(const char *folder)
{
    struct dirent **names;
    const int count = scandir(folder, &names, keep_micro_batches, NULL);
    if (count < 0) return false;
    free_names(names, count);
    return count > 0;
}

static int compare_all(const char *const folder[2], struct dirent **const names[2], const int count[2])
{
    int at[2] = {0, 0}, status = DIFF_EQUAL;
    while (status == DIFF_EQUAL && (at[0] < count[0] || at[1] < count[1])) {
        const char *const a = at[0] < count[0] ? names[0][at[0]]->d_name : NULL, *const b = at[1] < count[1] ? names[1][at[1]]->d_name : NULL;
        const int order = !a ? 1 : !b ? -1 : compare_places(a, b);
        if (order) {
            printf("only %s has %s\n", order < 0 ? "A" : "B", order < 0 ? a : b);
            return DIFF_DIFFERENT;
        }
        char path[2][PATH_BYTES];
        snprintf(path[0], PATH_BYTES, "%.3700s/%.300s", folder[0], a);
        snprintf(path[1], PATH_BYTES, "%.3700s/%.300s", folder[1], b);
        status = compare_micro_batch(path[0], path[1]);
        if (interrupted()) return DIFF_FAILED;
        at[0]++;
        at[1]++;
    }
    if (status == DIFF_EQUAL) printf("equal: %d micro-batches\n", count[0]);
    return status;
}

int diff_dumps(const char *a, const char *b)
{
    if (is_micro_batch(a) && is_micro_batch(b)) {
        const int status = compare_micro_batch(a, b);
        if (status == DIFF_EQUAL) printf("equal: one micro-batch\n");
        return status;
    }
    const char *const folder[2] = {a, b};
    struct dirent **names[2] = {NULL, NULL};
    int count[2] = {0, 0}, status = DIFF_EQUAL;
    for (int k = 0; k < 2; k++) {
        count[k] = scandir(folder[k], &names[k], keep_micro_batches, by_place);
        if (count[k] < 0) status = diff_fails(folder[k], strerror(errno));
    }
    if (status == DIFF_EQUAL) status = compare_all(folder, names, count);
    for (int k = 0; k < 2; k++) free_names(names[k], count[k] < 0 ? 0 : count[k]);
    return status;
}
