/* media.c - a record's media: the shelf of its `images`, the tags that take them, and parts with their own
 * address. */
#include "manifest/record_reader.h"

#include <ctype.h>
#include <stdio.h>

/* Bytes in base64 without a data: address around them. */
static stk_status wrap_base64(stk_record_reader *reader, stk_str *address, stk_str text)
{
    static const char head[] = "data:;base64,";
    char *const out = stk_record_reader_take(reader, sizeof head + text.size_bytes);
    if (!out) return stk_record_reader_nomem(reader);
    memcpy(out, head, sizeof head - 1);
    memcpy(out + sizeof head - 1, text.data, text.size_bytes);
    *address = (stk_str){out, sizeof head - 1 + text.size_bytes};
    return STK_OK;
}

/* An image in base64 where an address is expected.  As ms-swift: no path is so long; the name of a file has a dot. */
static bool is_base64(stk_str text)
{
    enum { PATH_BYTES = 200 };
    if (text.size_bytes <= PATH_BYTES) return false;
    for (size_t i = 0; i < text.size_bytes; i++)
        if (!isalnum((unsigned char)text.data[i]) && !memchr("+/=", text.data[i], 3)) return false;
    return true;
}

static bool is_data_uri(stk_str address)
{
    return address.size_bytes >= 5 && memcmp(address.data, "data:", 5) == 0;
}

static stk_status add_image(stk_record_reader *reader, stk_str address, uint32_t width_px, uint32_t height_px)
{
    if (reader->media_count >= reader->rules->limits->media_per_record)
        return stk_record_reader_fail(reader, STK_REASON_RECORD_LIMIT,
                               "more than %u media: see limits.media_per_record",
                               reader->rules->limits->media_per_record);
    void *items = reader->media;
    stk_media_ref *const ref =
        stk_record_reader_grow(reader, &items, reader->media_count, &reader->media_capacity, sizeof *ref);
    if (!ref) return stk_record_reader_nomem(reader);
    reader->media = items;
    *ref = (stk_media_ref){.kind = STK_MEDIA_IMAGE, .width_px = width_px, .height_px = height_px};
    if (is_base64(address)) STK_TRY(wrap_base64(reader, &address, address));
    STK_TRY(stk_record_reader_address(reader, &ref->address, address));
    const stk_stated_sizes *const stated = reader->rules->stated;
    if (!width_px && stated && !is_data_uri(ref->address)) (void)stk_stated_find(stated, ref->address, &ref->width_px, &ref->height_px);
    reader->media_count++;
    return STK_OK;
}

static stk_status read_side(stk_record_reader *reader, uint32_t *side_px, const json_t *item, const char *key)
{
    const json_t *const value = stk_json_get(item, key);
    *side_px = 0;
    if (!value) return STK_OK;
    const json_int_t number = json_is_integer(value) ? json_integer_value(value) : 0;
    if (number < 1 || number > INT32_MAX)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "the %s of an image is no whole number of pixels from 1", key);
    *side_px = (uint32_t)number;
    return STK_OK;
}

/* The size that an image's object states.  What would change its resize alone must not be passed over. */
static stk_status read_size(stk_record_reader *reader, uint32_t *width_px, uint32_t *height_px, const json_t *item)
{
    static const char *const own_limits[] = {"min_pixels", "max_pixels", "resized_width", "resized_height"};
    for (size_t i = 0; i < sizeof own_limits / sizeof *own_limits; i++)
        if (stk_json_get(item, own_limits[i]))
            return stk_record_reader_fail(reader, STK_REASON_UNSUPPORTED,
                                          "%s of a single image is not supported: set min_pixels and max_pixels of the data set",
                                          own_limits[i]);
    STK_TRY(read_side(reader, width_px, item, "width"));
    STK_TRY(read_side(reader, height_px, item, "height"));
    if (!*width_px != !*height_px)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "an image with a width or a height alone: give both or none");
    return STK_OK;
}

/* The value of the first of an object's keys that say where an image is. */
static const json_t *find_address(const json_t *item)
{
    static const char *const keys[] = {"image", "url", "path", "image_url"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *const value = stk_json_get(item, keys[i]);
        if (value) return value;
    }
    return NULL;
}

/* {"tar": ..., "member": NAME}, or with "offset" and "size" where a list says where files lie: the text of its address. */
static stk_status read_tar(stk_record_reader *reader, stk_str *address, const json_t *item)
{
    const json_t *const tar = stk_json_get(item, "tar"), *const member = stk_json_get(item, "member");
    const json_t *const offset = stk_json_get(item, "offset"), *const size = stk_json_get(item, "size");
    char place[64];
    stk_str which = {place, 0};
    if (json_is_string(member)) which = stk_json_text(member);
    else if (json_is_integer(offset) && json_is_integer(size) && json_integer_value(offset) >= 0 && json_integer_value(size) >= 0)
        which.size_bytes = (size_t)snprintf(place, sizeof place, "%lld+%lld", (long long)json_integer_value(offset),
                                            (long long)json_integer_value(size));
    if (!json_is_string(tar) || which.size_bytes == 0)
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                      "an image in a tar needs its member, or its offset and size in bytes, beside tar");
    const stk_str path = stk_json_text(tar);
    const char *const scheme = member ? "tar://" : "tar:";
    char *const out = stk_record_reader_take(reader, 8 + which.size_bytes + path.size_bytes);
    if (!out) return stk_record_reader_nomem(reader);
    const size_t head_bytes = strlen(scheme);
    memcpy(out, scheme, head_bytes);
    memcpy(out + head_bytes, which.data, which.size_bytes);
    memcpy(out + head_bytes + which.size_bytes, "::", 2);
    memcpy(out + head_bytes + which.size_bytes + 2, path.data, path.size_bytes);
    *address = (stk_str){out, head_bytes + which.size_bytes + 2 + path.size_bytes};
    return STK_OK;
}

static stk_status read_object(stk_record_reader *reader, const json_t *item)
{
    uint32_t width_px, height_px;
    STK_TRY(read_size(reader, &width_px, &height_px, item));
    if (stk_json_get(item, "tar")) {
        stk_str address;
        STK_TRY(read_tar(reader, &address, item));
        return add_image(reader, address, width_px, height_px);
    }
    const json_t *value = find_address(item);
    /* {"type": "image", "image": {"url": ...}}: one level, and no further. */
    if (json_is_object(value)) {
        item = value;
        if (!width_px) STK_TRY(read_size(reader, &width_px, &height_px, item));
        value = find_address(item);
    }
    /* {"bytes": ..., "path": ...}: the bytes are the picture, the path is where they came from. */
    const json_t *const bytes = stk_json_get(item, "bytes");
    const json_t *const base64 = bytes ? bytes : value ? NULL : stk_json_get(item, "base64");
    if (base64) {
        stk_str address;
        if (!json_is_string(base64))
            return stk_record_reader_fail(reader, STK_REASON_DIALECT, "the bytes of an image are no text in base64");
        STK_TRY(wrap_base64(reader, &address, stk_json_text(base64)));
        return add_image(reader, address, width_px, height_px);
    }
    if (json_is_string(value)) return add_image(reader, stk_json_text(value), width_px, height_px);
    return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                                  value ? "the address of an image is no text"
                                        : "an image without an address: give it path, url or image");
}

stk_status stk_record_reader_address_image(stk_record_reader *reader, stk_str address)
{
    return add_image(reader, address, 0, 0);
}

stk_status stk_record_reader_image(stk_record_reader *reader, const json_t *item)
{
    if (json_is_string(item)) return add_image(reader, stk_json_text(item), 0, 0);
    if (json_is_object(item)) return read_object(reader, item);
    return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                           "an image is neither an address nor an object with one");
}

stk_status stk_record_reader_tag(stk_record_reader *reader, bool *added)
{
    const size_t at = reader->tag_count++;
    *added = at < reader->shelf_count;
    if (!*added) return STK_OK;
    return stk_record_reader_image(reader,
                            json_is_array(reader->shelf) ? json_array_get(reader->shelf, at) : reader->shelf);
}

/* OpenAI's own form: a string, or {"url": ..., "detail": ...}. */
static stk_status read_image_url(stk_record_reader *reader, const json_t *part)
{
    const json_t *const value = stk_json_get(part, "image_url");
    const json_t *const url = json_is_object(value) ? stk_json_get(value, "url") : value;
    if (!json_is_string(url))
        return stk_record_reader_fail(reader, STK_REASON_DIALECT,
                               "image_url is neither a text nor an object with url");
    if (json_is_object(value) && stk_json_get(value, "detail"))
        reader->sample->notes |= STK_NOTE_DETAIL_IGNORED;
    uint32_t width_px, height_px;
    STK_TRY(read_size(reader, &width_px, &height_px, part));
    if (!width_px && json_is_object(value)) STK_TRY(read_size(reader, &width_px, &height_px, value));
    return add_image(reader, stk_json_text(url), width_px, height_px);
}

stk_status stk_record_reader_image_part(stk_record_reader *reader, const json_t *part, bool is_image_url, bool *added)
{
    *added = true;
    if (stk_json_get(part, "detail")) reader->sample->notes |= STK_NOTE_DETAIL_IGNORED;
    if (is_image_url || (json_is_object(stk_json_get(part, "image_url")) && !stk_json_get(part, "image")))
        return read_image_url(reader, part);
    /* {"type": "image"} stands for the next of `images`, as a tag does. */
    if (!find_address(part) && !stk_json_get(part, "base64") && !stk_json_get(part, "bytes") && !stk_json_get(part, "tar")) return stk_record_reader_tag(reader, added);
    return read_object(reader, part);
}
