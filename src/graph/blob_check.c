/* Whether a blob still holds what its name says. */
#include "graph/blob_store.h"

#include "base/alloc.h"

#include <errno.h>
#include <unistd.h>

enum { PIECE_BYTES = 512 * 1024 };

/* Closes the descriptor. */
static int hash_all(int fd, rlm_sha256 *hash)
{
    rlm_autofree char *piece = rlm_malloc(PIECE_BYTES);
    ssize_t n = piece ? 1 : -1;
    while (n > 0 || (n < 0 && piece && errno == EINTR)) {
        n = read(fd, piece, PIECE_BYTES);
        if (n > 0) {
            rlm_sha256_add(hash, piece, (size_t)n);
        }
    }
    int saved = piece ? errno : ENOMEM;
    close(fd);
    errno = saved;
    return n < 0 ? -1 : 0;
}

int rlm_blobs_check(rlm_blobs *b, rlm_str id, rlm_error **err)
{
    char found[RLM_SHA256_HEX + 1];
    int fd, r = rlm_blobs_open_content(b, id, &fd, err);
    if (r < 0) {
        return r;
    }
    rlm_sha256 *hash = rlm_sha256_new();
    if (!hash) {
        close(fd);
        return rlm_error_nomem(err);
    }
    if (hash_all(fd, hash) < 0) {
        r = rlm_error_set_errno(err, RLM_E_IO, errno, "reading blob %.*s", RLM_FMT(id));
    } else {
        rlm_sha256_hex(hash, found);
        r = rlm_str_is(id, found)
                ? 0
                : rlm_error_set(err, RLM_E_CORRUPT,
                                "blob %.*s is not what its name says: the file is damaged",
                                RLM_FMT(id));
    }
    rlm_sha256_free(hash);
    return r;
}
