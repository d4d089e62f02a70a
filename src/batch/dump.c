/* dump.c - a batch as files: one .npy a field, and batch.json.  Written beside, then renamed: never half there. */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "batch/batch_object.h"

static void hex_of(const uint8_t digest[16], char text[33])
{
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

/* NumPy's format 1.0: magic, header padded to 64 bytes, bytes in C order.  bfloat16 has no name there: uint16. */
static stk_status save_npy(const char *folder, stk_view view, stk_error *err)
{
    static const char *const descriptors[] = {"|u1", "<i4", "<i8", "<f4", "<u2"};
    char shape[128] = "", header[256], path[4096];
    for (int d = 0; d < view.ndim; d++) {
        const size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, "%lld,%s", (long long)view.shape[d], d + 1 < view.ndim ? " " : "");
    }
    const int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                                descriptors[view.dtype], shape);
    const size_t padded = stk_round_up((size_t)length + 1 + 10, 64) - 10;
    memset(header + length, ' ', padded - (size_t)length);
    header[padded - 1] = '\n';
    const uint8_t prefix[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)padded, (uint8_t)(padded >> 8)};

    snprintf(path, sizeof path, "%.3900s/%s.npy", folder, view.name);
    stk_save save;
    STK_TRY(stk_save_open(&save, path, err));
    STK_TRY(stk_save_write(&save, prefix, sizeof prefix, err));
    STK_TRY(stk_save_write(&save, header, padded, err));
    STK_TRY(stk_save_write(&save, view.data, view.size_bytes, err));
    return stk_save_commit(&save, err);
}

static json_t *samples_json(const stk_batch *batch)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < stk_batch_sample_count(batch); i++) {
        stk_batch_sample s;
        stk_batch_sample_at(batch, i, &s);
        json_t *const item = s.filler
            ? json_pack("{s:s, s:I, s:I, s:I}", "status", "filler", "row", (json_int_t)s.row, "offset",
                        (json_int_t)s.offset, "tokens", (json_int_t)s.tokens)
            : json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "id", s.id, "set", s.set, "record",
                        (json_int_t)s.record, "line", (json_int_t)s.line, "row", (json_int_t)s.row, "offset",
                        (json_int_t)s.offset, "tokens", (json_int_t)s.tokens, "visual_tokens",
                        (json_int_t)s.visual_tokens, "status", s.masked ? s.reason : "made");
        /* A record that was drawn and cannot be used (index: stream). */
        if (s.filler && s.masked)
            json_object_update_new(item, json_pack("{s:s, s:s, s:I, s:I, s:s}", "id", s.id, "set", s.set, "record",
                                                   (json_int_t)s.record, "line", (json_int_t)s.line, "reason", s.reason));
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *digests_json(const stk_batch *batch)
{
    uint8_t digest[16];
    char text[33];
    json_t *const digests = json_object();
    stk_batch_digest(batch, digest);
    hex_of(digest, text);
    json_object_set_new(digests, "micro_batch", json_string(text));
    size_t count = batch->recipe.row_count;
    uint8_t(*const rows)[16] = stk_alloc_array(STK_TAG_BATCH, count, sizeof *rows);
    if (rows && stk_batch_row_digests(batch, rows, &count, NULL) == STK_OK) {
        json_t *const list = json_array();
        for (size_t i = 0; i < count; i++) {
            hex_of(rows[i], text);
            json_array_append_new(list, json_string(text));
        }
        json_object_set_new(digests, "rows", list);
    }
    stk_free(rows);
    return digests;
}

static stk_status save_json(const stk_batch *batch, const char *folder, stk_error *err)
{
    stk_batch_info info;
    stk_batch_info_get(batch, &info);
    char state[STK_STATE_TEXT_MAX], path[4096];
    STK_TRY(stk_state_write(&batch->after, state, sizeof state, err));
    json_t *const root = json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:o}", "schema", 1, "step",
        (json_int_t)info.step, "rank", (json_int_t)info.rank, "world", (json_int_t)info.world, "micro",
        (json_int_t)info.micro, "epoch", (json_int_t)info.epoch, "tokens", (json_int_t)info.tokens, "visual_tokens",
        (json_int_t)info.visual_tokens, "images", (json_int_t)info.images, "loss_tokens", (json_int_t)info.loss_tokens,
        "step_loss_tokens", (json_int_t)info.step_loss_tokens, "samples", samples_json(batch), "state", state, "digests",
        digests_json(batch));
    if (root && batch->home->form->pixels == STK_PIXELS_BFLOAT16)
        json_object_set_new(root, "note", json_string("pixel_values is bfloat16, stored as uint16"));
    char *const text = root ? json_dumps(root, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    if (!text) return stk_fail(err, STK_ERR_NOMEM, "out of memory: batch.json");
    snprintf(path, sizeof path, "%.3900s/batch.json", folder);
    const stk_status status = stk_file_save(path, text, strlen(text), err);
    free(text);
    return status;
}

static void remove_folder(const char *folder)
{
    char path[4096];
    for (int id = 0; id < STK_FIELD_COUNT; id++) {
        snprintf(path, sizeof path, "%.3900s/%s.npy", folder, stk_field_name((stk_field_id)id));
        unlink(path);
    }
    snprintf(path, sizeof path, "%.3900s/batch.json", folder);
    unlink(path);
    rmdir(folder);
}

stk_status stk_batch_dump(const stk_batch *batch, const char *folder, stk_error *err)
{
    if (strlen(folder) > 3800) return stk_fail_at(err, STK_ERR_USAGE, folder, 0, "the path is too long");
    char final[4000], temporary[4008];
    snprintf(final, sizeof final, "%s/step-%08llu.rank-%03u.micro-%03u", folder,
             (unsigned long long)batch->recipe.step, batch->recipe.rank, batch->recipe.micro);
    snprintf(temporary, sizeof temporary, "%s.tmp", final);
    stk_status status = STK_OK;
    if (mkdir(folder, 0777) && errno != EEXIST) status = stk_fail_errno(err, "cannot make the folder");
    remove_folder(temporary); /* of an earlier, interrupted dump */
    if (status == STK_OK && mkdir(temporary, 0777)) status = stk_fail_errno(err, "cannot make a folder in it");
    if (status < 0) {
        stk_error_file(err, folder, 0);
        return status;
    }
    for (size_t i = 0; status == STK_OK && i < stk_batch_field_count(batch); i++)
        status = save_npy(temporary, stk_batch_field_at(batch, i), err);
    if (status == STK_OK) status = save_json(batch, temporary, err);
    if (status == STK_OK) {
        remove_folder(final);
        if (rename(temporary, final)) {
            status = stk_fail_errno(err, "cannot rename the dump into place");
            stk_error_file(err, final, 0);
        }
    }
    if (status < 0) remove_folder(temporary);
    return status;
}
