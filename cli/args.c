/* args.c - arguments and flags: those of the command, and every option of the table (dashes for underscores).
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

int usage_error(const command *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "stoker %s: ", c->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "; see `stoker %s --help`\n", c->name);
    va_end(arguments);
    return EXIT_USAGE;
}

/* Of every command that reads a configuration. */
static const flag config_flags[] = {
    {"set", "KEY=VALUE", "any option, also of one data set: --set data.docs.labels=last"},
    {"split", "NAME", "train, or eval: what the configuration has under `eval`"},
};
enum { CONFIG_FLAGS = sizeof config_flags / sizeof *config_flags };

static const flag *find_flag(const command *c, const char *name)
{
    for (const flag *f = c->flags; f && f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    for (size_t i = 0; c->reads_config && i < CONFIG_FLAGS; i++)
        if (strcmp(config_flags[i].name, name) == 0) return &config_flags[i];
    return NULL;
}

/* "micro-batch" to "micro_batch". */
static void to_option(char *to, size_t capacity, const char *name)
{
    snprintf(to, capacity, "%.*s", (int)capacity - 1, name);
    for (; *to; to++)
        if (*to == '-') *to = '_';
}

/* Options of the whole run, that are one value. */
static const stk_option *find_option(const char *name)
{
    char option[128];
    to_option(option, sizeof option, name);
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, option) == 0 && strncmp(option, "data", 4) != 0) return &table[i];
    return NULL;
}

/* The row of an option that is given with --set: "limits.json_depth", "data.docs.path", "data.docs.labels"; each also
 * behind "eval.". */
static const stk_option *find_set_option(const char *name)
{
    if (strncmp(name, "eval.", 5) == 0) name += 5;
    const char *const last = strrchr(name, '.');
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    char full[256];
    snprintf(full, sizeof full, "data[].%.200s", last ? last + 1 : name);
    const bool in_set = last && strncmp(name, "data.", 5) == 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, in_set ? full : name) == 0) return &table[i];
    return in_set ? find_option(last + 1) : NULL;
}

/* On a command line a path starts from the working folder; in a configuration, from the configuration's own.
 */
static int apply_option(const command *c, stk_options *options, const stk_option *option, const char *name, const char *value)
{
    stk_error err;
    char absolute[2 * PATH_MAX], folder[PATH_MAX];
    const bool is_path = option && strncmp(option->type, "path", 4) == 0 && *value && *value != '/' &&
                         *value != '[' && *value != '"' && !strstr(value, "://") &&
                         strcmp(value, "null") != 0;
    if (is_path) {
        if (!getcwd(folder, sizeof folder))
            return usage_error(c, "the working folder is gone: give absolute paths");
        if ((size_t)snprintf(absolute, sizeof absolute, "%s/%s", folder, value) >= sizeof absolute)
            return usage_error(c, "--%s: the path is too long", name);
        value = absolute;
    }
    return stk_options_set(options, name, value, &err) < 0 ? fail_with(&err) : EXIT_DONE;
}

/* KEY=VALUE of --set. */
static int apply_set(const command *c, stk_options *options, const char *flag_name, const char *value)
{
    char option[256];
    const char *const equals = strchr(value, '=');
    if (!equals || equals == value || (size_t)(equals - value) >= sizeof option)
        return usage_error(c, "--%s takes KEY=VALUE, not %s", flag_name, value);
    memcpy(option, value, (size_t)(equals - value));
    option[equals - value] = 0;
    return apply_option(c, options, find_set_option(option), option, equals + 1);
}

int apply_sets(const invocation *in, const char *name, stk_options *options)
{
    int status = EXIT_DONE;
    for (int i = 0; status == EXIT_DONE && i < in->flag_count; i++)
        if (strcmp(in->flag_name[i], name) == 0) status = apply_set(in->command, options, name, in->flag_value[i]);
    return status;
}

static int apply_flags(invocation *in)
{
    int status = EXIT_DONE;
    for (int i = 0; status == EXIT_DONE && i < in->flag_count; i++) {
        const char *const name = in->flag_name[i], *const value = in->flag_value[i];
        if (strcmp(name, "set") == 0) status = apply_set(in->command, &in->options, name, value);
        else if (!find_flag(in->command, name)) status = apply_option(in->command, &in->options, find_option(name), name, value);
    }
    return status;
}

/* One flag at argv[at]: how many places it takes, or a negative exit status. */
static int take_flag(invocation *in, int argc, char **argv, int at)
{
    const command *const c = in->command;
    char name[160];
    const char *const text = strcmp(argv[at], "-o") == 0 ? "output" : argv[at] + 2, *const equals =
                                                                                        strchr(text, '=');
    const size_t length = equals ? (size_t)(equals - text) : strlen(text);
    if (length == 0 || length >= sizeof name) return -usage_error(c, "unknown flag %.80s", argv[at]);
    memcpy(name, text, length);
    name[length] = 0;
    const flag *const own = find_flag(c, name);
    const stk_option *const option = own || !c->reads_config ? NULL : find_option(name);
    if (!own && !option) return -usage_error(c, "unknown flag --%s", name);
    if (in->flag_count == FLAGS_MAX) return -usage_error(c, "too many flags");
    const bool takes_value = option || own->value;
    const char *value = equals ? equals + 1 : "";
    int places = 1;
    if (takes_value && !equals) {
        if (at + 1 >= argc) return -usage_error(c, "--%s wants a value", name);
        value = argv[at + 1];
        places = 2;
    } else if (!takes_value && equals) {
        return -usage_error(c, "--%s takes no value", name);
    }
    in->flag_name[in->flag_count] = own ? own->name : option->name;
    in->flag_value[in->flag_count++] = value;
    return places;
}

int parse_arguments(invocation *in, const command *c, int argc, char **argv)
{
    bool only_arguments = false;
    if (c->word && (argc < 1 || strcmp(argv[0], c->word) != 0)) return usage_error(c, "say `stoker %s %s`", c->name, c->word);
    for (int at = c->word ? 1 : 0; at < argc;) {
        if (!only_arguments && strcmp(argv[at], "--") == 0) {
            only_arguments = true;
            at++;
        } else if (!only_arguments && (strncmp(argv[at], "--", 2) == 0 || strcmp(argv[at], "-o") == 0)) {
            const int places = take_flag(in, argc, argv, at);
            if (places < 0) return -places;
            at += places;
        } else {
            if (in->argument_count == c->most) return usage_error(c, "one argument too many: %s", argv[at]);
            in->argument[in->argument_count++] = argv[at++];
        }
    }
    if (in->argument_count < c->least) return usage_error(c, "%s is missing", c->arguments);
    if (!c->reads_config) return EXIT_DONE;
    if (in->argument_count == 0) return apply_flags(in); /* over nothing */
    stk_error err;
    const bool addresses = c->takes_addresses && strstr(in->argument[0], "://");
    if (addresses ? stk_options_defaults(&in->options, &err) < 0 : stk_options_read(&in->options, in->argument[0], &err) < 0)
        return fail_with(&err);
    const char *const split = flag_of(in, "split");
    if (split && stk_options_split(&in->options, split, &err) < 0) return fail_with(&err);
    return apply_flags(in);
}

const char *flag_of(const invocation *in, const char *name)
{
    for (int i = in->flag_count - 1; i >= 0; i--)
        if (strcmp(in->flag_name[i], name) == 0) return in->flag_value[i];
    return NULL;
}

bool number_of(const invocation *in, const char *name, int64_t low, int64_t high, int64_t otherwise,
               int64_t *value)
{
    const char *const text = flag_of(in, name);
    *value = otherwise;
    if (!text) return true;
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < low || number > high) {
        usage_error(in->command, "--%s: %s is no whole number from %lld to %lld", name, text, (long long)low,
                    (long long)high);
        return false;
    }
    *value = number;
    return true;
}

bool decimal_of(const invocation *in, const char *name, double low, double high, double otherwise, double *value)
{
    const char *const text = flag_of(in, name);
    *value = otherwise;
    if (!text) return true;
    char *end;
    const double number = strtod(text, &end);
    if (end == text || *end || !(number >= low && number <= high)) {
        usage_error(in->command, "--%s: %s is no number from %g to %g", name, text, low, high);
        return false;
    }
    *value = number;
    return true;
}

/* --- help --- */

/* "limits.json_depth" to "--limits.json-depth". */
static void to_flag(char *to, size_t capacity, const char *name)
{
    snprintf(to, capacity, "--%s", name);
    for (; *to; to++)
        if (*to == '_') *to = '-';
}

static void fill_listed(listed_flag *out, const char *name, const char *value, const char *help,
                        const stk_option *option)
{
    to_flag(out->name, sizeof out->name, name);
    snprintf(out->value, sizeof out->value, "%s", value ? value : "");
    for (char *c = out->value; option && *c; c++) *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    out->help = help;
    out->option = option;
}

bool list_flag(const command *c, size_t at, listed_flag *out)
{
    static const flag help_flag = {"help", NULL, "this text"};
    for (const flag *f = c->flags; f && f->name; f++)
        if (at-- == 0) return fill_listed(out, f->name, f->value, f->help, NULL), true;
    if (at-- == 0) return fill_listed(out, help_flag.name, NULL, help_flag.help, NULL), true;
    if (!c->reads_config) return false;
    for (size_t i = 0; i < CONFIG_FLAGS; i++)
        if (at-- == 0)
            return fill_listed(out, config_flags[i].name, config_flags[i].value, config_flags[i].help, NULL), true;
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(table[i].name, "data", 4) == 0 || strcmp(table[i].name, "eval") == 0 || find_flag(c, table[i].name)) continue;
        if (at-- == 0) return fill_listed(out, table[i].name, table[i].type, table[i].help, &table[i]), true;
    }
    return false;
}

void print_help(const command *c)
{
    printf("usage: stoker %s %s%s[FLAGS]\n\n%s.\n", c->name, c->arguments, c->arguments[0] ? " " : "",
           c->summary);
    if (c->text) printf("\n%s\n", c->text);
    printf("\nFlags\n");
    bool in_options = false;
    listed_flag f;
    for (size_t i = 0; list_flag(c, i, &f); i++) {
        if (f.option && !in_options)
            printf(
                "\nOptions of the configuration, which flags override (`stoker options` tells more).  On a "
                "command line a path starts\n"
                "from the working folder.\n");
        in_options |= f.option != NULL;
        char left[100];
        snprintf(left, sizeof left, "%s%s%s", f.name, f.value[0] ? " " : "", f.value);
        printf("  %-28s %s\n", left, f.help);
    }
}
