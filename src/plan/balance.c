/* balance.c - longest-first with room, then exchanges: first rows to ranks, then each rank's rows to its micro-batches. */
#include "plan/balance.h"

#include <stdlib.h>

enum {
    UNIT = 1 << 20,         /* the mean load of a bin, in each of the two costs; less where that, times the bins, were above LOADS */
    LOADS = 1 << 29,        /* sums of squares of loads stay below 2^62 */
    ALL_COUNTS = 4,         /* how much the square of all work counts beside that of the vision tower's, which is in it too */
    EXCHANGES_MAX = 256,    /* a step; each takes the best of all pairs between one bin and the others */
    PAIRS_MAX = 1 << 21,    /* looked at in a step: 4,096 rows cost a few milliseconds */
};

/* A row as the dealing sees it: costs as shares of a bin's mean. */
typedef struct item {
    uint32_t row;  /* of the step */
    uint32_t bin;
    bool media;
    int64_t all, vision; /* mean of a bin: UNIT each */
} item;

enum { TEXT, MEDIA, KINDS };

typedef struct bin {
    uint32_t count, room;             /* items, and how many it takes */
    uint32_t of[KINDS], most[KINDS];  /* likewise, by kind */
    int64_t all, vision;
    bool stuck;                       /* no exchange with it helps, as the others are */
} bin;

struct stk_dealer {
    item *item;
    uint32_t item_capacity;
    bin *bin;
    uint32_t bin_capacity;
};

stk_status stk_dealer_create(stk_dealer **out, stk_error *err)
{
    *out = stk_alloc(STK_TAG_PLAN, sizeof **out);
    return *out ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: dealing rows to ranks");
}

void stk_dealer_destroy(stk_dealer *dealer)
{
    if (!dealer) return;
    stk_free(dealer->item);
    stk_free(dealer->bin);
    stk_free(dealer);
}

static stk_status make_room(stk_dealer *d, uint32_t items, uint32_t bins, stk_error *err)
{
    if (items > d->item_capacity) {
        stk_free(d->item);
        d->item = stk_alloc_array(STK_TAG_PLAN, items, sizeof *d->item);
        d->item_capacity = d->item ? items : 0;
    }
    if (bins > d->bin_capacity) {
        stk_free(d->bin);
        d->bin = stk_alloc_array(STK_TAG_PLAN, bins, sizeof *d->bin);
        d->bin_capacity = d->bin ? bins : 0;
    }
    if (d->item_capacity >= items && d->bin_capacity >= bins) return STK_OK;
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: dealing %u rows to ranks", items);
}

/* A cost as a share of a bin's mean: UNIT x bins x cost / total. */
static int64_t share(uint64_t cost, stk_u128 total, uint32_t bins)
{
    const uint64_t loads = bins < LOADS / UNIT ? (uint64_t)UNIT * bins : LOADS;
    return total ? (int64_t)((stk_u128)cost * loads / total) : 0;
}

static int by_size(const void *a, const void *b)
{
    const item *const x = a, *const y = b;
    const int64_t of_x = x->all + x->vision, of_y = y->all + y->vision;
    if (of_x != of_y) return of_x < of_y ? 1 : -1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* How much the sum of squares grows when a load is added to. */
static int64_t growth(int64_t load, int64_t by)
{
    return by * (2 * load + by);
}

static bool has_room(const bin *b, const item *i)
{
    return b->count < b->room && b->of[i->media] < b->most[i->media];
}

static void put(bin *b, item *i, uint32_t at)
{
    b->count++;
    b->of[i->media]++;
    b->all += i->all;
    b->vision += i->vision;
    i->bin = at;
}

/* Each item, the largest first, where it evens out most. */
static void fill(bin *bins, uint32_t bin_count, item *items, uint32_t item_count)
{
    for (uint32_t i = 0; i < item_count; i++) {
        uint32_t best = UINT32_MAX;
        int64_t least = INT64_MAX;
        for (uint32_t b = 0; b < bin_count; b++) {
            if (!has_room(&bins[b], &items[i])) continue;
            const int64_t cost = ALL_COUNTS * growth(bins[b].all, items[i].all) + growth(bins[b].vision, items[i].vision);
            if (cost >= least) continue;
            least = cost;
            best = b;
        }
        put(&bins[best], &items[i], best);
    }
}

/* The bin that all others wait for, in either cost, of those that are not stuck; bin_count: all are. */
static uint32_t heaviest(const bin *bins, uint32_t bin_count)
{
    uint32_t at = bin_count;
    int64_t most = -1;
    for (uint32_t b = 0; b < bin_count; b++) {
        const int64_t load = bins[b].all > bins[b].vision ? bins[b].all : bins[b].vision;
        if (bins[b].stuck || load <= most) continue;
        most = load;
        at = b;
    }
    return at;
}

static int64_t gain(const bin *from, const bin *to, const item *out, const item *in)
{
    const int64_t all = in->all - out->all, vision = in->vision - out->vision;
    return -(ALL_COUNTS * (growth(from->all, all) + growth(to->all, -all)) + growth(from->vision, vision) + growth(to->vision, -vision));
}

/* Exchange two items of different bins while that evens out, those of the heaviest bin first.  kinds_stay: only media against media,
 * text against text. */
static void exchange(bin *bins, uint32_t bin_count, item *items, uint32_t item_count, bool kinds_stay)
{
    uint64_t pairs = 0;
    for (int done = 0; done < EXCHANGES_MAX && pairs < PAIRS_MAX;) {
        const uint32_t from = heaviest(bins, bin_count);
        if (from == bin_count) return;
        int64_t most = 0;
        item *out = NULL, *in = NULL;
        for (uint32_t i = 0; i < item_count; i++) {
            if (items[i].bin != from) continue;
            for (uint32_t k = 0; k < item_count; k++) {
                if (items[k].bin == from || (kinds_stay && items[i].media != items[k].media)) continue;
                const int64_t by = gain(&bins[from], &bins[items[k].bin], &items[i], &items[k]);
                if (by <= most) continue;
                most = by;
                out = &items[i];
                in = &items[k];
            }
            pairs += item_count;
        }
        bins[from].stuck = !out;
        if (!out) continue;
        done++;
        for (uint32_t b = 0; b < bin_count; b++) bins[b].stuck = false;
        bin *const to = &bins[in->bin];
        bins[from].all += in->all - out->all;
        bins[from].vision += in->vision - out->vision;
        to->all -= in->all - out->all;
        to->vision -= in->vision - out->vision;
        out->bin = in->bin;
        in->bin = from;
    }
}

/* --- ranks --- */

/* Costs as shares: of all of the model's work, and of the vision tower's where it is to be balanced. */
static void weigh(item *items, uint32_t count, const stk_row_cost *row, stk_balance balance, uint32_t bins)
{
    stk_u128 all = 0, vision = 0;
    for (uint32_t i = 0; i < count; i++) {
        const stk_row_cost *const cost = &row[items[i].row];
        all += cost->model + (balance == STK_BALANCE_BOTH ? cost->vision : 0);
        vision += cost->vision;
    }
    for (uint32_t i = 0; i < count; i++) {
        const stk_row_cost *const cost = &row[items[i].row];
        const bool both = balance == STK_BALANCE_BOTH;
        items[i].all = share(cost->model + (both ? cost->vision : 0), all, bins);
        items[i].vision = both ? share(cost->vision, vision, bins) : 0;
    }
}

static void level(bin *bins, uint32_t bin_count, item *items, uint32_t item_count, bool kinds_stay)
{
    qsort(items, item_count, sizeof *items, by_size);
    fill(bins, bin_count, items, item_count);
    if (bin_count > 1) exchange(bins, bin_count, items, item_count, kinds_stay);
}

static uint32_t micro_count_of(const stk_deal_rules *rules)
{
    return (rules->rank_rows + rules->micro_rows - 1) / rules->micro_rows;
}

/* Room for a rank's rows in its micro-batches.  Aligned: rows with media spread over the first `columns`, what does not fit there goes
 * on behind them. */
static void open_micros(bin *bins, const stk_deal_rules *rules, uint32_t media, uint32_t columns)
{
    const uint32_t count = micro_count_of(rules);
    uint32_t left = rules->rank_rows, media_left = media;
    for (uint32_t j = 0; j < count; j++) {
        bins[j] = (bin){.room = left < rules->micro_rows ? left : rules->micro_rows};
        left -= bins[j].room;
        bins[j].most[TEXT] = bins[j].most[MEDIA] = bins[j].room;
    }
    for (uint32_t j = 0; rules->aligned && j < count; j++) {
        uint32_t most = j < columns ? media / columns + (j < media % columns) : media_left;
        if (most > bins[j].room) most = bins[j].room;
        if (most > media_left) most = media_left;
        bins[j].most[MEDIA] = most;
        bins[j].most[TEXT] = bins[j].room - most;
        media_left -= most;
    }
    /* What the even share left over, because a micro-batch was full. */
    for (uint32_t j = 0; rules->aligned && media_left && j < count; j++) {
        const uint32_t more = bins[j].room - bins[j].most[MEDIA] < media_left ? bins[j].room - bins[j].most[MEDIA] : media_left;
        bins[j].most[MEDIA] += more;
        bins[j].most[TEXT] -= more;
        media_left -= more;
    }
}

static void open_ranks(bin *bins, const stk_deal_rules *rules, uint32_t media)
{
    for (uint32_t r = 0; r < rules->world; r++) {
        bins[r] = (bin){.room = rules->rank_rows, .most = {rules->rank_rows, rules->rank_rows}};
        if (!rules->aligned) continue;
        bins[r].most[MEDIA] = media / rules->world + (r < media % rules->world);
        bins[r].most[TEXT] = rules->rank_rows - bins[r].most[MEDIA];
    }
}

static int by_rank(const void *a, const void *b)
{
    const item *const x = a, *const y = b;
    if (x->bin != y->bin) return x->bin < y->bin ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void deal_in_order(const stk_deal_rules *rules, uint32_t row_count, stk_deal_place *place)
{
    for (uint32_t i = 0; i < row_count; i++)
        place[i] = (stk_deal_place){i % rules->world, i / rules->world / rules->micro_rows};
}

stk_status stk_deal(stk_dealer *dealer, const stk_deal_rules *rules, const stk_row_cost *row, uint32_t row_count,
                    stk_deal_place *place, stk_error *err)
{
    if (row_count == 0 || (rules->balance == STK_BALANCE_NONE && !rules->aligned)) {
        deal_in_order(rules, row_count, place);
        return STK_OK;
    }
    const uint32_t micros = micro_count_of(rules);
    STK_TRY(make_room(dealer, row_count, rules->world > micros ? rules->world : micros, err));
    item *const items = dealer->item;
    uint32_t media = 0;
    for (uint32_t i = 0; i < row_count; i++) {
        items[i] = (item){.row = i, .media = row[i].has_media};
        media += row[i].has_media;
    }
    weigh(items, row_count, row, rules->balance, rules->world);
    open_ranks(dealer->bin, rules, media);
    level(dealer->bin, rules->world, items, row_count, rules->aligned);
    for (uint32_t i = 0; i < row_count; i++) place[items[i].row].rank = items[i].bin;
    qsort(items, row_count, sizeof *items, by_rank);

    uint32_t columns = media / rules->world < micros ? media / rules->world : micros;
    if (columns == 0) columns = 1;
    for (uint32_t first = 0, end; first < row_count; first = end) {
        uint32_t of_rank = 0;
        for (end = first; end < row_count && items[end].bin == items[first].bin; end++) of_rank += items[end].media;
        open_micros(dealer->bin, rules, of_rank, columns);
        weigh(items + first, end - first, row, rules->balance, micros);
        level(dealer->bin, micros, items + first, end - first, rules->aligned);
        for (uint32_t i = first; i < end; i++) place[items[i].row].micro = items[i].bin;
    }
    return STK_OK;
}
