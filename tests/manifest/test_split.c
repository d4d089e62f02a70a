/* Finding records: forms, line ends, positions, chunks, and arrays that are broken. */
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "manifest/split.h"

enum { MOST = 64 };

typedef struct found {
    stk_record_at at[MOST];
    size_t count;
    stk_status status; /* STK_END or a failure */
    stk_error err;
    stk_split split;
} found;

static const uint8_t *bytes_of(const char *text)
{
    return (const uint8_t *)text;
}

static found split_bytes(const void *data, size_t size_bytes)
{
    found f = {0};
    CHECK_OK(stk_split_open(&f.split, data, size_bytes, &f.err), f.err);
    while ((f.status = stk_split_next(&f.split, &f.at[f.count], &f.err)) == STK_OK) CHECK(++f.count < MOST);
    return f;
}

static found split_text(const char *text)
{
    return split_bytes(text, strlen(text));
}

static void expect_record(const found *f, size_t i, const char *text, uint64_t offset, uint64_t line)
{
    CHECK(i < f->count);
    CHECK_MSG(stk_str_is(f->at[i].text, text), "record %zu is %.*s", i, STK_STR_ARGS(f->at[i].text));
    CHECK_INT(f->at[i].offset, offset);
    CHECK_INT(f->at[i].line, line);
}

static void expect_broken(const char *text, size_t good_records, const char *words)
{
    found f = split_text(text);
    CHECK_INT(f.status, STK_ERR_MANIFEST);
    CHECK_INT(f.count, good_records);
    CHECK_HAS(f.err.message, words);
    CHECK(f.err.line > 0);
    /* It stays broken when asked again. */
    CHECK_INT(stk_split_next(&f.split, &f.at[0], NULL), STK_ERR_MANIFEST);
}

/* A01: one byte-order mark at byte 0 is skipped; another belongs to the record, which refuses it. */
static void byte_order_mark_is_skipped_at_the_start_only(void)
{
    found f = split_text("\xEF\xBB\xBF{1}\n\xEF\xBB\xBF{2}\n");
    CHECK_INT(f.count, 2);
    expect_record(&f, 0, "{1}", 3, 1);
    expect_record(&f, 1, "\xEF\xBB\xBF{2}", 7, 2);

    f = split_text("\xEF\xBB\xBF [{1}]");
    CHECK_INT(f.split.form, STK_FORM_ARRAY);
    expect_record(&f, 0, "{1}", 5, 1);
}

/* A03: the last record needs no line end. */
static void last_line_without_a_line_end_is_a_record(void)
{
    found f = split_text("{1}\n{2}\n{3}");
    CHECK_INT(f.count, 3);
    expect_record(&f, 2, "{3}", 8, 3);
    CHECK_INT(stk_split_lines(&f.split), 3);
}

/* A04: blank lines are skipped and counted; lines are physical ones. */
static void blank_lines_are_counted_and_keep_their_numbers(void)
{
    found f = split_text("{1}\n\n{2}\n  \n{3}\n\t\r\n{4}\n");
    CHECK_INT(f.count, 4);
    CHECK_INT(f.split.at.blank_lines, 3);
    expect_record(&f, 1, "{2}", 5, 3);
    expect_record(&f, 2, "{3}", 12, 5);
    expect_record(&f, 3, "{4}", 19, 7);
}

static void carriage_returns_belong_to_the_line_end(void)
{
    found f = split_text("{1}\r\n {2}\t\r\n{3}\r\n");
    CHECK_INT(f.count, 3);
    expect_record(&f, 1, "{2}", 6, 2);
}

/* A07 (2) and (3): the first byte decides between lines and an array. */
static void form_is_decided_by_the_first_byte(void)
{
    found f = split_text("\n \t[\n {\"a\": [1, {}]},\n\n {\"b\": \"],}[{\\\"\"} , 3,\"x\" ]\n\n");
    CHECK_INT(f.split.form, STK_FORM_ARRAY);
    CHECK_INT(f.status, STK_END);
    CHECK_INT(f.count, 4);
    expect_record(&f, 0, "{\"a\": [1, {}]}", 6, 3);
    expect_record(&f, 1, "{\"b\": \"],}[{\\\"\"}", 24, 5);
    expect_record(&f, 2, "3", 43, 5);
    expect_record(&f, 3, "\"x\"", 45, 5);
    CHECK_INT(split_text("\n{1}").split.form, STK_FORM_JSONL);
}

static void empty_files_have_no_records(void)
{
    static const char *const texts[] = {"", "\n\n", " ", "\xEF\xBB\xBF", "[]", " [ \n ] \n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        found f = split_text(texts[i]);
        CHECK_INT(f.count, 0);
        CHECK_INT(f.status, STK_END);
        CHECK_INT(stk_split_next(&f.split, &f.at[0], &f.err), STK_END);
    }
    CHECK_INT(split_bytes(NULL, 0).status, STK_END);
}

/* A07 (1): a fault of the array itself is refused with line, column and offset. */
static void broken_arrays_are_refused_with_their_place(void)
{
    expect_broken("[{\"a\":1},\n {\"a\":2}\n {\"a\":3}]", 2,
                  "line 3, column 2, offset 20: a comma is missing");
    expect_broken("[{},{}] {}", 2, "line 1, column 9, offset 8: something stands behind the end");
    expect_broken("[{}]\n]", 1, "line 2, column 1, offset 5");
    expect_broken("[{},]", 1, "offset 4: a record should stand here");
    expect_broken("[,{}]", 0, "offset 1: a record should stand here");
    expect_broken("[{},,{}]", 1, "offset 4");
    expect_broken("[{}", 1, "offset 3: the array is not closed");
    expect_broken("[", 0, "the array is not closed");
    expect_broken("[{},", 1, "the array is not closed");
    expect_broken("[{},\n{\"a\": [1}, {}]", 1, "line 2, column 9, offset 13: '}' stands where ']'");
    expect_broken("[{\"a\": [1, 2}]", 0, "'}' stands where ']'");
    expect_broken("[{\"a\": 1], {}]", 0, "']' stands where '}'");
    expect_broken("[{}, {\"a\": {}, {}]", 1, "']' stands where '}'");
    expect_broken("[{}, {\"a\": {", 1,
                  "line 1, column 6, offset 5: the record that starts here is not closed");
    expect_broken("[{\"a\": \"no end},\n{\"b\": 1}]", 0,
                  "column 8, offset 7: a string is not closed on its line");
    expect_broken("[{\"a\": \"no end\\", 0, "a string is not closed");
    expect_broken("[\"no end\\\n\"]", 0, "a string is not closed");
}

/* Brackets deeper than the splitter compares are still counted. */
static void deep_nesting_ends_where_it_ends(void)
{
    enum { DEEP = 3000 };
    static char text[2 * DEEP + 16];
    text[0] = '[';
    memset(text + 1, '[', DEEP);
    memset(text + 1 + DEEP, ']', DEEP);
    strcpy(text + 1 + 2 * DEEP, ",{}]");
    found f = split_text(text);
    CHECK_INT(f.status, STK_END);
    CHECK_INT(f.count, 2);
    CHECK_INT(f.at[0].text.size_bytes, 2 * DEEP);
}

static void files_that_are_no_text_are_named(void)
{
    static const struct {
        const char *bytes;
        const char *words;
    } files[] = {{"\xFF\xFE{", "UTF-16"},
                 {"\xFE\xFF{", "UTF-16"},
                 {"\x1F\x8B\x08", "gzip"},
                 {"\x28\xB5\x2F\xFD", "zstd"},
                 {"BZh91AY", "bzip2"},
                 {"\xFD" "7zXZ", "xz"},
                 {"\x04\x22\x4D\x18", "lz4"},
                 {"PK\x03\x04", "zip"},
                 {"PAR1\x15", "Parquet"},
                 {"ARROW1", "Arrow"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        stk_split split;
        stk_error err;
        CHECK_INT(stk_split_open(&split, bytes_of(files[i].bytes), strlen(files[i].bytes), &err),
                  STK_ERR_MANIFEST);
        CHECK_HAS(err.message, files[i].words);
    }
}

/* A broken record is its own line's business: the next line goes on. */
static void a_broken_line_ends_with_its_line(void)
{
    found f = split_bytes("{\"a\": \"open\n\0\n{\"b\n[{3}", 22);
    CHECK_INT(f.count, 4);
    expect_record(&f, 3, "[{3}", 18, 4);
}

static uint32_t random_state = 1;
static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % limit;
}

static size_t random_manifest(char *text, size_t capacity, bool is_array)
{
    static const char *const records[] = {"{}", "{\"a\":\"x]\\\"\"}", "{\"b\":[1,{\"c\":[]}]}",
                                          "{\"d\":\"\\\\\"}"};
    static const char *const gaps[] = {"\n", "\r\n", "\n\n", "\n \t\n", "\n  "};
    size_t size = 0;
    if (is_array) text[size++] = '[';
    const uint32_t count = random_below(12);
    for (uint32_t i = 0; i < count; i++) {
        const char *const record = records[random_below(4)], *const gap = gaps[random_below(5)];
        const bool last = i + 1 == count;
        size += (size_t)snprintf(text + size, capacity - size, "%s%s%s", record, is_array && !last ? "," : "",
                                 last && random_below(2) ? "" : gap);
    }
    if (is_array) text[size++] = ']';
    return size;
}

/* Records and the white space (and commas) between them are the whole file, in order. */
static void records_and_gaps_are_the_file(void)
{
    char text[1024];
    for (int round = 0; round < 2000; round++) {
        const bool is_array = round % 2;
        const size_t size = random_manifest(text, sizeof text, is_array);
        const found f = split_bytes(text, size);
        CHECK_INT(f.status, STK_END);
        uint64_t at = 0, lines = 1;
        for (size_t i = 0; i <= f.count; i++) {
            const uint64_t next = i < f.count ? f.at[i].offset : size;
            for (; at < next; at++) {
                CHECK(memchr(is_array ? " \t\r\n,[]" : " \t\r\n", text[at], is_array ? 7 : 4));
                lines += text[at] == '\n';
            }
            if (i == f.count) break;
            CHECK_INT(f.at[i].line, lines);
            at += f.at[i].text.size_bytes;
        }
        CHECK_INT(at, size);
    }
}

/* Chunks give every record and blank line of a file once, and their sums the true line numbers. */
static void chunks_together_are_the_file(void)
{
    char text[1024] = "";
    for (int round = 0; round < 1000; round++) {
        const bool has_mark = round % 3 == 0;
        if (has_mark) memcpy(text, "\xEF\xBB\xBF", 3);
        const size_t head = has_mark ? 3 : 0;
        const size_t size = head + random_manifest(text + head, sizeof text - head, false);
        const found whole = split_bytes(text, size);
        const uint64_t step = 1 + random_below(40);
        uint64_t lines = 0, records = 0, blank = 0;
        for (uint64_t begin = 0; begin < size; begin += step) {
            stk_split split;
            stk_record_at at;
            stk_error err;
            CHECK_OK(stk_split_open(&split, bytes_of(text), size, &err), err);
            stk_split_chunk(&split, begin, begin + step);
            while (stk_split_next(&split, &at, &err) == STK_OK) {
                CHECK(records < whole.count);
                CHECK_INT(at.offset, whole.at[records].offset);
                CHECK_INT(at.text.size_bytes, whole.at[records].text.size_bytes);
                CHECK_INT(lines + at.line, whole.at[records].line);
                records++;
            }
            lines += stk_split_lines(&split);
            blank += split.at.blank_lines;
        }
        CHECK_INT(records, whole.count);
        CHECK_INT(blank, whole.split.at.blank_lines);
        CHECK_INT(lines, stk_split_lines(&whole.split));
    }
}

/* A position taken after any record leads to the same rest, in both forms. */
static void a_position_goes_on_where_it_was_taken(void)
{
    char text[1024];
    for (int round = 0; round < 500; round++) {
        const size_t size = random_manifest(text, sizeof text, round % 2);
        const found whole = split_bytes(text, size);
        stk_split split;
        stk_record_at at;
        stk_error err;
        CHECK_OK(stk_split_open(&split, bytes_of(text), size, &err), err);
        for (size_t taken = 0; taken <= whole.count; taken++) {
            stk_split other;
            CHECK_OK(stk_split_open(&other, bytes_of(text), size, &err), err);
            stk_split_seek(&other, split.at);
            for (size_t i = taken; i < whole.count; i++) {
                CHECK_INT(stk_split_next(&other, &at, &err), STK_OK);
                CHECK_INT(at.offset, whole.at[i].offset);
                CHECK_INT(at.line, whole.at[i].line);
            }
            CHECK_INT(stk_split_next(&other, &at, &err), STK_END);
            CHECK_INT(other.at.blank_lines, whole.split.at.blank_lines);
            CHECK_INT(stk_split_next(&split, &at, &err), taken < whole.count ? STK_OK : STK_END);
        }
    }
}

static void beyond(const uint8_t *data, uint64_t size, uint64_t start, stk_manifest_form form)
{
    stk_split split;
    stk_record_at at;
    stk_error err;
    CHECK_OK(stk_split_open(&split, data, size, &err), err);
    CHECK_INT(split.form, form);
    stk_split_seek(&split, (stk_split_position){
                               .offset = start, .line = 5000000000u, .line_offset = start, .records = 9});
    CHECK_INT(stk_split_next(&split, &at, &err), STK_OK);
    CHECK_INT(at.offset, start + 1);
    CHECK_INT(at.line, 5000000000u);
    CHECK_INT(stk_split_next(&split, &at, &err), STK_OK);
    CHECK_INT(at.line, 5000000001u);
    CHECK(stk_str_is(at.text, "{\"b\":2}"));
    if (form == STK_FORM_ARRAY) {
        CHECK_INT(stk_split_next(&split, &at, &err), STK_ERR_MANIFEST);
        char place[64];
        snprintf(place, sizeof place, "line 5000000001, column 8, offset %llu",
                 (unsigned long long)(start + 17));
        CHECK_HAS(err.message, place);
        return;
    }
    stk_split_chunk(&split, start + 1, UINT64_MAX);
    CHECK_INT(stk_split_next(&split, &at, &err), STK_OK);
    CHECK(stk_str_is(at.text, "{\"b\":2}"));
}

/* Offsets and lines beyond 32 bits, in a sparse file: only its ends are ever read. */
static void files_beyond_2_gib(void)
{
    static const struct {
        const char *head, *tail;
        stk_manifest_form form;
    } forms[] = {{"{}\n", " {\"a\":1}\n{\"b\":2}\n", STK_FORM_JSONL},
                 {"[{}\n", ",{\"a\":1},\n{\"b\":2}x", STK_FORM_ARRAY}};
    for (size_t i = 0; i < 2; i++) {
        const uint64_t start = ((uint64_t)5 << 30) + 17, size = start + strlen(forms[i].tail);
        char path[300];
        snprintf(path, sizeof path, "%s/sparse-%zu", test_folder(), i);
        const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0);
        CHECK_INT(pwrite(fd, forms[i].head, strlen(forms[i].head), 0), strlen(forms[i].head));
        CHECK_INT(pwrite(fd, forms[i].tail, strlen(forms[i].tail), (off_t)start), strlen(forms[i].tail));
        void *const data = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
        CHECK(data != MAP_FAILED);
        beyond(data, size, start, forms[i].form);
        munmap(data, size);
        close(fd);
    }
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(byte_order_mark_is_skipped_at_the_start_only),
              TEST(last_line_without_a_line_end_is_a_record),
              TEST(blank_lines_are_counted_and_keep_their_numbers),
              TEST(carriage_returns_belong_to_the_line_end), TEST(form_is_decided_by_the_first_byte),
              TEST(empty_files_have_no_records), TEST(broken_arrays_are_refused_with_their_place),
              TEST(deep_nesting_ends_where_it_ends), TEST(files_that_are_no_text_are_named),
              TEST(a_broken_line_ends_with_its_line), TEST(records_and_gaps_are_the_file),
              TEST(chunks_together_are_the_file), TEST(a_position_goes_on_where_it_was_taken),
              TEST(files_beyond_2_gib));
}
