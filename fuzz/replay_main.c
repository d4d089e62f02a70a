/* replay_main.c - a fuzz target as a plain program: runs it once over each file that the arguments name, folders opened.
 *
 * Each input lies in memory of exactly its size, so that a sanitizer sees a read past its end.  No input at all is a
 * failure: a corpus that was lost must not pass. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long inputs;

static int fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    return 1;
}

static int replay_file(const char *path, size_t size)
{
    FILE *const file = fopen(path, "rb");
    if (!file) return fail(path, "cannot be opened");
    uint8_t *const data = malloc(size ? size : 1);
    const int is_read = data && fread(data, 1, size, file) == size;
    fclose(file);
    if (is_read) {
        (void)LLVMFuzzerTestOneInput(data, size);
        inputs++;
    }
    free(data);
    return is_read ? 0 : fail(path, "cannot be read");
}

static int replay(const char *path)
{
    struct stat status;
    if (stat(path, &status)) return fail(path, "does not exist");
    if (!S_ISDIR(status.st_mode)) return replay_file(path, (size_t)status.st_size);
    DIR *const folder = opendir(path);
    if (!folder) return fail(path, "cannot be opened");
    int failed = 0;
    for (const struct dirent *entry; !failed && (entry = readdir(folder));) {
        char inner[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        failed = replay(inner);
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (replay(argv[i])) return 1;
    if (inputs == 0) return fail(argc > 1 ? argv[1] : "no arguments", "no input found");
    printf("%lu inputs replayed\n", inputs);
    return 0;
}
