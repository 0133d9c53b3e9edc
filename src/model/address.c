#include "model/address.h"

#include "base/alloc.h"

#include <stdio.h>
#include <strings.h>

void rlm_address_deinit(struct rlm_address *a)
{
    free(a->chat_url);
    free(a->models_url);
    free(a->shown);
    free(a->server);
    free(a->password);
    *a = (struct rlm_address){0};
}

/* The pieces of a URL; they point into it. */
struct pieces {
    const char *scheme;
    rlm_str user;      /* "user:password@", or empty */
    rlm_str authority; /* host and port */
    rlm_str path;      /* "/..." or empty, without trailing slashes */
    rlm_str query;     /* "?..." or empty */
};

static int bad(rlm_error **err, const char *why)
{
    /* The URL itself is not shown: it may hold a password where nobody expects one. */
    return rlm_error_set(err, RLM_E_INVAL,
                         "the base URL %s; it should look like http://127.0.0.1:8080/v1", why);
}

static bool has_blank(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text <= ' ' || *text == 0x7f) {
            return true;
        }
    }
    return false;
}

static rlm_str without_slashes(rlm_str path)
{
    while (path.len && path.ptr[path.len - 1] == '/') {
        path.len--;
    }
    return path;
}

static int split(const char *url, struct pieces *p, rlm_error **err)
{
    if (has_blank(url)) {
        return bad(err, "contains a blank or a control character");
    }
    const char *rest;
    if (strncasecmp(url, "https://", 8) == 0) {
        p->scheme = "https";
        rest = url + 8;
    } else if (strncasecmp(url, "http://", 7) == 0) {
        p->scheme = "http";
        rest = url + 7;
    } else {
        return bad(err, "does not start with http:// or https://");
    }
    size_t authority_len = strcspn(rest, "/?#");
    rlm_str authority = {rest, authority_len};
    const char *at = memrchr(rest, '@', authority_len);
    size_t user_len = at ? (size_t)(at - rest) + 1 : 0;
    p->user = rlm_str_sub(authority, 0, user_len);
    p->authority = rlm_str_sub(authority, user_len, authority_len);
    if (p->authority.len == 0 || p->authority.ptr[0] == ':') {
        return bad(err, "names no host");
    }
    const char *path = rest + authority_len;
    size_t path_len = strcspn(path, "?#");
    p->path = without_slashes((rlm_str){path, path_len});
    p->query = (rlm_str){path + path_len, strcspn(path + path_len, "#")};
    return 0;
}

static void strip_suffix(struct pieces *p, const struct rlm_dialect *dialect)
{
    for (const char *const *suffix = dialect->base_suffixes; *suffix; suffix++) {
        size_t len = strlen(*suffix);
        if (p->path.len >= len && memcmp(p->path.ptr + p->path.len - len, *suffix, len) == 0) {
            p->path.len -= len;
            p->path = without_slashes(p->path);
        }
    }
}

/* Host without port and brackets, in lower case. */
static void host_of(rlm_str authority, char *ret_host, size_t size)
{
    const char *end = authority.ptr + authority.len;
    const char *from = authority.ptr;
    if (*from == '[') {
        from++;
        const char *close = memchr(from, ']', (size_t)(end - from));
        end = close ? close : end;
    } else {
        const char *colon = memchr(from, ':', authority.len);
        end = colon ? colon : end;
    }
    size_t len = 0;
    for (; from < end && len + 1 < size; from++) {
        ret_host[len++] = (char)(*from >= 'A' && *from <= 'Z' ? *from + 32 : *from);
    }
    ret_host[len] = '\0';
}

static const char *port_of(rlm_str authority, const char *scheme)
{
    const char *bracket = memchr(authority.ptr, ']', authority.len);
    const char *from = bracket ? bracket : authority.ptr;
    const char *colon = memchr(from, ':', (size_t)(authority.ptr + authority.len - from));
    if (colon && colon + 1 < authority.ptr + authority.len) {
        return colon + 1;
    }
    return strcmp(scheme, "https") == 0 ? "443" : "80";
}

static bool is_loopback(const char *host)
{
    size_t len = strlen(host);
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0 || (len > 10 && strcmp(host + len - 10, ".localhost") == 0);
}

static char *make_url(const struct pieces *p, const char *path)
{
    char *url = NULL;
    int n = asprintf(&url, "%s://%.*s%.*s%.*s%s%.*s", p->scheme, RLM_FMT(p->user),
                     RLM_FMT(p->authority), RLM_FMT(p->path), path, RLM_FMT(p->query));
    return n < 0 ? NULL : url;
}

int rlm_address_parse(const char *base_url,
                      const struct rlm_dialect *dialect,
                      struct rlm_address *ret_address,
                      rlm_error **err)
{
    struct pieces p = {0};
    int r = split(base_url && *base_url ? base_url : dialect->default_base_url, &p, err);
    if (r < 0) {
        return r;
    }
    strip_suffix(&p, dialect);
    char host[256];
    host_of(p.authority, host, sizeof host);
    struct rlm_address a = {
        .chat_url = make_url(&p, dialect->chat_path),
        .models_url = make_url(&p, dialect->models_path),
        .loopback = is_loopback(host),
        .openai = strcmp(host, "api.openai.com") == 0,
    };
    const char *port = port_of(p.authority, p.scheme);
    if (asprintf(&a.shown, "%s://%.*s%.*s", p.scheme, RLM_FMT(p.authority), RLM_FMT(p.path)) < 0) {
        a.shown = NULL;
    }
    if (asprintf(&a.server, "%s://%s:%.*s", p.scheme, host, (int)strspn(port, "0123456789"), port) <
        0) {
        a.server = NULL;
    }
    bool complete = a.chat_url && a.models_url && a.shown && a.server;
    if (p.user.len) {
        const char *colon = memchr(p.user.ptr, ':', p.user.len);
        const char *from = colon ? colon + 1 : p.user.ptr;
        a.password = rlm_strndup(from, (size_t)(p.user.ptr + p.user.len - 1 - from));
        complete = complete && a.password;
    }
    if (!complete) {
        rlm_address_deinit(&a);
        return rlm_error_nomem(err);
    }
    *ret_address = a;
    return 0;
}
