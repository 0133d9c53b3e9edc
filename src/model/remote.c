#include "model/remote.h"

#include "base/alloc.h"

#include <stdio.h>

void rlm_remote_request(const struct remote_model *m,
                        const char *url,
                        struct rlm_http_request *request)
{
    *request = (struct rlm_http_request){
        .url = url,
        .headers = (const char *const *)m->headers.items,
        .proxy = m->proxy,
        .ca_file = m->ca_file,
        .address = m->base.address,
        .connect_timeout_ms = m->connect_timeout_ms,
        .first_byte_timeout_ms = m->first_byte_timeout_ms,
        .idle_timeout_ms = m->idle_timeout_ms,
    };
}

void rlm_remote_mask(const struct remote_model *m, rlm_error *take_error, rlm_error **err)
{
    rlm_autofree char *text = rlm_strdup(rlm_error_message(take_error));
    if (!text) {
        rlm_error_nomem(err);
    } else {
        rlm_refusal_mask(text, (const char *const *)m->secrets.items);
        rlm_error_set(err, rlm_error_code(take_error), "%s", text);
    }
    rlm_error_free(take_error);
}

/* What happened, in words. */
static const char *summary(const struct rlm_refusal *r)
{
    switch (r->code) {
    case RLM_E_AUTH:
        return r->status == 403 ? "the key may not do this" : "the server refused the key";
    case RLM_E_NOT_FOUND:
        return "the server knows no such model or path";
    case RLM_E_RATE_LIMIT:
        return r->retry ? "too many requests" : "the account's quota is used up";
    case RLM_E_CONTEXT:
        return "the prompt is longer than the model's context";
    case RLM_E_INVAL:
        return "the server refused the request";
    default:
        if (r->status >= 300 && r->status < 400) {
            return "the server answered with a redirect, which is not followed";
        }
        return r->status == 529 ? "the server is overloaded" : "the server failed";
    }
}

static void
advise(const struct remote_model *m, const struct rlm_refusal *r, char *ret_advice, size_t size)
{
    *ret_advice = '\0';
    if (r->code == RLM_E_AUTH && !m->has_key) {
        snprintf(ret_advice, size, "; no key was given: set %s", m->dialect->key_variable);
    } else if (r->code == RLM_E_AUTH) {
        snprintf(ret_advice, size, "; check the key in %s", m->dialect->key_variable);
    } else if (r->code == RLM_E_NOT_FOUND) {
        const char *part = m->dialect == &rlm_dialect_openai ? "usually ends in /v1"
                                                             : "is the part before /v1/messages";
        snprintf(ret_advice, size, "; check the model's name, and the base URL, which %s", part);
    } else if (r->code == RLM_E_SERVER && r->status >= 300 && r->status < 400) {
        snprintf(ret_advice, size, "; give the final address as the base URL");
    }
}

/* At most so many bytes of the server's words, whole characters. */
static size_t bounded(const char *words)
{
    enum { SHOWN = 600 };
    size_t len = strlen(words);
    if (len > SHOWN) {
        len = SHOWN;
        while (len && ((unsigned char)words[len] & 0xc0) == 0x80) {
            len--;
        }
    }
    return len;
}

void rlm_remote_explain(const struct remote_model *m, const struct rlm_refusal *r, rlm_error **err)
{
    char status[32] = "";
    char context[48] = "";
    char advice[160];
    if (r->status) {
        snprintf(status, sizeof status, " (HTTP %d)", r->status);
    }
    if (r->context_tokens) {
        snprintf(context, sizeof context, " of %lld tokens", (long long)r->context_tokens);
    }
    advise(m, r, advice, sizeof advice);
    const char *words = r->message ? r->message : "";
    size_t len = bounded(words);
    while (*advice && len && (words[len - 1] == '.' || words[len - 1] == ' ')) {
        len--; /* our advice goes on in the same sentence */
    }
    rlm_error_set(err, r->code, "%s, model \"%s\": %s%s%s%s%.*s%s", m->base.address, m->base.name,
                  summary(r), context, status, *words ? ": " : "", (int)len, words, advice);
}
