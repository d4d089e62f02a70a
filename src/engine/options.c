/* options.c - reading a configuration: YAML nodes to the values of stk_options, by the option table.
 *
 * A file and a single --set value go the same way: both are YAML documents, whose nodes are put at a path.
 * Aliases and repeated keys are refused, depth and number of nodes are bounded.  What the values mean
 * together is for stk_options_check and for open. */
#include <stoker/options.h>

#include <stdlib.h>

#include "base/file.h"
#include "engine/option_values.h"
#include "engine/options_text.h"
#include "manifest/files.h"

enum { FILE_BYTES_MAX = 4 << 20, NODES_MAX = 1000000, DATA_SETS_MAX = 4096, BRACKETS_MAX = 100 };

/* What evaluation does not take over from the run: it goes through its files once, in their order. */
static bool is_of_training(const stk_option_row *row)
{
    return strcmp(row->shown.name, "steps") == 0 || strcmp(row->shown.name, "epochs") == 0 || strcmp(row->shown.name, "shuffle") == 0;
}

static size_t row_number(const stk_option_row *row)
{
    size_t count;
    return (size_t)(row - stk_option_rows(&count));
}

/* An option of the run.  What is set when `eval` has been read is for it too, unless it states its own. */
static stk_status set_row(const stk_yaml_reader *r, const stk_option_row *row, const yaml_node_t *value)
{
    stk_options *const options = r->options, *const eval = options->eval;
    STK_TRY(stk_option_value_set(r, options, row->at_bytes, row, value));
    if (r->states) options->stated[row_number(row) / 64] |= 1ull << row_number(row) % 64;
    if (!eval || is_of_training(row) || eval->stated[row_number(row) / 64] >> row_number(row) % 64 & 1) return STK_OK;
    stk_yaml_reader reader = *r;
    reader.options = eval;
    return stk_option_value_set(&reader, eval, row->at_bytes, row, value);
}

/* A key of a data set: its own, or one that it may set for itself. */
static stk_status set_in_data(const stk_yaml_reader *r, stk_data_options *data, const yaml_node_t *at,
                              const char *name, const yaml_node_t *value)
{
    char full[128];
    snprintf(full, sizeof full, "data[].%.100s", name);
    const stk_option_row *row = stk_option_find(full);
    if (row) return stk_option_value_set(r, data, row->at_bytes, row, value);
    row = stk_option_find(name);
    if (row && row->shown.per_set) return stk_option_value_set(r, &data->set, row->set_at_bytes, row, value);
    if (row) return stk_yaml_fail(r, at, "%s is an option of the whole run, not of a data set", name);
    return stk_yaml_forward(r, at, stk_option_unknown("data[].", name, r->err));
}

static void free_set(stk_set_options *set)
{
    stk_free(set->orientation);
    stk_free(set->labels);
    stk_free(set->control_tokens);
    stk_string_list_free(&set->allow_control_tokens);
    stk_free(set->tag_space);
    stk_free(set->overlong);
    stk_free(set->alpha);
    stk_template_options_free(&set->chat_template);
    *set = (stk_set_options){0};
}

static void free_data(stk_data_options *data)
{
    stk_free(data->name);
    stk_string_list_free(&data->path);
    stk_free(data->format);
    stk_free(data->media_root);
    stk_free(data->facts);
    stk_string_map_free(&data->columns);
    stk_string_map_free(&data->roles);
    stk_free(data->system);
    stk_free(data->where);
    free_set(&data->set);
    *data = (stk_data_options){0};
}

/* The first entry's name without folder and ending: of "a/docs.jsonl.gz" and "a/docs/" it is docs, and train of the prefix
 * "a/train-". */
static stk_status default_name(const stk_yaml_reader *r, stk_data_options *data)
{
    if (data->name || data->path.count == 0) return STK_OK;
    const char *const path = data->path.item[0];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    stk_str name = stk_manifest_stem(path);
    if (path[length]) {
        const char *const slash = memrchr(path, '/', length);
        name = slash ? (stk_str){slash + 1, length - (size_t)(slash + 1 - path)} : (stk_str){path, length};
    }
    while (name.size_bytes > 1 && strchr("-_.", name.data[name.size_bytes - 1])) name.size_bytes--;
    data->name = stk_strndup(STK_TAG_OPTIONS, name);
    return data->name ? STK_OK : stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
}

static stk_status fill_data(const stk_yaml_reader *r, stk_data_options *data, const yaml_node_t *node)
{
    STK_TRY(stk_yaml_check_keys(r, node, "data"));
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        STK_TRY(set_in_data(r, data, key, stk_yaml_text(key), yaml_document_get_node(r->document, p->value)));
    }
    return default_name(r, data);
}

static stk_status set_data(const stk_yaml_reader *r, const yaml_node_t *node)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return stk_yaml_fail(r, node,
                             "data: a list of data sets is expected: `data:` and then `- path: ...`");
    const size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count > DATA_SETS_MAX) return stk_yaml_fail(r, node, "data: at most %d data sets", DATA_SETS_MAX);
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

/* Such as `limits`: a mapping of options of that prefix. */
static bool is_group(const char *name)
{
    static const char *const groups[] = {"errors", "limits", "cache", "prices"};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strcmp(name, groups[i]) == 0) return true;
    return false;
}

static stk_status set_group(const stk_yaml_reader *r, const char *prefix, const yaml_node_t *node)
{
    STK_TRY(stk_yaml_check_keys(r, node, prefix));
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        char full[128], dotted[32];
        snprintf(dotted, sizeof dotted, "%s.", prefix);
        snprintf(full, sizeof full, "%s%.80s", dotted, stk_yaml_text(key));
        const stk_option_row *const row = stk_option_find(full);
        if (!row) return stk_yaml_forward(r, key, stk_option_unknown(dotted, stk_yaml_text(key), r->err));
        STK_TRY(set_row(r, row, yaml_document_get_node(r->document, p->value)));
    }
    return STK_OK;
}

static stk_status set_top(const stk_yaml_reader *r, const yaml_node_t *at, const char *name,
                          const yaml_node_t *value)
{
    if (strcmp(name, "data") == 0) return set_data(r, value);
    if (is_group(name)) return set_group(r, name, value);
    const stk_option_row *const row = strchr(name, '[') || strchr(name, '.') ? NULL : stk_option_find(name);
    if (!row) return stk_yaml_forward(r, at, stk_option_unknown("", name, r->err));
    return set_row(r, row, value);
}

/* --- documents --- */

/* The library resolves an alias to its anchor's node: a document of n nodes cannot be visited more often than
 * it is written, unless aliases are refused here. */
static stk_status refuse_aliases(const stk_yaml_reader *r)
{
    const size_t count = (size_t)(r->document->nodes.top - r->document->nodes.start);
    if (count > NODES_MAX)
        return stk_yaml_fail(r, NULL, "the configuration has more than %d values", NODES_MAX);
    uint8_t *const used = stk_alloc(STK_TAG_OPTIONS, count + 1);
    if (!used) return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    stk_status status = STK_OK;
    for (size_t i = 0; status == STK_OK && i < count; i++) {
        const yaml_node_t *const node = r->document->nodes.start + i;
        if (node->type == YAML_SEQUENCE_NODE)
            for (const yaml_node_item_t *item = node->data.sequence.items.start;
                 item < node->data.sequence.items.top; item++)
                if (used[*item]++)
                    status = stk_yaml_fail(r, node, "aliases (*name) are not supported: write the value out");
        if (node->type == YAML_MAPPING_NODE)
            for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
                 p++)
                if (used[p->key]++ || used[p->value]++)
                    status = stk_yaml_fail(r, node, "aliases (*name) are not supported: write the value out");
    }
    stk_free(used);
    return status;
}

static stk_status fail_yaml(const stk_yaml_reader *r, const yaml_parser_t *parser)
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
static stk_status expect_end(const stk_yaml_reader *r, yaml_parser_t *parser)
{
    yaml_document_t more;
    if (!yaml_parser_load(parser, &more)) return fail_yaml(r, parser);
    const yaml_node_t *const root = yaml_document_get_root_node(&more);
    const stk_status status =
        root ? stk_yaml_fail(r, root, "a second document starts here: a configuration is one") : STK_OK;
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
static stk_status with_document(stk_yaml_reader *r, const char *text, size_t size_bytes, const char *name,
                                stk_status (*use)(const stk_yaml_reader *, const yaml_node_t *, const char *))
{
    yaml_parser_t parser;
    yaml_document_t document;
    if (is_too_deep(text, size_bytes))
        return stk_yaml_fail(r, NULL, "more than %d brackets are open: no configuration nests so deeply",
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
    stk_status status = root ? refuse_aliases(r)
                             : stk_yaml_fail(r, NULL, "the configuration is empty: `stoker init` writes one");
    if (status == STK_OK) status = expect_end(r, &parser);
    if (status == STK_OK) status = use(r, root, name);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}

/* The keys of a mapping, but one and `eval`, which has been dealt with. */
static stk_status set_keys(const stk_yaml_reader *r, const yaml_node_t *map, const char *but)
{
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *const key = yaml_document_get_node(r->document, p->key);
        const char *const name = stk_yaml_text(key);
        if (strcmp(name, but) != 0 && strcmp(name, "eval") != 0)
            STK_TRY(set_top(r, key, name, yaml_document_get_node(r->document, p->value)));
    }
    return STK_OK;
}

static const yaml_node_t *find_key(const stk_yaml_reader *r, const yaml_node_t *map, const char *name)
{
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++)
        if (strcmp(stk_yaml_text(yaml_document_get_node(r->document, p->key)), name) == 0)
            return yaml_document_get_node(r->document, p->value);
    return NULL;
}

static stk_status defaults(stk_options *options, stk_error *err);

/* The options of the run, what evaluation always has, and then its own. */
static stk_status read_eval(const stk_yaml_reader *r, const yaml_node_t *root, const yaml_node_t *eval)
{
    stk_options *const own = stk_alloc(STK_TAG_OPTIONS, sizeof *own);
    if (!own) return stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
    *own = (stk_options)STK_OPTIONS_INIT;
    r->options->eval = own;
    stk_yaml_reader reader = *r;
    reader.options = own;
    STK_TRY(stk_yaml_check_keys(r, eval, "eval"));
    if (find_key(r, eval, "eval")) return stk_yaml_fail(r, eval, "eval: it has no split of its own");
    STK_TRY(defaults(own, r->err));
    STK_TRY(set_keys(&reader, root, "data"));
    own->shuffle = false;
    own->epochs = 1;
    own->steps = 0;
    reader.states = true;
    STK_TRY(set_keys(&reader, eval, ""));
    if (own->data_count == 0) return stk_yaml_fail(r, eval, "eval: data is not set");
    own->file = stk_strdup(STK_TAG_OPTIONS, r->file);
    return own->file ? STK_OK : stk_fail(r->err, STK_ERR_NOMEM, "out of memory: options");
}

static stk_status use_file(const stk_yaml_reader *r, const yaml_node_t *root, const char *name)
{
    (void)name;
    STK_TRY(stk_yaml_check_keys(r, root, "the configuration"));
    STK_TRY(set_keys(r, root, ""));
    const yaml_node_t *const eval = find_key(r, root, "eval");
    return eval ? read_eval(r, root, eval) : STK_OK;
}

stk_status stk_options_split(stk_options *options, const char *split, stk_error *err)
{
    if (strcmp(split, "train") == 0) return STK_OK;
    if (strcmp(split, "eval") != 0 || !options->eval) {
        const stk_status status = strcmp(split, "eval") == 0
                                      ? stk_fail(err, STK_ERR_OPTION, "the configuration has no `eval`: add it, with its data")
                                      : stk_fail(err, STK_ERR_OPTION, "\"%.60s\" is no split: train or eval", split);
        if (options->file) stk_error_file(err, options->file, 0);
        stk_error_stage(err, STK_STAGE_OPTIONS);
        return status;
    }
    stk_options *const eval = options->eval;
    options->eval = NULL;
    stk_options_deinit(options);
    *options = *eval;
    stk_free(eval);
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

stk_status stk_options_read_text(stk_options *options, const char *text, size_t size_bytes, const char *file, stk_error *err)
{
    stk_options made = STK_OPTIONS_INIT;
    stk_status status = defaults(&made, err);
    stk_yaml_reader r = {.options = &made, .file = file, .err = err};
    if (status == STK_OK) status = with_document(&r, text, size_bytes, NULL, use_file);
    if (status == STK_OK && !(made.file = stk_strdup(STK_TAG_OPTIONS, file)))
        status = stk_fail(err, STK_ERR_NOMEM, "out of memory: options");
    if (status < 0) {
        stk_error_stage(err, STK_STAGE_OPTIONS);
        stk_options_deinit(&made);
        return status;
    }
    *options = made;
    return STK_OK;
}

stk_status stk_options_read(stk_options *options, const char *path, stk_error *err)
{
    char *text = NULL;
    size_t size_bytes = 0;
    stk_status status = stk_file_read(&text, &size_bytes, path, FILE_BYTES_MAX, STK_TAG_OPTIONS, err);
    if (status < 0) stk_error_stage(err, STK_STAGE_OPTIONS);
    else status = stk_options_read_text(options, text, size_bytes, path, err);
    stk_free(text);
    return status;
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

/* "batch", "limits.json_depth", "data.docs.labels", "data.0.labels"; "eval.batch" and so on. */
static stk_status use_value(const stk_yaml_reader *r, const yaml_node_t *root, const char *name)
{
    if (strncmp(name, "eval.", 5) == 0) {
        stk_yaml_reader reader = *r;
        reader.options = r->options->eval;
        reader.states = true;
        if (!reader.options) return stk_yaml_fail(r, root, "%.80s: the configuration has no `eval`", name);
        return use_value(&reader, root, name + 5);
    }
    if (strncmp(name, "data.", 5) != 0) {
        const stk_option_row *const row = strchr(name, '[') ? NULL : stk_option_find(name);
        return row && strchr(name, '.') ? set_row(r, row, root) : set_top(r, root, name, root);
    }
    const char *const set = name + 5, *const dot = strrchr(set, '.');
    if (!dot) return stk_yaml_fail(r, root, "%.80s: write data.SET.OPTION", name);
    stk_data_options *const data = find_data(r->options, (stk_str){set, (size_t)(dot - set)});
    if (!data) return stk_yaml_fail(r, root, "%.80s: no data set has this name or number", name);
    return set_in_data(r, data, root, dot + 1, root);
}

/* Whether the value is a text as it stands: "*.jsonl" and "Be kind: ..." are no YAML that people mean on a
 * command line. Quotes, and lists in brackets, are YAML. */
static bool is_plain_text(const char *name, const char *value)
{
    char full[128];
    if (strncmp(name, "eval.", 5) == 0) return is_plain_text(name + 5, value);
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
    stk_yaml_reader r = {.options = options, .err = err};
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
    stk_string_list_free(&options->allow);
    free_set(&options->set);
    stk_schedule_free(&options->batch_schedule);
    if (options->eval) stk_options_deinit(options->eval);
    stk_free(options->eval);
    char *const strings[] = {options->file,      options->model,      options->layout,  options->uneven,
                             options->targets,   options->pixels,     options->profile, options->index,
                             options->index_dir, options->dead_letter, options->weights,
                             options->balance,   options->modality,   options->endpoint, options->region,
                             options->profile_name, options->requester_pays, options->ca, options->addressing,
                             options->cache_path, options->cpus,   options->run,      options->engine,   options->positions, options->placement};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) stk_free(strings[i]);
    *options = (stk_options)STK_OPTIONS_INIT;
}
