/* place.c - remote addresses, compared byte by byte but for what has no case. */
#include "schema/place.h"

#include <string.h>
#include <strings.h>

static bool starts(stk_str text, const char *prefix)
{
    const size_t size_bytes = strlen(prefix);
    return text.size_bytes >= size_bytes && strncasecmp(text.data, prefix, size_bytes) == 0;
}

bool stk_address_is_s3(stk_str text)
{
    return starts(text, "s3://");
}

bool stk_address_is_remote(stk_str text)
{
    return stk_address_is_s3(text) || starts(text, "http://") || starts(text, "https://");
}

/* Of a file in a tar, the tar; else the address itself. */
static stk_str tar_of(stk_str address)
{
    const char *const divide = starts(address, "tar:") ? memmem(address.data, address.size_bytes, "::", 2) : NULL;
    if (!divide) return address;
    const size_t head_bytes = (size_t)(divide - address.data) + 2;
    return (stk_str){address.data + head_bytes, address.size_bytes - head_bytes};
}

bool stk_address_is_on_store(stk_str address)
{
    return stk_address_is_remote(tar_of(address));
}

/* scheme://authority: where it ends. */
static size_t authority_end(stk_str address)
{
    const char *const colon = memchr(address.data, ':', address.size_bytes);
    size_t at = colon ? (size_t)(colon - address.data) + 3 : address.size_bytes;
    while (at < address.size_bytes && !memchr("/?#", address.data[at], 3)) at++;
    return at < address.size_bytes ? at : address.size_bytes;
}

stk_str stk_address_container(stk_str address)
{
    const char *const divide = starts(address, "tar:") ? memmem(address.data, address.size_bytes, "::", 2) : NULL;
    const size_t begin = divide ? (size_t)(divide - address.data) + 2 : 0;
    return (stk_str){address.data + begin, address.size_bytes - begin};
}

static stk_str shown_part(stk_str address)
{
    const stk_str url = tar_of(address);
    if (!stk_address_is_remote(url) || stk_address_is_s3(url)) return address;
    size_t at = authority_end(url);
    if (memchr(url.data, '@', at)) return (stk_str){"a URL", 5};
    while (at < url.size_bytes && !memchr("?#", url.data[at], 2)) at++;
    return (stk_str){address.data, address.size_bytes - url.size_bytes + at};
}

stk_str stk_address_shown(stk_str address)
{
    const stk_str container = stk_address_container(address), part = shown_part(container);
    if (part.data != container.data) return part;
    return (stk_str){address.data, (size_t)(container.data - address.data) + part.size_bytes};
}

stk_str stk_place_of(stk_str address)
{
    return (stk_str){address.data, authority_end(address)};
}

/* "host:443" of https://, "host" of it: host and port, the port written out. */
typedef struct authority {
    stk_str host, port;
} authority;

static authority split_authority(stk_str address)
{
    const bool tls = starts(address, "https://");
    const size_t begin = tls ? 8 : 7, end = authority_end(address);
    stk_str host = {address.data + begin, end - begin};
    stk_str port = {tls ? "443" : "80", tls ? 3 : 2};
    for (size_t i = host.size_bytes; i-- > 0 && host.data[i] != ']';)
        if (host.data[i] == ':') {
            if (i + 1 < host.size_bytes) port = (stk_str){host.data + i + 1, host.size_bytes - i - 1};
            host.size_bytes = i;
            break;
        }
    return (authority){host, port};
}

static bool same_host(stk_str place, stk_str address)
{
    if (starts(place, "https://") != starts(address, "https://")) return false;
    const authority a = split_authority(place), b = split_authority(address);
    return a.host.size_bytes == b.host.size_bytes && a.host.size_bytes && !memchr(b.host.data, '@', b.host.size_bytes) &&
           strncasecmp(a.host.data, b.host.data, a.host.size_bytes) == 0 && a.port.size_bytes == b.port.size_bytes &&
           memcmp(a.port.data, b.port.data, a.port.size_bytes) == 0;
}

bool stk_place_holds(stk_str place, stk_str address)
{
    if (!stk_address_is_remote(place) || !stk_address_is_remote(address)) return false;
    if (stk_address_is_s3(place) != stk_address_is_s3(address)) return false;
    if (!stk_address_is_s3(place)) return same_host(place, address);
    size_t size_bytes = place.size_bytes;
    if (place.data[size_bytes - 1] == '/') size_bytes--; /* "prefix/" and "prefix" are one */
    if (size_bytes < sizeof "s3://" || address.size_bytes < size_bytes) return false;
    return memcmp(place.data + 5, address.data + 5, size_bytes - 5) == 0 &&
           (address.size_bytes == size_bytes || address.data[size_bytes] == '/');
}
