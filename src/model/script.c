#include "model/script.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <fnmatch.h>
#include <limits.h>

struct rlm_script {
    rlm_arena *arena;
    RLM_VEC(struct rlm_script_entry) entries;
};

struct parser {
    rlm_script *script;
    rlm_str text;
    size_t pos;
    size_t line; /* of what is being read, from 1 */
    rlm_error **err;
};

static int complain(const struct parser *p, const char *what, rlm_str about)
{
    return rlm_error_set(p->err, RLM_E_PARSE, "line %zu: %s: \"%.*s\"", p->line, what,
                         (int)(about.len < 200 ? about.len : 200), about.len ? about.ptr : "");
}

/* The next line without its end. False at the end of the text. */
static bool next_line(struct parser *p, rlm_str *ret_line)
{
    if (p->pos >= p->text.len) {
        return false;
    }
    const char *start = p->text.ptr + p->pos;
    const char *end = memchr(start, '\n', p->text.len - p->pos);
    size_t len = end ? (size_t)(end - start) : p->text.len - p->pos;
    p->pos += len + (end ? 1 : 0);
    p->line++;
    *ret_line = (rlm_str){start, len};
    return true;
}

/* A directive is the word at the very start of a line, followed by a space or the line's end. */
static bool is_directive(rlm_str line, const char *word)
{
    size_t len = strlen(word);
    return rlm_str_starts(line, word) && (line.len == len || strchr(" \t\r", line.ptr[len]));
}

static bool is_any_directive(rlm_str line)
{
    return is_directive(line, "@reply") || is_directive(line, "@comment");
}

/* ---- attributes ---- */

static bool parse_number(rlm_str s, int64_t most, int64_t *ret_number)
{
    int64_t number = 0;
    if (s.len == 0 || s.len > 18) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
        number = number * 10 + (s.ptr[i] - '0');
    }
    if (number > most) {
        return false;
    }
    *ret_number = number;
    return true;
}

/* "50ms", "2s", "1m"; at most a day. */
static bool parse_duration(rlm_str s, int64_t *ret_ms)
{
    static const struct {
        const char *suffix;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t len = strlen(units[i].suffix);
        int64_t number;
        if (s.len > len && memcmp(s.ptr + s.len - len, units[i].suffix, len) == 0 &&
            parse_number(rlm_str_sub(s, 0, s.len - len), 86400000 / units[i].ms, &number)) {
            *ret_ms = number * units[i].ms;
            return true;
        }
    }
    return false;
}

static bool parse_turns(rlm_str s, struct rlm_script_entry *e)
{
    if (rlm_str_is(s, "*")) {
        return true;
    }
    const char *dash = memchr(s.ptr, '-', s.len);
    rlm_str first = dash ? rlm_str_sub(s, 0, (size_t)(dash - s.ptr)) : s;
    rlm_str last = dash ? rlm_str_sub(s, first.len + 1, s.len) : s;
    int64_t a;
    int64_t b;
    if (!parse_number(first, INT_MAX, &a) || !parse_number(last, INT_MAX, &b) || a > b) {
        return false;
    }
    e->first_turn = (int)a;
    e->last_turn = (int)b;
    return true;
}

static bool parse_fault(rlm_str s, enum rlm_script_fault *ret_fault)
{
    static const char *const names[] = {
        [RLM_FAULT_RATE_LIMIT] = "429", [RLM_FAULT_SERVER] = "500",
        [RLM_FAULT_AUTH] = "401",       [RLM_FAULT_CUT] = "cut",
        [RLM_FAULT_STALL] = "stall",    [RLM_FAULT_CONTEXT] = "context",
    };
    for (size_t i = 1; i < sizeof names / sizeof *names; i++) {
        if (rlm_str_is(s, names[i])) {
            *ret_fault = (enum rlm_script_fault)i;
            return true;
        }
    }
    return false;
}

static int compile(const struct parser *p, rlm_str pattern, rlm_regex **ret_regex)
{
    int r = rlm_regex_new(pattern, ret_regex, p->err);
    if (r < 0 && r != RLM_E_NOMEM) {
        return rlm_error_wrap(p->err, r, "line %zu: match=\"%.*s\"", p->line, RLM_FMT(pattern));
    }
    return r;
}

static int
set_attribute(const struct parser *p, struct rlm_script_entry *e, rlm_str name, rlm_str value)
{
    const int64_t most = INT64_C(1000000000000);
    bool ok = true;
    if (rlm_str_is(name, "agent")) {
        ok = value.len > 0 && !memchr(value.ptr, '\0', value.len);
        e->agent = value.ptr; /* a copy in the arena, NUL-terminated */
    } else if (rlm_str_is(name, "turn")) {
        ok = parse_turns(value, e);
    } else if (rlm_str_is(name, "match")) {
        return compile(p, value, &e->match);
    } else if (rlm_str_is(name, "times")) {
        ok = parse_number(value, most, &e->times_left);
    } else if (rlm_str_is(name, "delay")) {
        ok = parse_duration(value, &e->delay_ms);
    } else if (rlm_str_is(name, "input_tokens")) {
        ok = parse_number(value, most, &e->input_tokens);
    } else if (rlm_str_is(name, "output_tokens")) {
        ok = parse_number(value, most, &e->output_tokens);
    } else if (rlm_str_is(name, "retry_after")) {
        ok = parse_duration(value, &e->retry_after_ms);
    } else if (rlm_str_is(name, "context_tokens")) {
        ok = parse_number(value, most, &e->context_tokens);
    } else if (rlm_str_is(name, "finish")) {
        ok = value.len > 0;
        e->finish = value.ptr;
    } else if (rlm_str_is(name, "error")) {
        ok = parse_fault(value, &e->fault);
    } else {
        return complain(p, "there is no such attribute", name);
    }
    if (!ok) {
        return rlm_error_set(p->err, RLM_E_PARSE, "line %zu: %.*s=\"%.*s\" is not valid", p->line,
                             RLM_FMT(name), RLM_FMT(value));
    }
    return 0;
}

/* A value: up to the next blank, or in double quotes, where only \" is an escape (so that regular
 * expressions keep their backslashes). Copied into the arena. */
static int read_value(const struct parser *p, rlm_str line, size_t *pos, rlm_str *ret_value)
{
    char *copy = rlm_arena_bytes(p->script->arena, line.len - *pos + 1);
    if (!copy) {
        return rlm_error_nomem(p->err);
    }
    size_t len = 0;
    size_t i = *pos;
    if (i < line.len && line.ptr[i] == '"') {
        for (i++; i < line.len && line.ptr[i] != '"'; i++) {
            if (line.ptr[i] == '\\' && i + 1 < line.len && line.ptr[i + 1] == '"') {
                i++;
            }
            copy[len++] = line.ptr[i];
        }
        if (i == line.len) {
            return complain(p, "a quote is not closed", rlm_str_sub(line, *pos, line.len));
        }
        i++;
        if (i < line.len && line.ptr[i] != ' ' && line.ptr[i] != '\t') {
            return complain(p, "a blank is missing after the quote",
                            rlm_str_sub(line, *pos, line.len));
        }
    } else {
        while (i < line.len && line.ptr[i] != ' ' && line.ptr[i] != '\t') {
            copy[len++] = line.ptr[i++];
        }
    }
    copy[len] = '\0';
    *pos = i;
    *ret_value = (rlm_str){copy, len};
    return 0;
}

static int parse_attributes(const struct parser *p, rlm_str line, struct rlm_script_entry *e)
{
    rlm_str seen[16];
    size_t n_seen = 0;
    size_t pos = strlen("@reply");
    if (line.len && line.ptr[line.len - 1] == '\r') {
        line.len--;
    }
    for (;;) {
        while (pos < line.len && (line.ptr[pos] == ' ' || line.ptr[pos] == '\t')) {
            pos++;
        }
        if (pos >= line.len) {
            return 0;
        }
        size_t start = pos;
        while (pos < line.len && line.ptr[pos] != '=' && line.ptr[pos] != ' ') {
            pos++;
        }
        rlm_str name = rlm_str_sub(line, start, pos);
        if (pos == line.len || line.ptr[pos] != '=') {
            return complain(p, "an attribute is NAME=VALUE, not", name);
        }
        for (size_t i = 0; i < n_seen; i++) {
            if (rlm_str_eq(seen[i], name)) {
                return complain(p, "the attribute stands twice", name);
            }
        }
        pos++;
        rlm_str value = RLM_STR_NONE;
        int r = read_value(p, line, &pos, &value);
        if (r < 0 || (r = set_attribute(p, e, name, value)) < 0) {
            return r;
        }
        seen[n_seen++] = name; /* known names only come here, and none twice: fewer than 16 */
    }
}

/* ---- bodies ---- */

/* "@@reply" stands for a line of the body that starts with "@reply". */
static rlm_str unescape(rlm_str line)
{
    size_t ats = 0;
    while (ats < line.len && line.ptr[ats] == '@') {
        ats++;
    }
    if (ats >= 2 && is_any_directive(rlm_str_sub(line, ats - 1, line.len))) {
        return rlm_str_sub(line, 1, line.len);
    }
    return line;
}

/* Reads up to the next directive, which is left for the caller. */
static int parse_body(struct parser *p, struct rlm_script_entry *e)
{
    size_t start = p->pos;
    size_t room = 0;
    size_t line_number = p->line;
    rlm_str line;
    size_t end = start;
    while (next_line(p, &line) && !is_any_directive(line)) {
        room += line.len + 1;
        end = p->pos;
    }
    char *copy = rlm_arena_bytes(p->script->arena, room + 1);
    if (!copy) {
        return rlm_error_nomem(p->err);
    }
    size_t len = 0;
    p->pos = start;
    p->line = line_number;
    while (p->pos < end && next_line(p, &line)) {
        line = unescape(line);
        memcpy(copy + len, line.ptr, line.len);
        len += line.len;
        copy[len++] = '\n';
    }
    /* The last newline belongs to the file; one that was not there was never part of it either. */
    len -= len ? 1 : 0;
    if (len && copy[len - 1] == '\r') {
        len--;
    }
    e->body = (rlm_str){copy, len};
    return 0;
}

static bool is_blank(rlm_str line)
{
    for (size_t i = 0; i < line.len; i++) {
        if (!strchr(" \t\r", line.ptr[i]) || !line.ptr[i]) {
            return false;
        }
    }
    return true;
}

static int parse_script(struct parser *p)
{
    rlm_str line;
    bool in_comment = false;
    if (rlm_str_starts(p->text, "\xef\xbb\xbf")) {
        p->pos = 3;
    }
    while (next_line(p, &line)) {
        if (!is_directive(line, "@reply")) {
            in_comment = in_comment || is_directive(line, "@comment");
            if (!in_comment && !is_blank(line)) {
                return complain(p, "text before the first @reply", line);
            }
            continue;
        }
        in_comment = false;
        if (p->script->entries.len == RLM_SCRIPT_MAX_ENTRIES) {
            return rlm_error_set(p->err, RLM_E_LIMIT, "line %zu: more than %d replies", p->line,
                                 RLM_SCRIPT_MAX_ENTRIES);
        }
        struct rlm_script_entry *e = rlm_vec_push(&p->script->entries);
        if (!e) {
            return rlm_error_nomem(p->err);
        }
        *e = (struct rlm_script_entry){.line = p->line, .last_turn = INT_MAX, .times_left = -1};
        e->delay_ms = e->input_tokens = e->output_tokens = e->retry_after_ms = -1;
        int r = parse_attributes(p, line, e);
        if (r < 0 || (r = parse_body(p, e)) < 0) {
            return r;
        }
    }
    if (p->script->entries.len == 0) {
        return rlm_error_set(p->err, RLM_E_PARSE, "line %zu: the script has no @reply",
                             p->line ? p->line : 1);
    }
    return 0;
}

int rlm_script_parse(rlm_str text, rlm_script **ret_script, rlm_error **err)
{
    if (text.len > RLM_SCRIPT_MAX_BYTES) {
        return rlm_error_set(err, RLM_E_LIMIT, "the script is larger than %d MiB",
                             RLM_SCRIPT_MAX_BYTES / 1024 / 1024);
    }
    rlm_script *s;
    if (!RLM_NEW(s)) {
        return rlm_error_nomem(err);
    }
    s->arena = rlm_arena_new(0);
    struct parser p = {.script = s, .text = text, .err = err};
    int r = s->arena ? parse_script(&p) : rlm_error_nomem(err);
    if (r < 0) {
        rlm_script_free(s);
        return r;
    }
    *ret_script = s;
    return 0;
}

void rlm_script_free(rlm_script *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->entries.len; i++) {
        rlm_regex_free(s->entries.items[i].match);
    }
    free(s->entries.items);
    rlm_arena_free(s->arena);
    free(s);
}

size_t rlm_script_count(const rlm_script *s)
{
    return s->entries.len;
}

const struct rlm_script_entry *rlm_script_entry(const rlm_script *s, size_t index)
{
    return &s->entries.items[index];
}

int rlm_script_find(rlm_script *s,
                    const char *agent,
                    int turn,
                    rlm_str last_user_message,
                    const struct rlm_script_entry **ret_entry,
                    rlm_error **err)
{
    for (size_t i = 0; i < s->entries.len; i++) {
        struct rlm_script_entry *e = &s->entries.items[i];
        if (e->times_left == 0 || turn < e->first_turn || turn > e->last_turn ||
            (e->agent && fnmatch(e->agent, agent ? agent : "", 0) != 0)) {
            continue;
        }
        if (e->match) {
            int r = rlm_regex_search(e->match, last_user_message, NULL, 0, err);
            if (r < 0) {
                return rlm_error_wrap(err, r, "the match= of the reply at line %zu", e->line);
            }
            if (r == 0) {
                continue;
            }
        }
        e->times_left -= e->times_left > 0;
        *ret_entry = e;
        return 0;
    }
    return 1;
}
