/* cmd_init.c - `stoker init`: looks at a manifest and a checkpoint folder, and writes a commented
 * configuration.
 *
 * The first records tell columns and roles; what the checkpoint's template is, opening the configuration
 * tells: one that is not known is declared as the usual turn format of Qwen, and the file says so. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

enum { LOOK_BYTES = 1 << 20, LOOK_RECORDS = 50, NAMES_MAX = 16 };

/* What the first records say. */
typedef struct found {
    char messages[64], images[64];  /* columns that are not the usual ones; "" otherwise */
    char role[NAMES_MAX][32];       /* names without a usual meaning, */
    const char *meaning[NAMES_MAX]; /* and what they seem to be */
    bool has_tool;
    int role_count, records;
} found;

static bool is_usual(const char *name, const char *const *usual)
{
    while (*usual && strcmp(*usual, name) != 0) usual++;
    return *usual;
}

static const char *role_of(const json_t *turn)
{
    const char *const role = json_string_value(json_object_get(turn, "role"));
    return role ? role : json_string_value(json_object_get(turn, "from"));
}

static bool names_media(const char *text)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp", ".JPG", ".JPEG", ".PNG"};
    const size_t length = strlen(text);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n = strlen(endings[i]);
        if (length > n && strcmp(text + length - n, endings[i]) == 0) return true;
    }
    return strncmp(text, "data:image/", 11) == 0;
}

/* What a name is taken for: by the words in it, else by its place. */
static const char *meaning_of(const char *role, size_t place)
{
    static const struct {
        const char *word, *meaning;
    } words[] = {{"sys", "system"},    {"instruction", "system"}, {"assist", "assistant"},
                 {"bot", "assistant"}, {"model", "assistant"},    {"gpt", "assistant"},
                 {"ai", "assistant"},  {"answer", "assistant"},   {"tool", "tool"},
                 {"function", "tool"}, {"user", "user"},          {"human", "user"},
                 {"question", "user"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(role, words[i].word)) return words[i].meaning;
    return place % 2 ? "assistant" : "user";
}

static void look_at_roles(found *f, const json_t *turns)
{
    static const char *const usual[] = {
        "system", "user", "human", "assistant", "gpt", "tool", "observation", "function_response", NULL};
    static const char *const tools[] = {"tool", "observation", "function_response", NULL};
    size_t i;
    const json_t *turn;
    json_array_foreach(turns, i, turn)
    {
        const char *const role = role_of(turn);
        if (role && is_usual(role, tools)) f->has_tool = true;
        if (!role || is_usual(role, usual) || f->role_count == NAMES_MAX || strlen(role) >= sizeof f->role[0])
            continue;
        int known = 0;
        while (known < f->role_count && strcmp(f->role[known], role) != 0) known++;
        if (known < f->role_count) continue;
        f->meaning[f->role_count] = meaning_of(role, i);
        snprintf(f->role[f->role_count++], sizeof f->role[0], "%s", role);
    }
}

static void look_at_record(found *f, json_t *record)
{
    static const char *const messages[] = {"messages", "conversations", "conversation", NULL};
    static const char *const images[] = {"image", "images", NULL};
    const char *key;
    json_t *value;
    f->records++;
    json_object_foreach(record, key, value)
    {
        const json_t *const first = json_array_get(value, 0);
        if (first && role_of(first)) {
            look_at_roles(f, value);
            if (!is_usual(key, messages) && strlen(key) < sizeof f->messages) strcpy(f->messages, key);
            continue;
        }
        const char *const text = json_string_value(first ? first : value);
        if (text && names_media(text) && !is_usual(key, images) && strlen(key) < sizeof f->images)
            strcpy(f->images, key);
    }
}

/* The first records of JSONL, or of an array; what cannot be read is for `stoker index` to tell. */
static bool look_at(found *f, const char *path)
{
    FILE *const file = fopen(path, "rb");
    char *const text = malloc(LOOK_BYTES + 1);
    if (!file || !text) {
        fprintf(stderr, "stoker init: %s: cannot be read\n", path);
        if (file) fclose(file);
        free(text);
        return false;
    }
    size_t size = fread(text, 1, LOOK_BYTES, file);
    fclose(file);
    size_t at = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (f->records < LOOK_RECORDS) {
        while (at < size && strchr(" \t\r\n[,", text[at])) at++;
        json_error_t where;
        json_t *const record =
            at < size ? json_loadb(text + at, size - at, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &where)
                      : NULL;
        if (!record) break;
        at += (size_t)where.position;
        if (json_is_object(record)) look_at_record(f, record);
        json_decref(record);
    }
    free(text);
    return true;
}

/* A YAML text in double quotes. */
static void put_quoted(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(to, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(to, "\\x%02x", (unsigned)*text);
        else
            fputc(*text, to);
    }
    fputc('"', to);
}

/* A line of a mapping; nothing for an empty value. */
static void put_pair(FILE *to, const char *key, const char *value)
{
    if (!value[0]) return;
    fprintf(to, "      %s: ", key);
    put_quoted(to, value);
    fputc('\n', to);
}

static void write_config(FILE *to, const found *f, const char *manifest, const char *model, bool turn_format)
{
    fputs("# Written by `stoker init`; `stoker options` explains every option.\nmodel: ", to);
    put_quoted(to, model);
    fputs("\ndata:\n  - path: ", to);
    put_quoted(to, manifest);
    fputs("\n    # media_root: FOLDER      # where relative image paths start; default: the manifest's own "
          "folder\n",
          to);
    if (f->messages[0] || f->images[0]) {
        fputs("    columns:                  # where a record keeps what\n", to);
        put_pair(to, "messages", f->messages);
        put_pair(to, "images", f->images);
    }
    if (f->role_count) {
        fputs("    roles:                    # names that have no usual meaning, and a guess: system, user, "
              "assistant or tool\n",
              to);
        for (int i = 0; i < f->role_count; i++) {
            fputs("      ", to);
            put_quoted(to, f->role[i]);
            fprintf(to, ": %s\n", f->meaning[i]);
        }
    }
    if (turn_format) {
        fputs("# The checkpoint's chat template is not one that Stoker knows.  This is the usual turn format "
              "of Qwen: compare it.\n"
              "template:\n"
              "  system:    {before: \"<|im_start|>system\\n\",    after: \"<|im_end|>\\n\"}\n"
              "  user:      {before: \"<|im_start|>user\\n\",      after: \"<|im_end|>\\n\"}\n"
              "  assistant: {before: \"<|im_start|>assistant\\n\", after: \"<|im_end|>\\n\", train: [text, "
              "\"<|im_end|>\\n\"]}\n"
              "  image: \"<|vision_start|><|image_pad|><|vision_end|>\"\n",
              to);
        if (f->has_tool)
            fputs("  tool:      {before: \"<|im_start|>tool\\n\",      after: \"<|im_end|>\\n\"}\n", to);
    }
    fputs("batch: 8                      # rows per step, over all ranks\n"
          "epochs: 1\n"
          "seed: 0\n"
          "# max_tokens: 8192            # samples above are left out and counted\n"
          "# max_pixels: 1003520         # of an image; default: the checkpoint's\n"
          "# labels: answers             # or last: only the last answer is trained\n"
          "# memory: 4GiB                # default: a quarter of what is there\n",
          to);
}

static bool stop_at_once(void *context, const char *set, const char *phase, uint64_t done, uint64_t total)
{
    (void)context, (void)set, (void)phase, (void)done, (void)total;
    return false;
}

/* A folder of files, as an index leaves it. */
static void remove_folder(const char *path)
{
    DIR *const folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder) closedir(folder);
    if (rmdir(path)) fprintf(stderr, "stoker init: %s was left behind: %s\n", path, strerror(errno));
}

/* Whether the configuration opens: its index is begun in a folder of its own and stopped at once. */
static stk_status try_config(const char *path, stk_error *err)
{
    const char *const base = getenv("TMPDIR");
    char folder[4096];
    if ((size_t)snprintf(folder, sizeof folder, "%s/stoker-init-XXXXXX",
                         base && base[0] == '/' ? base : "/tmp") >= sizeof folder ||
        !mkdtemp(folder))
        return STK_OK; /* cannot be tried here: `stoker index` will say it */
    stk_options options = STK_OPTIONS_INIT;
    const stk_index_progress progress = {.report = stop_at_once};
    stk_status status = stk_options_read(&options, path, err);
    if (status == STK_OK) status = stk_options_set(&options, "index_dir", folder, err);
    if (status == STK_OK) status = stk_index_build(NULL, &options, &progress, err);
    stk_options_deinit(&options);
    remove_folder(folder);
    return status == STK_ERR_INTERRUPTED ? STK_OK : status;
}

static bool write_file(const char *path, const found *f, const char *manifest, const char *model,
                       bool turn_format, const char *mode)
{
    FILE *const to = fopen(path, mode);
    if (!to) {
        fprintf(stderr, "stoker init: %s: %s%s\n", path, strerror(errno),
                errno == EEXIST ? ": name another file with -o, or remove it" : "");
        return false;
    }
    write_config(to, f, manifest, model, turn_format);
    const bool failed = ferror(to) != 0;
    if (fclose(to) == 0 && !failed) return true;
    fprintf(stderr, "stoker init: %s: %s\n", path, strerror(errno));
    remove(path);
    return false;
}

/* Absolute, so that the configuration may lie anywhere. */
static char *absolute(const char *path)
{
    char *const resolved = realpath(path, NULL);
    if (!resolved) fprintf(stderr, "stoker init: %s: %s\n", path, strerror(errno));
    return resolved;
}

static int run_init(const invocation *in)
{
    const char *const model = flag_of(in, "model"), *const output = flag_of(in, "output")
                                                                        ? flag_of(in, "output")
                                                                        : "stoker.yaml";
    if (!model) return usage_error(in->command, "--model is missing: the checkpoint folder");
    found f = {0};
    char *const manifest_path = absolute(in->argument[0]), *const model_path = absolute(model);
    int status = EXIT_USAGE;
    stk_error err;
    if (manifest_path && model_path && look_at(&f, manifest_path) &&
        write_file(output, &f, manifest_path, model_path, false, "wx")) {
        stk_status tried = try_config(output, &err);
        const bool declared = tried == STK_ERR_MODEL && strstr(err.message, "template");
        if (declared && write_file(output, &f, manifest_path, model_path, true, "w"))
            tried = try_config(output, &err);
        if (tried < 0) {
            status = fail_with(&err);
            fprintf(stderr, "stoker init: %s was written; mend this in it\n", output);
        } else {
            printf("%s: from %d records of %s; next: stoker index %s\n", output, f.records, in->argument[0],
                   output);
            if (!f.records)
                printf("no record was read (a folder and a compressed file are not looked into): set `columns` and "
                       "`roles` where they are not the usual ones\n");
            if (f.role_count)
                printf("check `roles` in it: %d names have no usual meaning, and were guessed\n",
                       f.role_count);
            if (declared) printf("check `template` in it: the checkpoint's own is not known\n");
            status = EXIT_DONE;
        }
    }
    free(manifest_path);
    free(model_path);
    return status;
}

static const flag init_flags[] = {
    {"model", "DIR", "the checkpoint folder"},
    {"output", "FILE", "where to write it (also -o); default stoker.yaml; never overwritten"},
    {0}};

const command init_command = {.name = "init",
                              .arguments = "MANIFEST",
                              .least = 1,
                              .most = 1,
                              .flags = init_flags,
                              .run = run_init,
                              .summary =
                                  "look at a manifest and a checkpoint folder, and write a configuration",
                              .text = "Tells columns and roles from the first records, and whether the "
                                      "checkpoint's chat template is known.  What is\n"
                                      "a guess is marked in the file."};
