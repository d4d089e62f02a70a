/* version.c - what this build is made of. */
#include <jansson.h>
#include <stdio.h> /* before jpeglib.h, which needs it */

#include <jpeglib.h>
#include <png.h>
#include <stoker/metrics.h>

#include "base/cpu.h"

#define TEXT_OF(number) TEXT(number)
#define TEXT(number) #number

const char *stk_version(void)
{
    return STK_VERSION;
}

const char *stk_cpu(void)
{
    return stk_cpu_level_name(stk_cpu_detect());
}

const char *stk_libraries(void)
{
#ifdef LIBJPEG_TURBO_VERSION
    return "libjpeg-turbo " TEXT_OF(LIBJPEG_TURBO_VERSION) ", libpng " PNG_LIBPNG_VER_STRING ", jansson " JANSSON_VERSION;
#else
    return "libjpeg " TEXT_OF(JPEG_LIB_VERSION) ", libpng " PNG_LIBPNG_VER_STRING ", jansson " JANSSON_VERSION;
#endif
}
