/* Any bytes as what the Python project saves: graph.json, agent.json of the root and of a child, and
 * session.jsonl, with a NUL between them. */
#include "graph/saved.h"

#include "fuzz.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 4 };

static const char *const names[FILES] = {"graph.json", "agents/root/agent.json",
                                         "agents/root/child/agent.json",
                                         "agents/root/session.jsonl"};
static const char *const directories[] = {"agents", "agents/root", "agents/root/child"};

static const char *place(const char *directory, const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char directory[] = "/tmp/fuzz-saved-XXXXXX";
    REQUIRE(mkdtemp(directory));
    for (int i = 0; i < 3; i++) {
        REQUIRE(mkdir(place(directory, directories[i]), 0700) == 0);
    }
    for (int i = 0; i < FILES; i++) {
        const uint8_t *end = size && i + 1 < FILES ? memchr(data, 0, size) : NULL;
        size_t len = end ? (size_t)(end - data) : size;
        FILE *file = fopen(place(directory, names[i]), "wb");
        REQUIRE(file && fwrite(data, 1, len, file) == len && fclose(file) == 0);
        data += len + (end != NULL);
        size -= len + (end != NULL);
    }
    rlm_graph *g = NULL;
    char *note = NULL;
    rlm_error *err = NULL;
    REQUIRE(rlm_saved_is(directory));
    int r = rlm_graph_load(directory, &g, &note, &err);
    REQUIRE((r < 0) == (err != NULL) && (r == 0) == (g != NULL));
    rlm_graph_free(g);
    free(note);
    rlm_error_free(err);
    for (int i = 0; i < FILES; i++) {
        unlink(place(directory, names[i]));
    }
    for (int i = 2; i >= 0; i--) {
        rmdir(place(directory, directories[i]));
    }
    REQUIRE(rmdir(directory) == 0);
    return 0;
}
