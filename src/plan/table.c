/* table.c - windows counted by threads, summed up, kept in a file. */
#include "plan/table.h"

#include <stdatomic.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/parallel.h"
#include "plan/window.h"

enum { WINDOWS_MAX = 1 << 28 };

typedef struct epoch_rows {
    uint64_t window_count;
    uint64_t *rows_before; /* of the epoch, window_count + 1 */
} epoch_rows;

struct stk_table {
    epoch_rows *epoch;
    uint64_t *rows_before; /* of the run, epoch_count + 1 */
    uint64_t epoch_count, capacity;
};

/* --- counting --- */

typedef struct counting {
    const stk_plan_config *config;
    const stk_order *order;
    uint64_t epoch, window_count;
    uint64_t *rows; /* of each window */
    atomic_uint_fast64_t next;
    atomic_int status;
} counting;

static void count_windows(void *context)
{
    counting *const c = context;
    stk_window window;
    const stk_status status = stk_window_init(&window, c->config, NULL);
    if (status < 0) {
        atomic_store(&c->status, status);
        return;
    }
    for (uint64_t w; (w = atomic_fetch_add(&c->next, 1)) < c->window_count;) {
        stk_window_load(&window, c->order, c->epoch, w);
        c->rows[w] = window.row_count;
        if (!stk_watch_goes_on(c->config->watch, "plan", "packing", w, c->window_count)) break;
    }
    stk_window_deinit(&window);
}

static stk_status count_epoch(const stk_plan_config *config, const stk_order *order, uint64_t epoch, epoch_rows *rows,
                              stk_error *err)
{
    counting c = {.config = config, .order = order, .epoch = epoch, .window_count = rows->window_count,
                  .rows = rows->rows_before + 1};
    stk_parallel(config->threads < rows->window_count ? config->threads : (uint32_t)rows->window_count, count_windows, &c);
    STK_TRY(stk_watch_status(config->watch, err));
    if (atomic_load(&c.status) < 0) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the windows of an epoch");
    for (uint64_t w = 0; w < rows->window_count; w++) rows->rows_before[w + 1] += rows->rows_before[w];
    return STK_OK;
}

/* Room for one more epoch of so many windows. */
static stk_status add_epoch(stk_table *table, uint64_t window_count, stk_error *err)
{
    if (table->epoch_count == table->capacity) {
        const uint64_t capacity = table->capacity ? 2 * table->capacity : 8;
        epoch_rows *const epoch = stk_alloc_array(STK_TAG_PLAN, capacity, sizeof *epoch);
        uint64_t *const before = stk_alloc_array(STK_TAG_PLAN, capacity + 1, sizeof *before);
        if (!epoch || !before) {
            stk_free(epoch);
            stk_free(before);
            return stk_fail(err, STK_ERR_NOMEM, "out of memory: tables of %llu epochs", (unsigned long long)capacity);
        }
        if (table->epoch_count) {
            memcpy(epoch, table->epoch, table->epoch_count * sizeof *epoch);
            memcpy(before, table->rows_before, (table->epoch_count + 1) * sizeof *before);
        }
        stk_free(table->epoch);
        stk_free(table->rows_before);
        table->epoch = epoch;
        table->rows_before = before;
        table->capacity = capacity;
    }
    epoch_rows *const e = &table->epoch[table->epoch_count];
    e->window_count = window_count;
    e->rows_before = stk_alloc_array(STK_TAG_PLAN, window_count + 1, sizeof *e->rows_before);
    if (!e->rows_before) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a table of %llu windows", (unsigned long long)window_count);
    return STK_OK;
}

static void close_epoch(stk_table *table)
{
    const epoch_rows *const e = &table->epoch[table->epoch_count];
    table->rows_before[table->epoch_count + 1] = table->rows_before[table->epoch_count] + e->rows_before[e->window_count];
    table->epoch_count++;
}

/* The epoch that was added and not closed. */
static void drop_epoch(stk_table *table)
{
    stk_free(table->epoch[table->epoch_count].rows_before);
    table->epoch[table->epoch_count].rows_before = NULL;
}

/* --- the file: magic, key, number of epochs, of each its windows and their rows, and XXH3-128 over all before it --- */

static const char magic[16] = "stoker-table 1\n";

static bool take(const uint8_t **at, const uint8_t *end, void *to, size_t size_bytes)
{
    if ((size_t)(end - *at) < size_bytes) return false;
    memcpy(to, *at, size_bytes);
    *at += size_bytes;
    return true;
}

/* Rows of the windows of an epoch.  Each has one at least, and no more than draws; false: the file is not of this plan. */
static bool take_rows(const uint8_t **at, const uint8_t *end, const stk_plan_config *config, uint64_t draws, epoch_rows *epoch)
{
    for (uint64_t w = 0; w < epoch->window_count; w++) {
        uint32_t rows = 0;
        const uint64_t left = draws - w * config->window, most = left < config->window ? left : config->window;
        if (!take(at, end, &rows, sizeof rows) || rows == 0 || rows > most) return false;
        epoch->rows_before[w + 1] = epoch->rows_before[w] + rows;
    }
    return true;
}

/* Epochs from the file as far as they fit what is expected of them; what does not is left to counting. */
static void read_file(stk_table *table, const stk_plan_config *config, const stk_order *order, const char *path,
                      const uint8_t key[16])
{
    stk_map map;
    if (stk_map_open(&map, path, NULL) < 0) return;
    XXH128_canonical_t sum;
    const uint8_t *at = map.data;
    char head[16];
    uint8_t own_key[16];
    uint64_t epochs = 0;
    bool good = map.size_bytes > sizeof head + 40;
    if (good) {
        const size_t summed = map.size_bytes - sizeof sum;
        const uint8_t *const end = map.data + summed;
        XXH128_canonicalFromHash(&sum, XXH3_128bits(map.data, summed));
        good = memcmp(&sum, end, sizeof sum) == 0 && take(&at, end, head, sizeof head) &&
               memcmp(head, magic, sizeof head) == 0 && take(&at, end, own_key, sizeof own_key) &&
               memcmp(own_key, key, sizeof own_key) == 0 && take(&at, end, &epochs, sizeof epochs);
        for (uint64_t e = 0; good && e < epochs; e++) {
            uint64_t windows;
            const uint64_t draws = stk_order_epoch_begin(order, e + 1) - stk_order_epoch_begin(order, e);
            if (!take(&at, end, &windows, sizeof windows) || windows != stk_window_count(config, order, e) ||
                windows > (uint64_t)(end - at) / sizeof(uint32_t) || add_epoch(table, windows, NULL) < 0)
                break;
            good = take_rows(&at, end, config, draws, &table->epoch[e]);
            if (good) close_epoch(table);
            else drop_epoch(table);
        }
    }
    stk_map_close(&map);
}

static stk_status write_parts(stk_save *save, const stk_table *table, const uint8_t key[16], XXH3_state_t *sum, stk_error *err)
{
    XXH3_128bits_reset(sum);
#define PUT(data, size)                                                                                                          \
    do {                                                                                                                         \
        XXH3_128bits_update(sum, data, size);                                                                                    \
        STK_TRY(stk_save_write(save, data, size, err));                                                                          \
    } while (0)
    PUT(magic, sizeof magic);
    PUT(key, 16);
    PUT(&table->epoch_count, sizeof table->epoch_count);
    for (uint64_t e = 0; e < table->epoch_count; e++) {
        const epoch_rows *const epoch = &table->epoch[e];
        PUT(&epoch->window_count, sizeof epoch->window_count);
        uint32_t rows[1024];
        for (uint64_t w = 0; w < epoch->window_count;) {
            size_t count = 0;
            for (; count < 1024 && w < epoch->window_count; w++) rows[count++] = (uint32_t)(epoch->rows_before[w + 1] - epoch->rows_before[w]);
            PUT(rows, count * sizeof *rows);
        }
    }
#undef PUT
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(sum));
    return stk_save_write(save, &canonical, sizeof canonical, err);
}

/* A cache that cannot be written costs time, not a run. */
static void write_file(const stk_table *table, const char *path, const uint8_t key[16])
{
    stk_save save;
    XXH3_state_t *const sum = XXH3_createState();
    if (sum && stk_save_open(&save, path, NULL) == STK_OK) {
        if (write_parts(&save, table, key, sum, NULL) == STK_OK) (void)!stk_save_commit(&save, NULL);
        else stk_save_abandon(&save);
    }
    XXH3_freeState(sum);
}

/* --- the table --- */

stk_status stk_table_create(stk_table **out, const stk_plan_config *config, const stk_order *order, uint64_t epochs,
                            uint64_t rows, const char *file, const uint8_t key[16], stk_error *err)
{
    *out = NULL;
    stk_table *const table = stk_alloc(STK_TAG_PLAN, sizeof *table);
    if (!table) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the table of the plan");
    stk_status status = STK_OK;
    uint64_t windows = 0;
    if (file) read_file(table, config, order, file, key);
    const uint64_t read = table->epoch_count;
    for (uint64_t e = 0; e < read; e++) windows += table->epoch[e].window_count;
    while (status == STK_OK && (rows ? (table->epoch_count == 0 || table->rows_before[table->epoch_count] < rows) : table->epoch_count < epochs)) {
        const uint64_t count = stk_window_count(config, order, table->epoch_count);
        windows += count;
        if (windows > WINDOWS_MAX) {
            status = stk_fail(err, STK_ERR_OPTION, "the run has over %d windows to pack: lower epochs or steps, or raise window",
                              WINDOWS_MAX);
            break;
        }
        status = add_epoch(table, count, err);
        if (status < 0) break;
        status = count_epoch(config, order, table->epoch_count, &table->epoch[table->epoch_count], err);
        if (status == STK_OK) close_epoch(table);
        else drop_epoch(table);
    }
    if (status < 0) {
        stk_table_destroy(table);
        return status;
    }
    if (file && table->epoch_count > read) write_file(table, file, key);
    *out = table;
    return STK_OK;
}

void stk_table_destroy(stk_table *table)
{
    if (!table) return;
    for (uint64_t e = 0; e < table->epoch_count; e++) stk_free(table->epoch[e].rows_before);
    stk_free(table->epoch);
    stk_free(table->rows_before);
    stk_free(table);
}

uint64_t stk_table_epochs(const stk_table *table)
{
    return table->epoch_count;
}

uint64_t stk_table_rows_before(const stk_table *table, uint64_t epoch)
{
    return table->rows_before[epoch];
}

/* The last place whose value is not above `value`, in a rising list. */
static uint64_t last_not_above(const uint64_t *list, uint64_t count, uint64_t value)
{
    uint64_t low = 0, high = count;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (list[middle] <= value) low = middle;
        else high = middle;
    }
    return low;
}

uint64_t stk_table_window(const stk_table *table, uint64_t epoch, uint64_t row, uint64_t *rows_before, uint64_t *rows)
{
    const epoch_rows *const e = &table->epoch[epoch];
    const uint64_t window = last_not_above(e->rows_before, e->window_count, row);
    *rows_before = e->rows_before[window];
    *rows = e->rows_before[window + 1] - *rows_before;
    return window;
}
