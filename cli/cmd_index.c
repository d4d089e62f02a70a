/* cmd_index.c - `stoker index`: the facts of the data, and what of it is unusable. */
#include <string.h>

#include "command.h"

/* --exclude and --include-all, before the index is looked at. */
static stk_status leave_out(const invocation *in, const stk_index_progress *progress, stk_error *err)
{
    const char *list[FLAGS_MAX];
    size_t count = 0;
    for (int i = 0; i < in->flag_count; i++)
        if (strcmp(in->flag_name[i], "exclude") == 0) list[count++] = in->flag_value[i];
    const bool start_over = flag_of(in, "include-all") != NULL;
    if (!count && !start_over) return STK_OK;
    return stk_index_exclude(&in->options, list, count, start_over, progress, err);
}

/* Whether a run would start; if not, why. */
static int verdict(const stk_index_report *report)
{
    int code = EXIT_DONE;
    for (size_t i = 0; i < stk_index_report_count(report); i++) {
        const stk_index_summary *const s = stk_index_report_at(report, i);
        if (!s->refusal[0]) continue;
        fprintf(stderr, "stoker: %s\n", s->refusal);
        code = EXIT_SPENT;
    }
    return code;
}

static int run_index(const invocation *in)
{
    stk_error err;
    stk_index_report *report = NULL;
    const stk_index_progress progress = index_progress();
    stk_status status = leave_out(in, &progress, &err);
    if (status == STK_OK) status = stk_index_build(&report, &in->options, &progress, &err);
    live_line_end();
    if (status < 0) return fail_with(&err);
    int code = EXIT_DONE;
    if (flag_of(in, "json"))
        code = print_json(index_report_json(report));
    else
        print_index_report(report);
    if (code == EXIT_DONE) code = verdict(report);
    stk_index_report_destroy(report);
    return code;
}

static const flag index_flags[] = {
    {"json", NULL, "print one JSON document"},
    {"exclude", "FILE", "leave out for good the samples of this list: ids (SET/ID, SET#LINE), or dead letters"},
    {"include-all", NULL, "first forget what earlier lists left out"},
    {0}};

const command index_command = {
    .name = "index",
    .arguments = "CONFIG",
    .least = 1,
    .most = 1,
    .reads_config = true,
    .flags = index_flags,
    .run = run_index,
    .summary = "collect the facts of all records and media; list what is unusable and why",
    .text = "Goes on where an interrupted build stopped; reads only what changed since.  --index verify "
            "decodes every\n"
            "medium once.  --exclude may stand several times.  Exit status 3: a run would refuse a data set "
            "(errors.unusable)."};
