/* test_survey.c - the index over real images and the sample checkpoint: stk_index_build and what it reports. */
#include "../proof/proof_set.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/file.h"
#include "schema/facts.h"

static const char *folder;

static void start_folder(void)
{
    char command[1000];
    static char path[300];
    snprintf(path, sizeof path, "%s/set", test_folder());
    folder = path;
    snprintf(command, sizeof command, "chmod -R u+rwx '%s' 2>/dev/null; rm -rf '%s' && mkdir '%s'", path, path, path);
    CHECK(system(command) == 0);
}

static void set(stk_options *options, const char *name, const char *value)
{
    stk_error err;
    CHECK_OK(stk_options_set(options, name, value, &err), err);
}

/* One data set, indexed; the summary is a copy. */
static stk_index_summary build(const stk_options *options)
{
    stk_error err;
    stk_index_report *report;
    CHECK_OK(stk_index_build(&report, options, NULL, &err), err);
    CHECK_INT(stk_index_report_count(report), 1);
    const stk_index_summary summary = *stk_index_report_at(report, 0);
    stk_index_report_destroy(report);
    return summary;
}

static stk_options sample_options(const char *name)
{
    char path[600];
    stk_error err;
    stk_options options = STK_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/../examples/sample/%s", test_source_folder(), name);
    CHECK_OK(stk_options_read(&options, path, &err), err);
    set(&options, "index_dir", folder);
    return options;
}

static void the_sample_set_is_all_usable_and_counted(void)
{
    start_folder();
    stk_options options = sample_options("stoker.yaml");
    const stk_index_summary s = build(&options);
    CHECK_STR(s.name, "sample");
    CHECK_INT(s.records, 45);
    CHECK_MSG(s.usable == s.records, "%llu usable", (unsigned long long)s.usable);
    CHECK(s.images >= 24 && s.media_bytes > 100000);
    CHECK(s.text_tokens > s.supervised_tokens && s.supervised_tokens > 0 && s.visual_tokens > 0);
    CHECK(s.alpha >= 2 && s.grey16 >= 1 && s.turned >= 3);
    uint64_t in_buckets = 0;
    for (int b = 0; b < STK_INDEX_HISTOGRAM_BUCKETS; b++) in_buckets += s.length_histogram[b];
    CHECK_INT(in_buckets, s.usable);
    CHECK(s.media_part_built && s.text_part_built);
    CHECK_INT(s.records_parsed, 45);
    CHECK_INT(s.texts_encoded, 45);
    CHECK(s.media_headers_read > 0 && s.media_headers_read <= s.images);

    /* The same index on one thread, and with every picture decoded. */
    static const char *const workers[] = {"inline", "3"};
    for (int i = 0; i < 2; i++) {
        char command[700];
        snprintf(command, sizeof command, "rm -f '%s'/*", folder);
        CHECK(system(command) == 0);
        set(&options, "workers", workers[i]);
        set(&options, "index", i ? "verify" : "auto");
        const stk_index_summary again = build(&options);
        CHECK_INT(again.usable, s.usable);
        CHECK_INT(again.visual_tokens, s.visual_tokens);
        CHECK_INT(again.supervised_tokens, s.supervised_tokens);
        CHECK_INT(memcmp(again.length_histogram, s.length_histogram, sizeof s.length_histogram), 0);
    }
    stk_options_deinit(&options);
}

/* After a change of pixel limits, template or labels no media header is read again. */
static void options_read_only_what_depends_on_them(void)
{
    start_folder();
    stk_options options = sample_options("stoker.yaml");
    const stk_index_summary first = build(&options);
    stk_index_summary s = build(&options);
    CHECK_INT(s.records_parsed + s.media_headers_read + s.texts_encoded, 0);
    CHECK_INT(s.usable, first.usable);

    set(&options, "max_pixels", "65536");
    set(&options, "min_pixels", "1024");
    s = build(&options);
    CHECK_INT(s.records_parsed + s.media_headers_read + s.texts_encoded, 0);
    CHECK(s.visual_tokens < first.visual_tokens);
    CHECK_INT(s.text_tokens, first.text_tokens);

    set(&options, "labels", "last");
    s = build(&options);
    CHECK_INT(s.records_parsed + s.media_headers_read, 0);
    CHECK_INT(s.texts_encoded, 45);
    CHECK(s.supervised_tokens < first.supervised_tokens);

    set(&options, "template", "{user: {before: \"U: \", after: \"\\n\"}, assistant: {before: \"A: \", after: \"\\n\", train: [text]}, "
                              "system: {before: \"S: \", after: \"\\n\"}, tool: {before: \"T: \", after: \"\\n\"}, image: \"<|image_pad|>\"}");
    s = build(&options);
    CHECK_INT(s.records_parsed + s.media_headers_read, 0);
    CHECK_INT(s.texts_encoded, 45);
    CHECK(s.text_tokens != first.text_tokens);

    set(&options, "max_tokens", "64");
    s = build(&options);
    CHECK_INT(s.records_parsed + s.media_headers_read + s.texts_encoded, 0);
    CHECK(s.unusable_by_reason[STK_REASON_OVERLONG] > 0);
    CHECK_HAS(s.example[STK_REASON_OVERLONG][0].message, "over the limit of 64");
    CHECK_INT(s.usable + s.unusable_by_reason[STK_REASON_OVERLONG], s.records);
    stk_options_deinit(&options);
}

static void expect_reason(const stk_index_summary *s, stk_reason reason, uint64_t count, uint64_t line, const char *words)
{
    CHECK_MSG(s->unusable_by_reason[reason] == count, "%s: %llu, not %llu", stk_reason_text(reason),
              (unsigned long long)s->unusable_by_reason[reason], (unsigned long long)count);
    const stk_index_example *const example = &s->example[reason][0];
    CHECK_MSG(example->line == line, "%s: line %llu: %s", stk_reason_text(reason), (unsigned long long)example->line, example->message);
    CHECK_HAS(example->file, ".jsonl");
    CHECK_HAS(example->message, words);
}

static void every_fault_of_the_faulty_set_is_named_with_its_line(void)
{
    start_folder();
    stk_options options = sample_options("faulty.yaml");
    set(&options, "index", "verify");
    const stk_index_summary s = build(&options);
    CHECK_INT(s.records, 18);
    CHECK_INT(s.blank_lines, 1);
    expect_reason(&s, STK_REASON_MISSING, 1, 2, "images/lost.jpg");
    expect_reason(&s, STK_REASON_BROKEN, 1, 3, "cut.jpg");
    expect_reason(&s, STK_REASON_NOT_IMAGE, 1, 4, "text.png");
    expect_reason(&s, STK_REASON_RATIO, 1, 5, "pixels");
    expect_reason(&s, STK_REASON_DENIED, 1, 6, "allow");
    expect_reason(&s, STK_REASON_ROLE, 1, 10, "martian");
    expect_reason(&s, STK_REASON_VIDEO, 1, 12, "");
    uint64_t unusable = 0;
    for (int reason = 0; reason < STK_INDEX_REASONS; reason++) {
        unusable += s.unusable_by_reason[reason];
        CHECK_INT(s.unusable_by_reason[reason] > 0, s.example[reason][0].line > 0);
        CHECK_INT(s.unusable_by_reason[reason] > 0, s.example[reason][0].message[0] != 0);
    }
    CHECK_INT(s.usable + unusable, s.records);
    CHECK_INT(s.usable, 3);
    stk_options_deinit(&options);
}

/* --- what media may be --- */

static void write_bytes(const char *name, const void *bytes, size_t size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* A JPEG whose frame header stands behind `segments` comments of 64 KiB. */
static void write_late_header(const char *name, const char *jpeg, size_t size, int segments)
{
    const size_t total = size + (size_t)segments * 65537;
    uint8_t *const bytes = calloc(1, total);
    CHECK(bytes != NULL);
    memcpy(bytes, jpeg, 2);
    for (int i = 0; i < segments; i++) {
        uint8_t *const segment = bytes + 2 + (size_t)i * 65537;
        segment[0] = 0xff;
        segment[1] = 0xfe;
        segment[2] = segment[3] = 0xff;
    }
    memcpy(bytes + 2 + (size_t)segments * 65537, jpeg + 2, size - 2);
    write_bytes(name, bytes, total);
    free(bytes);
}

static void put_record(char *manifest, const char *image)
{
    sprintf(manifest + strlen(manifest),
            "{\"image\": %s, \"conversations\": [{\"from\": \"human\", \"value\": \"<image>?\"}, {\"from\": \"gpt\", \"value\": \"A.\"}]}\n", image);
}

static void media_of_every_kind_have_their_facts_or_their_reason(void)
{
    start_folder();
    char path[600], target[600], manifest[8000] = "";
    stk_error err;
    snprintf(path, sizeof path, "%s/plain.jpg", folder);
    proof_jpeg(path, 200, 120, 1);
    char *jpeg;
    size_t size;
    CHECK_OK(stk_file_read(&jpeg, &size, path, 1 << 20, STK_TAG_INDEX, &err), err);
    write_late_header("late.jpg", jpeg, size, 3);   /* behind the first 64 KiB */
    write_late_header("later.jpg", jpeg, size, 20); /* behind the first MiB */
    write_bytes("cut.jpg", jpeg, 30);
    write_bytes("empty.jpg", "", 0);
    stk_free(jpeg);
    snprintf(target, sizeof target, "%s/outside.jpg", test_folder());
    proof_jpeg(target, 64, 64, 2);
    snprintf(path, sizeof path, "%s/link.jpg", folder);
    CHECK(symlink(target, path) == 0);
    snprintf(path, sizeof path, "%s/pipe.jpg", folder);
    CHECK(mkfifo(path, 0600) == 0);

    put_record(manifest, "\"plain.jpg\"");
    put_record(manifest, "\"late.jpg\"");
    put_record(manifest, "\"later.jpg\"");
    put_record(manifest, "\"cut.jpg\"");
    put_record(manifest, "\"empty.jpg\"");
    put_record(manifest, "\"link.jpg\"");
    put_record(manifest, "\"pipe.jpg\"");
    put_record(manifest, "{\"path\": \"plain.jpg\", \"width\": 200, \"height\": 120}");
    put_record(manifest, "{\"path\": \"gone.jpg\", \"width\": 200, \"height\": 120}");
    put_record(manifest, "\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==\"");
    put_record(manifest, "\"data:image/png;base64,AAAA\"");
    proof_file(folder, "set.jsonl", manifest);
    proof_config(folder, "batch: 1\nerrors: {unusable: 1}\n");
    stk_options options;
    proof_options(&options, folder);
    const stk_index_summary s = build(&options);
    CHECK_INT(s.records, 11);
    CHECK_INT(s.usable, 5);
    expect_reason(&s, STK_REASON_BROKEN, 1, 4, "cut.jpg");
    expect_reason(&s, STK_REASON_EMPTY, 1, 5, "empty.jpg");
    expect_reason(&s, STK_REASON_DENIED, 1, 6, "allow: [");
    CHECK_HAS(s.example[STK_REASON_NOT_IMAGE][0].message, "pipe.jpg: not a regular file");
    CHECK_INT(s.example[STK_REASON_NOT_IMAGE][0].line, 7);
    CHECK_HAS(s.example[STK_REASON_NOT_IMAGE][1].message, "image 1, a data: URI: ");
    expect_reason(&s, STK_REASON_MISSING, 1, 9, "gone.jpg: the file does not exist");
    CHECK_INT(s.alpha, 1);

    /* Repaired, they are found; allowed too. */
    snprintf(path, sizeof path, "%s/gone.jpg", folder);
    proof_jpeg(path, 200, 120, 3);
    snprintf(path, sizeof path, "%s/empty.jpg", folder);
    proof_jpeg(path, 90, 90, 3);
    stk_index_summary again = build(&options);
    CHECK_INT(again.usable, 7);
    CHECK_INT(again.texts_encoded, 0);
    CHECK_INT(again.media_headers_read, 1); /* the other one's size is stated */
    snprintf(target, sizeof target, "[\"%s\"]", test_folder());
    set(&options, "allow", target);
    again = build(&options);
    CHECK_INT(again.usable, 8);
    CHECK_INT(again.unusable_by_reason[STK_REASON_DENIED], 0);
    stk_options_deinit(&options);
}

static void limits_on_media_are_reasons(void)
{
    start_folder();
    char path[600];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/img-%d.jpg", folder, i);
        proof_jpeg(path, 100 + 400 * i, 100, 1);
    }
    proof_manifest(folder, 2, 2);
    proof_config(folder, "batch: 1\nerrors: {unusable: 1}\nlimits: {media_pixels: 20000}\n");
    stk_options options;
    proof_options(&options, folder);
    stk_index_summary s = build(&options);
    CHECK_INT(s.usable, 1);
    expect_reason(&s, STK_REASON_MEDIA_LIMIT, 1, 2, "img-1.jpg");
    set(&options, "limits.media_pixels", "1000000");
    set(&options, "limits.media_bytes", "100");
    s = build(&options);
    CHECK_INT(s.unusable_by_reason[STK_REASON_MEDIA_LIMIT], 2);
    CHECK_HAS(s.example[STK_REASON_MEDIA_LIMIT][0].message, "limits.media_bytes is 100");
    stk_options_deinit(&options);
}

/* A picture that is cut behind its header is found by verify, and only by verify. */
static void verify_finds_what_headers_do_not_show(void)
{
    start_folder();
    char path[600];
    snprintf(path, sizeof path, "%s/img-0.jpg", folder);
    proof_jpeg(path, 300, 200, 1);
    struct stat info;
    CHECK(stat(path, &info) == 0 && truncate(path, info.st_size / 2) == 0);
    proof_manifest(folder, 1, 1);
    proof_config(folder, "batch: 1\nerrors: {unusable: 1}\n");
    stk_options options;
    proof_options(&options, folder);
    CHECK_INT(build(&options).usable, 1);
    set(&options, "index", "require");
    CHECK_INT(build(&options).usable, 1);
    set(&options, "index", "verify");
    const stk_index_summary s = build(&options);
    CHECK_INT(s.usable, 0);
    expect_reason(&s, STK_REASON_BROKEN, 1, 1, "img-0.jpg");
    stk_options_deinit(&options);
}

static void a_wrong_media_root_is_said_in_one_line(void)
{
    start_folder();
    proof_manifest(folder, 60, 60);
    proof_config(folder, "batch: 1\n");
    stk_options options;
    stk_error err;
    stk_loader *loader;
    proof_options(&options, folder);
    CHECK_INT(stk_loader_open(&loader, &options, 0, 1, &err), STK_ERR_SPENT);
    CHECK_HAS(err.message, "60 of 60");
    CHECK_HAS(err.message, "media missing");
    CHECK_HAS(err.message, "/img-0.jpg");
    stk_options_deinit(&options);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(the_sample_set_is_all_usable_and_counted), TEST(options_read_only_what_depends_on_them),
              TEST(every_fault_of_the_faulty_set_is_named_with_its_line),
              TEST(media_of_every_kind_have_their_facts_or_their_reason), TEST(limits_on_media_are_reasons),
              TEST(verify_finds_what_headers_do_not_show), TEST(a_wrong_media_root_is_said_in_one_line));
}
