/* png_out.c - an image as the model sees it, as a file that people can open. */
#include <png.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

bool write_png(const char *path, const uint8_t *rgb, uint32_t width_px, uint32_t height_px)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width_px, .height = height_px, .format = PNG_FORMAT_RGB};
    if (png_image_write_to_file(&image, path, 0, rgb, (png_int_32)(width_px * 3), NULL)) return true;
    fprintf(stderr, "stoker: %s: cannot write the image: %s\n", path, image.message);
    remove(path);
    return false;
}
