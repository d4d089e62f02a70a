/* test_crashes.c - a picture that crashes its decoder costs an engine, not the trainer: then its samples are masked (field report F07). */
#include "served.h"

static tiny_run calm;

static void a_crash_in_a_decoder_ends_the_engine_and_not_the_trainer(void)
{
    stk_options options;
    stk_error err;
    served_options(&options, "crash", "micro_batch: 1\nprefetch: 2\nerrors: {masked: 1}\n");
    setenv("STK_FAULT", "decode-crash:164", 1); /* the width of img-2, for the engine, who starts with this environment */
    stk_client *client = served_open(&options, "crash", 0, 1, 1, NULL);
    static uint8_t digest[TINY_MICROS_MAX][16];
    size_t count = 0, masked = 0;
    stk_batch *batch;
    stk_status status;
    while ((status = stk_client_next(client, &batch, 60 * STK_S, &err)) == STK_OK) {
        for (size_t i = 0; i < stk_batch_sample_count(batch); i++) {
            stk_batch_sample sample;
            stk_batch_sample_at(batch, i, &sample);
            masked += sample.masked;
        }
        stk_batch_digest(batch, digest[count++]);
        stk_batch_release(&batch);
    }
    CHECK_MSG(status == STK_END, "status %d: %s", (int)status, err.message);
    CHECK(masked > 2);
    unsetenv("STK_FAULT");
    stk_client_close(&client);
    served_expect_end("crash");
    /* What is known of the picture by now makes the same batches from the beginning. */
    tiny_run_from(&calm, &options, 1, NULL);
    CHECK_INT(calm.count, count);
    CHECK_INT(calm.metrics.masked, masked);
    CHECK(memcmp(calm.digest, digest, 16 * count) == 0);
    stk_options_deinit(&options);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_crash_in_a_decoder_ends_the_engine_and_not_the_trainer));
}
