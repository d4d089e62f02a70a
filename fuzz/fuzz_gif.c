/* fuzz_gif.c - hostile bytes as a picture: no crash, no read past the end, an answer for everything. */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image(data, size, STK_FORMAT_GIF);
}
