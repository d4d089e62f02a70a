/* cluster_need.h - what a number of ranks needs of the nodes that make their batches, and where these are best made: arithmetic over
 * measured costs.
 *
 * Not here: where the costs come from, and words (cmd_cluster.c). */
#ifndef STOKER_CLI_CLUSTER_NEED_H
#define STOKER_CLI_CLUSTER_NEED_H

#include <stdbool.h>
#include <stdint.h>

/* What one sample costs, on average. */
typedef struct cluster_sample {
    double cpu_s;            /* of one core */
    double compressed_bytes; /* from the store to the engine that makes it */
    double batch_bytes;      /* as the rank gets it */
} cluster_sample;

/* What a node gives to data, or has to give.  A card carries gbit in and as much out at once. */
typedef struct cluster_room {
    double cores, gbit;
} cluster_room;

typedef struct cluster_load {
    double cores, in_gbit, out_gbit;
} cluster_load;

typedef struct cluster_ask {
    cluster_sample sample;
    double samples_per_s; /* of all ranks together */
    uint32_t ranks, ranks_per_node;
    cluster_room node, feeder; /* of a node that trains, of one that only makes batches */
} cluster_ask;

/* What stands in the way: of a node that trains, or of a feeder. */
typedef enum cluster_lack { CLUSTER_FITS, CLUSTER_CORES, CLUSTER_CARD_IN, CLUSTER_CARD_OUT } cluster_lack;

typedef struct cluster_way {
    uint32_t feeders;
    cluster_load node, feeder; /* node: of one with all its ranks */
    cluster_lack lack;
    bool lack_of_feeder;
} cluster_way;

typedef struct cluster_answer {
    uint32_t nodes;    /* that train */
    cluster_load all;  /* cores and store-to-node traffic (in_gbit) of the whole cluster; out_gbit: 0 */
    cluster_way local; /* every node makes the batches of its own ranks */
    cluster_way spread; /* every engine, one a node, makes the same share of all batches; as few feeders as do */
} cluster_answer;

enum { CLUSTER_FEEDERS_MAX = 65536 };

/* ask: all numbers positive, ranks_per_node and ranks at least 1. */
void cluster_need(const cluster_ask *ask, cluster_answer *out);

#endif
