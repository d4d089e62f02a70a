/* npy.c - format 1.0 to 3.0 of numpy.lib.format: magic, version, length, a Python dictionary of three keys, the items.
 *
 * Little-endian, in C order, of plain numbers: anything else is refused by name. */
#include "npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 64 * 1024 };

static bool fail(char words[NPY_WORDS], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(char words[NPY_WORDS], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, NPY_WORDS, format, arguments);
    va_end(arguments);
    return false;
}

/* What stands behind a key of the dictionary; NULL: it is not there. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    return at + strspn(at, " :");
}

static bool read_shape(npy *a, const char *at, char words[NPY_WORDS])
{
    if (*at++ != '(') return fail(words, "its header has no shape");
    a->count = 1;
    for (at += strspn(at, " "); *at != ')'; at += strspn(at, " ,")) {
        char *end;
        if (*at < '0' || *at > '9') return fail(words, "its shape is no list of numbers");
        const unsigned long long size = strtoull(at, &end, 10);
        if (a->ndim == NPY_DIMS_MAX) return fail(words, "it has over %d dimensions", NPY_DIMS_MAX);
        if (__builtin_mul_overflow(a->count, (uint64_t)size, &a->count)) return fail(words, "its shape is too large");
        a->shape[a->ndim++] = size;
        at = end;
    }
    return true;
}

static bool read_dtype(npy *a, const char *at, char words[NPY_WORDS])
{
    if (at[0] != '\'' || (at[1] != '<' && at[1] != '|') || !at[2] || !strchr("biuf", at[2]) || !at[3] || !strchr("1248", at[3]) ||
        at[4] != '\'')
        return fail(words, "its items are no plain little-endian numbers: %.20s", at);
    a->kind = at[2];
    a->item_bytes = (size_t)(at[3] - '0');
    if (a->kind == 'f' && a->item_bytes < 2) return fail(words, "its items are no numbers that are known: %.20s", at);
    return true;
}

static bool read_header(npy *a, char words[NPY_WORDS])
{
    unsigned char prefix[12] = {0};
    if (fread(prefix, 1, 10, a->file) != 10 || memcmp(prefix, "\x93NUMPY", 6) != 0) return fail(words, "it is no .npy file");
    uint32_t length = prefix[8] | (uint32_t)prefix[9] << 8;
    if (prefix[6] > 1) {
        if (fread(prefix + 10, 1, 2, a->file) != 2) return fail(words, "it ends inside its header");
        length |= (uint32_t)prefix[10] << 16 | (uint32_t)prefix[11] << 24;
    }
    if (prefix[6] < 1 || prefix[6] > 3 || length > HEADER_MAX) return fail(words, "it has a header of an unknown form");
    char *const header = calloc(length + 1, 1);
    if (!header) return fail(words, "out of memory");
    bool good = fread(header, 1, length, a->file) == length || fail(words, "it ends inside its header");
    const char *const dtype = value_of(header, "'descr'"), *const order = value_of(header, "'fortran_order'"),
                     *const shape = value_of(header, "'shape'");
    if (good && (!dtype || !order || !shape)) good = fail(words, "its header has not descr, fortran_order and shape");
    if (good && strncmp(order, "False", 5) != 0) good = fail(words, "it is in Fortran's order");
    good = good && read_dtype(a, dtype, words) && read_shape(a, shape, words);
    free(header);
    return good;
}

static bool check_size(npy *a, char words[NPY_WORDS])
{
    uint64_t bytes;
    const off_t begin = ftello(a->file);
    if (begin < 0 || fseeko(a->file, 0, SEEK_END) || __builtin_mul_overflow(a->count, (uint64_t)a->item_bytes, &bytes))
        return fail(words, "its size is not what its header says");
    const off_t end = ftello(a->file);
    if (end < begin || (uint64_t)(end - begin) != bytes) return fail(words, "its size is not what its header says: it was cut");
    return fseeko(a->file, begin, SEEK_SET) == 0 || fail(words, "it cannot be read");
}

bool npy_open(npy *array, const char *path, char words[NPY_WORDS])
{
    *array = (npy){.file = fopen(path, "rb")};
    if (!array->file) return fail(words, "it cannot be opened");
    if (read_header(array, words) && check_size(array, words)) return true;
    npy_close(array);
    return false;
}

void npy_close(npy *array)
{
    if (array->file) fclose(array->file);
    array->file = NULL;
}

size_t npy_read(npy *array, void *items, size_t most)
{
    return fread(items, array->item_bytes, most, array->file);
}

/* --- words --- */

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    double value = (bits & 1023) | (exponent ? 1024 : 0);
    if (exponent == 31) value = bits & 1023 ? (double)NAN : (double)INFINITY;
    for (int e = exponent ? exponent : 1; exponent != 31 && e < 25; e++) value /= 2;
    for (int e = exponent; exponent != 31 && e > 25; e--) value *= 2;
    return bits >> 15 ? -value : value;
}

static double float_value(const void *item, size_t item_bytes)
{
    float single;
    double value;
    uint16_t half;
    memcpy(&half, item, sizeof half);
    if (item_bytes == 2) return half_value(half);
    memcpy(&single, item, sizeof single);
    if (item_bytes == 4) return (double)single;
    memcpy(&value, item, sizeof value);
    return value;
}

void npy_text(const npy *array, const void *item, bool bfloat16, char text[40])
{
    uint64_t bits = 0;
    memcpy(&bits, item, array->item_bytes); /* little-endian, as the machines that this runs on */
    if (bfloat16) {
        const uint32_t wide = (uint32_t)bits << 16;
        snprintf(text, 40, "%.9g", float_value(&wide, 4));
    } else if (array->kind == 'f') {
        snprintf(text, 40, "%.*g", array->item_bytes == 8 ? 17 : 9, float_value(item, array->item_bytes));
    } else if (array->kind == 'i') {
        const unsigned shift = 64 - 8 * (unsigned)array->item_bytes;
        snprintf(text, 40, "%" PRId64, (int64_t)(bits << shift) >> shift);
    } else {
        snprintf(text, 40, "%" PRIu64, bits);
    }
}

static void list(char text[200], const uint64_t *number, int count)
{
    size_t at = strlen(text);
    for (int d = 0; d < count; d++) at += (size_t)snprintf(text + at, 200 - at, "%s%" PRIu64, d ? ", " : "[", number[d]);
    snprintf(text + at, 200 - at, count ? "]" : "[]");
}

void npy_form_text(const npy *array, char text[200])
{
    const char *const kind = array->kind == 'b' ? "bool" : array->kind == 'i' ? "int" : array->kind == 'u' ? "uint" : "float";
    snprintf(text, 200, "%s%zu ", kind, array->item_bytes * 8);
    list(text, array->shape, array->ndim);
}

void npy_place_text(const npy *array, uint64_t at, char text[200])
{
    uint64_t index[NPY_DIMS_MAX] = {0};
    for (int d = array->ndim; d-- > 0;) {
        index[d] = at % array->shape[d];
        at /= array->shape[d];
    }
    text[0] = 0;
    list(text, index, array->ndim);
}
