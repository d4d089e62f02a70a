/* man.c - the manual pages: stoker(1) from the commands and their flags, stoker.yaml(5) from the option
 * table.
 *
 * Plain man macros, with nothing that depends on the day or the machine, so that the same release writes the
 * same bytes. Not here: what the flags and options are (the commands, option_table.c). */
#include <inttypes.h>
#include <string.h>

#include "command.h"

/* Text as roff reads it.  A line break stays one, and an empty line begins a paragraph. */
static void put_text(const char *text)
{
    bool line_begins = true;
    for (; *text; text++) {
        if (line_begins && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        line_begins = false;
        switch (*text) {
        case '\\': fputs("\\e", stdout); break;
        case '-': fputs("\\-", stdout); break;
        case '\'': fputs("\\(aq", stdout); break;
        case '`': fputs("\\(ga", stdout); break;
        case '^': fputs("\\(ha", stdout); break;
        case '~': fputs("\\(ti", stdout); break;
        case '\n':
            line_begins = true;
            if (text[1] == '\n') {
                fputs("\n.PP", stdout);
                text++;
            }
            putchar('\n');
            break;
        default: putchar(*text);
        }
    }
}

/* A text between two fonts: B, I or R. */
static void put_font(char font, const char *text)
{
    printf("\\f%c", font);
    put_text(text);
    fputs("\\fR", stdout);
}

static void put_line(const char *text)
{
    put_text(text);
    putchar('\n');
}

static void put_sentence(const char *text)
{
    put_text(text);
    puts(".");
}

static void put_entry(const char *name, const char *value, const char *help)
{
    puts(".TP");
    put_font('B', name);
    if (value[0]) putchar(' '), put_font('I', value);
    putchar('\n');
    put_line(help);
}

static void put_title(const char *name, const char *section, const char *about)
{
    printf(".\\\" Made by `stoker options --man %s`.\n.TH %s %s \"\" \"Stoker %s\" \"%s\"\n", section, name,
           section, stk_version(), about);
}

/* --- stoker(1) --- */

static void put_command(const command *c)
{
    puts(".SS");
    put_line(c->name);
    put_font('B', "stoker ");
    put_font('B', c->name);
    if (c->arguments[0]) putchar(' '), put_font('I', c->arguments);
    puts(" [\\fIFLAGS\\fR]\n.PP");
    put_sentence(c->summary);
    if (c->text) {
        puts(".PP");
        put_line(c->text);
    }
    listed_flag f;
    for (size_t i = 0; list_flag(c, i, &f); i++)
        if (!f.option && strcmp(f.name, "--help") != 0 && strcmp(f.name, "--set") != 0)
            put_entry(f.name, f.value, f.help);
    if (c->reads_config) puts(".PP\nAlso the flags of a configuration, below.");
}

/* What every command takes, and what every command that reads a configuration takes. */
static void put_common_flags(const command *const *list, size_t count)
{
    const command *reader = NULL;
    for (size_t i = 0; i < count && !reader; i++)
        if (list[i]->reads_config) reader = list[i];
    puts(".SH FLAGS OF A CONFIGURATION\n"
         "Each option of the configuration that is not one of a data set is also a flag of the commands that "
         "read it, and\n"
         "overrides what the file says; where a command has a flag of that name, the command's own counts.\n"
         "On a command line a path starts from the working folder; in the file, from the file's folder.\n"
         "What the options mean, and what they take, tells\n.BR stoker.yaml (5).");
    listed_flag f;
    for (size_t i = 0; list_flag(reader, i, &f); i++)
        if (f.option || strcmp(f.name, "--help") == 0 || strcmp(f.name, "--set") == 0)
            put_entry(f.name, f.value, f.help);
}

static void put_surroundings(void)
{
    puts(".SH EXIT STATUS");
    for (const exit_meaning *e = exit_meanings; e->meaning; e++) {
        char status[12];
        snprintf(status, sizeof status, "%d", e->status);
        put_entry(status, "", e->meaning);
    }
    puts(".SH ENVIRONMENT\nNone of these changes what is delivered.");
    put_entry("STK_CPU", "", "the highest level of vector instructions to use: none, avx2 or avx512");
    put_entry("STK_PYTHON", "", "the Python that draws for plan --plot; python3 without it");
    put_entry("NO_COLOR", "", "set and not empty: no colours");
    put_entry("TMPDIR", "", "where init tries the configuration that it wrote");
    puts(".SH FILES");
    put_entry("stoker.yaml", "", "the configuration, by the name that init gives it");
    put_entry("MANIFEST.stoker-media-*, MANIFEST.stoker-text-*", "",
              "the index, beside the manifest or in index_dir: it can be deleted at any time, and is then "
              "built again");
}

static void put_stoker_page(void)
{
    size_t count;
    const command *const *const list = command_list(&count);
    put_title("STOKER", "1", "User Commands");
    puts(".SH NAME\nstoker \\- feed vision\\-language training with exact tensors\n"
         ".SH SYNOPSIS\n.B stoker\n.I COMMAND\n[\\fIARGUMENTS\\fR] [\\fIFLAGS\\fR]\n"
         ".SH DESCRIPTION\n"
         "Reads JSONL manifests and the images they name, and delivers exact Qwen\\-VL batches ahead of a "
         "trainer.\n"
         "A flag takes its value behind a blank or behind an equals sign.\n"
         ".SH COMMANDS");
    for (size_t i = 0; i < count; i++) put_command(list[i]);
    put_common_flags(list, count);
    put_surroundings();
    puts(".SH SEE ALSO\n.BR stoker.yaml (5)");
}

/* --- stoker.yaml(5) --- */

static void put_range(const stk_option *o)
{
    const bool no_maximum = o->maximum >= INT64_MAX / 4;
    if (!o->maximum) return;
    if (no_maximum)
        printf("; at least %" PRId64, o->minimum);
    else
        printf("; %" PRId64 " to %" PRId64, o->minimum, o->maximum);
}

static void put_option(const stk_option *o, const char *name)
{
    puts(".TP");
    put_font('B', name);
    printf(" (");
    put_text(o->type);
    if (o->choices[0]) fputs(": ", stdout), put_text(o->choices);
    put_range(o);
    if (o->default_text[0]) fputs("; default ", stdout), put_text(o->default_text);
    puts(")");
    put_sentence(o->help);
    if (o->stream) puts("Changes the stream.");
    if (o->per_set) puts("May also stand under a data set.");
}

static void put_yaml_page(void)
{
    size_t count;
    const stk_option *const table = stk_option_table(&count);
    put_title("STOKER.YAML", "5", "File Formats");
    puts(".SH NAME\nstoker.yaml \\- the configuration of Stoker\n"
         ".SH DESCRIPTION\n"
         "A YAML mapping of the options below.\n"
         "A name with a dot is a key inside a mapping: limits.json_depth is the key json_depth of limits.\n"
         "An unknown key is an error that names the nearest known one.\n"
         "A size is a number of bytes, or has a unit: 64MiB, 2 GB; a time is a number of seconds, or has "
         "one: 300 s.\n"
         "Relative paths start from the folder of the file.\n"
         ".PP\n"
         "An option that changes the stream is part of the fingerprint: a saved state goes on only with the "
         "same value.\n"
         "The others can be changed in the middle of a run.\n"
         ".SH EXAMPLE\n.nf\n"
         "model: ./Qwen3\\-VL\\-8B\\-Instruct\n"
         "data:\n"
         "  \\- path: train.jsonl\n"
         "  \\- path: documents/*.jsonl\n"
         "    media_root: /data/pages\n"
         "    labels: last\n"
         "batch: 64\n.fi\n"
         ".SH OPTIONS");
    for (size_t i = 0; i < count; i++)
        if (strncmp(table[i].name, "data[].", 7) != 0) put_option(&table[i], table[i].name);
    puts(".SH KEYS OF A DATA SET\nEach entry of\n.B data\nhas these, and of the options above those that may "
         "stand under a data set.");
    for (size_t i = 0; i < count; i++)
        if (strncmp(table[i].name, "data[].", 7) == 0) put_option(&table[i], table[i].name + 7);
    puts(".SH SEE ALSO\n.BR stoker (1)");
}

int print_man(const char *section)
{
    if (strcmp(section, "1") == 0)
        put_stoker_page();
    else if (strcmp(section, "5") == 0)
        put_yaml_page();
    else
        return usage_error(&options_command, "--man takes 1 or 5, not %.40s", section);
    return EXIT_DONE;
}
