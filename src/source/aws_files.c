/* aws_files.c - a line at a time, in place: a value that goes over several lines is moved together where it stands. */
#include "source/aws_files.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"

typedef struct entry {
    const char *section, *block, *key, *value; /* in the text; block NULL: none */
} entry;

/* One file. */
typedef struct ini {
    char *text;
    size_t size_bytes;
    bool own;
    entry *entry;
    size_t count, capacity;
} ini;

struct stk_aws_files {
    ini config, credentials;
};

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* --- words --- */

size_t stk_shell_split(char *text, char **word, size_t capacity)
{
    size_t count = 0;
    char *to = text; /* never ahead of what is read */
    for (const char *from = text;;) {
        while (is_blank(*from)) from++;
        if (!*from) return count;
        if (count < capacity) word[count] = to;
        count++;
        char quote = 0;
        for (; *from && (quote || !is_blank(*from)); from++) {
            if (quote && *from == quote) quote = 0;
            else if (!quote && (*from == '\'' || *from == '"')) quote = *from;
            else if (*from == '\\' && quote != '\'' && (!quote || from[1] == '"' || from[1] == '\\')) {
                if (!*++from) return SIZE_MAX;
                *to++ = *from;
            } else {
                *to++ = *from;
            }
        }
        if (quote) return SIZE_MAX;
        const bool more = *from;
        *to++ = 0;
        if (!more) return count;
        from++;
    }
}

/* --- parsing --- */

/* What stands between two reads of a line. */
typedef struct parser {
    ini *file;
    char *section;       /* NULL before the first */
    char *key, *value;   /* the option that may go on; NULL: none */
    char *value_end;
    size_t indent;       /* of its line */
} parser;

static bool add(ini *file, entry e)
{
    if (file->count == file->capacity) {
        const size_t capacity = file->capacity ? 2 * file->capacity : 32;
        entry *const larger = stk_alloc_array(STK_TAG_SOURCE, capacity, sizeof *larger);
        if (!larger) return false;
        if (file->count) memcpy(larger, file->entry, file->count * sizeof *larger);
        stk_free(file->entry);
        file->entry = larger;
        file->capacity = capacity;
    }
    file->entry[file->count++] = e;
    return true;
}

/* Without blanks at both ends, terminated. */
static char *trim(char *from, char *end)
{
    while (from < end && is_blank(*from)) from++;
    while (end > from && is_blank(end[-1])) end--;
    *end = 0;
    return from;
}

static stk_status no_memory(stk_error *err)
{
    return stk_fail(err, STK_ERR_NOMEM, "out of memory: a shared file of AWS");
}

/* The lines of an indented block, each "key = value". */
static stk_status end_block(parser *p, stk_error *err)
{
    for (char *line = p->value; line;) {
        char *const next = strchr(line, '\n');
        if (next) *next = 0;
        char *const end = next ? next : line + strlen(line);
        char *const equals = strchr(line, '=');
        if (!equals && *trim(line, end))
            return stk_fail(err, STK_ERR_OPTION, "a line of an indented block has no '='");
        if (equals) {
            const entry e = {p->section, p->key, trim(line, equals), trim(equals + 1, end)};
            if (!add(p->file, e)) return no_memory(err);
        }
        line = next ? next + 1 : NULL;
    }
    return STK_OK;
}

/* The option that was open has no further line. */
static stk_status end_option(parser *p, stk_error *err)
{
    if (!p->key) return STK_OK;
    while (p->value_end > p->value && is_blank(p->value_end[-1])) p->value_end--;
    *p->value_end = 0;
    stk_status status = STK_OK;
    if (p->value[0] == '\n') status = end_block(p, err);
    else if (!add(p->file, (entry){p->section, NULL, p->key, p->value})) status = no_memory(err);
    p->key = NULL;
    return status;
}

static void go_on(parser *p, const char *line, size_t length)
{
    *p->value_end++ = '\n'; /* at most over the line break that was read */
    memmove(p->value_end, line, length);
    p->value_end += length;
}

static stk_status begin_option(parser *p, char *line, char *end, stk_error *err)
{
    char *delimiter = line;
    while (delimiter < end && *delimiter != '=' && *delimiter != ':') delimiter++;
    if (!p->section) return stk_fail(err, STK_ERR_OPTION, "a line stands before the first [section]");
    if (delimiter == end || delimiter == line)
        return stk_fail(err, STK_ERR_OPTION, "a line is neither a [section] nor key = value");
    p->key = trim(line, delimiter);
    for (char *c = p->key; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    p->value = trim(delimiter + 1, end);
    p->value_end = p->value + strlen(p->value);
    return STK_OK;
}

/* One line, without its break; end[0] may be overwritten. */
static stk_status parse_line(parser *p, char *line, char *end, stk_error *err)
{
    char *from = line;
    while (from < end && is_blank(*from)) from++;
    while (end > from && is_blank(end[-1])) end--;
    if (from == end) {
        if (p->key) go_on(p, "", 0);
        return STK_OK;
    }
    if (*from == '#' || *from == ';') return STK_OK;
    if (memchr(from, 0, (size_t)(end - from))) return stk_fail(err, STK_ERR_OPTION, "a line holds a NUL byte");
    const size_t indent = (size_t)(from - line);
    if (p->key && indent > p->indent) {
        go_on(p, from, (size_t)(end - from));
        return STK_OK;
    }
    STK_TRY(end_option(p, err));
    p->indent = indent;
    char *const close = *from == '[' ? memrchr(from, ']', (size_t)(end - from)) : NULL;
    if (close && close > from + 1) {
        *close = 0;
        p->section = from + 1;
        /* An empty profile exists too. */
        return add(p->file, (entry){p->section, NULL, "", ""}) ? STK_OK : no_memory(err);
    }
    return begin_option(p, from, end, err);
}

static stk_status parse(ini *file, stk_error *err)
{
    parser p = {.file = file};
    char *const end = file->text + file->size_bytes;
    char *line = file->text;
    uint64_t number = 0;
    if (file->size_bytes >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) line += 3;
    stk_status status = STK_OK;
    while (line < end && status == STK_OK) {
        char *stop = line;
        while (stop < end && *stop != '\n' && *stop != '\r') stop++;
        char *const next = stop + 1 < end && stop[0] == '\r' && stop[1] == '\n' ? stop + 2 : stop + 1;
        number++;
        status = parse_line(&p, line, stop, err);
        line = next;
    }
    if (status == STK_OK) status = end_option(&p, err);
    if (status < 0 && err) err->line = number;
    return status;
}

/* --- files --- */

static stk_status open_file(ini *file, const char *path, stk_error *err)
{
    struct stat st;
    if (!path || stat(path, &st) || !S_ISREG(st.st_mode)) return STK_OK;
    file->own = true;
    stk_status status =
        stk_file_read(&file->text, &file->size_bytes, path, STK_AWS_FILE_BYTES, STK_TAG_SOURCE, err);
    if (status == STK_ERR_SYSTEM && err && err->code == ENOENT) return STK_OK; /* gone in between */
    if (status == STK_ERR_MEDIA_LIMIT)
        status = stk_fail(err, STK_ERR_OPTION, "a shared file of AWS has more than 1 MiB");
    if (status == STK_OK) status = parse(file, err);
    if (status < 0 && err) stk_error_file(err, path, err->line);
    return status;
}

static void close_file(ini *file)
{
    if (file->text) OPENSSL_cleanse(file->text, file->size_bytes);
    if (file->own) stk_free(file->text);
    stk_free(file->entry);
}

stk_status stk_aws_files_open(stk_aws_files **out, const char *config_path, const char *credentials_path,
                              stk_error *err)
{
    *out = NULL;
    stk_aws_files *files = stk_alloc(STK_TAG_SOURCE, sizeof *files);
    if (!files) return no_memory(err);
    stk_status status = open_file(&files->config, config_path, err);
    if (status == STK_OK) status = open_file(&files->credentials, credentials_path, err);
    if (status < 0) stk_aws_files_close(&files);
    else *out = files;
    return status;
}

stk_status stk_aws_files_parse(stk_aws_files **out, char *config, size_t config_bytes, char *credentials,
                               size_t credentials_bytes, stk_error *err)
{
    *out = NULL;
    stk_aws_files *files = stk_alloc(STK_TAG_SOURCE, sizeof *files);
    if (!files) return no_memory(err);
    files->config = (ini){.text = config, .size_bytes = config_bytes};
    files->credentials = (ini){.text = credentials, .size_bytes = credentials_bytes};
    stk_status status = parse(&files->config, err);
    if (status == STK_OK) status = parse(&files->credentials, err);
    if (status < 0) stk_aws_files_close(&files);
    else *out = files;
    return status;
}

void stk_aws_files_close(stk_aws_files **files)
{
    if (!*files) return;
    close_file(&(*files)->config);
    close_file(&(*files)->credentials);
    stk_free(*files);
    *files = NULL;
}

/* --- asking --- */

/* Whether "profile NAME" (or "services NAME", with quotes if need be) is this section. */
static bool is_named(const char *section, const char *kind, const char *name)
{
    const size_t length = strlen(kind);
    char copy[512], *word[3];
    if (strncmp(section, kind, length) != 0 || !is_blank(section[length]) || strlen(section) >= sizeof copy)
        return false;
    memcpy(copy, section, strlen(section) + 1);
    return stk_shell_split(copy, word, 3) == 2 && strcmp(word[1], name) == 0;
}

static bool is_profile(bool is_config, const entry *e, const char *profile)
{
    if (!is_config || strcmp(profile, "default") == 0)
        if (strcmp(e->section, profile) == 0) return true;
    return is_config && is_named(e->section, "profile", profile);
}

static bool is_key(const entry *e, const char *block, const char *key)
{
    return strcmp(e->key, key) == 0 && (block ? e->block && strcmp(e->block, block) == 0 : !e->block);
}

static const char *find(const ini *file, bool is_config, const char *profile, const char *block, const char *key)
{
    for (size_t i = file->count; i-- > 0;)
        if (is_key(&file->entry[i], block, key) && is_profile(is_config, &file->entry[i], profile))
            return file->entry[i].value;
    return NULL;
}

bool stk_aws_files_has_profile(const stk_aws_files *files, const char *profile)
{
    for (size_t i = 0; i < files->config.count; i++)
        if (is_profile(true, &files->config.entry[i], profile)) return true;
    for (size_t i = 0; i < files->credentials.count; i++)
        if (is_profile(false, &files->credentials.entry[i], profile)) return true;
    return false;
}

const char *stk_aws_files_get(const stk_aws_files *files, stk_aws_file file, const char *profile, const char *block,
                              const char *key)
{
    const char *value = NULL;
    if (file != STK_AWS_CONFIG) value = find(&files->credentials, false, profile, block, key);
    if (!value && file != STK_AWS_CREDENTIALS) value = find(&files->config, true, profile, block, key);
    return value;
}

const char *stk_aws_files_service(const stk_aws_files *files, const char *profile, const char *service,
                                  const char *key)
{
    const char *const name = stk_aws_files_get(files, STK_AWS_EITHER, profile, NULL, "services");
    const ini *const file = &files->config;
    for (size_t i = file->count; name && i-- > 0;)
        if (is_key(&file->entry[i], service, key) && is_named(file->entry[i].section, "services", name))
            return file->entry[i].value;
    return NULL;
}
