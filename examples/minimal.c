/* minimal.c - the whole of a trainer's side in C:  minimal CONFIG
 *
 *     cc minimal.c $(pkg-config --cflags --libs stoker)
 */
#include <stoker/stoker.h>

/* What a trainer would do with a field; here it only counts. */
static int64_t train(const void *ids, const int64_t *shape, int ndim)
{
    return ids && ndim == 2 ? shape[0] * shape[1] : 0;
}

int main(int argc, char **argv)
{
    stk_error err;
    stk_options options = STK_OPTIONS_INIT;
    if (stk_options_read(&options, argc > 1 ? argv[1] : "stoker.yaml", &err) != STK_OK)
        return stk_error_print(stderr, &err), 2;

    stk_loader *loader = NULL;
    if (stk_loader_open(&loader, &options, /* rank */ 0, /* world */ 1, &err) != STK_OK)
        return stk_error_print(stderr, &err), 1;

    int64_t tokens = 0, batches = 0;
    stk_status status;
    stk_batch *batch;
    while ((status = stk_loader_next(loader, &batch, STK_FOREVER, &err)) == STK_OK) {
        stk_view ids = stk_batch_field(batch, "input_ids"); /* valid until the batch is released */
        tokens += train(ids.data, ids.shape, ids.ndim);
        batches++;
        stk_batch_release(&batch);
    }
    if (status < 0) stk_error_print(stderr, &err);
    stk_loader_close(&loader);
    stk_options_deinit(&options);
    printf("%lld batches, %lld tokens with padding\n", (long long)batches, (long long)tokens);
    return status < 0;
}
