#include "model/refusal.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <ctype.h>

void rlm_refusal_deinit(struct rlm_refusal *r)
{
    free(r->message);
    r->message = NULL;
}

/* How many bytes of the secret stand at `text`, if enough of it to be worth hiding; else 0. */
static size_t shown(const char *text, const char *secret)
{
    size_t len = 0;
    while (secret[len] && text[len] == secret[len]) {
        len++;
    }
    return len >= 8 || (len >= 4 && !secret[len]) ? len : 0;
}

void rlm_refusal_mask(char *text, const char *const *secrets)
{
    char *to = text;
    for (const char *from = text; *from;) {
        size_t hidden = 0;
        for (const char *const *secret = secrets; *secret; secret++) {
            size_t len = shown(from, *secret);
            hidden = len > hidden ? len : hidden;
        }
        if (hidden) {
            memcpy(to, "***", 3); /* what is hidden is longer */
            to += 3;
            from += hidden;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static char *one_line(rlm_str raw)
{
    rlm_auto_buf struct rlm_buf clean = RLM_BUF(RLM_REFUSAL_MAX_MESSAGE * 4);
    if (raw.len > RLM_REFUSAL_MAX_MESSAGE) {
        raw.len = RLM_REFUSAL_MAX_MESSAGE;
        while (raw.len && ((unsigned char)raw.ptr[raw.len] & 0xc0) == 0x80) {
            raw.len--;
        }
    }
    rlm_utf8_clean(&clean, raw);
    if (clean.status < 0) {
        return NULL;
    }
    size_t len = 0;
    for (size_t i = 0; i < clean.len; i++) {
        char c = clean.ptr[i];
        bool blank = (unsigned char)c <= ' ' || c == 0x7f;
        if (!blank) {
            clean.ptr[len++] = c;
        } else if (len && clean.ptr[len - 1] != ' ') {
            clean.ptr[len++] = ' ';
        }
    }
    return rlm_strndup(clean.ptr ? clean.ptr : "", len);
}

/* `word` stands in the text as a whole identifier. */
static bool names(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = text; (at = strcasestr(at, word)); at += len) {
        bool starts = at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_');
        bool ends = !isalnum((unsigned char)at[len]) && at[len] != '_';
        if (starts && ends) {
            return true;
        }
    }
    return false;
}

static bool says(const char *text, const char *const *phrases)
{
    for (; *phrases; phrases++) {
        if (strcasestr(text, *phrases)) {
            return true;
        }
    }
    return false;
}

/* The first number behind the phrase, "8192" or "8,192"; 0 when there is none near. */
static int64_t number_behind(const char *text, const char *phrase)
{
    const char *at = strcasestr(text, phrase);
    if (!at) {
        return 0;
    }
    at += strlen(phrase);
    for (int skipped = 0; *at && !isdigit((unsigned char)*at); at++) {
        if (++skipped > 24) {
            return 0;
        }
    }
    int64_t number = 0;
    for (int digits = 0; digits < 15; at++) {
        if (isdigit((unsigned char)*at)) {
            number = number * 10 + (*at - '0');
            digits++;
        } else if (*at != ',' || !isdigit((unsigned char)at[1])) {
            break;
        }
    }
    return number;
}

static bool is_context(const char *type, const char *code, const char *message)
{
    static const char *const kinds[] = {"exceed_context_size", "context_length_exceeded",
                                        "context_window_exceeded", NULL};
    static const char *const phrases[] = {
        "prompt is too long",
        "maximum context length",
        "context length exceeded",
        "exceeds the context",
        "exceed context",
        "exceeds the available context",
        "context window",
        "maximum prompt length",
        "input is too long",
        "longer than the model's context",
        "reduce the length of the messages",
        "input token count",
        "maximum model length",
        "max_model_len",
        NULL,
    };
    return says(type, kinds) || says(code, kinds) || says(message, phrases);
}

static int64_t context_size(const rlm_json *error, const char *message)
{
    static const char *const phrases[] = {
        "maximum context length is",
        "maximum context length of",
        " > ",
        "context size (",
        "context length of",
        "context size of",
        "context window of",
        "maximum prompt length is",
        "maximum model length of",
        "maximum number of tokens allowed",
        "context length is only",
    };
    int64_t said = rlm_json_int(rlm_json_get(error, "n_ctx"), 0);
    for (size_t i = 0; said <= 0 && i < sizeof phrases / sizeof *phrases; i++) {
        said = number_behind(message, phrases[i]);
    }
    return said > 0 ? said : 0;
}

/* The status that an error inside a stream stands for. */
static int implied_status(const char *type, const char *code)
{
    static const struct {
        const char *kind;
        int status;
    } kinds[] = {
        {"rate_limit", 429},        {"overloaded", 529},      {"authentication", 401},
        {"invalid_api_key", 401},   {"permission", 403},      {"not_found", 404},
        {"request_too_large", 413}, {"invalid_request", 400}, {"insufficient_quota", 429},
        {"timeout", 504},           {"api_error", 500},       {"server_error", 500},
        {"internal", 500},          {"unavailable", 503},     {"exceed_context", 400},
    };
    int number = atoi(code);
    if (number >= 400 && number < 600) {
        return number;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcasestr(type, kinds[i].kind) || strcasestr(code, kinds[i].kind)) {
            return kinds[i].status;
        }
    }
    return 0;
}

static void decide(struct rlm_refusal *r, const char *type, const char *code)
{
    static const char *const quota[] = {"insufficient_quota", "billing_hard_limit", "billing_error",
                                        NULL};
    static const char *const credit[] = {"credit balance is too low", NULL};
    int status = r->status;
    if (says(type, quota) || says(code, quota) || says(r->message, credit) || status == 402) {
        r->code = RLM_E_RATE_LIMIT;
    } else if (status == 401 || status == 403) {
        r->code = RLM_E_AUTH;
    } else if (status == 404) {
        r->code = RLM_E_NOT_FOUND;
    } else if (status == 429) {
        r->code = RLM_E_RATE_LIMIT;
        r->retry = true;
    } else if (status == 408 || status == 409 || status >= 500 || status == 0) {
        /* An error inside a stream that names no kind is taken for a failure of the server. */
        r->code = RLM_E_SERVER;
        r->retry = status != 501 && status != 505;
    } else if (status >= 400) {
        r->code = RLM_E_INVAL;
    } else {
        r->code = RLM_E_SERVER; /* a redirect, or a success that is none */
    }
}

static void find_fields(struct rlm_refusal *r, const char *param)
{
    static const char *const refusing[] = {
        "support",     "unknown",    "unrecogni", "unexpected",        "permitted",
        "not allowed", "deprecated", "extra",     "invalid parameter", NULL};
    if (r->status != 400 && r->status != 422) {
        return;
    }
    const char *where = *param ? param : r->message;
    r->names_max_tokens = names(where, "max_tokens");
    r->names_max_completion_tokens = names(where, "max_completion_tokens");
    r->names_stream_options = names(where, "stream_options");
    /* "temperature must be between 0 and 2" is for the user to mend. */
    r->names_temperature = names(where, "temperature") && says(r->message, refusing);
}

/* A member as text: a string, or a number as it stands. "" when absent. Copied into the arena. */
static const char *member_text(rlm_arena *a, const rlm_json *object, const char *key)
{
    const rlm_json *v = rlm_json_get(object, key);
    if (!rlm_json_is(v, RLM_JSON_STRING) && !rlm_json_is(v, RLM_JSON_NUMBER)) {
        return "";
    }
    rlm_str copy = rlm_arena_copy(a, v->text);
    return copy.ptr ? copy.ptr : "";
}

static rlm_str find_message(const rlm_json *body, const rlm_json *error, rlm_str fallback)
{
    static const char *const members[] = {"message", "detail", "error", "msg"};
    const rlm_json *places[] = {error, body};
    for (size_t p = 0; p < 2; p++) {
        for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
            const rlm_json *v = rlm_json_get(places[p], members[i]);
            if (rlm_json_is(v, RLM_JSON_STRING) && v->text.len) {
                return v->text;
            }
        }
    }
    return rlm_json_text(error, fallback);
}

/* `body` may be NULL; `raw` is what there is when no message is found. */
static int read_refusal(
    struct rlm_refusal *r, const rlm_json *body, const rlm_json *error, rlm_str raw, rlm_arena *a)
{
    const char *type = member_text(a, error, "type");
    const char *code = member_text(a, error, "code");
    if (!*type) {
        type = member_text(a, error, "status"); /* as Google writes it */
    }
    if (!*type && error != body) {
        type = member_text(a, body, "type");
    }
    r->message = one_line(find_message(body, error, raw));
    if (!r->message) {
        return RLM_E_NOMEM;
    }
    if (r->status == 0) {
        r->status = implied_status(type, code);
    }
    decide(r, type, code);
    bool may_be_context = r->status == 0 || r->status == 400 || r->status == 413 ||
                          r->status == 422 || r->status == 500;
    if (may_be_context && is_context(type, code, r->message)) {
        r->code = RLM_E_CONTEXT;
        r->retry = false;
        r->context_tokens = context_size(error, r->message);
    } else {
        find_fields(r, member_text(a, error, "param"));
    }
    return 0;
}

int rlm_refusal_of_answer(int status, rlm_str body, struct rlm_refusal *ret_refusal)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    if (!a) {
        return RLM_E_NOMEM;
    }
    const rlm_json *parsed = NULL;
    int r = rlm_json_parse(a, body, &parsed, NULL);
    if (r == RLM_E_NOMEM) {
        return r;
    }
    if (r < 0) {
        parsed = NULL;
    }
    if (rlm_json_is(parsed, RLM_JSON_ARRAY)) {
        parsed = rlm_json_at(parsed, 0); /* Google's compatible endpoint wraps it so */
    }
    const rlm_json *error = rlm_json_get(parsed, "error");
    struct rlm_refusal made = {.status = status};
    /* An HTML page of some proxy says nothing that its status does not. */
    bool is_page = !parsed && body.len && memchr(body.ptr, '<', body.len < 64 ? body.len : 64);
    r = read_refusal(&made, parsed, error ? error : parsed, is_page ? RLM_STR_NONE : body, a);
    if (r == 0) {
        *ret_refusal = made;
    }
    return r;
}

int rlm_refusal_of_error(const rlm_json *error, struct rlm_refusal *ret_refusal)
{
    rlm_auto_arena rlm_arena *a = rlm_arena_new(0);
    struct rlm_refusal made = {0};
    int r = a ? read_refusal(&made, NULL, error, RLM_STR_NONE, a) : RLM_E_NOMEM;
    if (r == 0) {
        *ret_refusal = made;
    }
    return r;
}
