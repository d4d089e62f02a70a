/* file.c - whole files, mappings, atomic saves. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"

static int open_reading(const char *path)
{
    if (stk_fault(STK_FAULT_FILE_OPEN)) {
        errno = EACCES;
        return -1;
    }
    /* Not to wait for a writer when the path is a pipe. */
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static stk_status open_regular(int *fd, struct stat *info, const char *path, stk_error *err)
{
    stk_status status;
    *fd = open_reading(path);
    if (*fd < 0) status = stk_fail_errno(err, "cannot open the file");
    else if (fstat(*fd, info)) status = stk_fail_errno(err, "cannot look at the file");
    else if (!S_ISREG(info->st_mode)) status = stk_fail(err, STK_ERR_SYSTEM, "not a regular file");
    else return STK_OK;
    stk_error_file(err, path, 0);
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return status;
}

stk_status stk_file_read(char **data, size_t *size_bytes, const char *path, size_t max_bytes, stk_tag tag, stk_error *err)
{
    *data = NULL;
    *size_bytes = 0;
    int fd;
    struct stat info;
    STK_TRY(open_regular(&fd, &info, path, err));
    if ((uint64_t)info.st_size > max_bytes) {
        close(fd);
        return stk_fail_at(err, STK_ERR_MEDIA_LIMIT, path, 0, "%lld bytes, and the limit is %zu", (long long)info.st_size,
                           max_bytes);
    }
    const size_t want_bytes = (size_t)info.st_size;
    char *const bytes = stk_alloc(tag, want_bytes + 1);
    stk_status status = STK_OK;
    size_t have_bytes = 0;
    if (!bytes) status = stk_fail_at(err, STK_ERR_NOMEM, path, 0, "out of memory: %zu bytes", want_bytes);
    while (status == STK_OK && have_bytes < want_bytes) {
        const ssize_t got = stk_fault(STK_FAULT_FILE_READ) ? (errno = EIO, -1)
                                                           : read(fd, bytes + have_bytes, want_bytes - have_bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = stk_fail_errno(err, "cannot read the file");
            stk_error_file(err, path, 0);
        } else if (got == 0 || stk_fault(STK_FAULT_FILE_READ_SHORT)) {
            status = stk_fail_at(err, STK_ERR_SYSTEM, path, 0, "the file became shorter while it was read");
        } else {
            have_bytes += (size_t)got;
        }
    }
    close(fd);
    if (status < 0) {
        stk_free(bytes);
        return status;
    }
    *data = bytes;
    *size_bytes = want_bytes;
    return STK_OK;
}

stk_status stk_map_open(stk_map *map, const char *path, stk_error *err)
{
    *map = (stk_map){0};
    int fd;
    struct stat info;
    STK_TRY(open_regular(&fd, &info, path, err));
    map->mtime_ns = (int64_t)info.st_mtim.tv_sec * STK_S + info.st_mtim.tv_nsec;
    if (info.st_size == 0) {
        close(fd);
        return STK_OK;
    }
    void *const data = stk_fault(STK_FAULT_MMAP) ? (errno = ENOMEM, MAP_FAILED)
                                                 : mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    stk_status status = STK_OK;
    if (data == MAP_FAILED) {
        status = stk_fail_errno(err, "cannot map the file");
        stk_error_file(err, path, 0);
    } else {
        map->data = data;
        map->size_bytes = (size_t)info.st_size;
    }
    close(fd);
    return status;
}

void stk_map_close(stk_map *map)
{
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size_bytes);
    *map = (stk_map){0};
}

/* --- saving --- */

static stk_status fail_saving(stk_save *save, stk_error *err, const char *step)
{
    stk_fail_errno(err, "cannot %s", step);
    const int code = errno;
    stk_error_file(err, save->path, 0);
    stk_save_abandon(save);
    errno = code;
    return STK_ERR_SYSTEM;
}

stk_status stk_save_open(stk_save *save, const char *path, stk_error *err)
{
    save->fd = -1;
    save->temporary[0] = 0;
    const size_t length = strlen(path);
    if (length + sizeof ".tmp-XXXXXX" > sizeof save->path)
        return stk_fail_at(err, STK_ERR_SYSTEM, path, 0, "the path is too long");
    memcpy(save->path, path, length + 1);
    snprintf(save->temporary, sizeof save->temporary, "%.4080s.tmp-XXXXXX", path);
    save->fd = mkostemp(save->temporary, O_CLOEXEC);
    if (save->fd < 0) {
        save->temporary[0] = 0;
        return fail_saving(save, err, "create a temporary file in the folder");
    }
    fchmod(save->fd, 0644);
    return STK_OK;
}

stk_status stk_save_write(stk_save *save, const void *data, size_t size_bytes, stk_error *err)
{
    const uint8_t *at = data;
    while (size_bytes) {
        const ssize_t put = stk_fault(STK_FAULT_FILE_WRITE) ? (errno = ENOSPC, -1) : write(save->fd, at, size_bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_saving(save, err, "write the file");
        at += put;
        size_bytes -= (size_t)put;
    }
    return STK_OK;
}

stk_status stk_save_commit(stk_save *save, stk_error *err)
{
    if (stk_fault(STK_FAULT_FSYNC) ? (errno = EIO, 1) : fsync(save->fd)) return fail_saving(save, err, "sync the file");
    const int closed = close(save->fd);
    save->fd = -1;
    if (closed) return fail_saving(save, err, "close the file");
    if (stk_fault(STK_FAULT_RENAME) ? (errno = EIO, 1) : rename(save->temporary, save->path))
        return fail_saving(save, err, "rename the temporary file");
    save->temporary[0] = 0;

    char folder[4096];
    STK_TRY(stk_path_folder(folder, sizeof folder, save->path, err));
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems refuse to sync a folder; the file itself is safe by now. */
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    return STK_OK;
}

void stk_save_abandon(stk_save *save)
{
    if (save->fd >= 0) close(save->fd);
    if (save->temporary[0]) unlink(save->temporary);
    save->fd = -1;
    save->temporary[0] = 0;
}

stk_status stk_file_save(const char *path, const void *data, size_t size_bytes, stk_error *err)
{
    stk_save save;
    STK_TRY(stk_save_open(&save, path, err));
    STK_TRY(stk_save_write(&save, data, size_bytes, err));
    return stk_save_commit(&save, err);
}

stk_status stk_path_join(char *out, size_t capacity, const char *folder, const char *name, stk_error *err)
{
    const int length = name[0] == '/' ? snprintf(out, capacity, "%s", name) : snprintf(out, capacity, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= capacity)
        return stk_fail_at(err, STK_ERR_SYSTEM, name, 0, "the path is longer than %zu bytes", capacity - 1);
    return STK_OK;
}

stk_status stk_path_folder(char *out, size_t capacity, const char *path, stk_error *err)
{
    const char *const slash = strrchr(path, '/');
    const size_t length = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= capacity) return stk_fail_at(err, STK_ERR_SYSTEM, path, 0, "the path is longer than %zu bytes", capacity - 1);
    memcpy(out, slash ? path : ".", length);
    out[length] = 0;
    return STK_OK;
}
