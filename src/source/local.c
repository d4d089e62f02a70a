/* local.c - one read of a local file, with everything checked that a path of a stranger may name.
 *
 * Only regular files are read; a pipe does not block (O_NONBLOCK), a link does not lead out of the allowed folders.
 * Faults that come and go (a full descriptor table, a file server that restarts) are told apart from those that stay.
 *
 * Not here: trying again, and the pauses between (source.c). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "source/backend.h"

/* Small enough that a cancelled read of a large file ends soon. */
enum { PIECE_BYTES = 1 << 20 };

static bool comes_and_goes(int code)
{
    switch (code) {
    case EAGAIN: case EBUSY: case EINTR: case EIO: case EMFILE: case ENFILE: case ENOMEM: case ESTALE: case ETIMEDOUT:
    case EHOSTDOWN: case EHOSTUNREACH: case ENETUNREACH: case ECONNRESET: return true;
    default: return false;
    }
}

static stk_status fail_system(stk_request *request, const char *what)
{
    const int code = errno;
    stk_error *const err = &request->error;
    switch (code) {
    case EACCES: case EPERM:
        stk_fail_errno(err, "%s (make it readable for the user that runs this, folders included)", what);
        return STK_ERR_SYSTEM;
    case EMFILE:
        stk_fail_errno(err, "%s (raise the limit of open files: ulimit -n)", what);
        return STK_AGAIN;
    default:
        stk_fail_errno(err, "%s", what);
        return comes_and_goes(code) ? STK_AGAIN : STK_ERR_SYSTEM;
    }
}

static stk_status open_file(int *fd, stk_request *request)
{
    char path[PATH_MAX];
    const stk_str address = request->address;
    if (address.size_bytes == 0 || address.size_bytes >= sizeof path)
        return stk_fail(&request->error, STK_ERR_MEDIA_MISSING, "no file has a path of %zu bytes", address.size_bytes);
    if (memchr(address.data, 0, address.size_bytes))
        return stk_fail(&request->error, STK_ERR_MEDIA_MISSING, "no file has a NUL in its path");
    memcpy(path, address.data, address.size_bytes);
    path[address.size_bytes] = 0;

    *fd = stk_fault(STK_FAULT_FILE_OPEN) ? (errno = EMFILE, -1) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd >= 0) return STK_OK;
    switch (errno) {
    case ENOENT: case ENOTDIR: case ENAMETOOLONG: case ELOOP:
        (void)stk_fail_errno(&request->error, "the file does not exist");
        return request->error.status = STK_ERR_MEDIA_MISSING;
    case ENXIO: /* a socket */
        return stk_fail(&request->error, STK_ERR_MEDIA, "not a regular file");
    default: return fail_system(request, "cannot open the file");
    }
}

/* Where the open file really is: asked by descriptor, so that nothing can be put in its place meanwhile. */
static stk_status check_place(int fd, stk_request *request)
{
    char link[64], resolved[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, resolved, sizeof resolved - 1);
    if (length >= 0) {
        resolved[length] = 0;
    } else { /* no /proc */
        char path[PATH_MAX];
        memcpy(path, request->address.data, request->address.size_bytes);
        path[request->address.size_bytes] = 0;
        if (!realpath(path, resolved)) return fail_system(request, "cannot resolve the path");
    }
    if (stk_places_hold(request->places, resolved)) return STK_OK;
    char *const slash = strrchr(resolved, '/');
    if (slash && slash != resolved) *slash = 0;
    return stk_fail(&request->error, STK_ERR_MEDIA_DENIED, "outside the allowed folders: add allow: [\"%.180s\"]", resolved);
}

static stk_status read_open_file(int fd, stk_request *request)
{
    struct stat info;
    if (fstat(fd, &info)) return fail_system(request, "cannot look at the file");
    if (!S_ISREG(info.st_mode)) return stk_fail(&request->error, STK_ERR_MEDIA, "not a regular file");
    if (request->places) STK_TRY(check_place(fd, request));

    request->total_bytes = (uint64_t)info.st_size;
    const int64_t mtime_ns = (int64_t)info.st_mtim.tv_sec * STK_S + info.st_mtim.tv_nsec;
    request->mtime_ns = mtime_ns > 0 ? (uint64_t)mtime_ns : 0;
    const uint64_t left_bytes = request->total_bytes > request->offset ? request->total_bytes - request->offset : 0;
    const uint64_t want_bytes = request->size_bytes < left_bytes ? request->size_bytes : left_bytes;
    if (want_bytes > request->capacity_bytes)
        return stk_fail(&request->error, STK_ERR_MEDIA_LIMIT, "a file of %llu bytes, and there is room for %zu",
                        (unsigned long long)request->total_bytes, request->capacity_bytes);

    while (request->got_bytes < want_bytes) {
        if (stk_request_cancelled(request)) return stk_fail(&request->error, STK_ERR_INTERRUPTED, "cancelled");
        size_t piece_bytes = (size_t)(want_bytes - request->got_bytes);
        if (piece_bytes > PIECE_BYTES) piece_bytes = PIECE_BYTES;
        if (stk_fault(STK_FAULT_FILE_READ_SHORT)) piece_bytes = 1;
        const ssize_t got = stk_fault(STK_FAULT_FILE_READ)
                                ? (errno = EIO, -1)
                                : pread(fd, request->buffer + request->got_bytes, piece_bytes,
                                        (off_t)(request->offset + request->got_bytes));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_system(request, "cannot read the file");
        if (got == 0) { /* it became shorter since fstat: what came is what there is */
            request->total_bytes = request->offset + request->got_bytes;
            break;
        }
        request->got_bytes += (size_t)got;
    }
    return STK_OK;
}

stk_status stk_local_read(stk_request *request)
{
    int fd = -1;
    request->got_bytes = 0;
    request->total_bytes = request->mtime_ns = 0;
    stk_status status = open_file(&fd, request);
    if (status == STK_OK) status = read_open_file(fd, request);
    if (fd >= 0) close(fd);
    if (status != STK_OK) {
        char *const path = request->error.file;
        const size_t size = request->address.size_bytes;
        /* Cut at the front, as stk_error_file does; the address is not terminated. */
        const size_t kept = size < sizeof request->error.file ? size : sizeof request->error.file - 1;
        memcpy(path, request->address.data + size - kept, kept);
        path[kept] = 0;
        stk_blank_controls(path);
    }
    return status;
}
