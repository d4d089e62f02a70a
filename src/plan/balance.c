/* balance.c - longest-first with room, then exchanges: first rows to ranks, then each rank's rows to its micro-batches. */
#include "plan/balance.h"

#include <stdlib.h>

enum {
    UNIT = 1 << 20,         /* the mean load of a bin, in each of the two costs */
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

typedef struct bin {
    uint32_t count, room;     /* items, and how many it takes */
    uint32_t media, media_most; /* likewise, of those with media */
    int64_t all, vision;
} bin;

struct stk_dealer {
    item *item;
    uint32_t item_capacity;
    bin *bin;
    uint32_t bin_capacity;
    uint32_t *order; /* of items by rank */
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
    stk_free(dealer->order);
    stk_free(dealer);
}

static stk_status make_room(stk_dealer *d, uint32_t items, uint32_t bins, stk_error *err)
{
    if (items > d->item_capacity) {
        stk_free(d->item);
        stk_free(d->order);
        d->item = stk_alloc_array(STK_TAG_PLAN, items, sizeof *d->item);
        d->order = stk_alloc_array(STK_TAG_PLAN, items, sizeof *d->order);
        d->item_capacity = d->item && d->order ? items : 0;
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
static int64_t share(uint64_t cost, uint64_t total, uint32_t bins)
{
    return total ? (int64_t)((unsigned __int128)cost * UNIT * bins / total) : 0;
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
    return b->count < b->room && (!i->media || b->media < b->media_most) &&
           (i->media || b->count - b->media < b->room - b->media_most || b->media_most == b->room);
}

static void put(bin *b, item *i, uint32_t at)
{
    b->count++;
    b->media += i->media;
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
            const int64_t cost = growth(bins[b].all, items[i].all) + growth(bins[b].vision, items[i].vision);
            if (cost >= least) continue;
            least = cost;
            best = b;
        }
        put(&bins[best], &items[i], best);
    }
}

/* The bin that all others wait for, in either cost. */
static uint32_t heaviest(const bin *bins, uint32_t bin_count)
{
    uint32_t at = 0;
    int64_t most = -1;
    for (uint32_t b = 0; b < bin_count; b++) {
        const int64_t load = bins[b].all > bins[b].vision ? bins[b].all : bins[b].vision;
        if (load <= most) continue;
        most = load;
        at = b;
    }
    return at;
}

static int64_t gain(const bin *from, const bin *to, const item *out, const item *in)
{
    const int64_t all = in->all - out->all, vision = in->vision - out->vision;
    return -(growth(from->all, all) + growth(to->all, -all) + growth(from->vision, vision) + growth(to->vision, -vision));
}

/* Exchange two items of different bins, or an item against free room, while that evens out the heaviest.  kinds_stay: only media
 * against media, text against text. */
static void exchange(bin *bins, uint32_t bin_count, item *items, uint32_t item_count, bool kinds_stay)
{
    uint64_t pairs = 0;
    for (int round = 0; round < EXCHANGES_MAX && pairs < PAIRS_MAX; round++) {
        const uint32_t from = heaviest(bins, bin_count);
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
        if (!out) return;
        bin *const to = &bins[in->bin];
        bins[from].all += in->all - out->all;
        bins[from].vision += in->vision - out->vision;
        to->all -= in->all - out->all;
        to->vision -= in->vision - out->vision;
        bins[from].media += (uint32_t)in->media - (uint32_t)out->media;
        to->media += (uint32_t)out->media - (uint32_t)in->media;
        out->bin = in->bin;
        in->bin = from;
    }
}
