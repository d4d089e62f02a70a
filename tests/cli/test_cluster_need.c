/* What ranks need of nodes: by hand-made cases whose answers can be counted. */
#include "cluster_need.h"
#include "test.h"

static bool near(double a, double b)
{
    return a > b - 1e-9 && a < b + 1e-9;
}

/* 1000 samples a second, each 10 ms of a core, 125 kB compressed (1 Gbit/s in all) and 1250 kB as a batch (10 Gbit/s in all); 8 ranks on 2 nodes. */
static cluster_ask asked(double cores, double gbit)
{
    return (cluster_ask){.sample = {.cpu_s = 0.01, .compressed_bytes = 125e3, .batch_bytes = 1250e3},
                         .samples_per_s = 1000,
                         .ranks = 8,
                         .ranks_per_node = 4,
                         .node = {cores, gbit},
                         .feeder = {cores, gbit}};
}

static void all_is_the_sum_of_the_ranks(void)
{
    cluster_answer a;
    const cluster_ask ask = asked(100, 100);
    cluster_need(&ask, &a);
    CHECK_INT(a.nodes, 2);
    CHECK(near(a.all.cores, 10) && near(a.all.in_gbit, 1) && near(a.all.out_gbit, 0));
}

static void local_makes_a_nodes_own_batches_and_sends_none(void)
{
    cluster_answer a;
    const cluster_ask ask = asked(5, 0.5);
    cluster_need(&ask, &a);
    CHECK(a.local.lack == CLUSTER_FITS);
    CHECK(near(a.local.node.cores, 5) && near(a.local.node.in_gbit, 0.5) && near(a.local.node.out_gbit, 0));
}

/* The last node may have fewer: the full one is what must fit. */
static void a_node_with_all_its_ranks_counts(void)
{
    cluster_answer a;
    cluster_ask ask = asked(7.4, 100);
    ask.ranks = 4;
    ask.ranks_per_node = 3;
    cluster_need(&ask, &a);
    CHECK_INT(a.nodes, 2);
    CHECK(near(a.local.node.cores, 7.5));
    CHECK(a.local.lack == CLUSTER_CORES && !a.local.lack_of_feeder);
    /* Shared evenly, both nodes have enough. */
    CHECK(a.spread.lack == CLUSTER_FITS && a.spread.feeders == 0 && near(a.spread.node.cores, 5));
}

static void fewer_ranks_than_a_node_holds_are_one_node(void)
{
    cluster_answer a;
    cluster_ask ask = asked(10, 1);
    ask.ranks_per_node = 64;
    cluster_need(&ask, &a);
    CHECK_INT(a.nodes, 1);
    CHECK(near(a.local.node.cores, 10) && a.local.lack == CLUSTER_FITS);
    CHECK(near(a.spread.node.in_gbit, 1) && near(a.spread.node.out_gbit, 0)); /* alone, it sends nothing */
}

static void feeders_are_as_few_as_make_it_fit(void)
{
    cluster_answer a;
    const cluster_ask ask = asked(2, 20);
    cluster_need(&ask, &a);
    CHECK(a.local.lack == CLUSTER_CORES);
    CHECK(a.spread.lack == CLUSTER_FITS);
    CHECK_INT(a.spread.feeders, 3); /* 5 engines of 2 cores make 10 */
    CHECK(near(a.spread.node.cores, 2) && near(a.spread.feeder.cores, 2));
    /* An engine makes 200/s.  A node's ranks train 500, of which 100 are its own engine's. */
    CHECK(near(a.spread.node.in_gbit, 0.2 + 4) && near(a.spread.node.out_gbit, 1));
    CHECK(near(a.spread.feeder.in_gbit, 0.2) && near(a.spread.feeder.out_gbit, 2));
}

static void small_feeders_are_more(void)
{
    cluster_answer a;
    cluster_ask ask = asked(2, 20);
    ask.feeder.cores = 1;
    cluster_need(&ask, &a);
    CHECK(a.spread.lack == CLUSTER_FITS);
    CHECK_INT(a.spread.feeders, 8); /* each engine makes the same share: 10 of 1 core */
}

static void a_card_too_small_for_batches_is_named(void)
{
    cluster_answer a;
    const cluster_ask ask = asked(2, 3);
    cluster_need(&ask, &a);
    CHECK(a.local.lack == CLUSTER_CORES);
    CHECK(a.spread.lack == CLUSTER_CARD_IN && !a.spread.lack_of_feeder);
    CHECK_INT(a.spread.feeders, 3); /* that many have the cores */
}

static void a_feeders_small_card_takes_more_feeders(void)
{
    cluster_answer a;
    cluster_ask ask = asked(2, 20);
    ask.feeder.gbit = 1;
    cluster_need(&ask, &a);
    CHECK(a.spread.lack == CLUSTER_FITS);
    CHECK_INT(a.spread.feeders, 8); /* 10 engines send 1 Gbit/s each */
}

/* Where pictures are made much smaller, what is compressed is more than the batch: others' help is less on the card. */
static void small_batches_of_large_files_may_be_spread_for_the_card(void)
{
    cluster_answer a;
    cluster_ask ask = asked(100, 4);
    ask.sample.compressed_bytes = 1250e3;
    ask.sample.batch_bytes = 125e3;
    cluster_need(&ask, &a);
    CHECK(a.local.lack == CLUSTER_CARD_IN);
    CHECK(a.spread.lack == CLUSTER_FITS);
    CHECK_INT(a.spread.feeders, 1); /* 10/3 + 0.5 - 0.5/3 = 3.67; without it 5.25 */
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(all_is_the_sum_of_the_ranks),
              TEST(local_makes_a_nodes_own_batches_and_sends_none),
              TEST(a_node_with_all_its_ranks_counts),
              TEST(fewer_ranks_than_a_node_holds_are_one_node),
              TEST(feeders_are_as_few_as_make_it_fit),
              TEST(small_feeders_are_more),
              TEST(a_card_too_small_for_batches_is_named),
              TEST(a_feeders_small_card_takes_more_feeders),
              TEST(small_batches_of_large_files_may_be_spread_for_the_card));
}
