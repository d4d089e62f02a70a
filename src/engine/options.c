/* options.c - reading a configuration: YAML nodes to the values of stk_options, by the option table.
 *
 * A file and a single --set value go the same way: both are YAML documents, whose nodes are put at a path.
 * Aliases and repeated keys are refused, depth and number of nodes are bounded.  What the values mean
 * together is for stk_options_check and for open. */
#include <stoker/options.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <yaml.h>

#include "base/file.h"
#include "engine/option_table.h"

enum {
    FILE_BYTES_MAX = 4 << 20,
    NODES_MAX = 1000000,
    DATA_SETS_MAX = 4096,
    KEYS_MAX = 1000,
    BRACKETS_MAX = 100
};

typedef struct reader {
    stk_options *options;
    yaml_document_t *document;
    const char *file; /* NULL: a value of its own */
    stk_error *err;
} reader;

/* --- values --- */

static stk_status fail_at(const reader *r, const yaml_node_t *node, const char *format, ...) STK_PRINTF(3, 4);
static stk_status fail_at(const reader *r, const yaml_node_t *node, const char *format, ...)
{
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    const stk_status status = stk_fail(r->err, STK_ERR_OPTION, "%s", message);
    if (r->file) stk_error_file(r->err, r->file, node ? node->start_mark.line + 1 : 0);
    return status;
}

static stk_status forward_at(const reader *r, const yaml_node_t *node, stk_status status)
{
    if (status < 0 && r->file) stk_error_file(r->err, r->file, node->start_mark.line + 1);
    return status;
}

static bool is_scalar(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE;
}

static const char *text_of(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

/* "", "~" and "null", not quoted: as if the key were not there. */
static bool is_null(const yaml_node_t *node)
{
    if (!is_scalar(node) || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    const char *const text = text_of(node);
    return strcmp(text, "") == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static stk_status set_string(const reader *r, char **to, const yaml_node_t *node, const char *name)
{
    if (!is_scalar(node)) return fail_at(r, node, "%s: one text is expected", name);
    if (strlen(text_of(node)) != node->data.scalar.length)
        return fail_at(r, node, "%s: a NUL in the text", name);
    char *const copy = is_null(node) ? NULL : stk_strdup(STK_TAG_OPTIONS, text_of(node));
    if (!copy && !is_null(node)) return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    stk_free(*to);
    *to = copy;
    return STK_OK;
}

/* A number is read digit by digit: strtod() follows the locale of the host program, and takes hex, inf and
 * nan. */

/* Digits with an optional sign, behind them *end.  False: none, or more than 64 bits hold. */
static bool parse_int(const char *text, int64_t *value, const char **end)
{
    const bool negative = *text == '-';
    text += negative || *text == '+';
    if (!isdigit((unsigned char)*text)) return false;
    int64_t number = 0;
    for (; isdigit((unsigned char)*text); text++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_sub_overflow(number, *text - '0', &number))
            return false;
    if (!negative && number == INT64_MIN) return false;
    *value = negative ? number : -number;
    *end = text;
    return true;
}

/* 12, 12.5, .5: digits / 10^decimals.  Up to 15 digits, so that the quotient is the double nearest to the
 * text. */
static bool parse_decimal(const char *text, int64_t *digits, int *decimals, const char **end)
{
    bool point = false;
    int count = 0;
    *digits = *decimals = 0;
    for (; isdigit((unsigned char)*text) || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        if (++count > 15) return false;
        *digits = *digits * 10 + (*text - '0');
        *decimals += point;
    }
    *end = text;
    return count > 0;
}

static double power_of_ten(int exponent)
{
    double power = 1;
    while (exponent-- > 0) power *= 10;
    return power;
}

/* 4096, 64MB, 8GiB, 1.5 GiB; a whole number of bytes. */
static bool parse_size(const char *text, int64_t *value)
{
    static const struct {
        const char *unit;
        int64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1000},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", 1000000000000},
                 {"KiB", 1 << 10},
                 {"MiB", 1 << 20},
                 {"GiB", 1 << 30},
                 {"TiB", (int64_t)1 << 40}};
    const char *end;
    int64_t number;
    int decimals = 0;
    if (*text == '-' || *text == '+') return false;
    if (!parse_int(text, &number, &end) || *end == '.') {
        if (!parse_decimal(text, &number, &decimals, &end)) return false;
    }
    while (*end == ' ') end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) != 0) continue;
        if (decimals == 0) return !__builtin_mul_overflow(number, units[i].bytes, value);
        const double bytes = (double)number / power_of_ten(decimals) * (double)units[i].bytes;
        if (units[i].bytes == 1 || bytes >= 9e18) return false;
        *value = (int64_t)bytes;
        return true;
    }
    return false;
}

/* 300, "300 s", "5 min", "1 h". */
static bool parse_seconds(const char *text, int64_t *value)
{
    const char *end;
    int64_t number;
    if (!parse_int(text, &number, &end)) return false;
    while (*end == ' ') end++;
    const int64_t unit = strcmp(end, "") == 0 || strcmp(end, "s") == 0 ? 1
                         : strcmp(end, "min") == 0                     ? 60
                         : strcmp(end, "h") == 0                       ? 3600
                                                                       : 0;
    return unit && !__builtin_mul_overflow(number, unit, value);
}

static bool parse_number(const stk_option_row *row, const char *text, int64_t *value)
{
    const char *end = "";
    if (row->kind == STK_KIND_SIZE) return parse_size(text, value);
    if (row->kind == STK_KIND_SECONDS) return parse_seconds(text, value);
    return parse_int(text, value, &end) && *end == 0;
}

static const char *number_wanted(const stk_option_row *row)
{
    if (row->kind == STK_KIND_SIZE) return "a size such as 64MB or 8GiB";
    if (row->kind == STK_KIND_SECONDS) return "a time such as 300 s or 5 min";
    return row->kind == STK_KIND_WORKERS ? "a number, auto or inline" : "a whole number";
}

static stk_status set_number(const reader *r, int64_t *to, const yaml_node_t *node, const stk_option_row *row)
{
    const stk_option *const o = &row->shown;
    if (!is_scalar(node) && strcmp(o->name, "batch") == 0)
        return fail_at(r, node, "batch: a schedule over steps is not in this release: give one number");
    if (!is_scalar(node)) return fail_at(r, node, "%s: one value is expected", o->name);
    const char *const text = text_of(node), *const word = o->default_text;
    int64_t value = 0;
    /* The word that stands for "none given" (auto, all): 0 in the struct. */
    const bool has_word = *word && !isdigit((unsigned char)*word);
    if (has_word && (strcmp(text, word) == 0 || is_null(node))) {
        *to = 0;
        return STK_OK;
    }
    if (strcmp(text, "inline") == 0 && row->kind == STK_KIND_WORKERS) {
        *to = -1;
        return STK_OK;
    }
    if (!parse_number(row, text, &value) || strlen(text) != node->data.scalar.length)
        return fail_at(r, node, "%s: \"%.60s\" is not %s%s%s", o->name, text, number_wanted(row),
                       has_word && row->kind != STK_KIND_WORKERS ? ", or " : "",
                       has_word && row->kind != STK_KIND_WORKERS ? word : "");
    if (value < o->minimum || value > o->maximum)
        return fail_at(r, node, "%s: %" PRId64 " is out of range: %" PRId64 " to %" PRId64, o->name, value,
                       o->minimum, o->maximum);
    *to = value;
    return STK_OK;
}

static stk_status set_bool(const reader *r, bool *to, const yaml_node_t *node, const char *name)
{
    const char *const text = is_scalar(node) ? text_of(node) : "";
    const bool yes = strcmp(text, "true") == 0 || strcmp(text, "yes") == 0 || strcmp(text, "on") == 0;
    const bool no = strcmp(text, "false") == 0 || strcmp(text, "no") == 0 || strcmp(text, "off") == 0;
    if (!yes && !no) return fail_at(r, node, "%s: true or false is expected", name);
    *to = yes;
    return STK_OK;
}

static stk_status set_share(const reader *r, double *to, const yaml_node_t *node, const char *name)
{
    const char *end, *const text = is_scalar(node) ? text_of(node) : "";
    int64_t digits;
    int decimals;
    if (!*text || !parse_decimal(text, &digits, &decimals, &end) || *end ||
        (double)digits / power_of_ten(decimals) > 1)
        return fail_at(r, node, "%s: \"%.60s\" is not a share from 0 to 1, such as 0.01", name, text);
    *to = (double)digits / power_of_ten(decimals);
    return STK_OK;
}

static stk_status set_choice(const reader *r, char **to, const yaml_node_t *node, const stk_option *o)
{
    const char *const text = is_scalar(node) ? text_of(node) : "";
    if (stk_option_allows(o, text)) return set_string(r, to, node, o->name);
    if (stk_option_is_later(o->name, text))
        return fail_at(r, node, "%s: %s is not in this release: take one of %s", o->name, text, o->choices);
    return fail_at(r, node, "%s: \"%.60s\" is none of: %s", o->name, text, o->choices);
}

static void free_list(stk_string_list *list)
{
    for (size_t i = 0; i < list->count; i++) stk_free(list->item[i]);
    stk_free(list->item);
    *list = (stk_string_list){0};
}

/* One scalar, or a sequence of scalars. */
static stk_status set_list(const reader *r, stk_string_list *to, const yaml_node_t *node, const char *name)
{
    const bool one = is_scalar(node);
    if (!one && node->type != YAML_SEQUENCE_NODE)
        return fail_at(r, node, "%s: a text or a list of texts is expected", name);
    const size_t count =
        one ? !is_null(node) : (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    stk_string_list list = {.item = stk_alloc_array(STK_TAG_OPTIONS, count, sizeof(char *))};
    if (!list.item) return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    stk_status status = STK_OK;
    for (size_t i = 0; status == STK_OK && i < count; i++) {
        const yaml_node_t *const item =
            one ? node : yaml_document_get_node(r->document, node->data.sequence.items.start[i]);
        status = set_string(r, &list.item[list.count++], item, name);
        if (status == STK_OK && !list.item[i]) status = fail_at(r, item, "%s: an empty entry", name);
    }
    if (status < 0) {
        free_list(&list);
        return status;
    }
    free_list(to);
    *to = list;
    return STK_OK;
}

static void free_map(stk_string_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        stk_free(map->key[i]);
        stk_free(map->value[i]);
    }
    stk_free(map->key);
    stk_free(map->value);
    *map = (stk_string_map){0};
}

static stk_status check_keys(const reader *r, const yaml_node_t *map, const char *what)
{
    if (map->type != YAML_MAPPING_NODE) return fail_at(r, map, "%s: keys and values are expected", what);
    if (map->data.mapping.pairs.top - map->data.mapping.pairs.start > KEYS_MAX)
        return fail_at(r, map, "%s: more than %d keys", what, KEYS_MAX);
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        if (!is_scalar(key)) return fail_at(r, key, "%s: a key is a text", what);
        for (const yaml_node_pair_t *q = map->data.mapping.pairs.start; q < p; q++)
            if (strcmp(text_of(yaml_document_get_node(r->document, q->key)), text_of(key)) == 0)
                return fail_at(r, key, "%s: the key %.80s stands twice", what, text_of(key));
    }
    return STK_OK;
}

static stk_status set_map(const reader *r, stk_string_map *to, const yaml_node_t *node, const char *name)
{
    STK_TRY(check_keys(r, node, name));
    const size_t count = (size_t)(node->data.mapping.pairs.top - node->data.mapping.pairs.start);
    stk_string_map map = {.key = stk_alloc_array(STK_TAG_OPTIONS, count, sizeof(char *)),
                          .value = stk_alloc_array(STK_TAG_OPTIONS, count, sizeof(char *))};
    stk_status status =
        map.key && map.value ? STK_OK : stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    for (size_t i = 0; status == STK_OK && i < count; i++) {
        const yaml_node_pair_t *const p = node->data.mapping.pairs.start + i;
        const yaml_node_t *const value = yaml_document_get_node(r->document, p->value);
        map.count = i + 1;
        status = set_string(r, &map.key[i], yaml_document_get_node(r->document, p->key), name);
        if (status == STK_OK) status = set_string(r, &map.value[i], value, name);
        if (status == STK_OK && (!map.key[i] || !map.value[i]))
            status = fail_at(r, value, "%s: an empty name", name);
    }
    if (status < 0) {
        free_map(&map);
        return status;
    }
    free_map(to);
    *to = map;
    return STK_OK;
}

/* --- the turn format --- */

static void free_template(stk_template_options *t)
{
    stk_template_role *const roles[] = {&t->system, &t->user, &t->assistant, &t->tool};
    for (size_t i = 0; i < 4; i++) {
        stk_free(roles[i]->before);
        stk_free(roles[i]->after);
    }
    stk_free(t->name);
    stk_free(t->image);
    stk_free(t->video);
    stk_free(t->default_system);
    *t = (stk_template_options){0};
}

/* train: [text, "<|im_end|>\n"]: the answer, and what stands behind it. */
static stk_status set_train(const reader *r, stk_template_role *role, const yaml_node_t *node)
{
    stk_string_list list = {0};
    STK_TRY(set_list(r, &list, node, "train"));
    stk_status status = STK_OK;
    role->train_text = role->train_after = false;
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.item[i], "text") == 0)
            role->train_text = true;
        else if (role->after && strcmp(list.item[i], role->after) == 0)
            role->train_after = true;
        else
            status =
                fail_at(r, node, "template: train lists `text` and the assistant's `after`, not \"%.60s\"",
                        list.item[i]);
    }
    free_list(&list);
    return status;
}

static stk_status set_role(const reader *r, stk_template_role *role, const yaml_node_t *node,
                           const char *name, bool is_assistant)
{
    STK_TRY(check_keys(r, node, name));
    const yaml_node_t *train = NULL;
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key),
                                 *const value = yaml_document_get_node(r->document, p->value);
        if (strcmp(text_of(key), "before") == 0)
            STK_TRY(set_string(r, &role->before, value, "before"));
        else if (strcmp(text_of(key), "after") == 0)
            STK_TRY(set_string(r, &role->after, value, "after"));
        else if (strcmp(text_of(key), "train") == 0 && is_assistant)
            train = value;
        else
            return fail_at(r, key, "template: a turn has the keys before, after%s, not %.80s",
                           is_assistant ? " and train" : "", text_of(key));
    }
    role->train_text = role->train_after = is_assistant;
    return train ? set_train(r, role, train) : STK_OK;
}

static stk_status fill_template(const reader *r, stk_template_options *t, const yaml_node_t *node)
{
    if (is_scalar(node)) return set_string(r, &t->name, node, "template");
    STK_TRY(check_keys(r, node, "template"));
    t->declared = true;
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key),
                                 *const value = yaml_document_get_node(r->document, p->value);
        const char *const name = text_of(key);
        stk_status status;
        if (strcmp(name, "system") == 0)
            status = set_role(r, &t->system, value, name, false);
        else if (strcmp(name, "user") == 0)
            status = set_role(r, &t->user, value, name, false);
        else if (strcmp(name, "assistant") == 0)
            status = set_role(r, &t->assistant, value, name, true);
        else if (strcmp(name, "tool") == 0)
            status = set_role(r, &t->tool, value, name, false);
        else if (strcmp(name, "image") == 0)
            status = set_string(r, &t->image, value, name);
        else if (strcmp(name, "video") == 0)
            status = set_string(r, &t->video, value, name);
        else if (strcmp(name, "default_system") == 0)
            status = set_string(r, &t->default_system, value, name);
        else
            status = fail_at(r, key,
                             "template: a turn format has system, user, assistant, tool, image, video and "
                             "default_system, not %.80s",
                             name);
        STK_TRY(status);
    }
    return STK_OK;
}

static stk_status set_template(const reader *r, stk_template_options *to, const yaml_node_t *node)
{
    stk_template_options made = {0};
    const stk_status status = fill_template(r, &made, node);
    if (status < 0) {
        free_template(&made);
        return status;
    }
    free_template(to);
    *to = made;
    return STK_OK;
}

/* --- placing values --- */

static stk_status set_value(const reader *r, void *base, size_t at_bytes, const stk_option_row *row,
                            const yaml_node_t *node)
{
    void *const to = (uint8_t *)base + at_bytes;
    switch (row->kind) {
    case STK_KIND_INT:
    case STK_KIND_SIZE:
    case STK_KIND_SECONDS:
    case STK_KIND_WORKERS: return set_number(r, to, node, row);
    case STK_KIND_BOOL: return set_bool(r, to, node, row->shown.name);
    case STK_KIND_STRING: return set_string(r, to, node, row->shown.name);
    case STK_KIND_CHOICE: return set_choice(r, to, node, &row->shown);
    case STK_KIND_LIST: return set_list(r, to, node, row->shown.name);
    case STK_KIND_MAP: return set_map(r, to, node, row->shown.name);
    case STK_KIND_SHARE: return set_share(r, to, node, row->shown.name);
    case STK_KIND_TEMPLATE: return set_template(r, to, node);
    case STK_KIND_GROUP: break;
    }
    return fail_at(r, node, "%s: not a value", row->shown.name);
}

/* A key of a data set: its own, or one that it may set for itself. */
static stk_status set_in_data(const reader *r, stk_data_options *data, const yaml_node_t *at,
                              const char *name, const yaml_node_t *value)
{
    char full[128];
    snprintf(full, sizeof full, "data[].%.100s", name);
    const stk_option_row *row = stk_option_find(full);
    if (row) return set_value(r, data, row->at_bytes, row, value);
    row = stk_option_find(name);
    if (row && row->shown.per_set) return set_value(r, &data->set, row->set_at_bytes, row, value);
    if (row) return fail_at(r, at, "%s is an option of the whole run, not of a data set", name);
    return forward_at(r, at, stk_option_unknown("data[].", name, r->err));
}

static void free_set(stk_set_options *set)
{
    stk_free(set->orientation);
    stk_free(set->labels);
    stk_free(set->control_tokens);
    free_list(&set->allow_control_tokens);
    stk_free(set->tag_space);
    stk_free(set->overlong);
    stk_free(set->alpha);
    free_template(&set->chat_template);
    *set = (stk_set_options){0};
}

static void free_data(stk_data_options *data)
{
    stk_free(data->name);
    free_list(&data->path);
    stk_free(data->format);
    stk_free(data->media_root);
    free_map(&data->columns);
    free_map(&data->roles);
    stk_free(data->system);
    free_set(&data->set);
    *data = (stk_data_options){0};
}

/* The first file's name without folder and ending. */
static stk_status default_name(const reader *r, stk_data_options *data)
{
    if (data->name || data->path.count == 0) return STK_OK;
    const char *const slash = strrchr(data->path.item[0], '/');
    const char *const name = slash ? slash + 1 : data->path.item[0];
    const char *const dot = strrchr(name, '.');
    data->name = stk_strndup(STK_TAG_OPTIONS,
                             (stk_str){name, dot && dot != name ? (size_t)(dot - name) : strlen(name)});
    return data->name ? STK_OK : stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
}

static stk_status fill_data(const reader *r, stk_data_options *data, const yaml_node_t *node)
{
    STK_TRY(check_keys(r, node, "data"));
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        STK_TRY(set_in_data(r, data, key, text_of(key), yaml_document_get_node(r->document, p->value)));
    }
    return default_name(r, data);
}

static stk_status set_data(const reader *r, const yaml_node_t *node)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return fail_at(r, node, "data: a list of data sets is expected: `data:` and then `- path: ...`");
    const size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count > DATA_SETS_MAX) return fail_at(r, node, "data: at most %d data sets", DATA_SETS_MAX);
    for (size_t i = 0; i < r->options->data_count; i++) free_data(&r->options->data[i]);
    stk_free(r->options->data);
    r->options->data_count = 0;
    r->options->data = stk_alloc_array(STK_TAG_OPTIONS, count, sizeof *r->options->data);
    if (!r->options->data) return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    for (size_t i = 0; i < count; i++) {
        r->options->data_count = i + 1;
        STK_TRY(fill_data(r, &r->options->data[i],
                          yaml_document_get_node(r->document, node->data.sequence.items.start[i])));
    }
    return STK_OK;
}

/* `errors` and `limits`: a mapping of options of that prefix. */
static stk_status set_group(const reader *r, const char *prefix, const yaml_node_t *node)
{
    STK_TRY(check_keys(r, node, prefix));
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        char full[128], dotted[32];
        snprintf(dotted, sizeof dotted, "%s.", prefix);
        snprintf(full, sizeof full, "%s%.80s", dotted, text_of(key));
        const stk_option_row *const row = stk_option_find(full);
        if (!row) return forward_at(r, key, stk_option_unknown(dotted, text_of(key), r->err));
        STK_TRY(set_value(r, r->options, row->at_bytes, row, yaml_document_get_node(r->document, p->value)));
    }
    return STK_OK;
}

static stk_status set_top(const reader *r, const yaml_node_t *at, const char *name, const yaml_node_t *value)
{
    if (strcmp(name, "data") == 0) return set_data(r, value);
    if (strcmp(name, "errors") == 0 || strcmp(name, "limits") == 0) return set_group(r, name, value);
    const stk_option_row *const row = strchr(name, '[') || strchr(name, '.') ? NULL : stk_option_find(name);
    if (!row) return forward_at(r, at, stk_option_unknown("", name, r->err));
    return set_value(r, r->options, row->at_bytes, row, value);
}

/* --- documents --- */

/* The library resolves an alias to its anchor's node: a document of n nodes cannot be visited more often than
 * it is written, unless aliases are refused here. */
static stk_status refuse_aliases(const reader *r)
{
    const size_t count = (size_t)(r->document->nodes.top - r->document->nodes.start);
    if (count > NODES_MAX) return fail_at(r, NULL, "the configuration has more than %d values", NODES_MAX);
    uint8_t *const used = stk_alloc(STK_TAG_OPTIONS, count + 1);
    if (!used) return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    stk_status status = STK_OK;
    for (size_t i = 0; status == STK_OK && i < count; i++) {
        const yaml_node_t *const node = r->document->nodes.start + i;
        if (node->type == YAML_SEQUENCE_NODE)
            for (const yaml_node_item_t *item = node->data.sequence.items.start;
                 item < node->data.sequence.items.top; item++)
                if (used[*item]++)
                    status = fail_at(r, node, "aliases (*name) are not supported: write the value out");
        if (node->type == YAML_MAPPING_NODE)
            for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
                 p++)
                if (used[p->key]++ || used[p->value]++)
                    status = fail_at(r, node, "aliases (*name) are not supported: write the value out");
    }
    stk_free(used);
    return status;
}

static stk_status fail_yaml(const reader *r, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: the YAML parser");
    /* "*.jsonl" and "@x" are marks of YAML; people mean a text. */
    const bool quote = (parser->context && strstr(parser->context, "alias")) ||
                       (parser->problem && strstr(parser->problem, "cannot start any token"));
    const stk_status status = stk_fail(r->err, STK_ERR_OPTION, "not valid YAML: %s%s%s%s",
                                       parser->problem ? parser->problem : "unreadable",
                                       parser->context ? ", " : "", parser->context ? parser->context : "",
                                       quote ? ": a text that starts with a sign wants quotes" : "");
    if (r->file) stk_error_file(r->err, r->file, parser->problem_mark.line + 1);
    return status;
}

/* A second document would be read by nobody. */
static stk_status expect_end(const reader *r, yaml_parser_t *parser)
{
    yaml_document_t more;
    if (!yaml_parser_load(parser, &more)) return fail_yaml(r, parser);
    const yaml_node_t *const root = yaml_document_get_root_node(&more);
    const stk_status status =
        root ? fail_at(r, root, "a second document starts here: a configuration is one") : STK_OK;
    yaml_document_delete(&more);
    return status;
}

/* The parser looks at every open bracket for every token: thousands of them would take it hours.  Brackets in
 * quotes count too, which no text that people write comes near. */
static bool is_too_deep(const char *text, size_t size_bytes)
{
    int open = 0;
    for (size_t i = 0; i < size_bytes && open <= BRACKETS_MAX; i++) {
        if (text[i] == '[' || text[i] == '{')
            open++;
        else if ((text[i] == ']' || text[i] == '}') && open > 0)
            open--;
    }
    return open > BRACKETS_MAX;
}

/* Parse text as one document and hand its root to `use`. */
static stk_status with_document(reader *r, const char *text, size_t size_bytes, const char *name,
                                stk_status (*use)(const reader *, const yaml_node_t *, const char *))
{
    yaml_parser_t parser;
    yaml_document_t document;
    if (is_too_deep(text, size_bytes))
        return fail_at(r, NULL, "more than %d brackets are open: no configuration nests so deeply",
                       BRACKETS_MAX);
    if (!yaml_parser_initialize(&parser))
        return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: the YAML parser");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size_bytes);
    if (!yaml_parser_load(&parser, &document)) {
        const stk_status status = fail_yaml(r, &parser);
        yaml_parser_delete(&parser);
        return status;
    }
    r->document = &document;
    const yaml_node_t *const root = yaml_document_get_root_node(&document);
    stk_status status =
        root ? refuse_aliases(r) : fail_at(r, NULL, "the configuration is empty: `stoker init` writes one");
    if (status == STK_OK) status = expect_end(r, &parser);
    if (status == STK_OK) status = use(r, root, name);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}

static stk_status use_file(const reader *r, const yaml_node_t *root, const char *name)
{
    (void)name;
    STK_TRY(check_keys(r, root, "the configuration"));
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        STK_TRY(set_top(r, key, text_of(key), yaml_document_get_node(r->document, p->value)));
    }
    return STK_OK;
}

static stk_status defaults(stk_options *options, stk_error *err)
{
    size_t count;
    const stk_option_row *const rows = stk_option_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(rows[i].shown.name, "data", 4) == 0 || !rows[i].shown.default_text[0]) continue;
        STK_TRY(stk_options_set(options, rows[i].shown.name, rows[i].shown.default_text, err));
    }
    return STK_OK;
}

stk_status stk_options_defaults(stk_options *options, stk_error *err)
{
    stk_options made = STK_OPTIONS_INIT;
    const stk_status status = defaults(&made, err);
    if (status < 0)
        stk_options_deinit(&made);
    else
        *options = made;
    return status;
}

stk_status stk_options_read(stk_options *options, const char *path, stk_error *err)
{
    stk_options made = STK_OPTIONS_INIT;
    char *text = NULL;
    size_t size_bytes = 0;
    stk_status status = defaults(&made, err);
    if (status == STK_OK)
        status = stk_file_read(&text, &size_bytes, path, FILE_BYTES_MAX, STK_TAG_OPTIONS, err);
    reader r = {.options = &made, .file = path, .err = err};
    if (status == STK_OK) status = with_document(&r, text, size_bytes, NULL, use_file);
    stk_free(text);
    if (status == STK_OK && !(made.file = stk_strdup(STK_TAG_OPTIONS, path)))
        status = stk_fail(err, STK_ERR_NOMEM, "out of memory: options");
    if (status < 0) {
        stk_error_stage(err, STK_STAGE_OPTIONS);
        stk_options_deinit(&made);
        return status;
    }
    *options = made;
    return STK_OK;
}

/* The data set that "docs" or "0" names. */
static stk_data_options *find_data(const stk_options *options, stk_str set)
{
    for (size_t i = 0; i < options->data_count; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        if ((options->data[i].name && stk_str_is(set, options->data[i].name)) || stk_str_is(set, number))
            return &options->data[i];
    }
    return NULL;
}

/* "batch", "limits.json_depth", "data.docs.labels", "data.0.labels". */
static stk_status use_value(const reader *r, const yaml_node_t *root, const char *name)
{
    if (strncmp(name, "data.", 5) != 0) {
        const stk_option_row *const row = strchr(name, '[') ? NULL : stk_option_find(name);
        return row && strchr(name, '.') ? set_value(r, r->options, row->at_bytes, row, root)
                                        : set_top(r, root, name, root);
    }
    const char *const set = name + 5, *const dot = strrchr(set, '.');
    if (!dot) return fail_at(r, root, "%.80s: write data.SET.OPTION", name);
    stk_data_options *const data = find_data(r->options, (stk_str){set, (size_t)(dot - set)});
    if (!data) return fail_at(r, root, "%.80s: no data set has this name or number", name);
    return set_in_data(r, data, root, dot + 1, root);
}

/* Whether the value is a text as it stands: "*.jsonl" and "Be kind: ..." are no YAML that people mean on a
 * command line. Quotes, and lists in brackets, are YAML. */
static bool is_plain_text(const char *name, const char *value)
{
    char full[128];
    const char *const dot = strncmp(name, "data.", 5) == 0 ? strrchr(name + 5, '.') : NULL;
    if (dot) snprintf(full, sizeof full, "data[].%.100s", dot + 1);
    const stk_option_row *row = stk_option_find(dot ? full : name);
    if (!row && dot) row = stk_option_find(dot + 1);
    if (!row || *value == '"' || *value == '\'' || strcmp(value, "null") == 0 || strcmp(value, "~") == 0)
        return false;
    return row->kind == STK_KIND_STRING || row->kind == STK_KIND_CHOICE ||
           (row->kind == STK_KIND_LIST && *value != '[');
}

/* As a single-quoted scalar; the caller frees it. */
static char *quote_text(const char *value)
{
    size_t size = strlen(value) + 3;
    for (const char *at = value; *at; at++) size += *at == '\'';
    char *const quoted = stk_alloc(STK_TAG_OPTIONS, size), *to = quoted;
    if (!quoted) return NULL;
    *to++ = '\'';
    for (const char *at = value; *at; at++) {
        if (*at == '\'') *to++ = '\'';
        *to++ = *at;
    }
    *to = '\'';
    return quoted;
}

stk_status stk_options_set(stk_options *options, const char *name, const char *value, stk_error *err)
{
    reader r = {.options = options, .err = err};
    /* An empty value is an empty text, not an empty document. */
    char *const text =
        !value[0] || is_plain_text(name, value) ? quote_text(value) : stk_strdup(STK_TAG_OPTIONS, value);
    const stk_status status = text ? with_document(&r, text, strlen(text), name, use_value)
                                   : stk_fail(err, STK_ERR_NOMEM, "out of memory: options");
    stk_free(text);
    if (status < 0) stk_error_stage(err, STK_STAGE_OPTIONS);
    return status;
}

void stk_options_deinit(stk_options *options)
{
    for (size_t i = 0; i < options->data_count; i++) free_data(&options->data[i]);
    stk_free(options->data);
    free_list(&options->allow);
    free_set(&options->set);
    char *const strings[] = {options->file,      options->model,      options->layout,  options->uneven,
                             options->targets,   options->pixels,     options->profile, options->index,
                             options->index_dir, options->dead_letter};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) stk_free(strings[i]);
    *options = (stk_options)STK_OPTIONS_INIT;
}

/* --- checks: of values that may have been put into the struct by hand --- */

static stk_status check_choice(const stk_option *o, const char *value, bool may_be_unset, stk_error *err)
{
    if (!value && may_be_unset) return STK_OK;
    if (!value)
        return stk_fail(err, STK_ERR_OPTION,
                        "%s is not set: start from stk_options_defaults() or a configuration", o->name);
    if (stk_option_allows(o, value)) return STK_OK;
    return stk_fail(err, STK_ERR_OPTION, "%s: \"%.60s\" is none of: %s", o->name, value, o->choices);
}

static stk_status check_number(const stk_option_row *row, int64_t value, bool may_be_unset, stk_error *err)
{
    const stk_option *const o = &row->shown;
    const bool is_set = value != 0 && !(value == -1 && row->kind == STK_KIND_WORKERS);
    const bool has_word = o->default_text[0] && !isdigit((unsigned char)o->default_text[0]);
    if (!is_set && (may_be_unset || has_word || o->minimum <= 0 || row->kind == STK_KIND_WORKERS))
        return STK_OK;
    if (!is_set)
        return stk_fail(err, STK_ERR_OPTION,
                        "%s is not set: start from stk_options_defaults() or a configuration", o->name);
    if (value >= o->minimum && value <= o->maximum) return STK_OK;
    return stk_fail(err, STK_ERR_OPTION, "%s: %" PRId64 " is out of range: %" PRId64 " to %" PRId64, o->name,
                    value, o->minimum, o->maximum);
}

static stk_status check_share(const stk_option *o, double value, stk_error *err)
{
    if (value >= 0 && value <= 1) return STK_OK;
    return stk_fail(err, STK_ERR_OPTION, "%s: a share from 0 to 1 is expected", o->name);
}

/* One value against its row; unset: inherited, or checked elsewhere. */
static stk_status check_value(const void *base, size_t at_bytes, const stk_option_row *row, bool may_be_unset,
                              stk_error *err)
{
    const void *const at = (const uint8_t *)base + at_bytes;
    switch (row->kind) {
    case STK_KIND_INT:
    case STK_KIND_SIZE:
    case STK_KIND_SECONDS:
    case STK_KIND_WORKERS: return check_number(row, *(const int64_t *)at, may_be_unset, err);
    case STK_KIND_CHOICE: return check_choice(&row->shown, *(char *const *)at, may_be_unset, err);
    case STK_KIND_SHARE: return check_share(&row->shown, *(const double *)at, err);
    case STK_KIND_BOOL:
    case STK_KIND_STRING:
    case STK_KIND_LIST:
    case STK_KIND_MAP:
    case STK_KIND_TEMPLATE:
    case STK_KIND_GROUP: break;
    }
    return STK_OK;
}

/* Names stand in ids ("docs/33471", "docs#118") and in the names of index files. */
static bool is_good_name(const char *name)
{
    const size_t length = strlen(name);
    if (length == 0 || length > 60 || name[0] == '.') return false;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '/' || name[i] == '#')
            return false;
    return true;
}

static stk_status check_set(const stk_options *options, size_t at, stk_error *err)
{
    const stk_data_options *const data = &options->data[at];
    if (data->path.count == 0)
        return stk_fail(err, STK_ERR_OPTION, "data set %zu has no path: name its manifest", at + 1);
    if (!data->name || !is_good_name(data->name))
        return stk_fail(err, STK_ERR_OPTION,
                        "data set %zu: \"%.80s\" cannot be its name (1 to 60 bytes, no /, # or dot in "
                        "front): set its name",
                        at + 1, data->name ? data->name : "");
    for (size_t i = 0; i < at; i++)
        if (strcmp(options->data[i].name, data->name) == 0)
            return stk_fail(err, STK_ERR_OPTION, "two data sets are called %.80s: give them names",
                            data->name);
    size_t count;
    const stk_option_row *const rows = stk_option_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].shown.per_set)
            STK_TRY(check_value(&data->set, rows[i].set_at_bytes, &rows[i], true, err));
        else if (strncmp(rows[i].shown.name, "data[].", 7) == 0)
            STK_TRY(check_value(data, rows[i].at_bytes, &rows[i], true, err));
    }
    const int64_t low = data->set.min_pixels ? data->set.min_pixels : options->set.min_pixels;
    const int64_t high = data->set.max_pixels ? data->set.max_pixels : options->set.max_pixels;
    if (low && high && low > high)
        return stk_fail(err, STK_ERR_OPTION, "%s: min_pixels %" PRId64 " is above max_pixels %" PRId64,
                        data->name, low, high);
    return STK_OK;
}

static stk_status check_run(const stk_options *options, stk_error *err)
{
    if (!options->model) return stk_fail(err, STK_ERR_OPTION, "model is not set: name the checkpoint folder");
    if (options->data_count == 0)
        return stk_fail(err, STK_ERR_OPTION, "data is not set: name at least one manifest");
    if (options->batch == 0)
        return stk_fail(err, STK_ERR_OPTION, "batch is not set: the rows of a step, over all ranks");
    size_t count;
    const stk_option_row *const rows = stk_option_rows(&count);
    for (size_t i = 0; i < count; i++)
        if (strncmp(rows[i].shown.name, "data", 4) != 0)
            STK_TRY(check_value(options, rows[i].at_bytes, &rows[i], false, err));
    if (options->micro_batch > options->batch)
        return stk_fail(err, STK_ERR_OPTION, "micro_batch: %" PRId64 " is more than batch: %" PRId64,
                        options->micro_batch, options->batch);
    if (options->pad_to && strcmp(options->layout, "padded") != 0)
        return stk_fail(err, STK_ERR_OPTION, "pad_to goes with layout: padded; with flat use pad_multiple");
    if (options->pad_to % options->pad_multiple)
        return stk_fail(err, STK_ERR_OPTION, "pad_to: %" PRId64 " is no multiple of pad_multiple: %" PRId64,
                        options->pad_to, options->pad_multiple);
    for (size_t i = 0; i < options->data_count; i++) STK_TRY(check_set(options, i, err));
    return STK_OK;
}

stk_status stk_options_check(const stk_options *options, stk_error *err)
{
    if (options->size_bytes != sizeof *options)
        return stk_fail(
            err, STK_ERR_USAGE,
            "stk_options has %zu bytes, and this release knows %zu: start from STK_OPTIONS_INIT, and "
            "compile with the headers of this release",
            options->size_bytes, sizeof *options);
    const stk_status status = check_run(options, err);
    if (status < 0) {
        if (options->file) stk_error_file(err, options->file, 0);
        stk_error_stage(err, STK_STAGE_OPTIONS);
    }
    return status;
}
