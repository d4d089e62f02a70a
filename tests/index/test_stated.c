/* test_stated.c - a facts file: what its lines say, how they are found again, what is refused and where, what a change of it builds anew. */
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "manifest/index.h"
#include "manifest/stated_build.h"

static const stk_limits limits = {.media_bytes = 256u << 20, .media_px = 178956970u, .record_bytes = 4096, .json_depth = 8,
                                  .media_per_record = 100, .text_bytes = 1 << 20, .jpeg_scans = 100};
static char folder[300], manifest[400], facts[400];
static const char *const manifests[] = {manifest};
static stk_record_rules rules;

/* --- a survey that reads no file --- */

enum { HEADER_PX = 7 }; /* what every header says */

static stk_status probe(void *worker, stk_survey_media *media, size_t count, bool decode, stk_error *err)
{
    (void)worker, (void)err;
    for (size_t i = 0; i < count; i++) {
        const bool stated = media[i].stated_width_px && !decode;
        media[i].header_read = !stated;
        media[i].facts = (stk_media_facts){.orientation = 1, .size_bytes = 1000, .flags = stated ? STK_MEDIA_STATED : 0};
        media[i].facts.width_px = stated ? media[i].stated_width_px : HEADER_PX;
        media[i].facts.height_px = stated ? media[i].stated_height_px : HEADER_PX;
    }
    return STK_OK;
}

static stk_status encode(void *worker, const stk_sample *sample, stk_text_facts *text, stk_error *err)
{
    (void)worker, (void)err, (void)sample;
    text->token_count = 9;
    return STK_OK;
}

static const stk_survey survey = {.probe = probe, .encode = encode};

/* --- files --- */

static void setup(const char *name)
{
    char command[700];
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir -p '%s'", folder, folder);
    CHECK(system(command) == 0);
    snprintf(manifest, sizeof manifest, "%s/train.jsonl", folder);
    snprintf(facts, sizeof facts, "%s/facts.jsonl", folder);
    rules = (stk_record_rules){.media_root = stk_str_of(folder), .limits = &limits};
}

/* Written long ago, and never twice at the same time. */
static void write_file(const char *path, const char *text)
{
    static int64_t written = 1700000000;
    written++;
    const struct timespec then[2] = {{written, 0}, {written, 0}};
    FILE *const file = fopen(path, "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0 && utimensat(AT_FDCWD, path, then, 0) == 0);
}

static void write_records(const char *const *image, int count)
{
    char text[4000];
    size_t used = 0;
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "{\"images\": [%s], \"messages\": [{\"role\": \"user\", \"content\": \"<image>?\"}, {\"role\": \"assistant\", "
                                 "\"content\": \"A\"}]}\n", image[i]);
    write_file(manifest, text);
}

static stk_index_spec spec_of(int threads)
{
    return (stk_index_spec){.name = "set", .file = manifests, .file_count = 1, .facts_file = facts, .record_rules = &rules, .survey = &survey,
                            .threads = threads};
}

static void expect_size(const stk_set_index *index, const char *name, uint32_t width, uint32_t height)
{
    char path[700];
    uint32_t w = 0, h = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const bool found = stk_stated_find(stk_set_index_stated(index), stk_str_of(path), &w, &h);
    CHECK(found == (width != 0));
    CHECK_INT(w, width);
    CHECK_INT(h, height);
}

static void expect_refused(stk_index_spec spec, stk_status expected, uint64_t line, const char *words)
{
    stk_error err = {0};
    stk_set_index *index;
    CHECK_INT(stk_set_index_open(&index, &spec, NULL, &err), expected);
    CHECK(!index);
    CHECK_HAS(err.message, words);
    CHECK(strcmp(err.file, facts) == 0 || expected != STK_ERR_MANIFEST);
    CHECK_INT(err.line, line);
}

/* --- lines --- */

static void a_line_says_a_size(void)
{
    setup("line");
    static const struct { const char *line; stk_status status; uint32_t width, height; const char *words; } cases[] = {
        {"{\"path\": \"a.jpg\", \"width\": 640, \"height\": 480}", STK_OK, 640, 480, ""},
        {"{\"size\": 1, \"format\": \"jpeg\", \"etag\": null, \"path\": \"x/../a.jpg\", \"width\": 640, \"height\": 480, \"orientation\": 1}", STK_OK, 640, 480, ""},
        {"{\"path\": \"a.jpg\", \"width\": 640, \"height\": 480, \"orientation\": 4}", STK_OK, 640, 480, ""},
        {"{\"path\": \"a.jpg\", \"width\": 640, \"height\": 480, \"orientation\": 5}", STK_OK, 480, 640, ""},
        {"{\"path\": \"a.jpg\", \"width\": 640, \"height\": 480, \"orientation\": null}", STK_OK, 640, 480, ""},
        {"{\"path\": \"a.jpg\", \"width\": 1, \"height\": 2147483647}", STK_OK, 1, INT32_MAX, ""},
        {"{\"path\": \"/elsewhere/a.jpg\", \"width\": 640, \"height\": 480}", STK_AGAIN, 0, 0, ""},
        {"{\"path\": \"gopher://host/a.jpg\", \"width\": 640, \"height\": 480}", STK_AGAIN, 0, 0, ""},
        {"{\"path\": \"a.jpg\", \"width\": 640}", STK_ERR_RECORD, 0, 0, "height is no whole number from 1"},
        {"{\"path\": \"a.jpg\", \"width\": 0, \"height\": 480}", STK_ERR_RECORD, 0, 0, "width is no"},
        {"{\"path\": \"a.jpg\", \"width\": 640.0, \"height\": 480}", STK_ERR_RECORD, 0, 0, "width is no"},
        {"{\"path\": \"a.jpg\", \"width\": \"640\", \"height\": 480}", STK_ERR_RECORD, 0, 0, "width is no"},
        {"{\"path\": \"a.jpg\", \"width\": 640, \"height\": 2147483648}", STK_ERR_RECORD, 0, 0, "height is no"},
        {"{\"path\": \"a.jpg\", \"width\": 640, \"height\": 480, \"orientation\": 9}", STK_ERR_RECORD, 0, 0, "orientation is no whole number from 1 to 8"},
        {"{\"width\": 640, \"height\": 480}", STK_ERR_RECORD, 0, 0, "no path"},
        {"{\"path\": 3, \"width\": 640, \"height\": 480}", STK_ERR_RECORD, 0, 0, "no path"},
        {"{\"path\": \"\", \"width\": 640, \"height\": 480}", STK_ERR_RECORD, 0, 0, "empty address"},
        {"{\"path\": \"data:image/png;base64,AA\", \"width\": 640, \"height\": 480}", STK_ERR_RECORD, 0, 0, "data: address"},
        {"{\"path\": \"a.jpg\", \"path\": \"b.jpg\", \"width\": 640, \"height\": 480}", STK_ERR_RECORD, 0, 0, "byte"},
        {"[1]", STK_ERR_RECORD, 0, 0, "is an object"},
        {"{\"path\": \"a.jpg\", \"width\": 640, \"height\"", STK_ERR_RECORD, 0, 0, "of the line"},
        {"{\"path\": \"a\xff.jpg\", \"width\": 640, \"height\": 480}", STK_ERR_RECORD, 0, 0, "UTF-8"},
    };
    stk_sample sample;
    stk_stated_size size, plain;
    stk_error err;
    stk_sample_init(&sample);
    CHECK_OK(stk_stated_read(&plain, &sample, &rules, stk_str_of(cases[0].line), &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err = (stk_error){0};
        CHECK_INT(stk_stated_read(&size, &sample, &rules, stk_str_of(cases[i].line), &err), cases[i].status);
        CHECK_HAS(err.message, cases[i].words);
        if (cases[i].status != STK_OK) continue;
        CHECK_INT(size.width_px, cases[i].width);
        CHECK_INT(size.height_px, cases[i].height);
        CHECK(size.high == plain.high && size.low == plain.low);
    }
    char *const large = calloc(1, limits.record_bytes + 2);
    memset(large, ' ', limits.record_bytes + 1);
    CHECK_INT(stk_stated_read(&size, &sample, &rules, stk_str_of(large), &err), STK_ERR_RECORD);
    CHECK(strstr(err.message, "limits.record_bytes"));
    free(large);
    stk_sample_deinit(&sample);
}

/* --- the whole file --- */

static void sizes_take_the_place_of_headers(void)
{
    setup("place");
    static const char *const image[] = {"\"a.jpg\"", "\"b.jpg\"", "{\"path\": \"c.jpg\", \"width\": 5, \"height\": 6}", "\"./x/../d.jpg\""};
    char text[1000];
    write_records(image, 4);
    snprintf(text, sizeof text, "{\"path\": \"a.jpg\", \"width\": 10, \"height\": 20}\r\n\n{\"path\": \"c.jpg\", \"width\": 30, \"height\": 40}\n"
             "{\"path\": \"a.jpg\", \"width\": 20, \"height\": 10, \"orientation\": 8}\n{\"path\": \"%s/d.jpg\", \"width\": 50, \"height\": 60}", folder);
    write_file(facts, text);
    for (int threads = 0; threads < 3; threads++) {
        stk_index_work work = {0};
        stk_error err;
        stk_set_index *index;
        const stk_index_spec spec = spec_of(threads);
        CHECK_OK(stk_set_index_open(&index, &spec, &work, &err), err);
        CHECK_INT(work.media_headers_read, threads ? 0 : 1); /* b's */
        const stk_media_facts *const media = stk_set_index_facts(index)->media;
        static const uint32_t size[4][2] = {{10, 20}, {HEADER_PX, HEADER_PX}, {5, 6}, {50, 60}}; /* c's record comes first */
        for (int i = 0; i < 4; i++) {
            CHECK_INT(media[i].width_px, size[i][0]);
            CHECK_INT(media[i].height_px, size[i][1]);
            CHECK_INT(media[i].flags, i == 1 ? 0 : STK_MEDIA_STATED);
        }
        CHECK_INT(stk_set_index_stated(index)->count, 3);
        stk_set_index_close(&index);
    }
    stk_index_spec spec = spec_of(0); /* what verify decodes is read, whoever states what */
    spec.mode = STK_INDEX_VERIFY;
    stk_index_work work = {0};
    stk_error err;
    stk_set_index *index;
    CHECK_OK(stk_set_index_open(&index, &spec, &work, &err), err);
    CHECK_INT(work.media_headers_read, 4);
    CHECK_INT(stk_set_index_facts(index)->media[0].width_px, HEADER_PX);
    stk_set_index_close(&index);
}

static void a_change_is_noticed_and_builds_the_media_part_alone(void)
{
    setup("change");
    static const char *const image[] = {"\"a.jpg\""}, first[] = "{\"path\": \"a.jpg\", \"width\": 10, \"height\": 20}\n",
                             other[] = "{\"path\": \"a.jpg\", \"width\": 11, \"height\": 20}\n";
    write_records(image, 1);
    write_file(facts, first);
    uint8_t digest[2][16];
    stk_index_spec spec = spec_of(1);
    for (int i = 0; i < 4; i++) { /* first, first again, other, first */
        if (i >= 2) write_file(facts, i == 2 ? other : first);
        stk_index_work work = {0};
        stk_error err;
        stk_set_index *index;
        if (i == 2) {
            spec.mode = STK_INDEX_REQUIRE;
            expect_refused(spec, STK_ERR_INDEX, 0, "stoker index");
            spec.mode = STK_INDEX_AUTO;
        }
        CHECK_OK(stk_set_index_open(&index, &spec, &work, &err), err);
        CHECK_INT(work.media_part_built, i != 1);
        CHECK_INT(work.texts_encoded, i == 0);
        CHECK_INT(stk_set_index_facts(index)->media[0].width_px, i == 2 ? 11 : 10);
        memcpy(digest[i == 2], stk_set_index_facts(index)->content_digest, 16);
        if (i == 3) CHECK(memcmp(digest[0], digest[1], 16) != 0);
        stk_set_index_close(&index);
    }
    spec.mode = STK_INDEX_REQUIRE;
    stk_error err;
    stk_set_index *index;
    CHECK_OK(stk_set_index_open(&index, &spec, NULL, &err), err);
    stk_set_index_close(&index);
    /* Its time alone says nothing. */
    write_file(facts, first);
    CHECK_OK(stk_set_index_open(&index, &spec, NULL, &err), err);
    stk_set_index_close(&index);
    /* A set without it is another index. */
    spec = spec_of(1);
    spec.facts_file = NULL;
    stk_index_work work = {0};
    CHECK_OK(stk_set_index_open(&index, &spec, &work, &err), err);
    CHECK(work.media_part_built && !work.text_part_built && !stk_set_index_stated(index));
    stk_set_index_close(&index);
}

static void without_an_index_it_is_part_of_the_digest(void)
{
    setup("stream");
    static const char *const image[] = {"\"a.jpg\""};
    uint8_t digest[3][16];
    write_records(image, 1);
    stk_index_spec spec = spec_of(1);
    spec.mode = STK_INDEX_STREAM;
    for (int i = 0; i < 3; i++) {
        stk_error err;
        stk_set_index *index;
        write_file(facts, i == 1 ? "{\"path\": \"a.jpg\", \"width\": 1, \"height\": 2}\n" : "{\"path\": \"a.jpg\", \"width\": 2, \"height\": 2}\n");
        CHECK_OK(stk_set_index_open(&index, &spec, NULL, &err), err);
        memcpy(digest[i], stk_set_index_facts(index)->content_digest, 16);
        expect_size(index, "a.jpg", i == 1 ? 1 : 2, 2);
        stk_set_index_close(&index);
    }
    CHECK(memcmp(digest[0], digest[1], 16) != 0 && memcmp(digest[0], digest[2], 16) == 0);
}

/* --- many lines --- */

enum { MANY = 300000 }; /* three pieces */

typedef struct odd_line {
    int line;
    const char *text; /* NULL: no more */
} odd_line;

/* odd: lines that are as given. */
static void write_many(const odd_line *odd)
{
    FILE *const file = fopen(facts, "wb");
    CHECK(file != NULL);
    for (int i = 1; i <= MANY; i++) {
        if (odd && odd->text && odd->line == i) fprintf(file, "%s\n", odd++->text);
        else fprintf(file, "{\"path\": \"folder/of/pictures/%d.jpg\", \"width\": %d, \"height\": %d}\n", i, i, i % 1000 + 1);
    }
    CHECK(fclose(file) == 0);
}

static void many_lines_are_found_whatever_the_threads(void)
{
    setup("many");
    static const char *const image[] = {"\"folder/of/pictures/77.jpg\""};
    write_records(image, 1);
    write_many(NULL);
    uint64_t sum = 0;
    for (int threads = 0; threads < 5; threads += 2) {
        char command[700];
        stk_error err;
        stk_set_index *index;
        snprintf(command, sizeof command, "rm -f '%s'/*.stoker-*", folder);
        CHECK(system(command) == 0);
        const stk_index_spec spec = spec_of(threads);
        CHECK_OK(stk_set_index_open(&index, &spec, NULL, &err), err);
        const stk_stated_sizes *const sizes = stk_set_index_stated(index);
        CHECK_INT(sizes->count, MANY);
        uint64_t now = 0;
        for (uint64_t i = 0; i < sizes->count; i++) now = now * 31 + sizes->size[i].high + sizes->size[i].width_px;
        if (threads) CHECK(now == sum);
        sum = now;
        for (int i = 1; i <= MANY; i += 997) {
            char name[60];
            snprintf(name, sizeof name, "folder/of/pictures/%d.jpg", i);
            expect_size(index, name, (uint32_t)i, (uint32_t)(i % 1000 + 1));
        }
        expect_size(index, "folder/of/pictures/0.jpg", 0, 0);
        CHECK_INT(stk_set_index_facts(index)->media[0].width_px, 77);
        stk_set_index_close(&index);
    }
}

static void the_first_fault_is_named_whatever_the_threads(void)
{
    setup("faults");
    static const char *const image[] = {"\"a.jpg\""};
    write_records(image, 1);
    static const odd_line broken[] = {{123456, "{\"path\": \"a.jpg\", \"width\": 3}"}, {123460, "{"}, {290000, "[]"}, {0, NULL}};
    static const odd_line other[] = {{3, "{\"path\": \"folder/of/pictures/200000.jpg\", \"width\": 9, \"height\": 9}"},
                                       {5, "{\"path\": \"folder/of/pictures/250000.jpg\", \"width\": 9, \"height\": 9}"},
                                       {260000, "{\"path\": \"folder/of/pictures/4.jpg\", \"width\": 4, \"height\": 9}"}, {0, NULL}};
    for (int threads = 0; threads < 5; threads += 2) {
        write_many(broken);
        expect_refused(spec_of(threads), STK_ERR_MANIFEST, 123456, "height is no whole number");
        write_many(other);
        expect_refused(spec_of(threads), STK_ERR_MANIFEST, 200000, "200000 x 1 here and 9 x 9 in line 3: keep");
    }
}

static bool stop_at_facts(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    (void)set;
    CHECK(done <= total);
    return strcmp(phase, "facts") != 0 || ++*(int *)context < 2;
}

static void it_can_be_interrupted(void)
{
    setup("interrupted");
    static const char *const image[] = {"\"a.jpg\""};
    write_records(image, 1);
    write_many(NULL);
    int reports = 0;
    const stk_index_progress progress = {.report = stop_at_facts, .context = &reports};
    stk_index_spec spec = spec_of(0);
    spec.progress = &progress;
    expect_refused(spec, STK_ERR_INTERRUPTED, 0, "interrupted");
    CHECK_INT(reports, 2);
}

static void what_is_no_facts_file_is_refused(void)
{
    setup("refused");
    static const char *const image[] = {"\"a.jpg\""};
    write_records(image, 1);
    write_file(facts, "[{\"path\": \"a.jpg\", \"width\": 3, \"height\": 3}]");
    expect_refused(spec_of(1), STK_ERR_MANIFEST, 1, "one object a line");
    write_file(facts, "PAR1 and so on");
    expect_refused(spec_of(1), STK_ERR_MANIFEST, 0, "Parquet");
    CHECK(unlink(facts) == 0);
    expect_refused(spec_of(1), STK_ERR_MANIFEST, 0, "cannot read");
    write_file(facts, "");
    stk_error err;
    stk_set_index *index;
    const stk_index_spec spec = spec_of(1);
    CHECK_OK(stk_set_index_open(&index, &spec, NULL, &err), err);
    expect_size(index, "a.jpg", 0, 0);
    stk_set_index_close(&index);
}

/* What stands on disk is as hostile as any file. */
static void a_damaged_table_is_made_anew(void)
{
    setup("damaged");
    static const char *const image[] = {"\"a.jpg\""};
    write_records(image, 1);
    write_file(facts, "{\"path\": \"a.jpg\", \"width\": 3, \"height\": 3}\n{\"path\": \"b.jpg\", \"width\": 3, \"height\": 3}\n");
    const stk_index_spec spec = spec_of(1);
    for (int i = 0; i < 2; i++) {
        stk_error err;
        stk_set_index *index;
        CHECK_OK(stk_set_index_open(&index, &spec, NULL, &err), err);
        expect_size(index, "a.jpg", 3, 3);
        stk_set_index_close(&index);
        char command[700];
        snprintf(command, sizeof command, "cd '%s' && truncate -s -8 facts.jsonl.stoker-sizes-*", folder);
        CHECK(system(command) == 0);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(a_line_says_a_size), TEST(sizes_take_the_place_of_headers), TEST(a_change_is_noticed_and_builds_the_media_part_alone),
                    TEST(without_an_index_it_is_part_of_the_digest), TEST(many_lines_are_found_whatever_the_threads),
                    TEST(the_first_fault_is_named_whatever_the_threads), TEST(it_can_be_interrupted), TEST(what_is_no_facts_file_is_refused),
                    TEST(a_damaged_table_is_made_anew));
}
