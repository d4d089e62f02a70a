/* cmd_show.c - `stoker show`: one sample as the model will see it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"

/* Bytes on their way to the terminal.  A character may be cut between tokens, so its bytes wait here until it
 * is whole. */
typedef struct printer {
    unsigned char held[4];
    size_t count;
} printer;

/* What is no character, as \xNN. */
static void flush_bytes(printer *p)
{
    for (size_t i = 0; i < p->count; i++) printf("\\x%02x", p->held[i]);
    p->count = 0;
}

static size_t length_of(unsigned char first)
{
    return first < 0x80                    ? 1
           : first >= 0xc2 && first < 0xe0 ? 2
           : first >= 0xe0 && first < 0xf0 ? 3
           : first >= 0xf0 && first < 0xf5 ? 4
                                           : 0;
}

/* Control characters are made visible (C2 80..9F are some too, which terminals obey); line breaks and tabs
 * stay. */
static void flush_character(printer *p)
{
    const unsigned char *const c = p->held;
    const bool is_control = p->count == 1 ? (c[0] < 0x20 && c[0] != '\n' && c[0] != '\t') || c[0] == 0x7f
                                          : c[0] == 0xc2 && c[1] < 0xa0;
    if (is_control) {
        flush_bytes(p);
        return;
    }
    fwrite(p->held, 1, p->count, stdout);
    p->count = 0;
}

static void print_bytes(printer *p, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool goes_on = c >= 0x80 && c < 0xc0;
        if (p->count && !goes_on) flush_bytes(p);
        p->held[p->count++] = c;
        const size_t length = length_of(p->held[0]);
        if (length == 0)
            flush_bytes(p);
        else if (p->count == length)
            flush_character(p);
    }
}

/* The text with what is trained in colour, or in brackets where there are no colours; runs of pads as one. */
static void print_text(const stk_sample_view *view, const stk_sample_info *info)
{
    const bool colour = colours();
    bool trained = false;
    printer p = {.count = 0};
    for (size_t i = 0; i < info->token_count; i++) {
        const bool is_trained = info->labels[i] != -100;
        if (is_trained != trained) {
            flush_bytes(&p);
            fputs(is_trained ? (colour ? "\033[1;32m" : "[") : (colour ? "\033[0m" : "]"), stdout);
        }
        trained = is_trained;
        const char *bytes;
        size_t size;
        stk_sample_token(view, i, &bytes, &size);
        print_bytes(&p, bytes, size);
        size_t run = 1;
        while (info->mm_token_type_ids[i] && i + 1 < info->token_count &&
               info->input_ids[i + 1] == info->input_ids[i]) {
            i++;
            run++;
        }
        if (run > 1) printf(" x %zu", run);
    }
    flush_bytes(&p);
    if (trained) fputs(colour ? "\033[0m" : "]", stdout);
    putchar('\n');
}

static void print_ids(const stk_sample_info *info)
{
    printf("position  id      label   t      h      w\n");
    for (size_t i = 0; i < info->token_count; i++)
        printf("%8zu  %-7" PRId64 " %-7" PRId64 " %-6" PRId64 " %-6" PRId64 " %-6" PRId64 "\n", i,
               info->input_ids[i], info->labels[i], info->position_ids[i],
               info->position_ids[info->token_count + i], info->position_ids[2 * info->token_count + i]);
}

/* DIR/ID.image-K.png, with whatever a file name cannot hold made a dash. */
static int save_image(const invocation *in, const char *id, size_t at, const stk_sample_image *image)
{
    char path[700], name[128];
    snprintf(name, sizeof name, "%s", id);
    for (char *c = name; *c; c++)
        if (*c == '/' || *c == '#' || (unsigned char)*c <= ' ') *c = '-';
    const char *const folder = flag_of(in, "image-dir");
    (void)mkdir(folder, 0777); /* where it cannot be made, the write says so */
    snprintf(path, sizeof path, "%s/%s.image-%zu.png", folder, name, at);
    if (!write_png(path, image->rgb, image->width_px, image->height_px)) return EXIT_FAILED;
    printf("    written to %s\n", path);
    return EXIT_DONE;
}

static int print_images(const invocation *in, const stk_sample_view *view, const stk_sample_info *info)
{
    int status = EXIT_DONE;
    for (size_t k = 0; status == EXIT_DONE && k < info->image_count; k++) {
        stk_sample_image image;
        stk_sample_image_at(view, k, &image);
        printf("image %zu: %.300s\n    stored %u x %u, orientation %u; the model sees %u x %u, grid %" PRId64
               " x %" PRId64 " x %" PRId64 ", %" PRId64 " patches\n",
               k, strncmp(image.address, "data:", 5) == 0 ? "(data: URI)" : image.address,
               image.stored_width_px, image.stored_height_px, image.orientation, image.width_px,
               image.height_px, image.grid[0], image.grid[1], image.grid[2],
               image.grid[0] * image.grid[1] * image.grid[2]);
        if (!image.rgb)
            printf("    unusable: %s\n", image.fault);
        else if (flag_of(in, "image-dir"))
            status = save_image(in, info->id, k, &image);
    }
    return status;
}

/* The sample's id: as given, or SET#LINE of --record. */
static int find_id(const invocation *in, char *id, size_t capacity)
{
    int64_t line;
    const char *const given = in->argument_count > 1 ? in->argument[1] : NULL, *const record =
                                                                                   flag_of(in, "record");
    if (!given == !record) return usage_error(in->command, "name one sample, by its id or with --record");
    if (!number_of(in, "record", 1, INT64_MAX, 1, &line)) return EXIT_USAGE;
    if (record && in->options.data_count == 0)
        return usage_error(in->command, "the configuration has no data");
    const int length = record ? snprintf(id, capacity, "%s#%" PRId64, in->options.data[0].name, line)
                              : snprintf(id, capacity, "%s", given);
    if (length < 0 || (size_t)length >= capacity) return usage_error(in->command, "no id is so long");
    return EXIT_DONE;
}

static int run_show(const invocation *in)
{
    stk_error err;
    stk_sample_view *view;
    char id[512];
    const int found = find_id(in, id, sizeof id);
    if (found != EXIT_DONE) return found;
    const stk_index_progress progress = index_progress();
    const stk_status opened = stk_sample_open(&view, &in->options, id, &progress, &err);
    live_line_end();
    if (opened < 0) return fail_with(&err);
    stk_sample_info info;
    stk_sample_info_get(view, &info);
    size_t trained = 0;
    for (size_t i = 0; i < info.token_count; i++) trained += info.labels[i] != -100;
    printf("sample %s, %s:%" PRIu64 ": %zu tokens, %zu of them trained, %zu images\n\n", info.id, info.file,
           info.line, info.token_count, trained, info.image_count);
    print_text(view, &info);
    putchar('\n');
    const int status = print_images(in, view, &info);
    if (flag_of(in, "ids")) print_ids(&info);
    stk_sample_close(&view);
    return status;
}

static const flag show_flags[] = {
    {"record", "N", "the record in line N of the manifest of the first data set"},
    {"ids", NULL, "also list ids, labels and positions, a token a line"},
    {"image-dir", "DIR", "write each image as the model sees it, as PNG, into this folder, which is made"},
    {0}};

const command show_command = {
    .name = "show",
    .arguments = "CONFIG [SAMPLE]",
    .least = 1,
    .most = 2,
    .reads_config = true,
    .flags = show_flags,
    .run = run_show,
    .summary = "one sample as the model will see it: text, trained tokens, ids, grids, images",
    .text = "SAMPLE is an id as reports and batches name it: SET/ID, or SET#LINE.  What is trained stands in "
            "colour, or\n"
            "in [brackets] where there are no colours (NO_COLOR, no terminal)."};
