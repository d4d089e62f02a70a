/* completion.c - completion for bash, zsh and fish: commands, their flags, the options that are flags too,
 * and what may stand behind each: its choices, or files.
 *
 * Not here: what the flags and options are (the commands, option_table.c). */
#include <string.h>

#include "command.h"

typedef enum value_kind { VALUE_NONE, VALUE_ANY, VALUE_FILE, VALUE_WORDS } value_kind;

/* What may stand behind a flag; of VALUE_WORDS the words, with blanks between. */
static value_kind value_of(const listed_flag *f, char words[256])
{
    const char *const type = f->option ? f->option->type : "";
    const char *const choices = f->option ? f->option->choices : strchr(f->value, '|') ? f->value : "";
    words[0] = 0;
    if (!f->value[0]) return VALUE_NONE;
    if (choices[0]) {
        size_t at = 0;
        for (const char *c = choices; *c && at < 254; c++)
            if (*c != ' ') words[at++] = *c == '|' ? ' ' : *c;
        words[at] = 0;
    } else if (strcmp(type, "bool") == 0) {
        strcpy(words, "true false");
    } else if (strcmp(type, "workers") == 0) {
        strcpy(words, "auto inline");
    }
    if (words[0]) return VALUE_WORDS;
    const bool names_files =
        strncmp(type, "path", 4) == 0 || strcmp(f->value, "FILE") == 0 || strcmp(f->value, "DIR") == 0;
    return names_files ? VALUE_FILE : VALUE_ANY;
}

/* A command whose flags hold every option of the table that a flag can set. */
static const command *config_reader(void)
{
    static command reader = {.name = "", .arguments = "", .reads_config = true};
    return &reader;
}

/* A text between single quotes, for a shell that writes a quote inside them as `quote`. */
static void put_quoted(const char *text, const char *quote, const char *also_escaped)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, stdout);
        else
            printf("%s%c", strchr(also_escaped, *text) ? "\\" : "", *text);
}

/* --- bash --- */

static void put_bash_values(const command *c, bool options)
{
    listed_flag f;
    char words[256];
    for (size_t i = 0; list_flag(c, i, &f); i++) {
        if ((f.option != NULL) != options) continue;
        const char *const short_name = strcmp(f.name, "--output") == 0 ? "|-o" : "";
        switch (value_of(&f, words)) {
        case VALUE_NONE: break;
        case VALUE_ANY: printf("        %s%s) kind=any ;;\n", f.name, short_name); break;
        case VALUE_FILE: printf("        %s%s) kind=file ;;\n", f.name, short_name); break;
        case VALUE_WORDS:
            printf("        %s%s) kind=words words='%s' ;;\n", f.name, short_name, words);
            break;
        }
    }
}

static void put_bash_names(const command *c)
{
    listed_flag f;
    for (size_t i = 0; list_flag(c, i, &f); i++) printf("%s%s", i ? " " : "", f.name);
}

static void put_bash(void)
{
    size_t count;
    const command *const *const list = command_list(&count);
    puts("# Completion for bash, made by `stoker options --completion bash`.\n"
         "_stoker()\n{\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} kind= words= flags=\n"
         "    if [[ $cur == = ]]; then cur=; elif [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]}; "
         "fi\n"
         "    COMPREPLY=()\n"
         "    if ((COMP_CWORD == 1)); then");
    printf("        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < count; i++) printf("%s ", list[i]->name);
    puts("--help --version' -- \"$cur\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in");
    for (size_t i = 0; i < count; i++) {
        printf("    %s)\n        flags='", list[i]->name);
        put_bash_names(list[i]);
        puts("'");
        if (list[i]->word) printf("        if ((COMP_CWORD == 2)) && [[ $cur != -* ]]; then kind=words words=%s; fi\n", list[i]->word);
        puts("        case $flag in");
        put_bash_values(list[i], false);
        if (list[i]->reads_config) puts("        *) _stoker_option ;;");
        puts("        esac ;;");
    }
    puts("    *) return ;;\n    esac\n"
         "    case $kind in\n"
         "    any) ;;\n"
         "    words) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
         "    *)\n"
         "        if [[ -z $kind && $cur == -* ]]; then\n"
         "            COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
         "        else\n"
         "            local IFS=$'\\n'\n"
         "            COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "            compopt -o filenames 2>/dev/null\n"
         "        fi ;;\n"
         "    esac\n}\n\n"
         "# Flags of the commands that read a configuration.\n"
         "_stoker_option()\n{\n    case $flag in");
    put_bash_values(config_reader(), true);
    puts("    esac\n}\n\ncomplete -F _stoker stoker");
}

/* --- zsh --- */

static void put_zsh_flag(const listed_flag *f)
{
    char words[256];
    const value_kind kind = value_of(f, words);
    const bool may_repeat = !f->option && kind != VALUE_NONE;
    printf(" \\\n            '%s%s%s[", may_repeat ? "*" : "", f->name, kind == VALUE_NONE ? "" : "=");
    put_quoted(f->help, "'\\''", "[]:\\");
    putchar(']');
    if (kind != VALUE_NONE) {
        putchar(':');
        put_quoted(f->value, "'\\''", "[]:\\");
        putchar(':');
    }
    if (kind == VALUE_FILE) printf("_files");
    if (kind == VALUE_WORDS) printf("(%s)", words);
    putchar('\'');
}

static void put_zsh(void)
{
    size_t count;
    const command *const *const list = command_list(&count);
    puts("#compdef stoker\n# Completion for zsh, made by `stoker options --completion zsh`.\n"
         "local -a commands\ncommands=(");
    for (size_t i = 0; i < count; i++) {
        printf("    '%s:", list[i]->name);
        put_quoted(list[i]->summary, "'\\''", "");
        puts("'");
    }
    puts(")\nif ((CURRENT == 2)); then\n    _describe -t commands command commands\n    return\nfi\n"
         "shift words\n((CURRENT--))\ncase $words[1] in");
    for (size_t i = 0; i < count; i++) {
        printf("    %s)\n        _arguments -S", list[i]->name);
        listed_flag f;
        for (size_t k = 0; list_flag(list[i], k, &f); k++) put_zsh_flag(&f);
        if (list[i]->word) printf(" \\\n            '1:word:(%s)'", list[i]->word);
        puts(list[i]->most ? " \\\n            '*:file:_files' ;;" : " ;;");
    }
    puts("esac");
}

/* --- fish --- */

static void put_fish_flag(const char *commands, const listed_flag *f)
{
    char words[256];
    const value_kind kind = value_of(f, words);
    printf("complete -c stoker -n '__fish_seen_subcommand_from %s' -l %s%s", commands, f->name + 2,
           strcmp(f->name, "--output") == 0 ? " -s o" : "");
    if (kind == VALUE_FILE) printf(" -r -F");
    if (kind == VALUE_ANY) printf(" -x");
    if (kind == VALUE_WORDS) printf(" -x -a '%s'", words);
    printf(" -d '");
    put_quoted(f->help, "\\'", "\\");
    puts("'");
}

/* The commands that take an option of the table under its name. */
static void list_takers(char takers[256], const listed_flag *option)
{
    size_t count, at = 0;
    const command *const *const list = command_list(&count);
    takers[0] = 0;
    for (size_t i = 0; i < count; i++) {
        listed_flag f;
        for (size_t k = 0; list_flag(list[i], k, &f); k++)
            if (f.option == option->option && f.option && at < 240)
                at += (size_t)snprintf(takers + at, 256 - at, "%s%s", at ? " " : "", list[i]->name);
    }
}

static void put_fish(void)
{
    size_t count;
    const command *const *const list = command_list(&count);
    puts("# Completion for fish, made by `stoker options --completion fish`.\n"
         "complete -c stoker -f\n"
         "complete -c stoker -n __fish_use_subcommand -l help -d 'list the commands'\n"
         "complete -c stoker -n __fish_use_subcommand -l version -d 'version, libraries and CPU level'");
    listed_flag f;
    for (size_t i = 0; i < count; i++) {
        printf("complete -c stoker -n __fish_use_subcommand -a %s -d '", list[i]->name);
        put_quoted(list[i]->summary, "\\'", "\\");
        puts("'");
        if (list[i]->word) printf("complete -c stoker -n '__fish_seen_subcommand_from %s' -a %s\n", list[i]->name, list[i]->word);
        if (list[i]->most)
            printf("complete -c stoker -n '__fish_seen_subcommand_from %s' -F\n", list[i]->name);
        for (size_t k = 0; list_flag(list[i], k, &f); k++)
            if (!f.option) put_fish_flag(list[i]->name, &f);
    }
    char takers[256];
    for (size_t k = 0; list_flag(config_reader(), k, &f); k++) {
        if (!f.option) continue;
        list_takers(takers, &f);
        put_fish_flag(takers, &f);
    }
}

int print_completion(const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        put_bash();
    else if (strcmp(shell, "zsh") == 0)
        put_zsh();
    else if (strcmp(shell, "fish") == 0)
        put_fish();
    else
        return usage_error(&options_command, "--completion takes bash, zsh or fish, not %.40s", shell);
    return EXIT_DONE;
}
