/* serving_open.c - the engine of a serving: configured and agreed upon, opened at the earliest place that is wanted, on a thread of its own. */
#include "engine/serving_core.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"
#include "engine/number_list.h"

/* How long those that come back wait for each other, so that the engine is opened once for all of them. */
#define COME_BACK_NS (2 * STK_S)

/* --- the thread that opens --- */

/* Only this thread, and those that it starts. */
static stk_status keep_to_budget(const stk_options *options, stk_error *err)
{
    cpu_set_t cpus;
    if (options->nice && setpriority(PRIO_PROCESS, (id_t)gettid(), (int)options->nice)) return stk_fail_errno(err, "cannot set nice");
    if (!options->cpus) return STK_OK;
    STK_TRY(stk_cpus_parse(options->cpus, &cpus, err));
    if (sched_setaffinity(0, sizeof cpus, &cpus) == 0) return STK_OK;
    return stk_fail(err, STK_ERR_OPTION, "cpus: %.60s: this process may use none of them (errno %d)", options->cpus, errno);
}

static bool report(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    stk_serving *const s = context;
    pthread_mutex_lock(&s->lock);
    if (total) snprintf(s->words, sizeof s->words, "for the index of %.60s: %.40s %llu of %llu", set, phase, (unsigned long long)done, (unsigned long long)total);
    else snprintf(s->words, sizeof s->words, "for the index of %.60s: %.40s", set, phase);
    pthread_mutex_unlock(&s->lock);
    return !atomic_load(&s->stop);
}

static void *run_open(void *context)
{
    stk_serving *const s = context;
    pthread_setname_np(pthread_self(), "stk-open");
    const stk_index_progress progress = {report, s};
    stk_engine_close(&s->old);
    s->status = keep_to_budget(&s->options, &s->error);
    if (s->status == STK_OK)
        s->status = stk_engine_open(&s->opened, &s->options, s->ranks, s->from_state ? &s->from : NULL, &progress, &s->error);
    atomic_store(&s->done, true);
    (void)eventfd_write(s->wake_fd, 1);
    return NULL;
}

/* --- seats of all kinds --- */

static uint32_t seat_count(const stk_serving *s)
{
    return s->text ? STK_LANES * s->ranks.rank_count * s->readers : 0;
}

static bool is_eval(const stk_seat *seat)
{
    const stk_serving *const s = seat->rank->serving;
    return seat->rank >= s->rank[STK_LANE_EVAL] && seat->rank < s->rank[STK_LANE_EVAL] + s->ranks.rank_count;
}

static bool is_taken(const stk_seat *seat)
{
    return seat->stage == STK_SEAT_COMING || seat->stage == STK_SEAT_PLACED;
}

/* Whether a wanted place lies before another, in the same run. */
static bool is_before(const stk_wire_place *a, const stk_wire_place *b)
{
    if (!a->has_state || !b->has_state) return !a->has_state && b->has_state;
    const stk_state *const x = &a->state, *const y = &b->state;
    if (stk_state_is_step(x) || stk_state_is_step(y)) return x->step < y->step;
    if (x->epoch != y->epoch) return x->epoch < y->epoch;
    if (x->rows != y->rows) return x->rows < y->rows;
    return x->micro < y->micro;
}

/* All who sit are coming again, from where they stand. */
static void unplace_all(stk_serving *s)
{
    for (uint32_t i = 0; i < seat_count(s); i++) {
        stk_seat *const seat = &s->seats[i];
        if (seat->stage != STK_SEAT_PLACED) continue;
        const stk_wire_place here = {.pass = seat->pass, .has_state = true, .state = seat->state};
        stk_seat_move(seat, &here);
    }
}

static void forget_engine(stk_serving *s)
{
    for (uint32_t k = 0; k < STK_LANES; k++)
        for (uint32_t i = 0; s->rank[k] && i < s->ranks.rank_count; i++) {
            stk_serving_rank *const rank = &s->rank[k][i];
            stk_serving_let_go_all(rank);
            stk_free(rank->batch);
            *rank = (stk_serving_rank){.serving = s, .seat = rank->seat};
        }
    s->old = s->engine;
    s->engine = NULL;
}

/* --- opening --- */

/* The earliest place of training, and pass of evaluation. */
static void find_start(stk_serving *s)
{
    const stk_wire_place *first = NULL;
    bool any = false;
    for (uint32_t i = 0; i < seat_count(s); i++) {
        const stk_seat *const seat = &s->seats[i];
        if (seat->stage != STK_SEAT_COMING) continue;
        if (!is_eval(seat)) {
            if (!first || is_before(&seat->want, first)) first = &seat->want;
        } else if (!seat->want.fresh && (!any || seat->want.pass < s->base_pass)) {
            s->base_pass = seat->want.pass;
            any = true;
        }
    }
    if (!any) s->base_pass = 0;
    s->from_state = first && first->has_state;
    if (s->from_state) s->from = first->state;
}

static void refuse_coming(stk_serving *s, const stk_error *error)
{
    for (uint32_t i = 0; i < seat_count(s); i++) {
        if (s->seats[i].stage != STK_SEAT_COMING) continue;
        s->seats[i].stage = STK_SEAT_REFUSED;
        s->seats[i].error = *error;
    }
}

static void start_opening(stk_serving *s)
{
    unplace_all(s);
    find_start(s);
    forget_engine(s);
    s->wait_until = 0;
    s->opened = NULL;
    s->status = STK_OK;
    atomic_store(&s->done, false);
    snprintf(s->words, sizeof s->words, "for the engine to open its data");
    const int code = stk_thread_start(&s->thread, run_open, s);
    s->opening = code == 0;
    if (s->opening) return;
    stk_error error;
    errno = code;
    (void)stk_fail_errno(&error, "cannot start a thread");
    refuse_coming(s, &error);
}

static stk_status take_engine(stk_serving *s, stk_error *err)
{
    s->engine = s->opened;
    s->opened = NULL;
    s->spoiled = false;
    s->generation++;
    for (uint32_t k = 0; k < s->engine->lane_count; k++)
        for (uint32_t i = 0; i < s->ranks.rank_count; i++) {
            stk_serving_rank *const rank = &s->rank[k][i];
            rank->reader = &s->engine->lane[k].reader[i];
            rank->batch = stk_alloc_array(STK_TAG_ENGINE, (size_t)s->engine->lane[k].keep + 2, sizeof *rank->batch);
            if (!rank->batch) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine");
            for (uint32_t r = 0; r < s->readers; r++)
                if (rank->seat[r].stage == STK_SEAT_COMING) rank->seat[r].at = 0;
        }
    stk_engine_home *const home = s->engine->home;
    pthread_mutex_lock(&home->lock);
    home->ready_fd = s->wake_fd;
    pthread_mutex_unlock(&home->lock);
    return STK_OK;
}

static void end_opening(stk_serving *s)
{
    pthread_join(s->thread, NULL);
    s->opening = false;
    stk_error error = s->error;
    if (s->status < 0 || take_engine(s, &error) < 0) refuse_coming(s, &error);
}

/* Whether others are still to be waited for: of a crash, all clients know at once. */
static bool others_come(stk_serving *s)
{
    uint32_t taken = 0;
    bool resumed = false;
    for (uint32_t i = 0; i < seat_count(s); i++) {
        taken += is_taken(&s->seats[i]) && !is_eval(&s->seats[i]);
        resumed |= s->seats[i].stage == STK_SEAT_COMING && s->seats[i].resumed;
    }
    if (!resumed || taken == s->ranks.rank_count * s->readers) return false;
    if (!s->wait_until) s->wait_until = stk_now() + COME_BACK_NS;
    return stk_now() < s->wait_until;
}

void stk_serving_advance(stk_serving *s)
{
    if (s->opening && !atomic_load(&s->done)) return;
    if (s->opening) end_opening(s);
    bool wanted = false;
    for (uint32_t i = 0; i < seat_count(s); i++) {
        stk_seat *const seat = &s->seats[i];
        if (seat->stage != STK_SEAT_COMING) continue;
        const stk_status status = s->engine ? stk_seat_find(seat, &seat->error) : STK_AGAIN;
        wanted |= status == STK_AGAIN;
        if (status != STK_AGAIN) seat->stage = status < 0 ? STK_SEAT_REFUSED : STK_SEAT_PLACED;
    }
    if (wanted && !others_come(s)) start_opening(s);
}

/* --- configuration --- */

static void free_seats(stk_serving *s)
{
    forget_engine(s);
    stk_free(s->rank[0]);
    stk_free(s->seats);
    s->rank[0] = s->rank[1] = NULL;
    s->seats = NULL;
    stk_free(s->file);
    stk_free(s->text);
    s->file = s->text = NULL;
    stk_free(s->rank_list);
    s->rank_list = NULL;
    s->ranks = (stk_engine_ranks){0};
    stk_options_deinit(&s->options);
}

/* Whatever is being opened is not wanted any more. */
static void stop_opening(stk_serving *s)
{
    if (!s->opening) return;
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    atomic_store(&s->stop, false);
    s->opening = false;
    stk_engine_close(&s->opened);
}

static stk_status set_ranks(stk_serving *s, const stk_wire_hello *hello, stk_error *err)
{
    enum { SEATS_MAX = 1 << 16 };
    uint32_t count;
    s->readers = hello->readers;
    stk_buffer_clear(&s->node_ranks);
    STK_TRY(stk_numbers_read(&s->rank_list, &count, hello->node_ranks, hello->world, "node_ranks", err));
    s->ranks = (stk_engine_ranks){.rank = s->rank_list, .rank_count = count, .world = hello->world};
    STK_TRY(stk_numbers_write(&s->node_ranks, s->rank_list, count, err));
    if (s->readers > 0 && count <= SEATS_MAX / STK_LANES / s->readers) return STK_OK;
    return stk_fail(err, STK_ERR_USAGE, "%u readers of each of %u ranks are none, or too many", s->readers, count);
}

static stk_status make_seats(stk_serving *s, stk_error *err)
{
    const size_t ranks = s->ranks.rank_count;
    s->rank[0] = stk_alloc_array(STK_TAG_ENGINE, STK_LANES * ranks, sizeof **s->rank);
    s->seats = stk_alloc_array(STK_TAG_ENGINE, STK_LANES * ranks * s->readers, sizeof *s->seats);
    if (!s->rank[0] || !s->seats) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the seats of readers");
    s->rank[1] = s->rank[0] + ranks;
    for (size_t i = 0; i < STK_LANES * ranks; i++) {
        s->rank[0][i] = (stk_serving_rank){.serving = s, .seat = s->seats + i * s->readers};
        for (uint32_t r = 0; r < s->readers; r++) s->rank[0][i].seat[r].rank = &s->rank[0][i];
    }
    return STK_OK;
}

/* Take the configuration of a newcomer in place of what was there. */
static stk_status configure(stk_serving *s, const stk_wire_hello *hello, stk_error *err)
{
    stop_opening(s);
    free_seats(s);
    stk_engine_close(&s->old);
    s->file = stk_strndup(STK_TAG_ENGINE, hello->file);
    stk_status status = s->file ? stk_options_read_text(&s->options, hello->options.data, hello->options.size_bytes, s->file, err)
                                : stk_fail(err, STK_ERR_NOMEM, "out of memory: options");
    if (status == STK_OK) status = set_ranks(s, hello, err);
    if (status == STK_OK) status = make_seats(s, err);
    if (status == STK_OK && !(s->text = stk_strndup(STK_TAG_ENGINE, hello->options)))
        status = stk_fail(err, STK_ERR_NOMEM, "out of memory: options");
    if (status < 0) free_seats(s);
    return status;
}

/* --- agreement --- */

static stk_status differs(const stk_serving *s, const stk_wire_hello *hello, stk_error *err)
{
    char theirs[96], ours[96];
    const stk_engine_ranks *const ranks = &s->ranks;
    if (!stk_str_is(hello->file, s->file))
        return stk_fail(err, STK_ERR_OPTION, "the engine of this run was opened with the configuration %.100s, not %.*s: use one configuration, or another run",
                        s->file, (int)(hello->file.size_bytes < 90 ? hello->file.size_bytes : 90), hello->file.data);
    if (stk_options_text_difference(hello->options, stk_str_of(s->text), theirs, ours))
        return stk_fail(err, STK_ERR_OPTION, "the engine of this run has \"%.90s\", and this process \"%.90s\": give all processes of a run the same options", ours,
                        theirs);
    if (hello->world != ranks->world)
        return stk_fail(err, STK_ERR_USAGE, "the engine of this run serves a world of %u ranks, and this process says %u: end the others first", ranks->world,
                        hello->world);
    if (!stk_str_equal(hello->node_ranks, stk_serving_node_ranks(s)))
        return stk_fail(err, STK_ERR_USAGE, "the engine of this run serves ranks %.60s, and this process says %.*s: give all processes of a machine the same node_ranks",
                        stk_serving_node_ranks(s).data, (int)(hello->node_ranks.size_bytes < 60 ? hello->node_ranks.size_bytes : 60), hello->node_ranks.data);
    if (hello->readers != s->readers)
        return stk_fail(err, STK_ERR_USAGE, "the engine of this run has %u readers a rank, and this process says %u", s->readers, hello->readers);
    return STK_OK;
}

stk_status stk_serving_agree(stk_serving *s, const stk_wire_hello *hello, bool alone, stk_error *err)
{
    if (!stk_str_is(hello->release, stk_version()))
        return stk_fail(err, STK_ERR_USAGE, "the engine of this run is of release %s, and this process of another: end it, or use one release", stk_version());
    if (s->text) {
        const stk_status status = differs(s, hello, err);
        if (!alone || (status == STK_OK && !s->spoiled)) return status;
    }
    return configure(s, hello, err);
}

/* --- the object --- */

stk_status stk_serving_create(stk_serving **out, int wake_fd, stk_error *err)
{
    stk_serving *const s = *out = stk_alloc(STK_TAG_ENGINE, sizeof *s);
    if (!s) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an engine process");
    s->wake_fd = wake_fd;
    s->options = (stk_options)STK_OPTIONS_INIT;
    stk_buffer_init(&s->node_ranks, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX);
    pthread_mutex_init(&s->lock, NULL);
    return STK_OK;
}

void stk_serving_destroy(stk_serving *s)
{
    if (!s) return;
    stop_opening(s);
    free_seats(s);
    stk_engine_close(&s->old);
    stk_buffer_deinit(&s->node_ranks);
    pthread_mutex_destroy(&s->lock);
    stk_free(s);
}
