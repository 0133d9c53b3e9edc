/* What durability costs, side by side with what cannot be avoided.
 *
 *     bench_journal [DIRECTORY]     (default: the current one; its file system is what is measured)
 *
 * Prints: an append of a record with 500 bytes beside a bare write(2) of the same bytes; the time and
 * the memory of loading a run of 50,000 nodes; the cost of an append (graph and journal) as the run
 * grows; a file imported as a blob beside copying it and hashing it.
 */
#include "base/hash.h"
#include "base/loop.h"
#include "graph/record.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { APPENDS = 100000, NODES = 50000, PAYLOAD = 500, ROUNDS = 5 };

static const char *directory = ".";
static char path[4096];

static void die(const char *what, rlm_error *err)
{
    fprintf(stderr, "%s: %s\n", what, rlm_error_message(err));
    exit(1);
}

static const char *path_of(const char *name)
{
    snprintf(path, sizeof path, "%s/bench-%ld-%s", directory, (long)getpid(), name);
    return path;
}

static void remove_run(const char *name)
{
    char file[4200];
    snprintf(file, sizeof file, "%s/journal", path_of(name));
    unlink(file);
    snprintf(file, sizeof file, "%s/blobs", path_of(name));
    rmdir(file);
    rmdir(path_of(name));
}

static rlm_journal *new_run(const char *name)
{
    rlm_journal *j = NULL;
    rlm_error *err = NULL;
    if (rlm_journal_create(NULL, path_of(name), NULL, &j, &err) < 0) {
        die("creating a run", err);
    }
    return j;
}

static double time_writes(const char *bytes)
{
    int fd = open(path_of("plain"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint64_t start = rlm_now_us();
    for (int i = 0; i < APPENDS; i++) {
        if (write(fd, bytes, PAYLOAD + 9) != PAYLOAD + 9) {
            die("writing", NULL);
        }
    }
    double us = (double)(rlm_now_us() - start) / APPENDS;
    close(fd);
    unlink(path_of("plain"));
    return us;
}

static double time_appends(const char *bytes)
{
    rlm_journal *j = new_run("append");
    rlm_error *err = NULL;
    uint64_t start = rlm_now_us();
    for (int i = 0; i < APPENDS; i++) {
        if (rlm_journal_append(j, RLM_RECORD_NODE, (rlm_str){bytes, PAYLOAD}, &err) < 0) {
            die("appending", err);
        }
    }
    double us = (double)(rlm_now_us() - start) / APPENDS;
    rlm_journal_close(j);
    remove_run("append");
    return us;
}

static void bench_append(void)
{
    char bytes[PAYLOAD + 9];
    double append = 1e9, plain = 1e9;
    memset(bytes, 'x', sizeof bytes);
    for (int i = 0; i < ROUNDS; i++) {
        double us = time_writes(bytes);
        plain = us < plain ? us : plain;
        us = time_appends(bytes);
        append = us < append ? us : append;
    }
    printf("append of a record with %d bytes   %.2f us; write(2) of the same bytes %.2f us\n",
           PAYLOAD, append, plain);
}

static rlm_graph *new_graph(void)
{
    struct rlm_graph_options options = {.query = RLM_STR("what?")};
    rlm_graph *g = NULL;
    rlm_error *err = NULL;
    if (rlm_graph_new(&options, &g, &err) < 0) {
        die("making a graph", err);
    }
    return g;
}

/* Nodes as a run has them: a reply, its code, its output. Returns the bytes of their texts. */
static size_t add_node(rlm_journal *j, rlm_graph *g, int number)
{
    char reply[400], code[300], output[200];
    const struct rlm_node *kept;
    rlm_error *err = NULL;
    int code_len = snprintf(code, sizeof code, "x%d = INPUTS[\"corpus\"][%d:]\nprint(len(x))%150s",
                            number, number, "#");
    int reply_len = snprintf(reply, sizeof reply, "I look at it.\n```repl\n%s\n```\n", code);
    int output_len = snprintf(output, sizeof output, "%d\n%100s", number, "\n");
    struct rlm_node node = {.type = (enum rlm_node_type)(RLM_LLM_OUTPUT + number % 3)};
    size_t text = 0;
    if (node.type == RLM_LLM_OUTPUT) {
        node.content = (rlm_str){reply, (size_t)reply_len};
        node.code = (rlm_str){code, (size_t)code_len};
        node.model = RLM_STR("some-model");
        node.usage = (struct rlm_usage){1, 1000, 900, 100, 12345, 0};
        text = node.content.len + node.code.len;
    } else if (node.type == RLM_EXEC_ACTION) {
        node.code = (rlm_str){code, (size_t)code_len};
        text = node.code.len;
    } else {
        node.content = node.output = (rlm_str){output, (size_t)output_len};
        text = node.content.len;
    }
    if (rlm_graph_append(g, &node, &kept, &err) < 0 || rlm_record_node(j, g, kept, &err) < 0) {
        die("appending a node", err);
    }
    return text;
}

static void bench_load(void)
{
    rlm_journal *j = new_run("load");
    rlm_graph *g = new_graph();
    rlm_error *err = NULL;
    size_t text = 0;
    if (rlm_record_run(j, g, RLM_STR("{}"), &err) < 0) {
        die("starting a run", err);
    }
    for (int i = 0; i < NODES; i++) {
        text += add_node(j, g, i);
    }
    uint64_t size = rlm_journal_disk_bytes(j);
    rlm_journal_close(j);
    rlm_graph_free(g);
    double best_ms = 1e9;
    size_t memory = 0;
    for (int i = 0; i < ROUNDS; i++) {
        malloc_trim(0);
        struct mallinfo2 before = mallinfo2();
        uint64_t start = rlm_now_us();
        if (rlm_graph_load(path_of("load"), &g, NULL, &err) < 0) {
            die("loading", err);
        }
        double ms = (double)(rlm_now_us() - start) / 1000;
        best_ms = ms < best_ms ? ms : best_ms;
        struct mallinfo2 after = mallinfo2();
        memory = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        rlm_graph_free(g);
    }
    printf("load of %d nodes (%.1f MB)       %.0f ms; %.0f bytes a node, of them text %.0f\n",
           NODES, (double)size / 1e6, best_ms, (double)memory / NODES, (double)text / NODES);
    remove_run("load");
}

static void bench_growth(void)
{
    rlm_journal *j = new_run("growth");
    rlm_graph *g = new_graph();
    int at[] = {1000, 10000, 100000}, number = 0;
    printf("append of a node, graph and journal");
    for (int i = 0; i < 3; i++) {
        for (; number < at[i]; number++) {
            add_node(j, g, number);
        }
        enum { SAMPLE = 3000 };
        double best = 1e9;
        for (int round = 0; round < 3; round++) {
            uint64_t start = rlm_now_us();
            for (int n = 0; n < SAMPLE; n++) {
                add_node(j, g, n);
            }
            double us = (double)(rlm_now_us() - start) / SAMPLE;
            best = us < best ? us : best;
        }
        printf("  %.2f us at %d nodes", best, at[i]);
    }
    printf("\n");
    rlm_journal_close(j);
    rlm_graph_free(g);
    remove_run("growth");
}

/* ---- importing ------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 20, FILE_CHUNKS = 1024 };

static void make_file(const char *name)
{
    static char chunk[CHUNK];
    uint32_t state = 1;
    int fd = open(path_of(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < FILE_CHUNKS; i++) {
        for (int k = 0; k < CHUNK; k++) {
            state = state * 1103515245 + 12345;
            chunk[k] = (char)(' ' + (state >> 16) % 95);
        }
        if (write(fd, chunk, CHUNK) != CHUNK) {
            die("writing the file to import (it has 1 GiB)", NULL);
        }
    }
    close(fd);
}

static double time_hash(const char *name)
{
    static char chunk[CHUNK];
    char hex[RLM_SHA256_HEX + 1];
    rlm_sha256 *h = rlm_sha256_new();
    int fd = open(path_of(name), O_RDONLY);
    uint64_t start = rlm_now_us();
    for (ssize_t n; (n = read(fd, chunk, sizeof chunk)) > 0;) {
        rlm_sha256_add(h, chunk, (size_t)n);
    }
    rlm_sha256_hex(h, hex);
    double s = (double)(rlm_now_us() - start) / 1e6;
    rlm_sha256_free(h);
    close(fd);
    return s;
}

static double time_copy(const char *name)
{
    char command[9000], from[4096];
    snprintf(from, sizeof from, "%s", path_of(name));
    snprintf(command, sizeof command, "cp --reflink=never '%s' '%s'", from, path_of("copy"));
    uint64_t start = rlm_now_us();
    if (system(command) != 0) {
        die("copying", NULL);
    }
    double s = (double)(rlm_now_us() - start) / 1e6;
    unlink(path_of("copy"));
    return s;
}

static double time_import(const char *name)
{
    rlm_error *err = NULL;
    rlm_blobs *b;
    struct rlm_blob facts;
    char file[9000];
    int fd = open(path_of(name), O_RDONLY);
    if (rlm_blobs_open(path_of("blobs"), &b, &err) < 0) {
        die("opening a store", err);
    }
    uint64_t start = rlm_now_us();
    if (rlm_blobs_import(b, fd, RLM_BLOB_AUTO, NULL, &facts, NULL, &err) < 0) {
        die("importing", err);
    }
    double s = (double)(rlm_now_us() - start) / 1e6;
    close(fd);
    rlm_blobs_free(b);
    snprintf(file, sizeof file, "%s/%s", path_of("blobs"), facts.id);
    unlink(file);
    rmdir(path_of("blobs"));
    return s;
}

static void bench_import(void)
{
    double import = 1e9, copy = 1e9, hash = 1e9;
    make_file("import");
    for (int i = 0; i < 3; i++) {
        double s = time_copy("import");
        copy = s < copy ? s : copy;
        s = time_hash("import");
        hash = s < hash ? s : hash;
        s = time_import("import");
        import = s < import ? s : import;
    }
    unlink(path_of("import"));
    printf("import of a file of 1 GiB           %.2f s; cp %.2f s, SHA-256 %.2f s\n", import, copy,
           hash);
}

int main(int argc, char **argv)
{
    directory = argc > 1 ? argv[1] : ".";
    bench_append();
    bench_load();
    bench_growth();
    bench_import();
    return 0;
}
