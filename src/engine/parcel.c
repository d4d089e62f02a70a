/* parcel.c - batches that travel: words in the messages of wire.h, memory as it lies in a slot, or some of its fields behind each other.
 *
 * Words begin with the fingerprint of the run that they are of: engines open their data each by itself, and what one of them made of another
 * index would be another stream. */
#include <stoker/parcel.h>

#include <pthread.h>
#include <unistd.h>

#include "engine/engine_core.h"
#include "engine/wire.h"

enum { FINGERPRINT_BYTES = sizeof((stk_fingerprint *)0)->whole };

void stk_blob_free(stk_blob *blob)
{
    stk_free(blob->data);
    *blob = (stk_blob){0};
}

static stk_status finish(stk_blob *blob, stk_buffer *text, stk_status status)
{
    *blob = status == STK_OK ? (stk_blob){text->data, text->size_bytes} : (stk_blob){0};
    if (status < 0) stk_buffer_deinit(text);
    return status;
}

/* --- packing --- */

static stk_status put_label(stk_buffer *to, const stk_lane *lane, stk_stretch *stretch, stk_error *err)
{
    const stk_run *const run = lane->run;
    const uint32_t world = lane->engine->ranks.world;
    const uint64_t steps = stk_plan_step_count(run->plan);
    stk_wire_label label = {.release = stk_str_of(stk_version()), .world = world, .slot_bytes = lane->memory->slot_each,
                            .timeout_ns = lane->timeout_ns, .keep = lane->keep, .stretch = stretch};
    for (uint32_t i = 0; i < run->rules->batch_count; i++) {
        const uint64_t first = run->rules->batch[i].first_step;
        if (first < steps || i == 0)
            stretch[label.stretch_count++] = (stk_stretch){first, stk_plan_micros_before(run->plan, first, world),
                                                           steps ? stk_plan_micro_count(run->plan, first, world) : 1};
    }
    STK_TRY(stk_wire_put_label(to, &label, err));
    const stk_wire_welcome welcome = {.micro_count = stk_plan_micros_before(run->plan, steps, world), .step_count = steps, .state = lane->start,
                                      .form = run->form, .model = run->model, .set_count = run->set_count, .set_name = run->set_name};
    return stk_wire_put_welcome(to, &welcome, err);
}

stk_status stk_parcel_label(stk_blob *label, const stk_engine *engine, stk_error *err)
{
    const stk_lane *const lane = &engine->lane[STK_LANE_TRAIN];
    *label = (stk_blob){0};
    stk_stretch *const stretch = stk_alloc_array(STK_TAG_ENGINE, lane->run->rules->batch_count, sizeof *stretch);
    if (!stretch) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a label");
    stk_buffer text;
    stk_buffer_init(&text, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX);
    const stk_status status = put_label(&text, lane, stretch, err);
    stk_free(stretch);
    return finish(label, &text, status);
}

stk_status stk_parcel_words(stk_blob *words, const stk_batch *batch, stk_error *err)
{
    stk_buffer text;
    stk_buffer_init(&text, STK_TAG_ENGINE, STK_WIRE_MESSAGE_MAX + STK_WIRE_HEADER_BYTES + FINGERPRINT_BYTES);
    stk_status status = stk_buffer_append(&text, batch->after.fingerprint.whole, FINGERPRINT_BYTES, err);
    if (status == STK_OK) status = stk_wire_put_batch(&text, &(stk_wire_slot){0}, batch, err);
    return finish(words, &text, status);
}

const void *stk_parcel_memory(const stk_batch *batch, size_t *size_bytes)
{
    *size_bytes = batch->layout.size_bytes;
    return batch->slot;
}

/* Put the fields that are wanted behind each other: what is not, is not there. */
static void close_up(stk_slot_layout *layout, const bool wanted[STK_FIELD_COUNT])
{
    layout->size_bytes = 0;
    for (int id = 0; id < STK_FIELD_COUNT; id++) {
        stk_slot_field *const field = &layout->field[id];
        field->present &= wanted[id];
        if (!field->present) continue;
        field->at_bytes = layout->size_bytes;
        layout->size_bytes += stk_round_up(field->size_bytes, STK_ALIGN_BYTES);
    }
    layout->size_bytes += STK_PAD_BYTES;
}

stk_status stk_parcel_part(const stk_batch *batch, const char *const *fields, uint32_t field_count, void *to, size_t *size_bytes, stk_error *err)
{
    bool wanted[STK_FIELD_COUNT];
    *size_bytes = 0;
    STK_TRY(stk_fields_find(wanted, fields, field_count, err));
    stk_slot_layout layout = batch->layout;
    close_up(&layout, wanted);
    *size_bytes = layout.size_bytes;
    if (!to) return STK_OK;
    memset(to, 0, layout.size_bytes);
    for (int id = 0; id < STK_FIELD_COUNT; id++)
        if (layout.field[id].present)
            memcpy((uint8_t *)to + layout.field[id].at_bytes, batch->slot + batch->layout.field[id].at_bytes, layout.field[id].size_bytes);
    return STK_OK;
}

/* --- opening --- */

typedef struct opened {
    stk_batch batch; /* first */
    stk_pool pool;   /* its recipe and notes */
    void (*over)(void *context);
    void *context;
    uint8_t *copy; /* of the memory; NULL: it is lent */
    struct opened *next;
} opened;

struct stk_opener {
    stk_batch_home home;    /* first */
    atomic_uint references; /* the caller's, and each batch that is out */
    pid_t pid;
    stk_pool pool;
    stk_batch_form form;
    stk_model model;
    uint32_t set_count;
    bool wanted[STK_FIELD_COUNT], whole;
    stk_run_counts counts;
    uint32_t stretch_count;
    const stk_stretch *stretch;
    atomic_uint out; /* batches */
    pthread_mutex_t lock; /* of the list */
    opened *free;
};

void stk_opener_release(stk_opener **opener)
{
    stk_opener *const o = *opener;
    *opener = NULL;
    if (!o || atomic_fetch_sub(&o->references, 1) != 1) return;
    for (opened *b = o->free, *next; b; b = next) {
        next = b->next;
        stk_pool_deinit(&b->pool);
        stk_free(b);
    }
    stk_pool_deinit(&o->pool);
    pthread_mutex_destroy(&o->lock);
    stk_free(o);
}

static void put_back(stk_opener *o, opened *b)
{
    pthread_mutex_lock(&o->lock);
    b->next = o->free;
    o->free = b;
    pthread_mutex_unlock(&o->lock);
}

/* The last release of a batch, from any thread. */
static void take_back(stk_batch_home *home, stk_batch *batch)
{
    stk_opener *o = (stk_opener *)home;
    opened *const b = (opened *)batch;
    if (o->pid != getpid()) return; /* a copy in a forked child: the memory is the parent's */
    void (*const over)(void *) = b->copy ? NULL : b->over;
    void *const context = b->context;
    stk_free(b->copy);
    b->copy = NULL;
    put_back(o, b);
    if (over) over(context);
    atomic_fetch_sub(&o->out, 1);
    stk_opener_release(&o);
}

static stk_status read_label(stk_opener *o, stk_bytes text, stk_error *err)
{
    stk_wire_message message;
    stk_wire_label label;
    stk_wire_welcome welcome;
    size_t used;
    STK_TRY(stk_wire_split(text, &message, &used, err));
    if (!used || message.kind != STK_WIRE_LABEL) return stk_fail(err, STK_ERR_SYSTEM, "a label cannot be read");
    STK_TRY(stk_wire_read_label(message.payload, &o->pool, &label, err));
    if (!stk_str_is(label.release, stk_version()))
        return stk_fail(err, STK_ERR_USAGE, "the engines of this run are of release %.*s, and this process of %s: use one release",
                        (int)(label.release.size_bytes < 40 ? label.release.size_bytes : 40), label.release.data, stk_version());
    text = (stk_bytes){text.data + used, text.size_bytes - used};
    STK_TRY(stk_wire_split(text, &message, &used, err));
    if (!used || message.kind != STK_WIRE_WELCOME) return stk_fail(err, STK_ERR_SYSTEM, "a label cannot be read");
    STK_TRY(stk_wire_read_welcome(message.payload, &o->pool, &welcome, err));
    o->model = welcome.model;
    o->form = welcome.form;
    o->form.model = &o->model;
    o->set_count = welcome.set_count;
    o->home.form = &o->form;
    o->home.set_name = welcome.set_name;
    o->counts = (stk_run_counts){.world = label.world, .step_count = welcome.step_count, .micro_count = welcome.micro_count,
                                 .batch_bytes = label.slot_bytes, .timeout_ns = label.timeout_ns, .keep = label.keep};
    o->stretch_count = label.stretch_count;
    o->stretch = label.stretch;
    return STK_OK;
}

stk_status stk_opener_create(stk_opener **out, const void *label, size_t label_bytes, const char *const *fields, uint32_t field_count,
                             stk_error *err)
{
    *out = NULL;
    stk_opener *o = stk_alloc(STK_TAG_ENGINE, sizeof *o);
    if (!o) return stk_fail(err, STK_ERR_NOMEM, "out of memory: an opener");
    o->home.take_back = take_back;
    atomic_store(&o->references, 1);
    o->pid = getpid();
    o->whole = fields == NULL;
    stk_pool_init(&o->pool, STK_TAG_ENGINE);
    pthread_mutex_init(&o->lock, NULL);
    stk_status status = stk_fields_find(o->wanted, fields, field_count, err);
    if (status == STK_OK) status = read_label(o, (stk_bytes){label, label_bytes}, err);
    if (status < 0) stk_opener_release(&o);
    *out = o;
    return status;
}

void stk_opener_counts(const stk_opener *opener, stk_run_counts *counts)
{
    *counts = opener->counts;
}

void stk_opener_place(const stk_opener *opener, uint64_t number, uint64_t *step, uint32_t *micro)
{
    uint32_t i = opener->stretch_count - 1;
    while (opener->stretch[i].first_number > number) i--;
    const stk_stretch *const s = &opener->stretch[i];
    *step = s->first_step + (number - s->first_number) / s->micro_count;
    *micro = (uint32_t)((number - s->first_number) % s->micro_count);
}

uint32_t stk_opener_out(const stk_opener *opener)
{
    return atomic_load(&opener->out);
}

static opened *take_object(stk_opener *o)
{
    pthread_mutex_lock(&o->lock);
    opened *b = o->free;
    if (b) o->free = b->next;
    pthread_mutex_unlock(&o->lock);
    if (!b && (b = stk_alloc(STK_TAG_BATCH, sizeof *b))) stk_pool_init(&b->pool, STK_TAG_BATCH);
    if (b) stk_pool_reset(&b->pool);
    return b;
}

/* The batch, over memory that may lie anywhere. */
static stk_status fill(stk_opener *o, opened *b, const stk_state *base, stk_bytes words, stk_bytes memory, stk_error *err)
{
    stk_wire_message message;
    stk_wire_slot slot;
    size_t used;
    b->batch.home = &o->home;
    if (words.size_bytes < FINGERPRINT_BYTES) return stk_fail(err, STK_ERR_SYSTEM, "the words of a batch cannot be read");
    if (memcmp(words.data, base->fingerprint.whole, FINGERPRINT_BYTES) != 0)
        return stk_fail(err, STK_ERR_STATE,
                        "a micro-batch came from an engine that opened other data or options than the run began with: was an index built anew since, "
                        "or has each node one of its own, and they differ? Give all nodes the same index, and start the run again from its state");
    words = (stk_bytes){words.data + FINGERPRINT_BYTES, words.size_bytes - FINGERPRINT_BYTES};
    STK_TRY(stk_wire_split(words, &message, &used, err));
    if (!used || message.kind != STK_WIRE_BATCH) return stk_fail(err, STK_ERR_SYSTEM, "the words of a batch cannot be read");
    STK_TRY(stk_wire_read_batch(message.payload, &b->pool, base, o->set_count, &slot, &b->batch, err));
    if (!o->whole) close_up(&b->batch.layout, o->wanted);
    if (memory.size_bytes < b->batch.layout.size_bytes)
        return stk_fail(err, STK_ERR_SYSTEM, "a batch of %zu bytes came with %zu: are the fields those of the opener?", b->batch.layout.size_bytes,
                        memory.size_bytes);
    /* Nobody writes through it: a batch is read-only. */
    b->batch.slot = (uint8_t *)(uintptr_t)memory.data;
    if ((uintptr_t)memory.data % STK_ALIGN_BYTES == 0) return STK_OK;
    b->copy = stk_alloc(STK_TAG_BATCH, b->batch.layout.size_bytes);
    if (!b->copy) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a batch of %zu bytes", b->batch.layout.size_bytes);
    b->batch.slot = memcpy(b->copy, memory.data, b->batch.layout.size_bytes);
    return STK_OK;
}

stk_status stk_opener_open(stk_opener *opener, const stk_state *base, const void *words, size_t words_bytes, const void *memory,
                           size_t memory_bytes, void (*over)(void *context), void *context, stk_batch **out, stk_error *err)
{
    *out = NULL;
    opened *const b = take_object(opener);
    if (!b) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a batch");
    const stk_status status = fill(opener, b, base, (stk_bytes){words, words_bytes}, (stk_bytes){memory, memory_bytes}, err);
    if (status < 0) {
        put_back(opener, b);
        return status;
    }
    b->over = over;
    b->context = context;
    if (b->copy && over) over(context);
    atomic_store(&b->batch.references, 1);
    atomic_fetch_add(&opener->references, 1);
    atomic_fetch_add(&opener->out, 1);
    *out = &b->batch;
    return STK_OK;
}
