/* cmd_info.c - `stoker options` and `stoker version`. */
#include <inttypes.h>
#include <string.h>

#include "command.h"

static json_t *option_json(const stk_option *o)
{
    json_t *const item = json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:s}", "name", o->name, "type", o->type,
                                   "default", o->default_text, "choices", o->choices, "stream", o->stream,
                                   "per_set", o->per_set, "help", o->help);
    if (o->maximum) json_object_set_new(item, "minimum", json_integer(o->minimum));
    if (o->maximum) json_object_set_new(item, "maximum", json_integer(o->maximum));
    return item;
}

static void print_markdown(const stk_option *table, size_t count)
{
    printf("# Options\n\nMade by `stoker options --markdown` from the option table.  s: changes the stream, "
           "and is part of the fingerprint;\n"
           "\\*: may also stand under a data set.  Each is a YAML key, a flag (`--micro-batch 2`) and a "
           "field of `stk_options`.\n\n"
           "| option | type | default | s | meaning |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        const stk_option *const o = &table[i];
        printf("| `%s`%s | %s | %s%s%s | %s | %s", o->name, o->per_set ? " \\*" : "", o->type,
               o->default_text[0] ? "`" : "", o->default_text[0] ? o->default_text : "–",
               o->default_text[0] ? "`" : "", o->stream ? "s" : "", o->help);
        if (o->choices[0]) {
            printf(" (");
            for (const char *c = o->choices; *c; c++)
                *c == '|' ? (void)fputs("or", stdout) : (void)putchar(*c);
            printf(")");
        }
        printf(" |\n");
    }
}

static int run_options(const invocation *in)
{
    if (flag_of(in, "man")) return print_man(flag_of(in, "man"));
    if (flag_of(in, "completion")) return print_completion(flag_of(in, "completion"));
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    if (flag_of(in, "json")) {
        json_t *const list = json_array();
        for (size_t i = 0; i < count; i++) json_array_append_new(list, option_json(&table[i]));
        return print_json(json_pack("{s:i, s:o}", "schema", 1, "options", list));
    }
    if (flag_of(in, "markdown")) {
        print_markdown(table, count);
        return EXIT_DONE;
    }
    printf("%-26s %-10s %-12s    meaning (s: changes the stream; *: also of one data set)\n", "option",
           "type", "default");
    for (size_t i = 0; i < count; i++)
        printf("%-26s %-10s %-12s %s%s %s%s%s\n", table[i].name, table[i].type,
               table[i].default_text[0] ? table[i].default_text : "-", table[i].stream ? "s" : " ",
               table[i].per_set ? "*" : " ", table[i].help, table[i].choices[0] ? ": " : "",
               table[i].choices);
    return EXIT_DONE;
}

static const flag options_flags[] = {
    {"json", NULL, "print one JSON document"},
    {"markdown", NULL, "print the options page of the docs"},
    {"man", "1|5", "print a manual page: stoker(1), or stoker.yaml(5)"},
    {"completion", "bash|zsh|fish", "print the completion script of a shell"},
    {0}};

const command options_command = {.name = "options",
                                 .arguments = "",
                                 .flags = options_flags,
                                 .run = run_options,
                                 .summary = "list the options of a configuration"};

static int run_version(const invocation *in)
{
    const char *const version = stk_version(), *const cpu = stk_cpu();
    if (flag_of(in, "json"))
        return print_json(json_pack("{s:i, s:s, s:s, s:i, s:s}", "schema", 1, "version", version, "cpu", cpu,
                                    "plan_version", STK_PLAN_VERSION, "libraries", stk_libraries()));
    printf("stoker %s\nplan version %d\nkernels %s\n%s\n", version, STK_PLAN_VERSION, cpu, stk_libraries());
    return EXIT_DONE;
}

static const flag version_flags[] = {{"json", NULL, "print one JSON document"}, {0}};

const command version_command = {.name = "version",
                                 .arguments = "",
                                 .flags = version_flags,
                                 .run = run_version,
                                 .summary = "version, libraries and CPU level"};
