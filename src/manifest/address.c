/* address.c - from what a record writes to what can be opened, inside the allowed places. */
#include "manifest/record_reader.h"

#include <ctype.h>
#include <limits.h>
#include <strings.h>

#include "manifest/json_check.h"

/* Of an address and of a folder in a message of 256 bytes. */
enum { SHOWN_BYTES = 130, FOLDER_BYTES = 140 };

static bool has_prefix(stk_str text, const char *prefix)
{
    const size_t size_bytes = strlen(prefix);
    return text.size_bytes >= size_bytes && strncasecmp(text.data, prefix, size_bytes) == 0;
}

size_t stk_path_normalise(char *path, size_t size_bytes)
{
    size_t out = 0;
    for (size_t at = 0; at < size_bytes;) {
        while (at < size_bytes && path[at] == '/') at++;
        size_t end = at;
        while (end < size_bytes && path[end] != '/') end++;
        const size_t part = end - at;
        if (part == 2 && path[at] == '.' && path[at + 1] == '.') {
            while (out && path[--out] != '/') {
            }
        } else if (part && !(part == 1 && path[at] == '.')) {
            path[out++] = '/';
            memmove(path + out, path + at, part);
            out += part;
        }
        at = end;
    }
    if (out == 0) path[out++] = '/';
    return out;
}

/* Both normalised. */
static bool lies_in(stk_str path, stk_str folder)
{
    if (folder.size_bytes == 1) return true; /* "/" */
    return path.size_bytes >= folder.size_bytes && memcmp(path.data, folder.data, folder.size_bytes) == 0 &&
           (path.size_bytes == folder.size_bytes || path.data[folder.size_bytes] == '/');
}

static bool is_allowed(const stk_record_reader *reader, stk_str path)
{
    if (reader->root.data && lies_in(path, reader->root)) return true;
    for (size_t i = 0; i < reader->rules->allow.count; i++) {
        const stk_str item = reader->rules->allow.item[i];
        char folder[PATH_MAX];
        /* What is no path is a bucket or a host, and holds no files. */
        if (item.size_bytes == 0 || item.size_bytes > sizeof folder || item.data[0] != '/') continue;
        memcpy(folder, item.data, item.size_bytes);
        if (lies_in(path, (stk_str){folder, stk_path_normalise(folder, item.size_bytes)})) return true;
    }
    return false;
}

/* Words of YAML that need no quotes inside a list. */
static bool is_plain(stk_str text)
{
    for (size_t i = 0; i < text.size_bytes; i++) {
        const unsigned char c = (unsigned char)text.data[i];
        if (c < 0x80 && !isalnum(c) && !memchr("/._-+=@", c, 7)) return false;
    }
    return true;
}

static stk_status deny(stk_record_reader *reader, stk_str path)
{
    stk_str folder = path, name = path;
    while (folder.size_bytes > 1 && folder.data[folder.size_bytes - 1] != '/') folder.size_bytes--;
    name = (stk_str){path.data + folder.size_bytes, path.size_bytes - folder.size_bytes};
    if (folder.size_bytes > 1) folder.size_bytes--;

    char quoted[2 * FOLDER_BYTES + 8];
    size_t out = 0;
    const bool plain = is_plain(folder);
    const stk_str shown = stk_utf8_cut(folder, FOLDER_BYTES);
    if (!plain) quoted[out++] = '\'';
    for (size_t i = 0; i < shown.size_bytes; i++) {
        /* In the single quotes of YAML only the quote itself is special. */
        if (shown.data[i] == '\'' && !plain) quoted[out++] = '\'';
        quoted[out++] = shown.data[i];
    }
    if (shown.size_bytes < folder.size_bytes) {
        memcpy(quoted + out, "...", 3);
        out += 3;
    }
    if (!plain) quoted[out++] = '\'';
    return stk_record_reader_fail(
        reader, STK_REASON_DENIED,
        "outside media_root and allow; add to the configuration: allow: [%.*s] to read %.*s", (int)out,
        quoted, STK_STR_ARGS(stk_utf8_cut(name, 40)));
}

static int hex_value(char c)
{
    return !isxdigit((unsigned char)c) ? -1
           : isdigit((unsigned char)c) ? c - '0'
                                       : tolower((unsigned char)c) - 'a' + 10;
}

/* %XX to bytes.  Only of file: URIs; elsewhere a name with a percent sign is just that. */
static stk_status decode_percent(stk_record_reader *reader, stk_str *path, stk_str uri)
{
    char *const out = stk_record_reader_take(reader, uri.size_bytes + 1);
    if (!out) return stk_record_reader_nomem(reader);
    size_t size_bytes = 0;
    for (size_t i = 0; i < uri.size_bytes; i++) {
        if (uri.data[i] != '%') {
            out[size_bytes++] = uri.data[i];
            continue;
        }
        const int high = i + 2 < uri.size_bytes ? hex_value(uri.data[i + 1]) : -1;
        const int low = high >= 0 ? hex_value(uri.data[i + 2]) : -1;
        if (low < 0)
            return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                   "a file: address with a percent sign that is no %%XX: write it as %%25");
        out[size_bytes++] = (char)(high * 16 + low);
        i += 2;
    }
    for (size_t i = 0, size; i < size_bytes; i += size) {
        size = stk_utf8_size((const uint8_t *)out + i, size_bytes - i);
        if (!size)
            return stk_record_reader_fail(reader, STK_REASON_UTF8, "a file: address that is not UTF-8 once decoded");
    }
    *path = (stk_str){out, size_bytes};
    return STK_OK;
}

/* The path of a file: URI of this machine. */
static stk_status file_path(stk_record_reader *reader, stk_str *path, stk_str uri)
{
    stk_str rest = {uri.data + 5, uri.size_bytes - 5};
    if (has_prefix(rest, "//localhost/"))
        rest = (stk_str){rest.data + 11, rest.size_bytes - 11};
    else if (has_prefix(rest, "///"))
        rest = (stk_str){rest.data + 2, rest.size_bytes - 2};
    else if (has_prefix(rest, "//") || !has_prefix(rest, "/"))
        return stk_record_reader_fail(reader, STK_REASON_UNSUPPORTED,
                               "%.*s is no file of this machine: write file:///FOLDER/NAME",
                               STK_STR_ARGS(stk_utf8_cut(uri, SHOWN_BYTES)));
    return decode_percent(reader, path, rest);
}

/* "s3://", "http://": a scheme of letters, digits, + - . */
static bool has_scheme(stk_str address)
{
    size_t i = 0;
    while (i < address.size_bytes &&
           (isalnum((unsigned char)address.data[i]) || (i && memchr("+-.", address.data[i], 3))))
        i++;
    return i > 1 && address.size_bytes - i >= 3 && memcmp(address.data + i, "://", 3) == 0;
}

stk_status stk_record_reader_address(stk_record_reader *reader, stk_str *resolved, stk_str address)
{
    if (address.size_bytes == 0)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "an empty address of a medium");
    if (has_prefix(address, "data:video/"))
        return stk_record_reader_fail(reader, STK_REASON_VIDEO, "video is not supported yet");
    if (has_prefix(address, "data:audio/"))
        return stk_record_reader_fail(reader, STK_REASON_AUDIO, "audio is not supported yet");
    if (has_prefix(address, "data:")) {
        *resolved = address;
        return STK_OK;
    }
    stk_str path = address;
    if (has_prefix(address, "file:/"))
        STK_TRY(file_path(reader, &path, address));
    else if (has_scheme(address))
        return stk_record_reader_fail(reader, STK_REASON_UNSUPPORTED,
                               "%.*s: only files and data: addresses are supported yet; copy it to a folder",
                               STK_STR_ARGS(stk_utf8_cut(address, SHOWN_BYTES)));
    if (memchr(path.data, 0, path.size_bytes))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "a NUL in the address of a medium");

    const stk_str root = path.data[0] == '/' ? (stk_str){"", 0} : reader->root;
    char *const joined = stk_record_reader_take(reader, root.size_bytes + 1 + path.size_bytes + 1);
    if (!joined) return stk_record_reader_nomem(reader);
    if (root.size_bytes) memcpy(joined, root.data, root.size_bytes);
    joined[root.size_bytes] = '/';
    memcpy(joined + root.size_bytes + 1, path.data, path.size_bytes);
    const size_t size_bytes = stk_path_normalise(joined, root.size_bytes + 1 + path.size_bytes);
    joined[size_bytes] = 0;
    *resolved = (stk_str){joined, size_bytes};
    return is_allowed(reader, *resolved) ? STK_OK : deny(reader, *resolved);
}
