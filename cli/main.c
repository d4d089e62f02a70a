/* main.c - `stoker`: finds the command, and hands it its arguments.  Everything is done through
 * <stoker/stoker.h>. */
#include <stdio.h>
#include <string.h>

#include "command.h"

static const command *const commands[] = {&init_command,   &index_command, &plan_command,        &run_command,     &show_command,
                                          &serve_command,  &replay_command, &diff_command, &cluster_command, &fetch_bench_command, &options_command, &version_command};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

const command *const *command_list(size_t *count)
{
    *count = COMMAND_COUNT;
    return commands;
}

const exit_meaning exit_meanings[] = {{EXIT_DONE, "done"},
                                      {EXIT_FAILED, "the run failed"},
                                      {EXIT_USAGE, "usage or configuration"},
                                      {EXIT_SPENT, "the error budget of a data set is spent"},
                                      {EXIT_INTERRUPTED, "interrupted"},
                                      {0}};

static void print_commands(FILE *to)
{
    fprintf(to, "usage: stoker COMMAND [ARGUMENTS] [FLAGS]\n\n"
                "Reads JSONL manifests and the images they name, and delivers exact Qwen-VL batches ahead of "
                "a trainer.\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\n`stoker COMMAND --help` tells all of a command; `stoker options` lists the options of a "
                "configuration.\nExit status:");
    for (const exit_meaning *e = exit_meanings; e->meaning; e++)
        fprintf(to, "%s %d %s", e == exit_meanings ? "" : ";", e->status, e->meaning);
    fprintf(to, ".\n");
}

static int start(const command *c, int argc, char **argv)
{
    for (int a = 0; a < argc; a++)
        if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0) {
            print_help(c);
            return EXIT_DONE;
        }
    invocation in = {.command = c, .options = STK_OPTIONS_INIT};
    catch_interrupts();
    int status = parse_arguments(&in, c, argc, argv);
    if (status == EXIT_DONE) status = c->run(&in);
    stk_options_deinit(&in.options);
    return status;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return EXIT_DONE;
    }
    const char *const name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0) return start(commands[i], argc - 2, argv + 2);
    fprintf(stderr, "stoker: unknown command %s: `stoker --help` lists the commands\n", argv[1]);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const int status = dispatch(argc, argv);
    /* What was to be shown must have gone out: a full disk behind stdout is a failure. */
    const bool lost = ferror(stdout) != 0;
    if ((fflush(stdout) || lost) && status == EXIT_DONE) {
        perror("stoker: cannot write the output");
        return EXIT_FAILED;
    }
    return status;
}
