/* fuzz_index.c - hostile bytes as a sidecar, as the journal of a build or as a list of left-out records: refused, or safe to
 * be read to its last byte.
 *
 * The first byte chooses: media part, text part, journal, list, lines, sizes.  Lengths and checksums are made right, so that what stands behind
 * them is reached. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "manifest/index_exclude.h"
#include "manifest/index_journal.h"
#include "schema/derive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) abort();
}

/* As the plan reads facts. */
static void derive_all(const stk_index_view *view)
{
    const stk_model model = {.patch_px = 16, .merge = 2, .temporal = 2};
    const stk_pixel_rules pixels = {.min_px = 65536, .max_px = 16777216};
    static const stk_text_facts text = {.token_count = UINT32_MAX, .supervised_count = 1};
    for (uint64_t i = 0; i < view->header->record_count; i++) {
        stk_record_facts record = view->record[i];
        record.reason = 0; /* so that its media are looked at */
        const stk_set_facts facts = {.record = &record, .text = &text, .media = view->media, .record_count = 1,
                                     .media_count = view->header->media_count};
        stk_record_size derived;
        stk_record_derive(&derived, &facts, 0, &model, &pixels, 1 << 20);
    }
}

static void read_sidecar(uint8_t *bytes, size_t size, stk_index_part part)
{
    stk_index_view view;
    stk_error err;
    if (size >= sizeof(stk_index_header) + sizeof(stk_index_seal)) {
        ((stk_index_header *)bytes)->file_bytes = size;
        const uint64_t checksum = stk_index_checksum((stk_bytes){bytes, size});
        memcpy(bytes + size - sizeof checksum, &checksum, sizeof checksum);
    }
    if (stk_index_view_check(&view, part, (stk_bytes){bytes, size}, &err) < 0) {
        require(err.message[0] && !view.header);
        return;
    }
    uint64_t seen = view.seal->checksum;
    for (uint64_t i = 0; i < view.header->words_count; i++) {
        require(view.note[i].record_index < view.header->record_count);
        seen += strlen(view.note[i].message);
    }
    if (part == STK_INDEX_MEDIA) derive_all(&view);
    for (uint64_t i = 0; part == STK_INDEX_TEXT && i < view.header->record_count; i++) seen += view.text[i].token_count;
    if (part == STK_INDEX_SIZES) {
        const stk_stated_sizes sizes = {.size = view.size, .count = view.header->record_count};
        uint32_t width_px = 0, height_px = 0;
        require(!stk_stated_find(&sizes, stk_str_of("/m/no such picture"), &width_px, &height_px) && width_px == 0);
        for (uint64_t i = 0; i < sizes.count; i++) require(sizes.size[i].width_px && sizes.size[i].height_px);
    }
    require(seen != 1);
}

static void repair_entries(uint8_t *bytes, size_t size)
{
    for (size_t at = 64; at < size && size - at >= 32;) {
        uint64_t entry[4];
        memcpy(entry, bytes + at, sizeof entry);
        entry[2] %= 4096;
        entry[2] &= ~(uint64_t)7;
        if (entry[2] > size - at - 32) entry[2] = (size - at - 32) & ~(uint64_t)7;
        entry[3] = XXH3_64bits_withSeed(bytes + at + 32, entry[2], entry[1]);
        memcpy(bytes + at, entry, sizeof entry);
        at += 32 + entry[2];
    }
}

static void read_journal(uint8_t *bytes, size_t size)
{
    repair_entries(bytes, size);
    stk_journal journal = {.fd = memfd_create("fuzz-index", MFD_CLOEXEC), .path = "/nowhere/journal", .size_bytes = size};
    require(journal.fd >= 0 && write(journal.fd, bytes, size) == (ssize_t)size);
    stk_index_key key;
    memset(&key, 0, sizeof key);
    stk_error err;
    stk_map map;
    require(stk_journal_start(&journal, STK_INDEX_MEDIA, &key, 0, 150, &err) == STK_OK);
    require(stk_journal_map(&journal, &map, &err) == STK_OK);
    uint64_t found = 0, seen = 0;
    for (uint64_t c = 0; c < journal.chunk_count; c++) {
        if (!stk_journal_has(&journal, c)) continue;
        found++;
        stk_chunk_counts counts;
        memcpy(&counts, map.data + journal.payload_at[c], sizeof counts);
        const size_t end = journal.payload_at[c] + sizeof counts + counts.record_count * sizeof(stk_record_facts) +
                           counts.media_count * sizeof(stk_media_facts) + counts.note_count * sizeof(stk_index_note);
        require(end <= map.size_bytes && counts.record_count <= STK_CHUNK_RECORDS);
        for (size_t i = journal.payload_at[c]; i < end; i++) seen += map.data[i];
    }
    require(found == journal.finished_count && seen != UINT64_MAX);
    stk_map_close(&map);
    stk_journal_close(&journal, true);
}

/* What is accepted names records that there are, each once. */
static void read_excluded(const uint8_t *bytes, size_t size)
{
    enum { RECORDS = 150 };
    stk_index_key key;
    memset(&key, 0, sizeof key);
    stk_error err;
    stk_exclude_list list;
    stk_exclude_init(&list);
    const stk_status status = stk_exclude_parse(&list, (stk_str){(const char *)bytes, size}, &key, RECORDS, &err);
    require(status == STK_OK || (status == STK_ERR_INDEX && err.message[0]));
    for (size_t i = 0; status == STK_OK && i < stk_exclude_count(&list); i++) {
        const stk_excluded *const e = stk_exclude_at(&list, i);
        require(e->record_index < RECORDS && (i == 0 || stk_exclude_at(&list, i - 1)->record_index < e->record_index));
        require(e->id[0] && memchr(e->id, 0, sizeof e->id));
    }
    stk_exclude_deinit(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    uint8_t *const bytes = aligned_alloc(64, (size + 63) / 64 * 64);
    require(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    switch (data[0] % 6) {
    case 0: read_sidecar(bytes, size - 1, STK_INDEX_MEDIA); break;
    case 1: read_sidecar(bytes, size - 1, STK_INDEX_TEXT); break;
    case 2: read_journal(bytes, size - 1); break;
    case 3: read_excluded(bytes, size - 1); break;
    case 4: read_sidecar(bytes, size - 1, STK_INDEX_LINES); break;
    default: read_sidecar(bytes, size - 1, STK_INDEX_SIZES); break;
    }
    free(bytes);
    return 0;
}
