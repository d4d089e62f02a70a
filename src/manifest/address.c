/* address.c - from what a record writes to what can be opened, inside the allowed places.
 *
 * A file's path is normalised, and so is that of a tar; the key of an object and a URL are what the record says, byte by byte. */
#include "manifest/record_reader.h"

#include <ctype.h>
#include <limits.h>
#include <strings.h>

#include "manifest/json_check.h"
#include "schema/place.h"

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
    if (reader->root.data && (lies_in(path, reader->root) || stk_place_holds(reader->root, path))) return true;
    for (size_t i = 0; i < reader->rules->allow.count; i++) {
        const stk_str item = reader->rules->allow.item[i];
        char folder[PATH_MAX];
        if (stk_place_holds(item, path)) return true;
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

/* The place to allow, and the rest of the address. */
static void split_place(stk_str address, stk_str *place, stk_str *name)
{
    *place = address;
    if (stk_address_is_remote(address)) {
        *place = stk_place_of(address);
    } else {
        while (place->size_bytes > 1 && place->data[place->size_bytes - 1] != '/') place->size_bytes--;
    }
    address = stk_address_shown(address);
    *name = (stk_str){address.data + place->size_bytes, address.size_bytes - place->size_bytes};
    if (place->size_bytes > 1 && place->data[place->size_bytes - 1] == '/') place->size_bytes--;
}

static stk_status deny(stk_record_reader *reader, stk_str path)
{
    stk_str folder, name;
    split_place(path, &folder, &name);

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

/* --- buckets and hosts --- */

static stk_status refuse_address(stk_record_reader *reader, stk_str address, const char *what)
{
    return stk_record_reader_fail(reader, STK_REASON_DIALECT, "%.*s: %s",
                                  STK_STR_ARGS(stk_utf8_cut(stk_address_shown(address), SHOWN_BYTES)), what);
}

/* A bucket, a slash, a key: of the key every byte is as it stands. */
static stk_status check_s3(stk_record_reader *reader, stk_str address)
{
    size_t at = 5;
    while (at < address.size_bytes &&
           (isalnum((unsigned char)address.data[at]) || memchr("._-", address.data[at], 3)))
        at++;
    if (at > 5 && at + 1 < address.size_bytes && address.data[at] == '/') return STK_OK;
    return refuse_address(reader, address, "no address of an object: write s3://BUCKET/KEY");
}

/* A URL goes out as it is written: it must be one.  Only its first line is ever sent, and nothing may begin another. */
static stk_status check_url(stk_record_reader *reader, stk_str address)
{
    const stk_str place = stk_place_of(address);
    const size_t begin = has_prefix(address, "https://") ? 8 : 7;
    if (memchr(place.data, '@', place.size_bytes))
        return refuse_address(reader, address, "a name or password stands in it: take it out");
    for (size_t i = begin; i < place.size_bytes; i++)
        if (!isalnum((unsigned char)place.data[i]) && !memchr("._-:[]", place.data[i], 6))
            return refuse_address(reader, (stk_str){"a URL", 5}, "its host is no name");
    if (place.size_bytes == begin) return refuse_address(reader, (stk_str){"a URL", 5}, "it names no host");
    for (size_t i = place.size_bytes; i < address.size_bytes; i++)
        if ((unsigned char)address.data[i] <= 0x20 || (unsigned char)address.data[i] >= 0x7f)
            return refuse_address(reader, place, "a URL with a byte that is no part of one: write %20 for a blank, and so on");
    return STK_OK;
}

/* As it is written, but for the scheme, which is known in lower case. */
static stk_status remote_address(stk_record_reader *reader, stk_str *resolved, stk_str address)
{
    STK_TRY(stk_address_is_s3(address) ? check_s3(reader, address) : check_url(reader, address));
    char *const copy = stk_record_reader_take(reader, address.size_bytes + 1);
    if (!copy) return stk_record_reader_nomem(reader);
    memcpy(copy, address.data, address.size_bytes);
    copy[address.size_bytes] = 0;
    for (char *c = copy; *c != ':'; c++) *c = (char)tolower((unsigned char)*c);
    *resolved = (stk_str){copy, address.size_bytes};
    return is_allowed(reader, *resolved) ? STK_OK : deny(reader, *resolved);
}

/* The bytes of a name behind `begin`, as a URL has them. */
static stk_status encode_url(stk_record_reader *reader, stk_str *url, size_t begin)
{
    static const char digits[] = "0123456789ABCDEF";
    char *const out = stk_record_reader_take(reader, begin + 3 * (url->size_bytes - begin) + 1);
    if (!out) return stk_record_reader_nomem(reader);
    memcpy(out, url->data, begin);
    size_t size_bytes = begin;
    for (size_t i = begin; i < url->size_bytes; i++) {
        const unsigned char c = (unsigned char)url->data[i];
        if (c < 0x80 && (isalnum(c) || memchr("-._~/", c, 5))) {
            out[size_bytes++] = (char)c;
        } else {
            out[size_bytes++] = '%';
            out[size_bytes++] = digits[c >> 4];
            out[size_bytes++] = digits[c & 15];
        }
    }
    out[size_bytes] = 0;
    *url = (stk_str){out, size_bytes};
    return STK_OK;
}

/* A relative address behind a bucket, a prefix of one, or the folder of a URL.  A set that is copied to a bucket stays the same set, so `.` and
 * `..` in what the record writes mean what they mean on a disk; all else of it is the key's, double slashes too, and stands for itself in a URL. */
static stk_status join_key(stk_record_reader *reader, stk_str *resolved, stk_str path)
{
    const stk_str root = reader->root;
    const size_t bucket = stk_place_of(root).size_bytes;
    char *const joined = stk_record_reader_take(reader, root.size_bytes + 1 + path.size_bytes + 1);
    if (!joined) return stk_record_reader_nomem(reader);
    memcpy(joined, root.data, root.size_bytes);
    size_t out = root.size_bytes;
    for (size_t at = 0; at <= path.size_bytes;) {
        const char *const slash = at < path.size_bytes ? memchr(path.data + at, '/', path.size_bytes - at) : NULL;
        const size_t end = slash ? (size_t)(slash - path.data) : path.size_bytes, size = end - at;
        if (size == 2 && memcmp(path.data + at, "..", 2) == 0) {
            if (out == bucket)
                return refuse_address(reader, path, stk_address_is_s3(root) ? "it leads out of the bucket" : "it leads out of the host");
            while (joined[--out] != '/') continue;
        } else if (!(size == 1 && path.data[at] == '.')) {
            joined[out++] = '/';
            memcpy(joined + out, path.data + at, size);
            out += size;
        }
        at = end + 1;
    }
    joined[out] = 0;
    *resolved = (stk_str){joined, out};
    if (out <= bucket + 1) return refuse_address(reader, path, "no address of an object");
    if (!stk_address_is_s3(root)) STK_TRY(encode_url(reader, resolved, root.size_bytes));
    return is_allowed(reader, *resolved) ? STK_OK : deny(reader, *resolved);
}

/* --- files in tars --- */

/* //NAME, or OFFSET+BYTES. */
static bool is_member(stk_str which)
{
    if (has_prefix(which, "//")) return which.size_bytes > 2;
    size_t i = 0, plus = 0;
    for (; i < which.size_bytes; i++)
        if (which.data[i] == '+' && !plus && i) plus = i;
        else if (!isdigit((unsigned char)which.data[i])) return false;
    return plus && plus <= 18 && plus + 1 < i && i - plus - 1 <= 18;
}

/* tar://NAME::ADDRESS and tar:OFFSET+BYTES::ADDRESS: what stands before the :: stays as it is, the rest is an address. */
static stk_status tar_address(stk_record_reader *reader, stk_str *resolved, stk_str address)
{
    static const char how[] = "no address of a file in a tar: write tar://NAME::TAR, or tar:OFFSET+BYTES::TAR";
    const char *const divide = address.data ? memmem(address.data, address.size_bytes, "::", 2) : NULL;
    if (!divide || memchr(address.data, 0, address.size_bytes)) return refuse_address(reader, address, how);
    const size_t head_bytes = (size_t)(divide - address.data) + 2;
    stk_str tar = {address.data + head_bytes, address.size_bytes - head_bytes};
    if (has_prefix(tar, "tar:") || has_prefix(tar, "data:") || !is_member((stk_str){address.data + 4, head_bytes - 6}))
        return refuse_address(reader, address, how);
    STK_TRY(stk_record_reader_address(reader, &tar, tar));
    char *const joined = stk_record_reader_take(reader, head_bytes + tar.size_bytes + 1);
    if (!joined) return stk_record_reader_nomem(reader);
    memcpy(joined, address.data, head_bytes);
    memcpy(joined, "tar", 3); /* known in lower case */
    memcpy(joined + head_bytes, tar.data, tar.size_bytes);
    joined[head_bytes + tar.size_bytes] = 0;
    *resolved = (stk_str){joined, head_bytes + tar.size_bytes};
    return STK_OK;
}

/* --- all of them --- */

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
    if (has_prefix(address, "tar:")) return tar_address(reader, resolved, address);
    stk_str path = address;
    if (has_prefix(address, "file:/"))
        STK_TRY(file_path(reader, &path, address));
    else if (has_scheme(address) && !stk_address_is_remote(address))
        return stk_record_reader_fail(reader, STK_REASON_UNSUPPORTED,
                               "%.*s: only files, s3://, http(s):// and data: are supported; copy it to a folder or a bucket",
                               STK_STR_ARGS(stk_utf8_cut(address, SHOWN_BYTES)));
    if (memchr(path.data, 0, path.size_bytes))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT, "a NUL in the address of a medium");
    if (stk_address_is_remote(path)) return remote_address(reader, resolved, path);
    if (path.data[0] != '/' && reader->root.data && stk_address_is_remote(reader->root)) return join_key(reader, resolved, path);

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
