#include "model/hub.h"

#include "base/alloc.h"

#include <pthread.h>

struct server {
    struct server *next;
    struct rlm_backoff backoff;
    char name[];
};

struct rlm_hub {
    rlm_loop *loop;
    unsigned references;
    struct server *servers;
    rlm_http *http;
    struct rlm_hub *next;
};

/* The one global of the layer: which loop has which hub. Loops of several threads may make models at
 * once, hence the lock; a hub itself is only touched by its loop's thread. */
static pthread_mutex_t hubs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rlm_hub *hubs;

rlm_hub *rlm_hub_ref(rlm_loop *loop)
{
    pthread_mutex_lock(&hubs_lock);
    struct rlm_hub *hub = hubs;
    while (hub && hub->loop != loop) {
        hub = hub->next;
    }
    if (hub) {
        hub->references++;
    } else if (RLM_NEW(hub)) {
        hub->loop = loop;
        hub->references = 1;
        hub->next = hubs;
        hubs = hub;
    }
    pthread_mutex_unlock(&hubs_lock);
    return hub;
}

void rlm_hub_unref(rlm_hub *hub)
{
    if (!hub) {
        return;
    }
    pthread_mutex_lock(&hubs_lock);
    bool last = --hub->references == 0;
    if (last) {
        struct rlm_hub **at = &hubs;
        while (*at != hub) {
            at = &(*at)->next;
        }
        *at = hub->next;
    }
    pthread_mutex_unlock(&hubs_lock);
    if (!last) {
        return;
    }
    for (struct server *s = hub->servers; s;) {
        struct server *next = s->next;
        free(s);
        s = next;
    }
    rlm_http_free(hub->http);
    free(hub);
}

int rlm_hub_http(rlm_hub *hub, rlm_http **ret_http, rlm_error **err)
{
    int r = hub->http ? 0 : rlm_http_new(hub->loop, &hub->http, err);
    if (r == 0) {
        *ret_http = hub->http;
    }
    return r;
}

struct rlm_backoff *rlm_hub_backoff(rlm_hub *hub, const char *server)
{
    for (struct server *s = hub->servers; s; s = s->next) {
        if (strcmp(s->name, server) == 0) {
            return &s->backoff;
        }
    }
    size_t len = strlen(server);
    struct server *made = rlm_calloc(1, sizeof *made + len + 1);
    if (!made) {
        return NULL;
    }
    memcpy(made->name, server, len);
    uint64_t seed;
    rlm_random(&seed, sizeof seed);
    rlm_backoff_init(&made->backoff, seed);
    made->next = hub->servers;
    hub->servers = made;
    return &made->backoff;
}
