/* command.h - what the commands of `stoker` share: their flags, their exit statuses, the terminal. */
#ifndef STOKER_CLI_COMMAND_H
#define STOKER_CLI_COMMAND_H

#include <jansson.h>
#include <stoker/stoker.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SPENT = 3, EXIT_INTERRUPTED = 130 };

/* A flag of one command; every option of the table is a flag too, where the command reads a configuration. */
typedef struct flag {
    const char *name;  /* without the dashes */
    const char *value; /* what stands behind it in the help; NULL: a switch */
    const char *help;
} flag;

struct invocation;

typedef struct command {
    const char *name, *arguments, *summary;
    const char *word; /* that must stand first, as `plan` in `stoker cluster plan`; NULL: none */
    const char *text;  /* further paragraphs of its help; NULL: none */
    const flag *flags; /* ended by a name of NULL */
    int least, most;   /* positional arguments */
    bool reads_config; /* the first one is a configuration */
    bool takes_addresses; /* or they are addresses with ://, and options have their defaults */
    int (*run)(const struct invocation *);
} command;

enum { ARGUMENTS_MAX = 8, FLAGS_MAX = 64 };

/* All commands, in the order of the help. */
const command *const *command_list(size_t *count);

/* What the exit statuses mean, ended by a meaning of NULL. */
typedef struct exit_meaning {
    int status;
    const char *meaning;
} exit_meaning;
extern const exit_meaning exit_meanings[];

typedef struct invocation {
    const command *command;
    const char *argument[ARGUMENTS_MAX];
    int argument_count;
    const char *flag_name[FLAGS_MAX], *flag_value[FLAGS_MAX]; /* in the order given */
    int flag_count;
    stk_options options; /* read, with all flags applied, when the command reads a configuration */
} invocation;

extern const command init_command, index_command, fetch_bench_command, plan_command, run_command, serve_command, show_command, replay_command,
    diff_command, cluster_command, options_command, version_command;

/* args.c */
/* Parse what follows the command's name and read the configuration.  0, or an exit status after the message.
 */
int parse_arguments(invocation *in, const command *command, int argc, char **argv);
/* The value of a flag ("" for a switch), the last one given; NULL: not given. */
const char *flag_of(const invocation *in, const char *name);
/* A whole number in a range, or `otherwise` when the flag is not given.  False after the message. */
bool number_of(const invocation *in, const char *name, int64_t low, int64_t high, int64_t otherwise,
               int64_t *value);
/* The same of a number with a fraction. */
bool decimal_of(const invocation *in, const char *name, double low, double high, double otherwise, double *value);
/* Set what all flags of this name say as KEY=VALUE, for a command that reads configurations itself.  0, or an exit status after the message. */
int apply_sets(const invocation *in, const char *name, stk_options *options);
void print_help(const command *command);

/* A flag as people type it. */
typedef struct listed_flag {
    char name[64];  /* with dashes: "--micro-batch" */
    char value[24]; /* what stands behind it in the help; "": a switch */
    const char *help;
    const stk_option *option; /* NULL: a flag of the commands */
} listed_flag;

/* The flags that a command takes, by their place: its own, --help, --set, the options of the table that its
 * own do not hide. False behind the last. */
bool list_flag(const command *command, size_t at, listed_flag *out);
int usage_error(const command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* terminal.c */
/* Print the error and give the exit status that belongs to it. */
int fail_with(const stk_error *err);
void catch_interrupts(void);
bool interrupted(void);
/* Whether colours may be written to stdout. */
bool colours(void);
/* Progress of the index on stderr: a bar on a terminal, plain lines elsewhere. */
stk_index_progress index_progress(void);
/* One line that is written over again on a terminal; elsewhere a plain line every ten seconds. */
void live_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void live_line_end(void);
void hex_text(const uint8_t digest[16], char text[33]);
/* Print and release. */
int print_json(json_t *root);

/* report.c */
void print_index_report(const stk_index_report *report);
json_t *index_report_json(const stk_index_report *report);

/* cmd_run.c */
/* The report of some steps of rank 0 of a run, as fast as they come, as `run --json` has it.  0, or an exit status after the message. */
int measure_run(const stk_options *options, uint32_t world, uint64_t steps, json_t **report);

/* man.c */
/* The manual page of a section, "1" (stoker) or "5" (stoker.yaml), as roff with the man macros. */
int print_man(const char *section);

/* completion.c */
/* The completion script of a shell: bash, zsh or fish. */
int print_completion(const char *shell);

/* plot.c */
/* A process that draws what it is told, row by row. */
typedef struct plotter {
    int child; /* process id */
    FILE *to;  /* takes the table of a plan, as CSV; NULL: none is wanted */
} plotter;
/* Start it: a picture goes to path.  0, or an exit status after the message. */
int plot_start(plotter *plotter, const command *command, const char *path);
/* Have it draw, or end it without a picture where status is a failure.  The status of both together. */
int plot_finish(plotter *plotter, int status);

/* png_out.c */
/* Write RGB rows as a PNG.  False after the message. */
bool write_png(const char *path, const uint8_t *rgb, uint32_t width_px, uint32_t height_px);

#endif
