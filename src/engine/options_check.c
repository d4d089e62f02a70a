/* options_check.c - whether options can be opened at all: ranges, choices, and what they mean together.
 *
 * Values may have been put into the struct by hand, so all of the table is gone over. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "engine/option_table.h"
#include "engine/options_text.h"

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
    case STK_KIND_DECIMAL: {
        const double value = *(const double *)at;
        if (value >= 0 && value <= (double)row->shown.maximum) return STK_OK;
        return stk_fail(err, STK_ERR_OPTION, "%s: a number from 0 to %" PRId64 " is expected", row->shown.name, row->shown.maximum);
    }
    case STK_KIND_SCHEDULE: return check_number(row, *(const int64_t *)at, may_be_unset, err);
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

stk_status stk_options_check_store(const stk_options *options, stk_error *err)
{
    const char *const endpoint = options->endpoint;
    if (endpoint && strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0)
        return stk_fail(err, STK_ERR_OPTION, "endpoint: \"%.100s\" does not start with https:// or http://", endpoint);
    if (endpoint && strchr(endpoint, '@'))
        return stk_fail(err, STK_ERR_OPTION, "endpoint: no name or password may stand in it: credentials come from the environment or a profile");
    if (!options->cache_path != !options->cache_bytes)
        return stk_fail(err, STK_ERR_OPTION, "cache: path and bytes go together: the folder, and what it may hold");
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
    STK_TRY(stk_options_check_store(options, err));
    cpu_set_t cpus;
    if (options->cpus) STK_TRY(stk_cpus_parse(options->cpus, &cpus, err));
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
