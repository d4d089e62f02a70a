/* options_text.c - stk_options to YAML, by the rows of the option table: the inverse of options.c and option_values.c. */
#include "engine/options_text.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "base/file.h"
#include "engine/number_list.h"
#include "engine/option_table.h"

typedef struct writer {
    stk_buffer *to;
    stk_error *err;
    int indent;
} writer;

static const char *const spaces = "        ";

static stk_status put(const writer *w, const char *text)
{
    return stk_buffer_append(w->to, text, strlen(text), w->err);
}

/* In double quotes.  Brackets are counted by the reader wherever they stand, and YAML takes no control characters. */
static stk_status put_text(const writer *w, const char *text)
{
    STK_TRY(put(w, "\""));
    for (const uint8_t *at = (const uint8_t *)text; *at; at++) {
        const bool c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f; /* U+0080 to U+009F */
        if (c1) at++;
        if (c1 || *at < 0x20 || *at == 0x7f || strchr("\"\\[{", *at)) STK_TRY(stk_buffer_printf(w->to, w->err, "\\x%02x", *at));
        else STK_TRY(stk_buffer_append(w->to, at, 1, w->err));
    }
    return put(w, "\"");
}

/* Up to 15 decimals: values come from texts of no more digits. */
static stk_status put_decimal(const writer *w, double value)
{
    double power = 1;
    int decimals = 0;
    while (decimals < 15 && (double)(int64_t)(value * power + 0.5) / power != value) {
        power *= 10;
        decimals++;
    }
    const int64_t digits = (int64_t)(value * power + 0.5), whole = (int64_t)power;
    if (decimals == 0) return stk_buffer_printf(w->to, w->err, "%" PRId64, digits);
    return stk_buffer_printf(w->to, w->err, "%" PRId64 ".%0*" PRId64, digits / whole, decimals, digits % whole);
}

static stk_status put_number(const writer *w, int64_t value, const stk_option_row *row)
{
    const char *const word = row->shown.default_text;
    if (value == -1 && row->kind == STK_KIND_WORKERS) return put(w, "inline");
    if (value == 0 && *word && !isdigit((unsigned char)*word)) return put(w, word);
    return stk_buffer_printf(w->to, w->err, "%" PRId64, value);
}

static stk_status put_list(const writer *w, char *const *item, size_t count)
{
    STK_TRY(put(w, "["));
    for (size_t i = 0; i < count; i++) {
        if (i) STK_TRY(put(w, ", "));
        STK_TRY(put_text(w, item[i]));
    }
    return put(w, "]");
}

static stk_status put_map(const writer *w, const stk_string_map *map)
{
    STK_TRY(put(w, "{"));
    for (size_t i = 0; i < map->count; i++) {
        if (i) STK_TRY(put(w, ", "));
        STK_TRY(put_text(w, map->key[i]));
        STK_TRY(put(w, ": "));
        STK_TRY(put_text(w, map->value[i]));
    }
    return put(w, "}");
}

static stk_status put_schedule(const writer *w, const stk_schedule *s)
{
    STK_TRY(put(w, "["));
    for (size_t i = 0; i < s->count; i++)
        STK_TRY(stk_buffer_printf(w->to, w->err, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "", s->step[i], s->rows[i]));
    return put(w, "]");
}

/* ", KEY: " or "KEY: " inside braces, and a text.  NULL: nothing. */
static stk_status put_member(const writer *w, bool *first, const char *key, const char *value)
{
    if (!value) return STK_OK;
    STK_TRY(stk_buffer_printf(w->to, w->err, "%s%s: ", *first ? "" : ", ", key));
    *first = false;
    return put_text(w, value);
}

static stk_status put_role(const writer *w, bool *first, const char *name, const stk_template_role *role, bool is_assistant)
{
    if (!role->before && !role->after && !role->train_text && !role->train_after) return STK_OK;
    STK_TRY(stk_buffer_printf(w->to, w->err, "%s%s: {", *first ? "" : ", ", name));
    *first = false;
    bool inner = true;
    STK_TRY(put_member(w, &inner, "before", role->before));
    STK_TRY(put_member(w, &inner, "after", role->after));
    /* Both is what an assistant has that says nothing of it. */
    if (is_assistant && !(role->train_text && role->train_after)) {
        char *list[1] = {role->train_text ? (char *)"text" : role->after};
        STK_TRY(stk_buffer_printf(w->to, w->err, "%strain: ", inner ? "" : ", "));
        STK_TRY(put_list(w, list, role->train_text || role->train_after));
    }
    return put(w, "}");
}

static stk_status put_template(const writer *w, const stk_template_options *t)
{
    if (!t->declared) return put_text(w, t->name);
    bool first = true;
    STK_TRY(put(w, "{"));
    STK_TRY(put_role(w, &first, "system", &t->system, false));
    STK_TRY(put_role(w, &first, "user", &t->user, false));
    STK_TRY(put_role(w, &first, "assistant", &t->assistant, true));
    STK_TRY(put_role(w, &first, "tool", &t->tool, false));
    STK_TRY(put_member(w, &first, "image", t->image));
    STK_TRY(put_member(w, &first, "video", t->video));
    STK_TRY(put_member(w, &first, "default_system", t->default_system));
    return put(w, "}");
}

/* Whether the value is there, or is what stands there without a word. */
static bool is_given(const void *at, const stk_option_row *row)
{
    switch (row->kind) {
    case STK_KIND_INT:
    case STK_KIND_SIZE:
    case STK_KIND_SECONDS: return *(const int64_t *)at != 0 || row->shown.minimum <= 0;
    case STK_KIND_SCHEDULE: return *(const int64_t *)at != 0;
    case STK_KIND_WORKERS:
    case STK_KIND_BOOL:
    case STK_KIND_SHARE: return true;
    case STK_KIND_DECIMAL: return *(const double *)at != 0;
    case STK_KIND_STRING:
    case STK_KIND_CHOICE: return *(char *const *)at != NULL;
    case STK_KIND_LIST: return ((const stk_string_list *)at)->count != 0;
    case STK_KIND_MAP: return ((const stk_string_map *)at)->count != 0;
    case STK_KIND_TEMPLATE: return ((const stk_template_options *)at)->declared || ((const stk_template_options *)at)->name;
    case STK_KIND_GROUP: break;
    }
    return false;
}

static stk_status put_value(const writer *w, const stk_options *options, const void *at, const stk_option_row *row)
{
    switch (row->kind) {
    case STK_KIND_INT:
    case STK_KIND_SIZE:
    case STK_KIND_SECONDS:
    case STK_KIND_WORKERS: return put_number(w, *(const int64_t *)at, row);
    case STK_KIND_BOOL: return put(w, *(const bool *)at ? "true" : "false");
    case STK_KIND_STRING:
    case STK_KIND_CHOICE: return put_text(w, *(char *const *)at);
    case STK_KIND_LIST: return put_list(w, ((const stk_string_list *)at)->item, ((const stk_string_list *)at)->count);
    case STK_KIND_MAP: return put_map(w, at);
    case STK_KIND_SHARE:
    case STK_KIND_DECIMAL: return put_decimal(w, *(const double *)at);
    case STK_KIND_SCHEDULE:
        return options->batch_schedule.count ? put_schedule(w, &options->batch_schedule) : put_number(w, *(const int64_t *)at, row);
    case STK_KIND_TEMPLATE: return put_template(w, at);
    case STK_KIND_GROUP: break;
    }
    return STK_OK;
}

/* What a split says of itself when it has nothing of what the run has: only texts and lists can be taken away. */
static const char *nothing_of(const stk_option_row *row)
{
    return row->kind == STK_KIND_STRING ? "null" : row->kind == STK_KIND_LIST ? "[]" : row->kind == STK_KIND_MAP ? "{}" : NULL;
}

static stk_status put_option(const writer *w, const stk_options *options, const char *key, const void *base, size_t at_bytes,
                             const stk_option_row *row)
{
    const void *const at = (const uint8_t *)base + at_bytes;
    STK_TRY(stk_buffer_printf(w->to, w->err, "%.*s%s: ", w->indent, spaces, key));
    STK_TRY(is_given(at, row) ? put_value(w, options, at, row) : put(w, nothing_of(row)));
    return put(w, "\n");
}

static stk_status put_data(const writer *w, const stk_options *options)
{
    size_t count;
    const stk_option_row *const rows = stk_option_rows(&count);
    writer in = *w;
    in.indent += 4;
    STK_TRY(stk_buffer_printf(w->to, w->err, "%.*sdata:%s\n", w->indent, spaces, options->data_count ? "" : " []"));
    for (size_t i = 0; i < options->data_count; i++) {
        const stk_data_options *const data = &options->data[i];
        STK_TRY(stk_buffer_printf(w->to, w->err, "%.*s  -\n", w->indent, spaces));
        for (size_t k = 0; k < count; k++) {
            const stk_option_row *const row = &rows[k];
            if (strncmp(row->shown.name, "data[].", 7) == 0) {
                if (is_given((const uint8_t *)data + row->at_bytes, row))
                    STK_TRY(put_option(&in, options, row->shown.name + 7, data, row->at_bytes, row));
            } else if (row->shown.per_set && is_given((const uint8_t *)&data->set + row->set_at_bytes, row)) {
                STK_TRY(put_option(&in, options, row->shown.name, &data->set, row->set_at_bytes, row));
            }
        }
    }
    return STK_OK;
}

static stk_status put_options(const writer *w, const stk_options *options)
{
    size_t count;
    const stk_option_row *const rows = stk_option_rows(&count);
    const char *group = "";
    for (size_t i = 0; i < count; i++) {
        const char *const name = rows[i].shown.name, *const dot = strchr(name, '.');
        if (strcmp(name, "data") == 0) STK_TRY(put_data(w, options));
        if (rows[i].kind == STK_KIND_GROUP || strncmp(name, "data", 4) == 0 || strcmp(name, "run") == 0) continue;
        if (!is_given((const uint8_t *)options + rows[i].at_bytes, &rows[i]) && !nothing_of(&rows[i])) continue;
        writer in = *w;
        if (dot) {
            const size_t length = (size_t)(dot - name);
            if (strncmp(group, name, length + 1) != 0)
                STK_TRY(stk_buffer_printf(w->to, w->err, "%.*s%.*s:\n", w->indent, spaces, (int)length, name));
            group = name;
            in.indent += 2;
        }
        STK_TRY(put_option(&in, options, dot ? dot + 1 : name, options, rows[i].at_bytes, &rows[i]));
    }
    return STK_OK;
}

stk_status stk_options_write(const stk_options *options, stk_buffer *text, stk_error *err)
{
    writer w = {.to = text, .err = err};
    STK_TRY(put_options(&w, options));
    if (!options->eval) return STK_OK;
    STK_TRY(put(&w, "eval:\n"));
    w.indent = 2;
    return put_options(&w, options->eval);
}

stk_status stk_options_place(const stk_options *options, char *path, size_t capacity, stk_error *err)
{
    char folder[PATH_MAX], full[PATH_MAX];
    if (options->file) STK_TRY(stk_path_folder(folder, sizeof folder, options->file, err));
    if (!realpath(options->file ? folder : ".", full)) return stk_fail_errno(err, "cannot find the folder of the configuration");
    const char *const slash = options->file ? strrchr(options->file, '/') : NULL;
    return stk_path_join(path, capacity, full, slash ? slash + 1 : options->file ? options->file : "(options)", err);
}

/* The line at *at, without spaces in front; *at goes behind it. */
static stk_str take_line(const char **at, const char *end)
{
    const char *const newline = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL, *const stop = newline ? newline : end;
    const char *first = *at;
    while (first < stop && *first == ' ') first++;
    *at = newline ? newline + 1 : end;
    return (stk_str){first, (size_t)(stop - first)};
}

bool stk_options_text_difference(stk_str a, stk_str b, char line_of_a[96], char line_of_b[96])
{
    const char *at_a = a.data, *at_b = b.data, *const end_a = a.data + a.size_bytes, *const end_b = b.data + b.size_bytes;
    while (at_a < end_a || at_b < end_b) {
        const stk_str one = take_line(&at_a, end_a), other = take_line(&at_b, end_b);
        if (stk_str_equal(one, other)) continue;
        snprintf(line_of_a, 96, "%.*s", (int)(one.size_bytes < 95 ? one.size_bytes : 95), one.data);
        snprintf(line_of_b, 96, "%.*s", (int)(other.size_bytes < 95 ? other.size_bytes : 95), other.data);
        return true;
    }
    return false;
}

stk_status stk_cpus_parse(const char *text, cpu_set_t *set, stk_error *err)
{
    uint32_t *cpu, count;
    CPU_ZERO(set);
    STK_TRY(stk_numbers_read(&cpu, &count, stk_str_of(text), CPU_SETSIZE, "cpus", err));
    for (uint32_t i = 0; i < count; i++) CPU_SET(cpu[i], set);
    stk_free(cpu);
    return STK_OK;
}
