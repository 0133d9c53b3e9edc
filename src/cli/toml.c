#include "cli/toml.h"

#include "cli/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 1 << 20 };

struct reader {
    const char *path;
    int line;
    const char *p; /* the text is NUL-terminated and has no NUL inside */
    char *table;
    toml_value take;
    void *arg;
    char *problem;
};

static bool fail(struct reader *r, char *take_what)
{
    if (!r->problem) {
        r->problem = text_format("%s:%d: %s", r->path, r->line, take_what);
    }
    free(take_what);
    return false;
}

static void skip_blanks(struct reader *r)
{
    r->p += strspn(r->p, " \t");
}

static void skip_comment(struct reader *r)
{
    skip_blanks(r);
    if (*r->p == '#') {
        r->p += strcspn(r->p, "\n");
    }
    if (r->p[0] == '\r' && r->p[1] == '\n') {
        r->p++;
    }
}

/* Blanks, comments and ends of lines, as they may stand inside of an array. */
static void skip_lines(struct reader *r)
{
    for (skip_comment(r); *r->p == '\n'; skip_comment(r)) {
        r->p++;
        r->line++;
    }
}

static bool read_escape(struct reader *r, FILE *out)
{
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    char c = *r->p;
    const char *simple = c ? strchr(names, c) : NULL;
    r->p += c != '\0';
    if (simple) {
        fputc(values[simple - names], out);
        return true;
    }
    size_t digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    char hex[9] = "";
    if (digits == 0 || strnlen(r->p, digits) < digits) {
        return fail(r, text_copy("an escape that TOML does not know"));
    }
    memcpy(hex, r->p, digits);
    unsigned long code = strtoul(hex, NULL, 16);
    if (strspn(hex, "0123456789abcdefABCDEF") != digits || code == 0 || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000)) {
        return fail(r, text_format("\\%c%s is no character that can stand here", c, hex));
    }
    r->p += digits;
    if (code < 0x80) {
        fputc((int)code, out);
    } else {
        int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static const int first[] = {0, 0xc0, 0xe0, 0xf0};
        fputc(first[more] | (int)(code >> (6 * more)), out);
        while (more--) {
            fputc(0x80 | (int)(code >> (6 * more) & 0x3f), out);
        }
    }
    return true;
}

static bool read_string(struct reader *r, char **ret_text)
{
    char quote = *r->p++;
    size_t len;
    if (r->p[0] == quote && r->p[1] == quote) {
        return fail(r, text_copy("strings of many lines are not supported here"));
    }
    FILE *out = text_stream(ret_text, &len);
    bool fine = true;
    while (fine && *r->p != quote) {
        if (*r->p == '\0' || *r->p == '\n') {
            fine = fail(r, text_copy("a string without its closing quote"));
        } else if (*r->p == '\\' && quote == '"') {
            r->p++;
            fine = read_escape(r, out);
        } else {
            fputc(*r->p++, out);
        }
    }
    fclose(out);
    if (!fine) {
        free(*ret_text);
        return false;
    }
    r->p++;
    return true;
}

static bool is_number(const char *text)
{
    char digits[64];
    size_t n = 0;
    for (; *text; text++) {
        if (*text == '_' && n && isdigit((unsigned char)digits[n - 1])) {
            continue;
        }
        if (n + 1 == sizeof digits) {
            return false;
        }
        digits[n++] = *text;
    }
    digits[n] = '\0';
    char *end;
    if (n == 0 || strspn(digits, "0123456789+-.eE") != n) {
        return false;
    }
    strtod(digits, &end);
    return *end == '\0';
}

/* true, false, or a number; "_" between digits are dropped. */
static bool read_bare(struct reader *r, char **ret_text)
{
    size_t len = strcspn(r->p, " \t\r\n#,]");
    char *text = text_format("%.*s", (int)(len < 100 ? len : 100), r->p);
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0 && !is_number(text)) {
        fail(r, text_format("%s is no value: a text stands in quotes", *text ? text : "nothing"));
        free(text);
        return false;
    }
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '_') {
            *to++ = *from;
        }
    }
    *to = '\0';
    r->p += len;
    *ret_text = text;
    return true;
}

static bool give(struct reader *r, const char *key, char *take_value, int line)
{
    char *wrong = r->take(r->arg, r->table ? r->table : "", key, take_value, line);
    free(take_value);
    return wrong ? fail(r, wrong) : true;
}

static bool read_array(struct reader *r, const char *key)
{
    r->p++;
    for (skip_lines(r); *r->p != ']'; skip_lines(r)) {
        char *text;
        if (*r->p != '"' && *r->p != '\'') {
            return fail(r, text_copy("an array may hold only strings, and ends with ]"));
        }
        if (!read_string(r, &text) || !give(r, key, text, r->line)) {
            return false;
        }
        skip_lines(r);
        if (*r->p == ',') {
            r->p++;
        } else if (*r->p != ']') {
            return fail(r, text_copy("between the elements of an array stands a comma"));
        }
    }
    r->p++;
    return true;
}

static bool read_value(struct reader *r, const char *key)
{
    char *text;
    if (*r->p == '[') {
        return read_array(r, key);
    }
    if (*r->p == '{') {
        return fail(r, text_copy("inline tables are not supported here; use [table]"));
    }
    return (*r->p == '"' || *r->p == '\'' ? read_string(r, &text) : read_bare(r, &text)) &&
           give(r, key, text, r->line);
}

static bool read_name(struct reader *r, char **ret_name)
{
    if (*r->p == '"' || *r->p == '\'') {
        return read_string(r, ret_name);
    }
    size_t len = strspn(r->p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    if (len == 0) {
        return fail(r, text_copy("a line is `key = value`, `[table]` or a comment"));
    }
    *ret_name = text_format("%.*s", (int)len, r->p);
    r->p += len;
    return true;
}

static bool read_line(struct reader *r)
{
    char *name;
    if (*r->p == '[') {
        r->p++;
        skip_blanks(r);
        if (!read_name(r, &name)) {
            return false;
        }
        free(r->table);
        r->table = name;
        skip_blanks(r);
        bool ends = *r->p == ']';
        r->p += ends;
        return ends || fail(r, text_copy("the name of a table ends with ]"));
    }
    if (!read_name(r, &name)) {
        return false;
    }
    skip_blanks(r);
    bool fine = *r->p == '=' || fail(r, text_format("after %s stands a =", name));
    if (fine) {
        r->p++;
        skip_blanks(r);
        fine = read_value(r, name);
    }
    free(name);
    return fine;
}

bool toml_parse(
    const char *path, struct rlm_str text, toml_value take, void *arg, char **ret_problem)
{
    char *copy = text_format("%.*s", (int)text.len, text.ptr);
    struct reader r = {.path = path, .line = 1, .p = copy, .take = take, .arg = arg};
    r.p += strncmp(copy, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte-order mark */
    if (strlen(copy) != text.len || text_bad_offset(text) >= 0) {
        fail(&r, text_copy("the file is not UTF-8 text"));
    }
    for (; !r.problem && *r.p; r.line++) {
        skip_comment(&r);
        if (*r.p != '\n' && *r.p && read_line(&r)) {
            skip_comment(&r);
            if (*r.p && *r.p != '\n') {
                fail(&r, text_copy("something stands behind the value"));
            }
        }
        r.p += *r.p == '\n';
    }
    free(r.table);
    free(copy);
    *ret_problem = r.problem;
    return !r.problem;
}

int toml_read(const char *path, toml_value take, void *arg, char **ret_problem)
{
    struct rlm_str text;
    int problem = text_read_file(path, FILE_MAX_BYTES, &text);
    if (problem == ENOENT || problem == ENOTDIR) {
        return 0;
    }
    if (problem) {
        *ret_problem = text_format("%s: %s", path, strerror(problem));
        return -1;
    }
    bool fine = toml_parse(path, text, take, arg, ret_problem);
    free((char *)(uintptr_t)text.ptr);
    return fine ? 1 : -1;
}
