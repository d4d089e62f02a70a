/* run.c - opening what is const in a run, in the order in which each part needs those before it. */
#include "engine/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "engine/fingerprint.h"
#include "engine/model_folder.h"
#include "engine/survey.h"
#include "engine/unusable.h"
#include "manifest/index_file.h"
#include "schema/place.h"

/* --- prepare --- */

static int cpu_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int stk_run_thread_count(const stk_options *options)
{
    return options->workers > 0 ? (int)options->workers : cpu_count();
}

/* What the plan is made from, but for the data. */
static stk_plan_config plan_config(const stk_run *run, const stk_options *options)
{
    return (stk_plan_config){.set = run->plan_set, .set_count = run->set_count, .model = &run->model,
                             .batch = run->rules->batch, .batch_count = run->rules->batch_count,
                             .micro_batch = (uint64_t)options->micro_batch, .steps = (uint64_t)options->steps,
                             .epochs = (uint64_t)options->epochs, .shuffle = options->shuffle,
                             .weights_of_tokens = strcmp(options->weights, "tokens") == 0, .seed = (uint64_t)options->seed,
                             .layout = run->rules->layout, .max_tokens = run->max_tokens, .pad_to = (uint32_t)options->pad_to,
                             .pad_multiple = (uint32_t)options->pad_multiple, .row_tokens = (uint32_t)options->row_tokens,
                             .segment_multiple = (uint32_t)options->segment_multiple, .window = (uint32_t)options->window,
                             .uneven_is_error = strcmp(options->uneven, "error") == 0, .balance = run->rules->balance,
                             .aligned = strcmp(options->modality, "aligned") == 0, .filler_image = options->filler_image, .stream = run->stream,
                             .threads = (uint32_t)stk_run_thread_count(options)};
}

/* A text of more bytes has more than max_tokens tokens, whatever it says: composing characters (NFC) makes of at most so many bytes one. */
enum { COMPOSED_BYTES = 4 };

static void limit_texts(stk_run *run)
{
    run->text_limits = run->rules->limits;
    if (!run->stream) return;
    const uint64_t most = (uint64_t)run->max_tokens * stk_tokenizer_longest_bytes(run->tokenizer) * COMPOSED_BYTES;
    if (most < run->text_limits.text_bytes) run->text_limits.text_bytes = most;
}

static stk_status open_template(stk_run_set *set, const char *model_folder, stk_error *err)
{
    const stk_template_options *const chosen = set->rules->chat_template;
    if (chosen->name) return stk_template_named(&set->chat_template, stk_str_of(chosen->name), err);
    if (chosen->declared) return stk_template_declared(&set->chat_template, &set->rules->turn_format, err);
    return stk_template_open(&set->chat_template, model_folder, err);
}

static stk_status prepare_set(stk_run *run, uint32_t at, stk_error *err)
{
    stk_run_set *const set = &run->set[at];
    set->rules = &run->rules->set[at];
    set->name = run->set_name[at] = set->rules->name;
    set->pixels = set->rules->pixels;
    if (!set->pixels.min_px) set->pixels.min_px = run->model.min_px;
    if (!set->pixels.max_px) set->pixels.max_px = run->model.max_px;
    if (set->pixels.min_px > set->pixels.max_px)
        return stk_fail(err, STK_ERR_OPTION, "%s: min_pixels %llu is above max_pixels %llu (what is not set comes from the checkpoint)",
                        set->name, (unsigned long long)set->pixels.min_px, (unsigned long long)set->pixels.max_px);
    STK_TRY(open_template(set, run->rules->model_folder, err));
    STK_TRY(stk_text_rules_check(run->tokenizer, set->chat_template, &set->rules->text, err));
    STK_TRY(stk_places_create(&set->places, set->rules->place, set->rules->place_count, err));
    const uint32_t files = (uint32_t)set->rules->files.count;
    set->fd = stk_alloc_array(STK_TAG_ENGINE, files, sizeof *set->fd);
    if (!set->fd) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a data set");
    for (uint32_t i = 0; i < files; i++) set->fd[i] = -1;
    return STK_OK;
}

/* Beside the index of the first manifest. */
static stk_status find_stem(stk_run *run, stk_error *err)
{
    const char *const manifest = run->rules->set[0].files.path[0], *const slash = strrchr(manifest, '/');
    char stem[PATH_MAX];
    if (stk_address_is_remote(stk_str_of(manifest))) { /* of one name there may be many */
        STK_TRY(stk_index_sidecar_path(stem, run->rules->index_dir ? run->rules->index_dir : run->rules->copies, manifest, "", err));
        *strrchr(stem, '.') = 0;
        run->stem = stk_strdup(STK_TAG_ENGINE, stem);
        return run->stem ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: a run");
    }
    STK_TRY(stk_path_join(stem, sizeof stem, run->rules->index_dir ? run->rules->index_dir : "/", slash && run->rules->index_dir ? slash + 1 : manifest, err));
    run->stem = stk_strdup(STK_TAG_ENGINE, stem);
    return run->stem ? STK_OK : stk_fail(err, STK_ERR_NOMEM, "out of memory: a run");
}

static stk_status prepare(stk_run *run, const stk_options *options, const stk_index_progress *progress, stk_error *err)
{
    STK_TRY(stk_rules_make(&run->rules, options, progress, err));
    run->stream = run->rules->stream;
    STK_TRY(find_stem(run, err));
    STK_TRY(stk_quarantine_create(&run->quarantine, run->stem, STK_QUARANTINE_ALONE_NS, err));
    STK_TRY(stk_tokenizer_open(&run->tokenizer, run->rules->model_folder, err));
    STK_TRY(stk_model_read(&run->model, run->rules->model_folder, run->tokenizer, err));
    run->max_tokens = options->max_tokens ? (uint32_t)options->max_tokens : run->model.max_tokens;
    const stk_plan_config config = plan_config(run, options);
    run->max_tokens = stk_plan_sample_tokens(&config);
    limit_texts(run);
    run->form = (stk_batch_form){.layout = run->rules->layout, .targets = run->rules->targets, .positions = run->rules->positions,
                                 .pixels = run->rules->pixels, .model = &run->model};
    STK_TRY(stk_image_spec_create(&run->image, &run->model, run->rules->profile, run->form.pixels, &run->rules->limits, stk_cpu_detect(), err));
    const uint32_t count = run->rules->set_count;
    run->set = stk_alloc_array(STK_TAG_ENGINE, count, sizeof *run->set);
    run->set_name = stk_alloc_array(STK_TAG_ENGINE, count, sizeof *run->set_name);
    run->plan_set = stk_alloc_array(STK_TAG_ENGINE, count, sizeof *run->plan_set);
    if (!run->set || !run->set_name || !run->plan_set) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a run");
    for (uint32_t i = 0; i < count; i++) {
        run->set_count = i + 1;
        STK_TRY(prepare_set(run, i, err));
    }
    return STK_OK;
}

stk_status stk_run_prepare(stk_run **out, const stk_options *options, const stk_index_progress *progress, stk_error *err)
{
    *out = NULL;
    stk_run *const run = stk_alloc(STK_TAG_ENGINE, sizeof *run);
    if (!run) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a run");
    atomic_store(&run->references, 1);
    const stk_status status = prepare(run, options, progress, err);
    if (status < 0) {
        stk_run_release(run);
        return status;
    }
    *out = run;
    return STK_OK;
}

/* --- facts --- */

/* All that text facts follow from beside the manifest. */
static stk_status digest_text(const stk_run *run, const stk_run_set *set, uint8_t digest[16], stk_error *err)
{
    const stk_text_rules *const rules = &set->rules->text;
    uint8_t tokenizer[16], chat_template[16];
    stk_tokenizer_digest(run->tokenizer, tokenizer);
    stk_template_digest(set->chat_template, chat_template);
    stk_buffer text;
    stk_buffer_init(&text, STK_TAG_ENGINE, 1 << 20);
    stk_status status = stk_buffer_append(&text, tokenizer, 16, err);
    if (status == STK_OK) status = stk_buffer_append(&text, chat_template, 16, err);
    if (status == STK_OK)
        status = stk_buffer_printf(&text, err, "labels %d control %d text %llu system %d %zu ", rules->labels, rules->control_tokens,
                                   (unsigned long long)run->rules->limits.text_bytes, rules->system.data != NULL, rules->system.size_bytes);
    if (status == STK_OK) status = stk_buffer_append(&text, rules->system.data, rules->system.size_bytes, err);
    for (size_t i = 0; status == STK_OK && i < rules->allow_control_tokens.count; i++) {
        const stk_str token = rules->allow_control_tokens.item[i];
        status = stk_buffer_printf(&text, err, " %zu ", token.size_bytes);
        if (status == STK_OK) status = stk_buffer_append(&text, token.data, token.size_bytes, err);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data, text.size_bytes));
    memcpy(digest, canonical.digest, 16);
    stk_buffer_deinit(&text);
    return status;
}

static stk_status open_files(stk_run_set *set, stk_error *err)
{
    for (uint32_t i = 0; i < set->facts.file_count; i++) {
        set->fd[i] = open(stk_set_index_data_path(set->index, i), O_RDONLY | O_CLOEXEC);
        if (set->fd[i] >= 0) continue;
        const stk_status status = stk_fail_errno(err, "cannot open the manifest");
        stk_error_file(err, set->facts.file[i], 0);
        return status;
    }
    return STK_OK;
}

/* Threads that wait for a store cost nothing: as many as have some hundred requests under way. */
static int index_threads(const stk_run_set *set, const stk_options *options)
{
    enum { FOR_STORES = 8 };
    const int count = stk_run_thread_count(options);
    return stk_survey_is_remote(set) && count < FOR_STORES ? FOR_STORES : count;
}

stk_status stk_run_open_index(stk_run *run, const stk_options *options, uint32_t set_index, const stk_index_progress *progress,
                              stk_index_work *work, stk_error *err)
{
    stk_run_set *const set = &run->set[set_index];
    stk_survey_context context = {run, set_index};
    const stk_survey survey = stk_survey_of(&context);
    const bool require = strcmp(options->index, "require") == 0, verify = strcmp(options->index, "verify") == 0;
    stk_index_spec spec = {.name = set->name,
                           .file = (const char *const *)set->rules->files.path,
                           .file_count = (uint32_t)set->rules->files.count,
                           .facts_file = set->rules->facts_file,
                           .index_dir = run->rules->index_dir,
                           .store = &run->rules->index_store,
                           .record_rules = &set->rules->record,
                           .survey = &survey,
                           .mode = run->stream ? STK_INDEX_STREAM : require ? STK_INDEX_REQUIRE : verify ? STK_INDEX_VERIFY : STK_INDEX_AUTO,
                           .ignore_excluded = run->ignore_excluded,
                           .recheck = verify || run->recheck_media,
                           .threads = options->workers < 0 ? 0 : index_threads(set, options),
                           .progress = progress};
    STK_TRY(digest_text(run, set, spec.text_digest, err));
    STK_TRY(stk_set_index_open(&set->index, &spec, work, err));
    set->facts = *stk_set_index_facts(set->index);
    run->rules->set[set_index].record.stated = stk_set_index_stated(set->index);
    return open_files(set, err);
}

/* --- plan --- */

/* What objects of a set are worth in the cache: 4 where a record is drawn as often as the records of all sets are on average,
 * one more for twice as often, one less for half. */
static void set_cache_values(stk_run *run)
{
    enum { AVERAGE = 4, MOST = 7 };
    double draws = 0, records = 0;
    for (uint32_t i = 0; i < run->set_count; i++) {
        const stk_plan_set *const set = &run->plan_set[i];
        draws += set->weight > 0 ? set->weight : (double)set->epochs_milli * (double)set->facts.record_count;
        records += (double)set->facts.record_count;
    }
    for (uint32_t i = 0; i < run->set_count; i++) {
        const stk_plan_set *const set = &run->plan_set[i];
        const double own = set->weight > 0 ? set->weight : (double)set->epochs_milli * (double)set->facts.record_count;
        const double ratio = own * records;
        double average = draws * (double)set->facts.record_count;
        int value = AVERAGE;
        for (; ratio >= 1.5 * average && value < MOST; value++) average *= 2;
        for (; ratio < 0.75 * average && value > 1; value--) average /= 2;
        run->set[i].cache_value = (uint8_t)value;
    }
}

void stk_run_watch(stk_watch *watch, const stk_index_progress *progress)
{
    stk_watch_init(watch, progress ? progress->report : NULL, progress ? progress->context : NULL);
}

static stk_status open_plan(stk_run *run, const stk_options *options, const stk_index_progress *progress, stk_error *err)
{
    for (uint32_t i = 0; i < run->set_count; i++) {
        const stk_set_rules *const rules = run->set[i].rules;
        run->plan_set[i] = (stk_plan_set){.name = run->set[i].name, .facts = run->set[i].facts, .pixels = run->set[i].pixels,
                                          .overlong_is_error = rules->overlong_is_error, .where = rules->where,
                                          .first = rules->first, .weight = rules->weight, .epochs_milli = rules->epochs_milli};
    }
    set_cache_values(run);
    STK_TRY(stk_fingerprint_make(&run->fingerprint, run, options, err));
    stk_plan_config config = plan_config(run, options);
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s.stoker-plan-%.8s", run->stem, run->fingerprint.whole);
    memcpy(config.table_key, run->fingerprint.whole, sizeof config.table_key);
    config.table_file = file;
    stk_watch watch;
    stk_run_watch(&watch, progress);
    config.watch = &watch;
    return stk_plan_create(&run->plan, &config, err);
}

stk_status stk_run_open(stk_run **out, const stk_options *options, const stk_index_progress *progress, stk_error *err)
{
    STK_TRY(stk_run_prepare(out, options, progress, err));
    stk_run *const run = *out;
    stk_status status = STK_OK;
    for (uint32_t i = 0; status == STK_OK && i < run->set_count; i++) status = stk_run_open_index(run, options, i, progress, NULL, err);
    /* With stream it is found out while it runs (deliver.c). */
    for (uint32_t i = 0; status == STK_OK && !run->stream && i < run->set_count; i++)
        status = stk_unusable_check(run, &run->set[i], options->errors_unusable, err);
    if (!run->stream) stk_remote_rest(run->rules->remote);
    if (status == STK_OK) status = open_plan(run, options, progress, err);
    if (status < 0) {
        stk_run_release(run);
        *out = NULL;
    }
    return status;
}

/* --- sharing --- */

void stk_run_retain(stk_run *run)
{
    atomic_fetch_add(&run->references, 1);
}

void stk_run_release(stk_run *run)
{
    if (!run || atomic_fetch_sub(&run->references, 1) != 1) return;
    stk_plan_destroy(run->plan);
    for (uint32_t i = 0; i < run->set_count; i++) {
        stk_run_set *const set = &run->set[i];
        for (size_t f = 0; set->fd && f < set->rules->files.count; f++)
            if (set->fd[f] >= 0) close(set->fd[f]);
        stk_free(set->fd);
        stk_set_index_close(&set->index);
        stk_places_destroy(set->places);
        stk_template_close(&set->chat_template);
    }
    stk_free(run->set);
    stk_free(run->set_name);
    stk_free(run->plan_set);
    stk_image_spec_destroy(run->image);
    stk_quarantine_destroy(run->quarantine);
    stk_free(run->stem);
    stk_tokenizer_close(&run->tokenizer);
    stk_rules_destroy(run->rules);
    stk_free(run);
}

/* --- records --- */

void stk_run_sample_id(const stk_run *run, uint32_t set_index, uint64_t record_index, stk_str own, char id[96])
{
    const stk_run_set *const set = &run->set[set_index];
    const stk_record_facts *const facts = &set->facts.record[record_index];
    stk_sample_id(id, set->name, own, facts->line, facts->flags & STK_RECORD_ID_REPEATED);
}

stk_status stk_run_read_record(const stk_run *run, uint32_t set_index, uint64_t record_index, stk_buffer *buffer, stk_error *err)
{
    const stk_run_set *const set = &run->set[set_index];
    const stk_record_facts *const facts = &set->facts.record[record_index];
    stk_buffer_clear(buffer);
    STK_TRY(stk_buffer_reserve(buffer, facts->size_bytes, err));
    while (buffer->size_bytes < facts->size_bytes) {
        const ssize_t got = pread(set->fd[facts->file_index], buffer->data + buffer->size_bytes, facts->size_bytes - buffer->size_bytes,
                                  (off_t)(facts->offset + buffer->size_bytes));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return stk_fail_errno(err, "cannot read the manifest");
        if (got == 0) return stk_fail(err, STK_ERR_INDEX, "the manifest has become shorter since it was indexed: run `stoker index`");
        buffer->size_bytes += (size_t)got;
    }
    return STK_OK;
}
