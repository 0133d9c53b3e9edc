/* 500 model streams at once: the CPU time of the model layer beside a bare epoll and read loop over
 * the same bytes, in the same run.
 *
 * A server process sends one event to every stream at each tick, as models send tokens. The two
 * clients are processes of their own, so that their CPU time can be told apart.
 */
#include "model/model.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STREAMS = 500, EVENTS = 200, TICK_MS = 6 };

static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
static const char event[] =
    "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":"
    "1700000000,\"model\":\"some-model\",\"system_fingerprint\":\"fp_0123456789\",\"choices\":[{"
    "\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
static const char last[] =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":200}}\n\n"
    "data: [DONE]\n\n";

static void die(const char *what)
{
    perror(what);
    _exit(1);
}

static int listen_on_loopback(struct sockaddr_in *ret_address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof *ret_address;
    *ret_address = (struct sockaddr_in){.sin_family = AF_INET};
    ret_address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)ret_address, len) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (struct sockaddr *)ret_address, &len) < 0) {
        die("listening");
    }
    return fd;
}

/* ---- the server ---- */

static void send_all(int fd, const void *bytes, size_t len)
{
    if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len) {
        die("sending");
    }
}

/* All requests are read first, then the streams go on in step. */
static void serve(int listener)
{
    static char request[65536];
    static int fds[STREAMS];
    char chunk[1024];
    for (int i = 0; i < STREAMS; i++) {
        fds[i] = accept(listener, NULL, NULL);
        size_t len = 0;
        for (;;) {
            ssize_t got = fds[i] < 0 ? -1 : read(fds[i], request + len, sizeof request - 1 - len);
            if (got <= 0) {
                die("reading a request");
            }
            len += (size_t)got;
            request[len] = '\0';
            if (request[len - 1] == '}') { /* both clients end their bodies so */
                break;
            }
        }
        send_all(fds[i], head, sizeof head - 1);
    }
    int size = snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", sizeof event - 1, event);
    for (int n = 0; n < EVENTS; n++) {
        usleep(TICK_MS * 1000);
        for (int i = 0; i < STREAMS; i++) {
            send_all(fds[i], chunk, (size_t)size);
        }
    }
    size = snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n0\r\n\r\n", sizeof last - 1, last);
    for (int i = 0; i < STREAMS; i++) {
        send_all(fds[i], chunk, (size_t)size);
        close(fds[i]);
    }
}

/* ---- the bare client ---- */

static const char bare_request[] = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                                   "Content-Length: 2\r\n\r\n{}";

static void run_bare(const struct sockaddr_in *address)
{
    static char bytes[16384];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < STREAMS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        if (connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
            die("connecting");
        }
        send_all(fd, bare_request, sizeof bare_request - 1);
    }
    uint64_t received = 0;
    for (int open = STREAMS; open > 0;) {
        struct epoll_event events[1024];
        int n = epoll_wait(epoll, events, 1024, -1);
        for (int i = 0; i < n; i++) {
            ssize_t got = read(events[i].data.fd, bytes, sizeof bytes);
            if (got <= 0) {
                close(events[i].data.fd);
                open--;
            } else {
                received += (uint64_t)got;
            }
        }
    }
    if (received < (uint64_t)STREAMS * EVENTS * (sizeof event - 1)) {
        fprintf(stderr, "the bare client got too little\n");
        _exit(1);
    }
}

/* ---- the model layer ---- */

static size_t left;
static uint64_t deltas;

static void on_delta(void *arg, struct rlm_str text, uint64_t pieces)
{
    deltas++;
}

static void on_done(void *arg, const struct rlm_chat_reply *reply)
{
    left--;
    if (reply->text.len != EVENTS * strlen(" token") || !reply->usage_known) {
        fprintf(stderr, "a reply is not what was sent\n");
        _exit(1);
    }
}

static void on_failed(void *arg, const struct rlm_chat_failure *failure)
{
    fprintf(stderr, "%s\n", rlm_error_message(failure->error));
    _exit(1);
}

static void run_models(const struct sockaddr_in *address)
{
    static const struct rlm_chat_events events = {on_delta, on_done, on_failed};
    static rlm_chat *chats[STREAMS];
    char url[64];
    rlm_loop *loop;
    rlm_model *model;
    rlm_error *err = NULL;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1", ntohs(address->sin_port));
    struct rlm_model_options options = RLM_MODEL_OPTIONS_INIT;
    options.name = "some-model";
    options.base_url = url;
    struct rlm_message message = {RLM_USER, RLM_STR("question"), false};
    struct rlm_chat_request request = {&message, 1, 1000, "root", 1};
    if (rlm_loop_new(&loop, &err) < 0 || rlm_model_new(loop, &options, &model, &err) < 0) {
        die(rlm_error_message(err));
    }
    left = STREAMS;
    for (int i = 0; i < STREAMS; i++) {
        if (rlm_chat_start(model, &request, &events, NULL, &chats[i], &err) < 0) {
            die(rlm_error_message(err));
        }
    }
    rlm_loop_run(loop);
    if (left || deltas != (uint64_t)STREAMS * EVENTS) {
        fprintf(stderr, "%zu chats did not end, %llu deltas came\n", left,
                (unsigned long long)deltas);
        _exit(1);
    }
}

static double cpu_ms(void (*run)(const struct sockaddr_in *address))
{
    struct sockaddr_in address;
    int listener = listen_on_loopback(&address);
    pid_t server = fork();
    if (server == 0) {
        serve(listener);
        _exit(0);
    }
    pid_t client = fork();
    if (client == 0) {
        close(listener);
        run(&address);
        _exit(0);
    }
    close(listener);
    struct rusage usage;
    int status;
    if (server < 0 || client < 0 || wait4(client, &status, 0, &usage) < 0 || status != 0) {
        kill(server, SIGKILL);
        die("the client failed");
    }
    waitpid(server, &status, 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

int main(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    double bare_ms = cpu_ms(run_bare);
    double model_ms = cpu_ms(run_models);
    double events = (double)STREAMS * EVENTS;
    printf("%d streams, %.0f events of %zu bytes\n", STREAMS, events, sizeof event - 1);
    printf("bare epoll and read: %7.1f ms CPU, %.2f us an event\n", bare_ms,
           bare_ms * 1000 / events);
    printf("model layer:         %7.1f ms CPU, %.2f us an event\n", model_ms,
           model_ms * 1000 / events);
    printf("ratio: %.2f (aim: at most 3)\n", model_ms / bare_ms);
    return 0;
}
