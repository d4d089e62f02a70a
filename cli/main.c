/* main.c - `stoker`: finds the command, and hands it its arguments.  Everything is done through <stoker/stoker.h>. */
#include <stdio.h>
#include <string.h>

#include "command.h"

static const command *const commands[] = {&init_command, &index_command, &plan_command, &run_command,
                                          &show_command, &replay_command, &options_command, &version_command};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_commands(FILE *to)
{
    fprintf(to, "usage: stoker COMMAND [ARGUMENTS] [FLAGS]\n\n"
                "Reads JSONL manifests and the images they name, and delivers exact Qwen-VL batches ahead of a trainer.\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(to, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\n`stoker COMMAND --help` tells all of a command; `stoker options` lists the options of a configuration.\n"
                "Exit status: 0 done; 1 the run failed; 2 usage or configuration; 3 the error budget of a data set is spent;\n"
                "130 interrupted.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
    }
    const char *const name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) != 0) continue;
        invocation in = {.command = commands[i], .options = STK_OPTIONS_INIT};
        for (int a = 2; a < argc; a++)
            if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0) {
                print_help(commands[i]);
                return EXIT_DONE;
            }
        catch_interrupts();
        int status = parse_arguments(&in, commands[i], argc - 2, argv + 2);
        if (status == EXIT_DONE) status = commands[i]->run(&in);
        stk_options_deinit(&in.options);
        /* What was to be shown must have gone out: a full disk behind stdout is a failure. */
        if (fflush(stdout) && status == EXIT_DONE) {
            perror("stoker: stdout");
            status = EXIT_FAILED;
        }
        return status;
    }
    fprintf(stderr, "stoker: unknown command %s: `stoker --help` lists the commands\n", argv[1]);
    return EXIT_USAGE;
}
