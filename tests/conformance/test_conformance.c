/* test_conformance.c - every picture, profile and switch against what the reference software made of it.
 *
 * goldens.txt (tools/conformance/run.py --write) holds what each profile's release gives; rules.txt lists the
 * pictures where another outcome is a rule of spec-qwen3vl.md.  An outcome that neither of them foresees
 * fails, and so does a rule that no longer makes a difference. */
#include "../image/image_test.h"

#include <xxhash.h>

enum { PROFILES = 5, WAYS = 5, LINE_BYTES = 1024 };

/* A switch set to `auto` is what the profile does by itself, as src/engine/run_rules.c has it; here only for
 * qwen-vl-utils. */
typedef struct way {
    const char *name;
    bool ignore_orientation;
    stk_alpha_rule alpha;
} way;
static const way ways[WAYS] = {
    {"apply/drop", false, STK_ALPHA_DROP},     {"apply/white", false, STK_ALPHA_WHITE},
    {"ignore/drop", true, STK_ALPHA_DROP},     {"ignore/white", true, STK_ALPHA_WHITE},
    {"auto/auto", true, STK_ALPHA_WHITE_RGBA},
};
static const char *const profiles[PROFILES] = {"hf", "pil-11", "pil-12", "pil-13",
                                               "qwen-vl-utils"}; /* as stk_profile */

typedef struct golden {
    char picture[200], profiles[100], ways[100];
    unsigned long long min_px, max_px, hash[2]; /* of the patches: uint8, float32 */
    unsigned patch_px, width_px, height_px;
    bool refused;
} golden;

static FILE *open_list(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/conformance/%s", test_source_folder(), name);
    FILE *const file = fopen(path, "r");
    CHECK_MSG(file != NULL, "%s", path);
    return file;
}

/* A line "PICTURE MIN MAX PATCH" begins a picture; each line behind it that begins with a blank is " PROFILES
 * WAYS" and either "refused" or "WIDTH HEIGHT UINT8 FLOAT32".  A line with # is for readers. */
static bool next_golden(FILE *file, golden *g)
{
    char line[LINE_BYTES];
    for (;;) {
        int at = 0;
        if (!fgets(line, sizeof line, file)) return false;
        if (line[0] == '#') continue;
        if (line[0] != ' ') {
            CHECK_MSG(sscanf(line, "%199s %llu %llu %u", g->picture, &g->min_px, &g->max_px, &g->patch_px) ==
                          4,
                      "%s", line);
            continue;
        }
        CHECK_MSG(sscanf(line, " %99s %99s %n", g->profiles, g->ways, &at) == 2, "%s", line);
        g->refused = strncmp(line + at, "refused", 7) == 0;
        CHECK_MSG(g->refused || sscanf(line + at, "%u %u %llx %llx", &g->width_px, &g->height_px, &g->hash[0],
                                       &g->hash[1]) == 4,
                  "%s", line);
        return true;
    }
}

/* --- rules.txt: PICTURE PROFILES WAYS OUTCOME SECTION WORDS, where * stands for all --- */

/* VARIES: equal with some releases of the decoder's library, and not with others. */
typedef enum outcome { EQUAL, READS, REFUSES, DIFFERS, VARIES } outcome;
static const char *const outcomes[] = {"equal", "reads", "refuses", "differs", "varies", NULL};

typedef struct rule {
    char picture[200], profiles[100], ways[100];
    outcome outcome;
    bool used;
} rule;
static rule rules[400];
static size_t rule_count;

static void read_rules(void)
{
    FILE *const file = open_list("rules.txt");
    char line[LINE_BYTES], name[32];
    rule_count = 0;
    while (fgets(line, sizeof line, file)) {
        rule r = {.used = false};
        if (line[0] == '#' || line[0] == '\n') continue;
        CHECK_MSG(rule_count < sizeof rules / sizeof *rules, "too many rules");
        CHECK_MSG(sscanf(line, "%199s %99s %99s %31s", r.picture, r.profiles, r.ways, name) == 4, "%s", line);
        while (outcomes[r.outcome] && strcmp(outcomes[r.outcome], name) != 0) r.outcome++;
        CHECK_MSG(outcomes[r.outcome] != NULL, "%s", line);
        rules[rule_count++] = r;
    }
    fclose(file);
}

/* Is name in list, which is "*" or names with commas between? */
static bool is_in(const char *list, const char *name)
{
    const size_t size = strlen(name);
    if (strcmp(list, "*") == 0) return true;
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, size) == 0 && (at[size] == ',' || at[size] == '\0')) return true;
    }
    return false;
}

static outcome expected(const golden *g, const char *profile, const char *way_name)
{
    for (size_t i = 0; i < rule_count; i++) {
        rule *const r = &rules[i];
        if (strcmp(r->picture, g->picture) == 0 && is_in(r->profiles, profile) && is_in(r->ways, way_name)) {
            r->used = true;
            return r->outcome;
        }
    }
    return EQUAL;
}

/* --- Stoker --- */

static image_test test_of[PROFILES][2][2]; /* profile, patch of 14, form */

static outcome outcome_of(const golden *g, int profile, const way *w, char *why, size_t why_bytes)
{
    char path[900];
    snprintf(path, sizeof path, "%s/%s", test_source_folder(), g->picture);
    outcome found = EQUAL;
    for (int form = 0; form < 2 && found == EQUAL; form++) {
        image_test *const t = &test_of[profile][g->patch_px == 14][form];
        uint8_t *const bytes = image_test_read(path, &t->bytes);
        t->alpha = w->alpha;
        t->ignore_orientation = w->ignore_orientation;
        const stk_status status = image_test_make(t, g->min_px, g->max_px);
        free(bytes);
        snprintf(why, why_bytes, "%s", status < 0 ? t->err.message : form ? "float32" : "uint8");
        if (status < 0) return g->refused ? EQUAL : REFUSES;
        if (g->refused) return READS;
        if (t->width_px != g->width_px || t->height_px != g->height_px ||
            XXH3_64bits(t->patches, t->patches_bytes) != g->hash[form])
            found = DIFFERS;
    }
    return found;
}

static bool is_foreseen(const golden *g, int profile, const way *w)
{
    char why[300];
    const outcome found = outcome_of(g, profile, w, why, sizeof why),
                  wanted = expected(g, profiles[profile], w->name);
    if (found == wanted || (wanted == VARIES && (found == EQUAL || found == DIFFERS))) return true;
    printf("    %s %s %s: %s, not %s (%s)\n", g->picture, profiles[profile], w->name, outcomes[found],
           outcomes[wanted], why);
    return false;
}

/* The switches are set, or all left to the profile: "*" is about the former. */
static bool is_meant(const golden *g, const way *w)
{
    return strcmp(g->ways, "*") == 0 ? w->alpha != STK_ALPHA_WHITE_RGBA : is_in(g->ways, w->name);
}

static void every_outcome_is_the_references_or_a_rule(void)
{
    golden g;
    size_t count = 0, wrong = 0;
    for (int p = 0; p < PROFILES; p++) {
        for (int i = 0; i < 4; i++)
            image_test_open_as(&test_of[p][i / 2][i % 2], (stk_profile)p, i / 2 ? 14 : 16,
                               (stk_pixel_form)(i % 2), stk_cpu_detect());
    }
    read_rules();
    FILE *const file = open_list("goldens.txt");
    while (next_golden(file, &g)) {
        for (int i = 0; i < PROFILES * WAYS; i++) {
            if (!is_in(g.profiles, profiles[i / WAYS]) || !is_meant(&g, &ways[i % WAYS])) continue;
            count++;
            wrong += !is_foreseen(&g, i / WAYS, &ways[i % WAYS]);
        }
    }
    fclose(file);
    for (int p = 0; p < PROFILES; p++) {
        for (int i = 0; i < 4; i++) image_test_close(&test_of[p][i / 2][i % 2]);
    }
    for (size_t i = 0; i < rule_count; i++)
        CHECK_MSG(rules[i].used, "rules.txt names %s %s %s, which no golden has", rules[i].picture,
                  rules[i].profiles, rules[i].ways);
    CHECK_MSG(count > 15000, "%zu outcomes", count);
    CHECK_MSG(wrong == 0, "%zu of %zu outcomes are neither the reference's nor a rule", wrong, count);
}

static uint64_t pixels_of(image_test *t, const char *picture)
{
    char path[900];
    snprintf(path, sizeof path, "%s/%s", test_source_folder(), picture);
    uint8_t *const bytes = image_test_read(path, &t->bytes);
    CHECK_OK(image_test_make(t, 784, 50176), t->err);
    free(bytes);
    return XXH3_64bits(t->patches, t->patches_bytes);
}

/* The PNGs that only Stoker reads are one picture with something broken beside it. */
static void what_is_skipped_leaves_the_picture_as_it_is(void)
{
    static const char palette[] = "conformance/images/png-sum-palette-trns.png";
    image_test t;
    image_test_open(&t, 16, STK_PIXELS_UINT8, stk_cpu_detect());
    const uint64_t rgb = pixels_of(&t, "conformance/images/png-chunk-private.png"),
                   indexed = pixels_of(&t, "conformance/images/png-palette-opaque.png");
    size_t count = 0;
    read_rules();
    for (size_t i = 0; i < rule_count; i++) {
        if (rules[i].outcome != READS || !strstr(rules[i].picture, "/png-")) continue;
        const uint64_t wanted = strcmp(rules[i].picture, palette) == 0 ? indexed : rgb;
        CHECK_MSG(pixels_of(&t, rules[i].picture) == wanted, "%s", rules[i].picture);
        count++;
    }
    CHECK_MSG(count > 20, "%zu pictures", count);
    image_test_close(&t);
}

/* What an index does: more and more of a file until the header is whole.  Each answer is AGAIN or the final
 * one. */
static void check_pieces(const char *picture)
{
    const stk_limits limits = STK_LIMITS_DEFAULT;
    char path[900];
    stk_bytes all;
    stk_image_info whole, part;
    stk_reason reason, part_reason;
    stk_error err;
    snprintf(path, sizeof path, "%s/%s", test_source_folder(), picture);
    uint8_t *const bytes = image_test_read(path, &all);
    const stk_status status = stk_image_probe(&whole, &reason, all, all.size_bytes, &limits, &err);
    CHECK_MSG(status != STK_AGAIN, "%s", picture);
    for (size_t size = 0; size < all.size_bytes; size += 1 + size / 16) {
        uint8_t *const copy = malloc(size ? size : 1); /* ends where it ends, for the sanitizer */
        memcpy(copy, bytes, size);
        const stk_status found =
            stk_image_probe(&part, &part_reason, (stk_bytes){copy, size}, all.size_bytes, &limits, &err);
        CHECK_MSG(found == STK_AGAIN || found == status, "%s of %zu bytes: %d, not %d", picture, size,
                  (int)found, (int)status);
        if (found < 0)
            CHECK_MSG(part_reason == reason, "%s of %zu bytes: reason %d", picture, size, (int)part_reason);
        if (found == STK_OK) {
            CHECK_MSG(part.width_px == whole.width_px && part.height_px == whole.height_px &&
                          part.orientation == whole.orientation && part.flags == whole.flags &&
                          part.format == whole.format && part.codec_bytes == whole.codec_bytes,
                      "%s of %zu bytes", picture, size);
        }
        free(copy);
    }
    free(bytes);
}

static void a_header_in_pieces_says_the_same(void)
{
    golden g;
    char last[sizeof g.picture] = "";
    FILE *const file = open_list("goldens.txt");
    while (next_golden(file, &g)) {
        if (strcmp(last, g.picture) == 0) continue;
        memcpy(last, g.picture, sizeof last);
        check_pieces(g.picture);
    }
    fclose(file);
}

int main(int argc, char **argv)
{
    TEST_MAIN(argc, argv, TEST(every_outcome_is_the_references_or_a_rule),
              TEST(what_is_skipped_leaves_the_picture_as_it_is), TEST(a_header_in_pieces_says_the_same));
}
