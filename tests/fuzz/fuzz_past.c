/* The past of a run, from a journal of a stranger's: records whose frames are good and whose payloads say
 * anything. The bytes are lines "KIND PAYLOAD" with the kind as a letter from 'A' on; from them a journal
 * is framed, and loaded as resume and replay load it. */
#include "fuzz.h"

#include "flow/past.h"
#include "graph/journal_scan.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void frame(FILE *f, uint64_t *offset, int kind, rlm_str payload)
{
    uint8_t header[RLM_RECORD_HEADER_BYTES];
    rlm_record_frame((enum rlm_record_kind)kind, payload, *offset, header);
    if (fwrite(header, 1, sizeof header, f) != sizeof header ||
        fwrite(payload.ptr, 1, payload.len, f) != payload.len) {
        abort();
    }
    *offset += sizeof header + payload.len;
}

static void write_journal(const char *path, const uint8_t *data, size_t size)
{
    static const char magic[RLM_JOURNAL_MAGIC_BYTES] = "rlmflow\x01";
    uint64_t offset = sizeof magic;
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(magic, 1, sizeof magic, f) != sizeof magic) {
        perror(path);
        abort();
    }
    while (size) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t len = end ? (size_t)(end - data) : size;
        int kind = len ? data[0] - 'A' + 1 : 0;
        if (len >= 2 && kind > 0 && kind < RLM_RECORD_KIND_LIMIT) {
            frame(f, &offset, kind, (rlm_str){(const char *)data + 2, len - 2});
        }
        size -= end ? len + 1 : len;
        data += end ? len + 1 : len;
    }
    fclose(f);
}

/* What resume and replay take for granted of a past. */
static void check_agent(struct rlm_past_run *all, rlm_graph *g)
{
    struct rlm_past *past = rlm_past_take(all, g);
    if (!past) {
        return;
    }
    struct rlm_past_cell **cells = NULL;
    size_t n = 0;
    fuzz_require(past->graph == g, "the past of another agent");
    if (rlm_past_namespace(past, &cells, &n, NULL) == 0) {
        for (size_t i = 0; i < n; i++) {
            fuzz_require(cells[i]->end && !cells[i]->broken, "a cell that is in no namespace");
        }
        free(cells);
    }
    const struct rlm_past_cell *open = rlm_past_in_flight(past);
    fuzz_require(!open || !open->end, "a cell in flight that has an end");
    for (size_t i = 0; i < past->cells.len; i++) {
        const struct rlm_past_cell *cell = past->cells.items[i];
        for (size_t k = 0; k < cell->deliveries.len; k++) {
            const struct rlm_past_delivery *d = &cell->deliveries.items[k];
            fuzz_require(d->calls_before <= cell->calls.len, "more calls than were made");
            for (size_t c = 0; c < d->n_calls; c++) {
                fuzz_require(d->calls[c]->delivered, "a delivery that was none");
            }
        }
        for (size_t k = 0; k < cell->calls.len; k++) {
            struct rlm_call_result r = rlm_past_result(cell->calls.items[k]);
            fuzz_require(!r.error_type || *r.error_type, "an error without a type");
        }
    }
    rlm_past_agent_free(past);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char directory[64], journal[80], blobs[80];
    if (size > 60000) {
        return 0;
    }
    if (!directory[0]) {
        snprintf(directory, sizeof directory, "/dev/shm/rlm-fuzz-past-%ld", (long)getpid());
        snprintf(journal, sizeof journal, "%s/journal", directory);
        snprintf(blobs, sizeof blobs, "%s/blobs", directory);
    }
    mkdir(directory, 0700);
    mkdir(blobs, 0700);
    write_journal(journal, data, size);
    rlm_blobs *known = NULL;
    rlm_error *err = NULL;
    struct rlm_past_run *past = NULL;
    struct rlm_journal_damage damage = {.offset = -1};
    REQUIRE(rlm_blobs_open_to_view(blobs, &known, &err) == 0);
    int r = rlm_past_load(directory, known, true, &past, &damage, &err);
    fuzz_require((r < 0) == (err != NULL), "an error is set if and only if it failed");
    if (r == 0) {
        REQUIRE(past->root && past->drives.len > 0);
        for (rlm_graph *g = past->root; g; g = rlm_graph_next(past->root, g)) {
            check_agent(past, g);
        }
        rlm_past_free(past);
    }
    rlm_error_free(err);
    rlm_blobs_free(known);
    unlink(journal);
    rmdir(blobs);
    rmdir(directory);
    return 0;
}
