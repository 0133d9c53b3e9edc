/* Any bytes as the pack of a run: refused without a trace, or a run that can be looked at and packed again,
 * and whose blobs are what their names say. */
#include "base/error.h"

#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char directory[] = "/tmp/fuzz-pack-XXXXXX", run[64], again[64], source[64];
    int fd = memfd_create("pack", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size && mkdtemp(directory));
    snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    snprintf(run, sizeof run, "%s/a.rlm", directory);
    snprintf(again, sizeof again, "%s/p", directory);
    rlm_error *err = NULL;
    int r = rlm_run_unpack(source, run, &err);
    REQUIRE((r < 0) == (err != NULL) && (access(run, F_OK) == 0) == (r == 0));
    rlm_error_free(err);
    if (r == 0) {
        struct rlm_run_glance g = RLM_RUN_GLANCE_INIT;
        REQUIRE(rlm_run_glance(run, &g, NULL) == 0);
        rlm_run_glance_deinit(&g);
        REQUIRE(rlm_run_pack(run, again, NULL) == 0 && unlink(again) == 0);
        REQUIRE(rlm_run_remove(run, NULL) == 0);
    }
    close(fd);
    REQUIRE(rmdir(directory) == 0); /* nothing was left in it */
    return 0;
}
