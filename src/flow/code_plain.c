#include "flow/code_plain.h"

#include "flow/code_block.h"

enum { MAX_WRAPPERS = 3 };

static const char *const operator_words[] = {"and",  "or",    "not",   "in",     "is",     "if",
                                             "else", "for",   "as",    "import", "lambda", "await",
                                             "from", "async", "yield", NULL};
static const char *const simple_statements[] = {"return",   "raise", "assert",   "del",
                                                "pass",     "break", "continue", "global",
                                                "nonlocal", "yield", "await",    NULL};
static const char *const block_statements[] = {"if",    "elif",   "else",    "for",  "while",
                                               "try",   "except", "finally", "with", "def",
                                               "class", "async",  NULL};

enum token {
    TOKEN_START,
    TOKEN_NAME,
    TOKEN_WORD,
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_OPEN,
    TOKEN_CLOSE,
    TOKEN_ASSIGN,
    TOKEN_COLON,
    TOKEN_DOT,
    TOKEN_OPERATOR
};

/* One logical line as far as it has been read. */
struct statement {
    enum { KIND_NONE, KIND_NAME, KIND_SIMPLE, KIND_BLOCK, KIND_IMPORT } kind;
    enum token last;
    bool path; /* a NAME statement of which only NAME.NAME has been read */
    bool calls, calls_first, assigns, imports, has_in, colon, needs_in, lambda;
};

struct plain {
    rlm_str s;
    size_t pos, depth;
    struct statement st;
    bool strong; /* a statement that calls, assigns or imports has been seen */
};

/* Ends a logical line; false when it was no statement. */
static bool end_statement(struct plain *p)
{
    struct statement *st = &p->st;
    bool ok = false;
    bool whole = st->last == TOKEN_NAME || st->last == TOKEN_WORD || st->last == TOKEN_NUMBER ||
                 st->last == TOKEN_STRING || st->last == TOKEN_CLOSE;
    switch (st->kind) {
    case KIND_NONE:
        ok = st->last == TOKEN_START || st->last == TOKEN_STRING; /* nothing, or a docstring */
        break;
    case KIND_NAME:
        ok = whole && !(st->colon && !st->lambda) && (st->calls_first || st->assigns);
        break;
    case KIND_SIMPLE:
        ok = whole;
        break;
    case KIND_BLOCK:
        ok = st->colon && (whole || st->last == TOKEN_COLON) && st->needs_in <= st->has_in;
        break;
    case KIND_IMPORT:
        ok = whole && st->imports;
        break;
    }
    p->strong = p->strong || st->calls || st->assigns || st->imports;
    p->st = (struct statement){.last = TOKEN_START};
    return ok;
}

static bool is_keyword(rlm_str word, const char *const *list)
{
    while (*list && !rlm_str_is(word, *list)) {
        list++;
    }
    return *list != NULL;
}

static bool is_value(enum token token)
{
    return token == TOKEN_NAME || token == TOKEN_NUMBER || token == TOKEN_CLOSE;
}

static bool read_string(struct plain *p)
{
    rlm_str s = p->s;
    bool ended = true;
    if (rlm_code_is_triple(s, p->pos)) {
        struct rlm_code_fence none = {.mark = '`', .len = SIZE_MAX};
        struct rlm_code_reply t = {s, 0};
        size_t end = rlm_code_triple_end(&t, &none, p->pos + 3, s.ptr[p->pos]);
        ended = end != RLM_CODE_NOWHERE;
        p->pos = ended ? end : s.len;
    } else {
        p->pos = rlm_code_quoted_end(s, p->pos, &ended);
    }
    bool ok = ended && !is_value(p->st.last);
    p->st.last = TOKEN_STRING;
    p->st.path = p->st.path && p->depth;
    return ok;
}

static void begin_statement(struct statement *st, rlm_str word)
{
    st->needs_in = rlm_str_is(word, "for");
    if (rlm_str_is(word, "import") || rlm_str_is(word, "from")) {
        st->kind = KIND_IMPORT;
    } else if (is_keyword(word, block_statements)) {
        st->kind = KIND_BLOCK;
    } else if (is_keyword(word, simple_statements)) {
        st->kind = KIND_SIMPLE;
    } else {
        st->kind = KIND_NAME;
        st->path = true;
    }
}

static bool read_word(struct plain *p)
{
    struct statement *st = &p->st;
    size_t start = p->pos;
    bool number = rlm_code_is_digit(p->s.ptr[start]);
    while (p->pos < p->s.len &&
           (rlm_code_is_word_char(p->s.ptr[p->pos]) || (number && p->s.ptr[p->pos] == '.'))) {
        p->pos++;
    }
    rlm_str word = rlm_str_sub(p->s, start, p->pos);
    bool quote = p->pos < p->s.len && (p->s.ptr[p->pos] == '"' || p->s.ptr[p->pos] == '\'');
    if (quote && word.len <= 2 && strspn(word.ptr, "rRbBfFuU") >= word.len) {
        return read_string(p);
    }
    bool first = st->last == TOKEN_START;
    bool keyword =
        !number && (is_keyword(word, operator_words) || is_keyword(word, simple_statements) ||
                    is_keyword(word, block_statements));
    if (first && number) {
        return false;
    }
    if (first) {
        begin_statement(st, word);
    } else if (!p->depth) {
        st->path = st->path && st->last == TOKEN_DOT && !number && !keyword;
    }
    st->imports = st->imports || (st->kind == KIND_IMPORT && rlm_str_is(word, "import"));
    st->has_in = st->has_in || rlm_str_is(word, "in");
    st->lambda = st->lambda || rlm_str_is(word, "lambda");
    bool ok = keyword || !(is_value(st->last) || st->last == TOKEN_STRING);
    st->last = keyword ? TOKEN_WORD : number ? TOKEN_NUMBER : TOKEN_NAME;
    return ok;
}

/* A bracket; a call is one that stands right behind what it calls. */
static bool read_bracket(struct plain *p, char c)
{
    struct statement *st = &p->st;
    if (c == ')' || c == ']' || c == '}') {
        st->last = TOKEN_CLOSE;
        return p->depth-- > 0;
    }
    bool behind = p->pos > 1 &&
                  (rlm_code_is_word_char(p->s.ptr[p->pos - 2]) || p->s.ptr[p->pos - 2] == ')' ||
                   p->s.ptr[p->pos - 2] == ']') &&
                  is_value(st->last);
    st->calls = st->calls || (c == '(' && behind);
    if (!p->depth) {
        st->calls_first = st->calls_first || (c == '(' && behind && st->path);
        st->path = st->path && behind;
    }
    st->last = TOKEN_OPEN;
    p->depth++;
    return st->kind != KIND_NONE;
}

/* Any other character outside strings, with the '=' that may belong to it. */
static bool read_operator(struct plain *p, char c)
{
    struct statement *st = &p->st;
    bool equals = p->pos < p->s.len && p->s.ptr[p->pos] == '=';
    p->pos += equals;
    if (c == '@' && st->last == TOKEN_START) {
        st->kind = KIND_SIMPLE;
    }
    if (!p->depth && c != '.') {
        st->path = false;
    }
    if (!strchr("=!<>:.,+-*/%&|^~@", c) || (c == '!' && !equals) ||
        (c == '=' && !equals && p->pos < p->s.len && p->s.ptr[p->pos] == '>')) {
        return false;
    }
    bool assigns = equals ? strchr("+-*/%&|^@", c) != NULL : c == '=';
    if (assigns && !p->depth) {
        bool target = is_value(st->last);
        st->assigns = true;
        st->last = TOKEN_ASSIGN;
        return target;
    }
    st->colon = st->colon || (c == ':' && !equals && !p->depth);
    st->last = c == '.' ? TOKEN_DOT : c == ':' && !p->depth ? TOKEN_COLON : TOKEN_OPERATOR;
    return true;
}

static bool read_token(struct plain *p)
{
    char c = p->s.ptr[p->pos];
    if (c == '"' || c == '\'') {
        return read_string(p);
    }
    if (rlm_code_is_word_char(c)) {
        return read_word(p);
    }
    p->pos++;
    switch (c) {
    case ' ':
    case '\t':
    case '\f':
        return true;
    case '\r':
    case '\n':
        return p->depth || end_statement(p);
    case ';':
        return !p->depth && end_statement(p);
    case '#':
        p->pos = rlm_code_line_end(p->s, p->pos);
        return true;
    case '\\':
        if (p->pos == p->s.len || rlm_code_line_next(p->s, p->pos) == p->pos + 1) {
            bool newline =
                p->pos < p->s.len && (p->s.ptr[p->pos] == '\n' || p->s.ptr[p->pos] == '\r');
            p->pos += newline;
            return newline;
        }
        p->pos = rlm_code_line_next(p->s, p->pos);
        return true;
    case '(':
    case '[':
    case '{':
    case ')':
    case ']':
    case '}':
        return read_bracket(p, c);
    case '\0':
        return false;
    default:
        return read_operator(p, c);
    }
}

/* The text is Python and nothing else, as far as its tokens tell (the rule is in the header). */
static bool is_code(rlm_str s)
{
    struct plain p = {.s = s, .st = {.last = TOKEN_START}};
    while (p.pos < s.len) {
        if (!read_token(&p)) {
            return false;
        }
    }
    return !p.depth && end_statement(&p) && p.strong;
}

/* What is left of a reply without the tags, backticks and the word "repl" around its code. */
static rlm_str unwrap(rlm_str s)
{
    struct rlm_code_tag tag;
    size_t ticks = 0;
    s = rlm_code_trim(s);
    for (int i = 0; i < MAX_WRAPPERS && s.len && s.ptr[0] == '<' && rlm_code_read_tag(s, 0, &tag) &&
                    !tag.closing && rlm_code_is_wrapper(rlm_str_sub(s, 0, tag.end), false);
         i++) {
        s = rlm_code_trim(rlm_str_sub(s, tag.end, s.len));
        const char *last = s.len ? memrchr(s.ptr, '<', s.len) : NULL;
        if (last && rlm_code_is_wrapper(rlm_str_sub(s, (size_t)(last - s.ptr), s.len), true)) {
            s = rlm_code_trim(rlm_str_sub(s, 0, (size_t)(last - s.ptr)));
        }
    }
    while (2 * ticks + 2 <= s.len && s.ptr[ticks] == '`' && s.ptr[s.len - 1 - ticks] == '`') {
        ticks++;
    }
    s = rlm_str_sub(s, ticks, s.len - ticks);
    rlm_str word = rlm_code_tag_of(s);
    if (ticks >= 3 && word.ptr == s.ptr && rlm_code_is_one_of(word, rlm_code_runnable_tags) &&
        word.len < s.len && rlm_code_is_blank_char(s.ptr[word.len])) {
        s = rlm_str_sub(s, word.len, s.len);
    }
    s = rlm_str_sub(s, rlm_code_skip_echo(s, 0), s.len);
    while (s.len && rlm_code_is_blank_char(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

bool rlm_code_plain(rlm_str text, rlm_str *ret_code)
{
    *ret_code = unwrap(text);
    return is_code(*ret_code);
}
