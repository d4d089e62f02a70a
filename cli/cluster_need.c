/* cluster_need.c - the loads of nodes under both placements, and the fewest feeders whose help is enough. */
#include "cluster_need.h"

static double gbit(double bytes_per_s)
{
    return bytes_per_s * 8 / 1e9;
}

static cluster_lack lack_of(const cluster_load *load, const cluster_room *room)
{
    if (load->cores > room->cores) return CLUSTER_CORES;
    if (load->in_gbit > room->gbit) return CLUSTER_CARD_IN;
    if (load->out_gbit > room->gbit) return CLUSTER_CARD_OUT;
    return CLUSTER_FITS;
}

static void judge(cluster_way *way, const cluster_ask *ask)
{
    way->lack = lack_of(&way->node, &ask->node);
    way->lack_of_feeder = way->lack == CLUSTER_FITS && way->feeders > 0;
    if (way->lack_of_feeder) way->lack = lack_of(&way->feeder, &ask->feeder);
}

/* own: the share of all samples that the ranks of a full node train. */
static void spread_over(cluster_way *way, const cluster_ask *ask, uint32_t nodes, double own, uint32_t feeders)
{
    const cluster_sample *const s = &ask->sample;
    const double made = ask->samples_per_s / ((double)nodes + feeders), trained = ask->samples_per_s * own;
    *way = (cluster_way){.feeders = feeders};
    way->feeder = (cluster_load){made * s->cpu_s, gbit(made * s->compressed_bytes), gbit(made * s->batch_bytes)};
    /* Of what a node makes, its own ranks get their share over no card. */
    way->node = way->feeder;
    way->node.in_gbit += gbit((trained - made * own) * s->batch_bytes);
    way->node.out_gbit -= gbit(made * own * s->batch_bytes);
    judge(way, ask);
}

void cluster_need(const cluster_ask *ask, cluster_answer *out)
{
    const cluster_sample *const s = &ask->sample;
    const uint32_t full = ask->ranks < ask->ranks_per_node ? ask->ranks : ask->ranks_per_node;
    const double own = (double)full / ask->ranks;
    *out = (cluster_answer){.nodes = 1 + (ask->ranks - 1) / ask->ranks_per_node};
    out->all = (cluster_load){ask->samples_per_s * s->cpu_s, gbit(ask->samples_per_s * s->compressed_bytes), 0};
    out->local.node = (cluster_load){out->all.cores * own, out->all.in_gbit * own, 0};
    judge(&out->local, ask);
    /* The first that fits; else the first that lacks no cores, which names the card that is in the way. */
    bool named = false;
    for (uint32_t feeders = 0; feeders <= CLUSTER_FEEDERS_MAX; feeders++) {
        cluster_way way;
        spread_over(&way, ask, out->nodes, own, feeders);
        const bool fits = way.lack == CLUSTER_FITS, names = !named && way.lack != CLUSTER_CORES;
        if (fits || names || feeders == 0) out->spread = way;
        if (fits) return;
        named |= names;
    }
}
