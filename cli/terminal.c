/* terminal.c - errors and exit statuses, interrupts, progress, colours. */
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

int fail_with(const stk_error *err)
{
    live_line_end();
    if (err->status == STK_ERR_INTERRUPTED) {
        fprintf(stderr, "stoker: interrupted; what is done is kept\n");
        return EXIT_INTERRUPTED;
    }
    stk_error_print(stderr, err);
    /* Also a configuration or a state that cannot be opened, or data that it refuses (overlong: error). */
    if (err->stage == STK_STAGE_OPTIONS || err->stage == STK_STAGE_STATE) return EXIT_USAGE;
    if (err->stage == STK_STAGE_PLAN && err->status == STK_ERR_RECORD) return EXIT_USAGE;
    switch (err->status) {
    case STK_ERR_OPTION:
    case STK_ERR_MODEL:
    case STK_ERR_STATE:
    case STK_ERR_BUDGET:
    case STK_ERR_USAGE:
    case STK_ERR_MANIFEST: return EXIT_USAGE;
    case STK_ERR_SPENT: return EXIT_SPENT;
    default: return EXIT_FAILED;
    }
}

/* --- interrupts: a flag that loops look at; a second one ends the process at once --- */

static volatile sig_atomic_t interrupt_count;

static void on_interrupt(int number)
{
    if (interrupt_count++) _exit(EXIT_INTERRUPTED);
    (void)number;
}

void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* `stoker ... | head`: the write fails, and main says so */
}

bool interrupted(void)
{
    return interrupt_count > 0;
}

/* --- progress --- */

static bool line_is_open;

enum { PLAIN_SECONDS = 10 };

/* Whether a plain line is due: none in the first seconds, so that short commands stay silent. */
static bool plain_line_is_due(void)
{
    static time_t last;
    const time_t now = time(NULL);
    if (!last) last = now;
    if (now - last < PLAIN_SECONDS) return false;
    last = now;
    return true;
}

void live_line(const char *format, ...)
{
    const bool live = isatty(STDERR_FILENO);
    if (!live && !plain_line_is_due()) return;
    va_list arguments;
    va_start(arguments, format);
    if (live) fputs("\r\033[K", stderr);
    vfprintf(stderr, format, arguments);
    if (!live) fputc('\n', stderr);
    fflush(stderr);
    va_end(arguments);
    line_is_open = live;
}

void live_line_end(void)
{
    if (line_is_open) fputc('\n', stderr);
    line_is_open = false;
}

static bool report_progress(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    enum { WIDTH = 30 };
    (void)context;
    const double share = total && done < total ? (double)done / (double)total : 1;
    if (isatty(STDERR_FILENO)) {
        char bar[WIDTH + 1];
        for (int i = 0; i < WIDTH; i++) bar[i] = i < (int)(share * WIDTH) ? '#' : '.';
        bar[WIDTH] = 0;
        live_line("%s: %s [%s] %3.0f %%", set, phase, bar, share * 100);
    } else {
        live_line("%s: %s: %.0f %%", set, phase, share * 100);
    }
    return !interrupted();
}

stk_index_progress index_progress(void)
{
    return (stk_index_progress){.report = report_progress};
}

bool colours(void)
{
    const char *const no_colour = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && !(no_colour && no_colour[0]);
}

void hex_text(const uint8_t digest[16], char text[33])
{
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

int print_json(json_t *root)
{
    if (!root || json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9))) {
        fprintf(stderr, "stoker: cannot write the JSON document\n");
        json_decref(root);
        return EXIT_FAILED;
    }
    putchar('\n');
    json_decref(root);
    return EXIT_DONE;
}
