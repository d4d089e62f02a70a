/* template.c - the chat template of a checkpoint: recognised by digest, taken by name, or declared.
 *
 * A chat template is a Jinja program, and Stoker runs no programs from a checkpoint.  The published templates
 * of the Qwen-VL families are known by the sha256 of their text (spec-qwen3vl.md section 4.1) and written by
 * code of our own. Not here: the writing (render_qwen.c, render_thinking.c,
 * render_qwen35.c, turn_format.c). */
#include "text/template.h"

#include <errno.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include "base/file.h"

enum {
    TEMPLATE_FILE_BYTES = 16 << 20, /* the largest published tokenizer_config.json has 15 KB */
    SHA256_BYTES = 32,
};

/* Digest revision: raised when the writing of a template changes, so that indexes made before are made anew.
 */
#define WRITING "stoker-template-1"

#define CONTROL_TOOLS "<tool_call>\n</tool_call>\n<tool_response>\n</tool_response>"
#define CONTROL_THINKS CONTROL_TOOLS "\n<think>\n</think>"

static const stk_template published[] = {
    {.name = "qwen3-vl", .render = stk_render_qwen3, .literals = CONTROL_TOOLS},
    {.name = "qwen3-vl-thinking", .render = stk_render_qwen3_thinking, .literals = CONTROL_THINKS},
    {.name = "qwen2.5-vl", .render = stk_render_qwen25, .literals = ""},
    {.name = "qwen3.5", .render = stk_render_qwen35, .literals = CONTROL_THINKS, .is_qwen35 = true},
    {.name = "qwen3.5-training",
     .render = stk_render_qwen35,
     .literals = CONTROL_THINKS,
     .is_qwen35 = true,
     .thinks_always = true},
    {.name = "qwen3.6",
     .render = stk_render_qwen35,
     .literals = CONTROL_THINKS,
     .is_qwen35 = true,
     .scalars_as_json = true},
    {.name = "qwen3.6-training",
     .render = stk_render_qwen35,
     .literals = CONTROL_THINKS,
     .is_qwen35 = true,
     .scalars_as_json = true,
     .thinks_always = true},
    {.name = "qwen3.8",
     .render = stk_render_qwen35,
     .literals = CONTROL_THINKS,
     .is_qwen35 = true,
     .scalars_as_json = true,
     .reasoning_effort = true,
     .thinks_always = true},
};
enum { PUBLISHED_COUNT = sizeof published / sizeof *published };
#define PUBLISHED_NAMES                                                                                      \
    "qwen3-vl, qwen3-vl-thinking, qwen2.5-vl (qwen2-vl), qwen3.5, qwen3.6, qwen3.8, qwen3.5-training, "      \
    "qwen3.6-training"

/* Texts that differ in what training does not have, the prompt for generation and the marks of an assistant
 * mask, are one template.  Where the two texts of Qwen3.5, "think" and "nothink", have one name, so have
 * their training templates. */
static const struct {
    const char *sha256, *name;
} known_digests[] = {
    {"3636d0f0bd6bef02654cdffdc447b79cb2cef8ab02cc75267345946291a489e4", "qwen3-vl"},
    {"66bd81986bf7f8abe6d7fb4a50341c8d8ae14b16637e8fb876bca7e7ef0b9c6f", "qwen3-vl"}, /* training */
    {"84ed326ccec340f3c775d5a31c0aada290d59819c18e43650aabe14f1d42c839", "qwen3-vl-thinking"},
    {"a0bc6f6fc7a29a80017a433e8f03a1cc1236e838a944a2d034295a60c4f2fddb", "qwen2.5-vl"},
    {"31c85932a6d8826f0fe8d52b81767eba6b869128b0a7c7503d1e7baaad4e8043", "qwen2.5-vl"}, /* training */
    {"a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715", "qwen3.5"},
    {"273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80", "qwen3.5"},
    {"ccf356d8f238e287c047b1ef589850fd6b2b44e6cb29079e26c635fb9b8111ef", "qwen3.5-training"},
    {"f32fe3e21c20f59d193244181c8b4c324c73a8cd313ddf825633a9ecfd2afad2", "qwen3.5-training"},
    {"e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259", "qwen3.6"},
    {"c5a26eaf3aab77fdc4ec696540ff896713ff0764f552ce9f597ede99fc673034", "qwen3.6-training"},
    {"c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041", "qwen3.8"},
    {"320c2f734288f91c341c1c3c9690e4e6aba07a27852bf88d7c8481c880168288", "qwen3.8"}, /* training */
};

static const stk_template *find_published(stk_str name)
{
    for (size_t i = 0; i < PUBLISHED_COUNT; i++)
        if (stk_str_is(name, published[i].name)) return &published[i];
    return stk_str_is(name, "qwen2-vl") ? find_published(STK_LITERAL("qwen2.5-vl")) : NULL;
}

static void digest_published(stk_template *t)
{
    char text[128];
    const int length = snprintf(text, sizeof text, WRITING " %s", t->name);
    XXH128_canonicalFromHash((XXH128_canonical_t *)t->digest, XXH3_128bits(text, (size_t)length));
}

stk_status stk_template_named(stk_template **out, stk_str name, stk_error *err)
{
    *out = NULL;
    const stk_template *const known = find_published(name);
    if (!known)
        return stk_fail(err, STK_ERR_OPTION,
                        "template: \"%.*s\" is no published template: use one of " PUBLISHED_NAMES
                        ", or declare a turn format",
                        STK_STR_ARGS(name));
    stk_template *const t = stk_alloc(STK_TAG_MODEL, sizeof *t);
    if (!t) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a chat template");
    *t = *known;
    digest_published(t);
    *out = t;
    return STK_OK;
}

/* The strings of a turn format, in fixed order. */
enum { FORMAT_STRINGS = 11 };
static void list_strings(stk_str *list[FORMAT_STRINGS], stk_turn_format *format)
{
    stk_turn_format_role *const role[] = {&format->system, &format->user, &format->assistant, &format->tool};
    size_t n = 0;
    for (size_t i = 0; i < sizeof role / sizeof *role; i++) {
        list[n++] = &role[i]->before;
        list[n++] = &role[i]->after;
    }
    list[n++] = &format->image;
    list[n++] = &format->video;
    list[n] = &format->default_system;
}

static stk_status digest_declared(stk_template *t, stk_error *err)
{
    stk_str *list[FORMAT_STRINGS];
    list_strings(list, &t->format);
    XXH3_state_t *const state = XXH3_createState();
    if (!state) return stk_fail(err, STK_ERR_NOMEM, "out of memory: the digest of a turn format");
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, WRITING " declared", sizeof WRITING " declared");
    for (size_t i = 0; i < FORMAT_STRINGS; i++) {
        uint8_t length[8];
        const uint64_t size_bytes =
            list[i]->data ? list[i]->size_bytes : UINT64_MAX; /* absent is not empty */
        for (int b = 0; b < 8; b++) length[b] = (uint8_t)(size_bytes >> (8 * b));
        XXH3_128bits_update(state, length, sizeof length);
        if (list[i]->size_bytes) XXH3_128bits_update(state, list[i]->data, list[i]->size_bytes);
    }
    const uint8_t flags[] = {t->format.system.given,          t->format.user.given,
                             t->format.assistant.given,       t->format.tool.given,
                             t->format.assistant.trains_text, t->format.assistant.trains_after};
    XXH3_128bits_update(state, flags, sizeof flags);
    XXH128_canonicalFromHash((XXH128_canonical_t *)t->digest, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    return STK_OK;
}

stk_status stk_template_declared(stk_template **out, const stk_turn_format *format, stk_error *err)
{
    *out = NULL;
    STK_TRY(stk_turn_format_check(format, err));
    stk_turn_format copy = *format;
    stk_str *list[FORMAT_STRINGS];
    list_strings(list, &copy);
    size_t size_bytes = sizeof(stk_template);
    for (size_t i = 0; i < FORMAT_STRINGS; i++)
        if (stk_add_overflows(&size_bytes, size_bytes, list[i]->size_bytes))
            return stk_fail(err, STK_ERR_OPTION, "template: the turn format is too long");
    stk_template *const t = stk_alloc(STK_TAG_MODEL, size_bytes);
    if (!t) return stk_fail(err, STK_ERR_NOMEM, "out of memory: a turn format of %zu bytes", size_bytes);

    char *at = (char *)(t + 1);
    for (size_t i = 0; i < FORMAT_STRINGS; i++) {
        if (!list[i]->data) continue;
        memcpy(at, list[i]->data, list[i]->size_bytes);
        list[i]->data = at;
        at += list[i]->size_bytes;
    }
    *t = (stk_template){
        .name = "declared", .render = stk_render_format, .literals = "", .is_declared = true, .format = copy};
    const stk_status status = digest_declared(t, err);
    if (status < 0) {
        stk_free(t);
        return status;
    }
    *out = t;
    return STK_OK;
}

void stk_template_close(stk_template **chat_template)
{
    stk_free(*chat_template);
    *chat_template = NULL;
}

void stk_template_digest(const stk_template *chat_template, uint8_t digest[16])
{
    memcpy(digest, chat_template->digest, 16);
}

const char *stk_template_name(const stk_template *chat_template)
{
    return chat_template->name;
}

bool stk_template_writes(const stk_template *chat_template, stk_str token)
{
    const char *const literals = chat_template->literals;
    if (memmem(literals, strlen(literals), token.data, token.size_bytes)) return true;
    if (!chat_template->is_declared) return false;
    stk_turn_format format = chat_template->format;
    stk_str *list[FORMAT_STRINGS];
    list_strings(list, &format);
    for (size_t i = 0; i < FORMAT_STRINGS; i++)
        if (list[i]->size_bytes && memmem(list[i]->data, list[i]->size_bytes, token.data, token.size_bytes))
            return true;
    return false;
}

/* The hexadecimal sha256 of text, followed by tail. */
static stk_status sha256_hex(char hex[2 * SHA256_BYTES + 1], stk_str text, const char *tail, stk_error *err)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *const context = EVP_MD_CTX_new();
    const bool done = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) &&
                      EVP_DigestUpdate(context, text.data, text.size_bytes) &&
                      EVP_DigestUpdate(context, tail, strlen(tail)) &&
                      EVP_DigestFinal_ex(context, digest, NULL);
    EVP_MD_CTX_free(context);
    if (!done) return stk_fail(err, STK_ERR_SYSTEM, "libcrypto cannot compute a sha256");
    for (size_t i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return STK_OK;
}

/* Take a template by its text.  Jinja drops one line break at the end, so it makes no difference. */
static stk_status recognise(stk_template **out, stk_str text, const char *file, stk_error *err)
{
    char hex[2 * SHA256_BYTES + 1], given[2 * SHA256_BYTES + 1];
    STK_TRY(sha256_hex(given, text, "", err));
    const bool ends_line = text.size_bytes && text.data[text.size_bytes - 1] == '\n';
    for (int form = 0; form < 2; form++) {
        if (form == 0)
            memcpy(hex, given, sizeof hex);
        else if (ends_line)
            STK_TRY(sha256_hex(hex, (stk_str){text.data, text.size_bytes - 1}, "", err));
        else
            STK_TRY(sha256_hex(hex, text, "\n", err));
        for (size_t i = 0; i < sizeof known_digests / sizeof *known_digests; i++)
            if (strcmp(hex, known_digests[i].sha256) == 0)
                return stk_template_named(out, stk_str_of(known_digests[i].name), err);
    }
    return stk_fail_at(
        err, STK_ERR_MODEL, file, 0,
        "this chat template is unknown (sha256 %.16s...): set `template` to the published one that it equals "
        "(%s), or declare its turn format",
        given, PUBLISHED_NAMES);
}

/* Read a file of the folder.  *data NULL with STK_OK: there is no such file. */
static stk_status read_optional(char **data, size_t *size_bytes, char path[4096], const char *folder,
                                const char *name, stk_error *err)
{
    *data = NULL;
    *size_bytes = 0;
    STK_TRY(stk_path_join(path, 4096, folder, name, err));
    stk_error why;
    const stk_status status = stk_file_read(data, size_bytes, path, TEMPLATE_FILE_BYTES, STK_TAG_MODEL, &why);
    if (status == STK_OK || (status == STK_ERR_SYSTEM && why.code == ENOENT)) return STK_OK;
    if (err) {
        *err = why;
        if (status != STK_ERR_NOMEM) err->status = STK_ERR_MODEL;
    }
    return status == STK_ERR_NOMEM ? status : STK_ERR_MODEL;
}

/* The template in a list of named ones: "default". */
static const json_t *default_of(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const entry = json_array_get(list, i);
        const char *const name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(entry, "template");
    }
    return NULL;
}

/* The chat_template of a JSON file.  *out NULL with STK_OK: it has none. */
static stk_status recognise_json(stk_template **out, const char *data, size_t size_bytes, const char *path,
                                 stk_error *err)
{
    json_error_t why;
    json_t *const root = json_loadb(data, size_bytes, JSON_ALLOW_NUL, &why);
    if (!root)
        return stk_fail_at(err, STK_ERR_MODEL, path, why.line > 0 ? (uint64_t)why.line : 0,
                           "not valid JSON: %s", why.text);
    stk_status status = STK_OK;
    const json_t *value = json_object_get(root, "chat_template");
    if (json_is_array(value)) value = default_of(value);
    if (json_is_string(value))
        status = recognise(out, (stk_str){json_string_value(value), json_string_length(value)}, path, err);
    else if (value && !json_is_null(value))
        status = stk_fail_at(err, STK_ERR_MODEL, path, 0,
                             "chat_template is neither a text nor a list of named texts");
    json_decref(root);
    return status;
}

stk_status stk_template_open(stk_template **out, const char *model_folder, stk_error *err)
{
    static const char *const names[] = {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"};
    *out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        char *data;
        size_t size_bytes;
        STK_TRY(read_optional(&data, &size_bytes, path, model_folder, names[i], err));
        if (!data) continue;
        const stk_status status = i == 0 ? recognise(out, (stk_str){data, size_bytes}, path, err)
                                         : recognise_json(out, data, size_bytes, path, err);
        stk_free(data);
        if (status < 0 || *out) return status;
    }
    return stk_fail_at(
        err, STK_ERR_MODEL, model_folder, 0,
        "the folder has no chat template (chat_template.jinja, chat_template.json or tokenizer_config.json): "
        "set `template` to a published name or declare a turn format");
}
