/* cmd_show.c - `stoker show`: one sample as the model will see it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

/* Bytes of a token with control characters made visible; line breaks stay.  Characters may be cut between tokens, so the
 * byte before counts: C2 80..9F are control characters too, which some terminals obey. */
static void print_bytes(const char *bytes, size_t size, unsigned char *before)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool is_c1 = *before == 0xc2 && c >= 0x80 && c < 0xa0;
        if (c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f && !is_c1)) putchar(c);
        else printf("\\x%02x", c);
        *before = c;
    }
}

/* The text with what is trained in colour, or in brackets where there are no colours; runs of pads as one. */
static void print_text(const stk_sample_view *view, const stk_sample_info *info)
{
    const bool colour = colours();
    bool trained = false;
    unsigned char before = 0;
    for (size_t i = 0; i < info->token_count; i++) {
        const bool is_trained = info->labels[i] != -100;
        if (is_trained != trained) fputs(is_trained ? (colour ? "\033[1;32m" : "[") : (colour ? "\033[0m" : "]"), stdout);
        trained = is_trained;
        const char *bytes;
        size_t size;
        stk_sample_token(view, i, &bytes, &size);
        print_bytes(bytes, size, &before);
        size_t run = 1;
        while (info->mm_token_type_ids[i] && i + 1 < info->token_count && info->input_ids[i + 1] == info->input_ids[i]) {
            i++;
            run++;
        }
        if (run > 1) printf(" x %zu", run);
    }
    if (trained) fputs(colour ? "\033[0m" : "]", stdout);
    putchar('\n');
}

static void print_ids(const stk_sample_info *info)
{
    printf("position  id      label   t      h      w\n");
    for (size_t i = 0; i < info->token_count; i++)
        printf("%8zu  %-7" PRId64 " %-7" PRId64 " %-6" PRId64 " %-6" PRId64 " %-6" PRId64 "\n", i, info->input_ids[i], info->labels[i],
               info->position_ids[i], info->position_ids[info->token_count + i], info->position_ids[2 * info->token_count + i]);
}

/* DIR/ID.image-K.png, with whatever a file name cannot hold made a dash. */
static int save_image(const invocation *in, const char *id, size_t at, const stk_sample_image *image)
{
    char path[700], name[128];
    snprintf(name, sizeof name, "%s", id);
    for (char *c = name; *c; c++)
        if (*c == '/' || *c == '#' || (unsigned char)*c <= ' ') *c = '-';
    snprintf(path, sizeof path, "%s/%s.image-%zu.png", flag_of(in, "image-dir"), name, at);
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
        printf("image %zu: %.300s\n    stored %u x %u, orientation %u; the model sees %u x %u, grid %" PRId64 " x %" PRId64 " x %" PRId64
               ", %" PRId64 " patches\n",
               k, strncmp(image.address, "data:", 5) == 0 ? "(data: URI)" : image.address, image.stored_width_px, image.stored_height_px,
               image.orientation, image.width_px, image.height_px, image.grid[0], image.grid[1], image.grid[2],
               image.grid[0] * image.grid[1] * image.grid[2]);
        if (!image.rgb) printf("    unusable: %s\n", image.fault);
        else if (flag_of(in, "image-dir")) status = save_image(in, info->id, k, &image);
    }
    return status;
}

/* The sample's id: as given, or SET#LINE of --record. */
static int find_id(const invocation *in, char *id, size_t capacity)
{
    int64_t line;
    const char *const given = in->argument_count > 1 ? in->argument[1] : NULL, *const record = flag_of(in, "record");
    if (!given == !record) return usage_error(in->command, "name one sample, by its id or with --record");
    if (!number_of(in, "record", 1, INT64_MAX, 1, &line)) return EXIT_USAGE;
    if (record && in->options.data_count == 0) return usage_error(in->command, "the configuration has no data");
    const int length = record ? snprintf(id, capacity, "%s#%" PRId64, in->options.data[0].name, line) : snprintf(id, capacity, "%s", given);
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
    if (stk_sample_open(&view, &in->options, id, &err) < 0) return fail_with(&err);
    stk_sample_info info;
    stk_sample_info_get(view, &info);
    size_t trained = 0;
    for (size_t i = 0; i < info.token_count; i++) trained += info.labels[i] != -100;
    printf("sample %s, %s:%" PRIu64 ": %zu tokens, %zu of them trained, %zu images\n\n", info.id, info.file, info.line, info.token_count,
           trained, info.image_count);
    print_text(view, &info);
    putchar('\n');
    const int status = print_images(in, view, &info);
    if (flag_of(in, "ids")) print_ids(&info);
    stk_sample_close(&view);
    return status;
}

static const flag show_flags[] = {{"record", "N", "the record in line N of the manifest of the first data set"},
                                  {"ids", NULL, "also list ids, labels and positions, a token a line"},
                                  {"image-dir", "DIR", "write each image as the model sees it, as PNG, into this folder"},
                                  {0}};

const command show_command = {.name = "show", .arguments = "CONFIG [SAMPLE]", .least = 1, .most = 2, .reads_config = true, .flags = show_flags,
                              .run = run_show, .summary = "one sample as the model will see it: text, trained tokens, ids, grids, images",
                              .text = "SAMPLE is an id as reports and batches name it: SET/ID, or SET#LINE.  What is trained stands in colour, or\n"
                                      "in [brackets] where there are no colours (NO_COLOR, no terminal)."};
