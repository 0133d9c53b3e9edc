/* Making a model that is behind an HTTP API: options are checked and copied. */
#include "base/alloc.h"
#include "model/price.h"
#include "model/remote_chat.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

static bool is_named(const char *header, const char *name)
{
    size_t len = strlen(name);
    return strncasecmp(header, name, len) == 0 && header[len] == ':';
}

static bool user_sets(const struct rlm_model_options *o, const char *header)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(header, ":"), header);
    for (const char *const *h = o->headers; h && *h; h++) {
        if (is_named(*h, name)) {
            return true;
        }
    }
    return false;
}

static bool add_text(struct remote_model *m, bool secret, const char *text)
{
    char *copy = rlm_strdup(text);
    char **slot = copy ? (secret ? rlm_vec_push(&m->secrets) : rlm_vec_push(&m->headers)) : NULL;
    if (!slot) {
        free(copy);
        return false;
    }
    *slot = copy;
    return true;
}

/* One of ours, unless the user sets it. */
static bool
add_header(struct remote_model *m, const struct rlm_model_options *o, const char *header)
{
    return user_sets(o, header) || add_text(m, false, header);
}

static bool has_control(const char *text)
{
    for (; *text; text++) {
        if (iscntrl((unsigned char)*text) && *text != '\t') {
            return true;
        }
    }
    return false;
}

static int add_key(struct remote_model *m, const struct rlm_model_options *o, rlm_error **err)
{
    if (!o->key || !*o->key) {
        return 0;
    }
    rlm_autofree char *key = rlm_strdup(o->key);
    if (!key) {
        return rlm_error_nomem(err);
    }
    size_t len = strlen(key);
    while (len && isspace((unsigned char)key[len - 1])) {
        key[--len] = '\0'; /* a file's last newline is easily taken along */
    }
    if (!len || has_control(key)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the key in %s is blank or contains a control "
                             "character",
                             m->dialect->key_variable);
    }
    rlm_autofree char *header = NULL;
    if (asprintf(&header, "%s%s", m->dialect->key_header, key) < 0) {
        header = NULL;
    }
    if (!header || !add_header(m, o, header) || !add_text(m, true, key)) {
        return rlm_error_nomem(err);
    }
    m->has_key = true;
    return 0;
}

static int
add_user_headers(struct remote_model *m, const struct rlm_model_options *o, rlm_error **err)
{
    for (const char *const *h = o->headers; h && *h; h++) {
        const char *colon = strchr(*h, ':');
        if (!colon || colon == *h || has_control(*h)) {
            /* Without its value: that may be a secret. */
            return rlm_error_set(
                err, RLM_E_INVAL,
                "the header \"%.*s\" is not of the form \"Name: value\" on one line",
                (int)strcspn(*h, ":\r\n"), *h);
        }
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        const char *blank = strchr(value, ' '); /* "Bearer KEY": the key alone may be echoed */
        if (!add_text(m, false, *h) || !add_text(m, true, value) ||
            (blank && !add_text(m, true, blank + 1))) {
            return rlm_error_nomem(err);
        }
    }
    return 0;
}

static int add_headers(struct remote_model *m, const struct rlm_model_options *o, rlm_error **err)
{
    bool complete = add_header(m, o, "Content-Type: application/json") &&
                    add_header(m, o,
                               m->stream ? "Accept: text/event-stream, application/json"
                                         : "Accept: application/json") &&
                    add_header(m, o, "User-Agent: rlmflow/" RLM_VERSION);
    for (const char *const *h = m->dialect->headers; complete && *h; h++) {
        complete = add_header(m, o, *h);
    }
    if (complete && m->address.password) {
        complete = add_text(m, true, m->address.password);
    }
    if (!complete) {
        return rlm_error_nomem(err);
    }
    int r = add_key(m, o, err);
    if (r == 0) {
        r = add_user_headers(m, o, err);
    }
    if (r == 0 && (!rlm_vec_push(&m->headers) || !rlm_vec_push(&m->secrets))) {
        return rlm_error_nomem(err); /* the NULLs at the ends */
    }
    return r;
}

static int parse_extra(struct remote_model *m, const char *body_json, rlm_error **err)
{
    if (!body_json || !*body_json) {
        return 0;
    }
    m->body_json = rlm_strdup(body_json);
    m->arena = rlm_arena_new(0);
    if (!m->body_json || !m->arena) {
        return rlm_error_nomem(err);
    }
    int r = rlm_json_parse(m->arena, rlm_str_of(m->body_json), &m->extra, err);
    if (r < 0) {
        return rlm_error_wrap(err, r, "the JSON added to each request's body");
    }
    if (!rlm_json_is(m->extra, RLM_JSON_OBJECT)) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the JSON added to each request's body must be an object");
    }
    return 0;
}

static bool copy_text(const char *text, char **ret_copy)
{
    *ret_copy = text && *text ? rlm_strdup(text) : NULL;
    return *ret_copy || !(text && *text);
}

static int set_up(struct remote_model *m, const struct rlm_model_options *o, rlm_error **err)
{
    int r = rlm_address_parse(o->base_url, m->dialect, &m->address, err);
    if (r < 0) {
        return r;
    }
    m->stream = !o->no_stream;
    m->temperature = o->temperature;
    m->max_output_tokens = o->max_output_tokens;
    m->max_completion_tokens = m->address.openai;
    m->connect_timeout_ms = o->connect_timeout_ms;
    m->first_byte_timeout_ms = o->first_byte_timeout_ms;
    m->idle_timeout_ms = o->idle_timeout_ms;
    if (!copy_text(o->proxy, &m->proxy) || !copy_text(o->ca_file, &m->ca_file) ||
        !copy_text(o->reasoning_effort, &m->reasoning_effort)) {
        return rlm_error_nomem(err);
    }
    if ((r = add_headers(m, o, err)) < 0) {
        return r;
    }
    return parse_extra(m, o->body_json, err);
}

static void release(struct remote_model *m)
{
    for (size_t i = 0; i < m->headers.len; i++) {
        free(m->headers.items[i]);
    }
    for (size_t i = 0; i < m->secrets.len; i++) {
        free(m->secrets.items[i]);
    }
    free(m->headers.items);
    free(m->secrets.items);
    rlm_address_deinit(&m->address);
    rlm_arena_free(m->arena);
    free(m->body_json);
    free(m->proxy);
    free(m->ca_file);
    free(m->reasoning_effort);
    free(m);
}

static void remote_free(rlm_model *base)
{
    rlm_model_deinit(base);
    release((struct remote_model *)base);
}

static const struct rlm_model_ops ops = {
    .chat_size = sizeof(struct remote_chat),
    .start = rlm_remote_chat_start,
    .cut = rlm_remote_chat_cut,
    .stop = rlm_remote_chat_stop,
    .sent = rlm_remote_chat_sent,
    .check = rlm_remote_check,
    .check_stop = rlm_remote_check_stop,
    .free = remote_free,
};

static int validate(const struct rlm_model_options *o, rlm_error **err)
{
    if (o->size < sizeof *o) {
        return rlm_error_set(err, RLM_E_INVAL,
                             "the options of the model were not made with RLM_MODEL_OPTIONS_INIT");
    }
    if (!o->name || !*o->name) {
        return rlm_error_set(err, RLM_E_INVAL, "no model is named");
    }
    if (o->api != RLM_API_OPENAI && o->api != RLM_API_ANTHROPIC) {
        return rlm_error_set(err, RLM_E_INVAL, "there is no API number %d", (int)o->api);
    }
    if (o->api == RLM_API_ANTHROPIC && o->reasoning_effort && *o->reasoning_effort) {
        return rlm_error_set(err, RLM_E_UNSUPPORTED,
                             "the Anthropic API has no reasoning_effort; add \"thinking\" to the "
                             "request's body instead");
    }
    if (o->max_output_tokens < 0) {
        return rlm_error_set(err, RLM_E_INVAL, "max_output_tokens is %d; 0 is what the flow says",
                             o->max_output_tokens);
    }
    return 0;
}

int rlm_model_new(rlm_loop *loop,
                  const struct rlm_model_options *options,
                  rlm_model **ret_model,
                  rlm_error **err)
{
    int r = validate(options, err);
    if (r < 0) {
        return r;
    }
    struct remote_model *m;
    if (!RLM_NEW(m)) {
        return rlm_error_nomem(err);
    }
    m->dialect = options->api == RLM_API_ANTHROPIC ? &rlm_dialect_anthropic : &rlm_dialect_openai;
    if ((r = set_up(m, options, err)) < 0) {
        release(m);
        return r;
    }
    r = rlm_model_init(&m->base, loop, &ops, options->name, m->address.shown, m->address.server,
                       &options->price, err);
    if (r < 0) {
        release(m);
        return r;
    }
    if (m->address.loopback && !m->has_key && !rlm_price_known(&options->price)) {
        /* A server of one's own may serve a model under the name of a paid one. */
        m->base.price = (struct rlm_price){-1, -1, -1, -1};
    }
    *ret_model = &m->base;
    return 0;
}
