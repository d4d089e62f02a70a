/* option_values.c - texts of a configuration to numbers, choices, lists, maps and turn formats. */
#include "engine/option_values.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>

#include "base/memory.h"

enum { KEYS_MAX = 1000, SCHEDULE_MAX = 10000 };

/* --- values --- */

stk_status stk_yaml_fail(const stk_yaml_reader *r, const yaml_node_t *node, const char *format, ...)
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

stk_status stk_yaml_forward(const stk_yaml_reader *r, const yaml_node_t *node, stk_status status)
{
    if (status < 0 && r->file) stk_error_file(r->err, r->file, node->start_mark.line + 1);
    return status;
}

static bool is_scalar(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE;
}

const char *stk_yaml_text(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

/* "", "~" and "null", not quoted: as if the key were not there. */
static bool is_null(const yaml_node_t *node)
{
    if (!is_scalar(node) || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    const char *const text = stk_yaml_text(node);
    return strcmp(text, "") == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static stk_status set_string(const stk_yaml_reader *r, char **to, const yaml_node_t *node, const char *name)
{
    if (!is_scalar(node)) return stk_yaml_fail(r, node, "%s: one text is expected", name);
    if (strlen(stk_yaml_text(node)) != node->data.scalar.length)
        return stk_yaml_fail(r, node, "%s: a NUL in the text", name);
    char *const copy = is_null(node) ? NULL : stk_strdup(STK_TAG_OPTIONS, stk_yaml_text(node));
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

static stk_status set_number(const stk_yaml_reader *r, int64_t *to, const yaml_node_t *node,
                             const stk_option_row *row)
{
    const stk_option *const o = &row->shown;
    if (!is_scalar(node)) return stk_yaml_fail(r, node, "%s: one value is expected", o->name);
    const char *const text = stk_yaml_text(node), *const word = o->default_text;
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
        return stk_yaml_fail(r, node, "%s: \"%.60s\" is not %s%s%s", o->name, text, number_wanted(row),
                             has_word && row->kind != STK_KIND_WORKERS ? ", or " : "",
                             has_word && row->kind != STK_KIND_WORKERS ? word : "");
    if (value < o->minimum || value > o->maximum)
        return stk_yaml_fail(r, node, "%s: %" PRId64 " is out of range: %" PRId64 " to %" PRId64, o->name,
                             value, o->minimum, o->maximum);
    *to = value;
    return STK_OK;
}

static stk_status set_bool(const stk_yaml_reader *r, bool *to, const yaml_node_t *node, const char *name)
{
    const char *const text = is_scalar(node) ? stk_yaml_text(node) : "";
    const bool yes = strcmp(text, "true") == 0 || strcmp(text, "yes") == 0 || strcmp(text, "on") == 0;
    const bool no = strcmp(text, "false") == 0 || strcmp(text, "no") == 0 || strcmp(text, "off") == 0;
    if (!yes && !no) return stk_yaml_fail(r, node, "%s: true or false is expected", name);
    *to = yes;
    return STK_OK;
}

static stk_status set_share(const stk_yaml_reader *r, double *to, const yaml_node_t *node, const char *name)
{
    const char *end, *const text = is_scalar(node) ? stk_yaml_text(node) : "";
    int64_t digits;
    int decimals;
    if (!*text || !parse_decimal(text, &digits, &decimals, &end) || *end ||
        (double)digits / power_of_ten(decimals) > 1)
        return stk_yaml_fail(r, node, "%s: \"%.60s\" is not a share from 0 to 1, such as 0.01", name, text);
    *to = (double)digits / power_of_ten(decimals);
    return STK_OK;
}

/* A plain number such as 1.5. */
static stk_status set_decimal(const stk_yaml_reader *r, double *to, const yaml_node_t *node, const stk_option *o)
{
    const char *end, *const text = is_scalar(node) ? stk_yaml_text(node) : "";
    int64_t digits;
    int decimals;
    if (!*text || !parse_decimal(text, &digits, &decimals, &end) || *end || digits <= 0 || decimals > 6 ||
        (double)digits / power_of_ten(decimals) > (double)o->maximum)
        return stk_yaml_fail(r, node, "%s: \"%.60s\" is not a number above 0, up to %" PRId64 ", of at most six decimals", o->name,
                             text, o->maximum);
    *to = (double)digits / power_of_ten(decimals);
    return STK_OK;
}

void stk_schedule_free(stk_schedule *schedule)
{
    stk_free(schedule->step);
    stk_free(schedule->rows);
    *schedule = (stk_schedule){0};
}

/* One [step, number] of a schedule. */
static stk_status read_piece(const stk_yaml_reader *r, stk_schedule *s, const yaml_node_t *node, const stk_option_row *row)
{
    static const char wanted[] = "batch: a schedule is a list of [step, rows], such as [[0, 64], [1000, 128]]";
    if (node->type != YAML_SEQUENCE_NODE || node->data.sequence.items.top - node->data.sequence.items.start != 2)
        return stk_yaml_fail(r, node, "%s", wanted);
    const yaml_node_t *const step = yaml_document_get_node(r->document, node->data.sequence.items.start[0]);
    const char *end = "";
    int64_t *const at = &s->step[s->count];
    if (!is_scalar(step) || !parse_int(stk_yaml_text(step), at, &end) || *end || *at < 0) return stk_yaml_fail(r, node, "%s", wanted);
    if (s->count == 0 ? *at != 0 : *at <= at[-1])
        return stk_yaml_fail(r, step, "batch: the steps of a schedule start at 0 and rise");
    STK_TRY(set_number(r, &s->rows[s->count], yaml_document_get_node(r->document, node->data.sequence.items.start[1]), row));
    s->count++;
    return STK_OK;
}

static stk_status set_schedule(const stk_yaml_reader *r, int64_t *to, const yaml_node_t *node, const stk_option_row *row)
{
    stk_schedule *const own = &r->options->batch_schedule;
    if (is_scalar(node)) {
        STK_TRY(set_number(r, to, node, row));
        stk_schedule_free(own);
        return STK_OK;
    }
    if (node->type != YAML_SEQUENCE_NODE || node->data.sequence.items.top == node->data.sequence.items.start)
        return stk_yaml_fail(r, node, "batch: a number, or a schedule such as [[0, 64], [1000, 128]]");
    const size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count > SCHEDULE_MAX) return stk_yaml_fail(r, node, "batch: more than %d entries", SCHEDULE_MAX);
    stk_schedule s = {.step = stk_alloc_array(STK_TAG_OPTIONS, count, sizeof *s.step),
                      .rows = stk_alloc_array(STK_TAG_OPTIONS, count, sizeof *s.rows)};
    stk_status status = s.step && s.rows ? STK_OK : stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    for (size_t i = 0; status == STK_OK && i < count; i++)
        status = read_piece(r, &s, yaml_document_get_node(r->document, node->data.sequence.items.start[i]), row);
    if (status < 0) {
        stk_schedule_free(&s);
        return status;
    }
    stk_schedule_free(own);
    *own = s;
    *to = s.rows[0];
    return STK_OK;
}

static stk_status set_choice(const stk_yaml_reader *r, char **to, const yaml_node_t *node,
                             const stk_option *o)
{
    const char *const text = is_scalar(node) ? stk_yaml_text(node) : "";
    if (stk_option_allows(o, text)) return set_string(r, to, node, o->name);
    return stk_yaml_fail(r, node, "%s: \"%.60s\" is none of: %s", o->name, text, o->choices);
}

void stk_string_list_free(stk_string_list *list)
{
    for (size_t i = 0; i < list->count; i++) stk_free(list->item[i]);
    stk_free(list->item);
    *list = (stk_string_list){0};
}

/* One scalar, or a sequence of scalars. */
static stk_status set_list(const stk_yaml_reader *r, stk_string_list *to, const yaml_node_t *node,
                           const char *name)
{
    const bool one = is_scalar(node);
    if (!one && node->type != YAML_SEQUENCE_NODE)
        return stk_yaml_fail(r, node, "%s: a text or a list of texts is expected", name);
    const size_t count =
        one ? !is_null(node) : (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    stk_string_list list = {.item = stk_alloc_array(STK_TAG_OPTIONS, count, sizeof(char *))};
    if (!list.item) return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    stk_status status = STK_OK;
    for (size_t i = 0; status == STK_OK && i < count; i++) {
        const yaml_node_t *const item =
            one ? node : yaml_document_get_node(r->document, node->data.sequence.items.start[i]);
        status = set_string(r, &list.item[list.count++], item, name);
        if (status == STK_OK && !list.item[i]) status = stk_yaml_fail(r, item, "%s: an empty entry", name);
    }
    if (status < 0) {
        stk_string_list_free(&list);
        return status;
    }
    stk_string_list_free(to);
    *to = list;
    return STK_OK;
}

void stk_string_map_free(stk_string_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        stk_free(map->key[i]);
        stk_free(map->value[i]);
    }
    stk_free(map->key);
    stk_free(map->value);
    *map = (stk_string_map){0};
}

stk_status stk_yaml_check_keys(const stk_yaml_reader *r, const yaml_node_t *map, const char *what)
{
    if (map->type != YAML_MAPPING_NODE)
        return stk_yaml_fail(r, map, "%s: keys and values are expected", what);
    if (map->data.mapping.pairs.top - map->data.mapping.pairs.start > KEYS_MAX)
        return stk_yaml_fail(r, map, "%s: more than %d keys", what, KEYS_MAX);
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        if (!is_scalar(key)) return stk_yaml_fail(r, key, "%s: a key is a text", what);
        for (const yaml_node_pair_t *q = map->data.mapping.pairs.start; q < p; q++)
            if (strcmp(stk_yaml_text(yaml_document_get_node(r->document, q->key)), stk_yaml_text(key)) == 0)
                return stk_yaml_fail(r, key, "%s: the key %.80s stands twice", what, stk_yaml_text(key));
    }
    return STK_OK;
}

static stk_status set_map(const stk_yaml_reader *r, stk_string_map *to, const yaml_node_t *node,
                          const char *name)
{
    STK_TRY(stk_yaml_check_keys(r, node, name));
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
            status = stk_yaml_fail(r, value, "%s: an empty name", name);
    }
    if (status < 0) {
        stk_string_map_free(&map);
        return status;
    }
    stk_string_map_free(to);
    *to = map;
    return STK_OK;
}

/* --- the turn format --- */

void stk_template_options_free(stk_template_options *t)
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
static stk_status set_train(const stk_yaml_reader *r, stk_template_role *role, const yaml_node_t *node)
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
            status = stk_yaml_fail(r, node,
                                   "template: train lists `text` and the assistant's `after`, not \"%.60s\"",
                                   list.item[i]);
    }
    stk_string_list_free(&list);
    return status;
}

static stk_status set_role(const stk_yaml_reader *r, stk_template_role *role, const yaml_node_t *node,
                           const char *name, bool is_assistant)
{
    STK_TRY(stk_yaml_check_keys(r, node, name));
    const yaml_node_t *train = NULL;
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key),
                                 *const value = yaml_document_get_node(r->document, p->value);
        if (strcmp(stk_yaml_text(key), "before") == 0)
            STK_TRY(set_string(r, &role->before, value, "before"));
        else if (strcmp(stk_yaml_text(key), "after") == 0)
            STK_TRY(set_string(r, &role->after, value, "after"));
        else if (strcmp(stk_yaml_text(key), "train") == 0 && is_assistant)
            train = value;
        else
            return stk_yaml_fail(r, key, "template: a turn has the keys before, after%s, not %.80s",
                                 is_assistant ? " and train" : "", stk_yaml_text(key));
    }
    role->train_text = role->train_after = is_assistant;
    return train ? set_train(r, role, train) : STK_OK;
}

static stk_status fill_template(const stk_yaml_reader *r, stk_template_options *t, const yaml_node_t *node)
{
    if (is_scalar(node)) return set_string(r, &t->name, node, "template");
    STK_TRY(stk_yaml_check_keys(r, node, "template"));
    t->declared = true;
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key),
                                 *const value = yaml_document_get_node(r->document, p->value);
        const char *const name = stk_yaml_text(key);
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
            status =
                stk_yaml_fail(r, key,
                              "template: a turn format has system, user, assistant, tool, image, video and "
                              "default_system, not %.80s",
                              name);
        STK_TRY(status);
    }
    return STK_OK;
}

static stk_status set_template(const stk_yaml_reader *r, stk_template_options *to, const yaml_node_t *node)
{
    stk_template_options made = {0};
    const stk_status status = fill_template(r, &made, node);
    if (status < 0) {
        stk_template_options_free(&made);
        return status;
    }
    stk_template_options_free(to);
    *to = made;
    return STK_OK;
}

stk_status stk_option_value_set(const stk_yaml_reader *r, void *base, size_t at_bytes,
                                const stk_option_row *row, const yaml_node_t *node)
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
    case STK_KIND_DECIMAL: return set_decimal(r, to, node, &row->shown);
    case STK_KIND_SCHEDULE: return set_schedule(r, to, node, row);
    case STK_KIND_TEMPLATE: return set_template(r, to, node);
    case STK_KIND_GROUP: break;
    }
    return stk_yaml_fail(r, node, "%s: not a value", row->shown.name);
}
