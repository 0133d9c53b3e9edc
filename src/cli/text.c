#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *text_or_end(void *allocated)
{
    if (!allocated) {
        static const char message[] = "rlmflow: out of memory\n";
        (void)!write(2, message, sizeof message - 1);
        _exit(EXIT_FAILED);
    }
    return allocated;
}

void *text_allocate(size_t size_bytes)
{
    return text_or_end(calloc(1, size_bytes ? size_bytes : 1));
}

char *text_copy(const char *text)
{
    return text_or_end(strdup(text));
}

__attribute__((format(printf, 1, 0))) static char *format_list(const char *format, va_list args)
{
    char *text = NULL;
    return text_or_end(vasprintf(&text, format, args) < 0 ? NULL : text);
}

char *text_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_list(format, args);
    va_end(args);
    return text;
}

char *text_absolute(const char *path)
{
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);
    char *result = here ? text_format("%s/%s", here, path) : text_copy(path);
    free(here);
    return result;
}

char *text_shell_word(const char *word)
{
    char *text = NULL;
    size_t len;
    if (*word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789%+,-./:=@_")]) {
        return text_copy(word);
    }
    FILE *out = text_stream(&text, &len);
    fputc('\'', out);
    for (; *word; word++) {
        if (*word == '\'') {
            fputs("'\\''", out);
        } else {
            fputc(*word, out);
        }
    }
    fputc('\'', out);
    fclose(out);
    return text;
}

FILE *text_stream(char **ret_text, size_t *ret_len)
{
    return text_or_end(open_memstream(ret_text, ret_len));
}

void text_list_add(char ***list, char *take_text)
{
    size_t n = 0;
    while (*list && (*list)[n]) {
        n++;
    }
    *list = text_or_end(realloc(*list, (n + 2) * sizeof **list));
    (*list)[n] = take_text;
    (*list)[n + 1] = NULL;
}

void text_wipe(char *text)
{
    if (text) {
        explicit_bzero(text, strlen(text));
        free(text);
    }
}

void text_list_free(char **list)
{
    for (size_t i = 0; list && list[i]; i++) {
        text_wipe(list[i]);
    }
    free(list);
}

/* Each line of the text goes out made harmless; the text ends with a newline then. */
void text_print_lines(FILE *to, struct rlm_str text)
{
    size_t start = 0;
    do {
        const char *newline =
            start < text.len ? memchr(text.ptr + start, '\n', text.len - start) : NULL;
        size_t end = newline ? (size_t)(newline - text.ptr) : text.len;
        char *line = rlm_view_text((struct rlm_str){text.ptr + start, end - start}, NULL);
        fprintf(to, "%s\n", line ? line : "");
        free(line);
        start = end + 1;
    } while (start < text.len);
}

__attribute__((format(printf, 2, 0))) static void
say(const char *prefix, const char *format, va_list args)
{
    char *text = format_list(format, args);
    char *all = text_format("%s%s", prefix, text);
    text_print_lines(stderr, (struct rlm_str){all, strlen(all)});
    free(all);
    free(text);
}

void text_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("rlmflow: ", format, args);
    va_end(args);
}

void text_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("", format, args);
    va_end(args);
}

int text_exit_code_of_errno(int number)
{
    switch (number) {
    case 0:
    case EAGAIN:
    case EDQUOT:
    case EFBIG: /* what is written, not what was given */
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
        return EXIT_FAILED;
    default:
        return EXIT_USAGE;
    }
}

int text_exit_code(const rlm_error *err)
{
    switch (rlm_error_code(err)) {
    case RLM_E_INVAL:
    case RLM_E_EXISTS:
    case RLM_E_NOT_FOUND:
    case RLM_E_PARSE:
    case RLM_E_CORRUPT:
    case RLM_E_VERSION:
    case RLM_E_BUSY:
    case RLM_E_LIMIT:
    case RLM_E_SCHEMA:
    case RLM_E_UNSUPPORTED:
        return EXIT_USAGE;
    case RLM_E_IO:
        return text_exit_code_of_errno(rlm_error_errno(err));
    default:
        return EXIT_FAILED;
    }
}

int text_fail(rlm_error *err)
{
    int code = text_exit_code(err);
    text_complain("%s", rlm_error_message(err));
    rlm_error_free(err);
    return code;
}

/* The length of the WTF-8 character at `p`, 0 when there is none. */
static size_t character(const unsigned char *p, size_t left, uint32_t *ret_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80   ? 1
                 : p[0] < 0xc2 ? 0
                 : p[0] < 0xe0 ? 2
                 : p[0] < 0xf0 ? 3
                 : p[0] < 0xf5 ? 4
                               : 0;
    if (len == 0 || len > left) {
        return 0;
    }
    uint32_t code = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (p[i] & 0x3f);
    }
    if (code < least[len] || code > 0x10ffff) {
        return 0;
    }
    *ret_code = code;
    return len;
}

long long text_bad_offset(struct rlm_str text)
{
    uint32_t code;
    for (size_t i = 0; i < text.len;) {
        size_t len = character((const unsigned char *)text.ptr + i, text.len - i, &code);
        if (len == 0) {
            return (long long)i;
        }
        i += len;
    }
    return -1;
}

static void write_character(FILE *to, const char *bytes, size_t len, uint32_t code)
{
    if (code == '"' || code == '\\') {
        fprintf(to, "\\%c", (int)code);
    } else if (code == '\n') {
        fputs("\\n", to);
    } else if (code < 0x20 || code == 0x7f || (code >= 0xd800 && code < 0xe000)) {
        fprintf(to, "\\u%04x", code);
    } else {
        fwrite(bytes, 1, len, to);
    }
}

void text_write_json(FILE *to, struct rlm_str text)
{
    fputc('"', to);
    for (size_t i = 0; i < text.len;) {
        uint32_t code = 0;
        size_t len = character((const unsigned char *)text.ptr + i, text.len - i, &code);
        if (len == 0) {
            fputs("\xef\xbf\xbd", to);
            len = 1;
        } else {
            write_character(to, text.ptr + i, len, code);
        }
        i += len;
    }
    fputc('"', to);
}

int text_read_file(const char *path, size_t max, struct rlm_str *ret_text)
{
    int fd = strcmp(path, "-") == 0 ? dup(0) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    size_t len = 0, cap = 0;
    char *text = NULL;
    int problem = 0;
    for (;;) {
        if (len + 1 >= cap) {
            cap = cap ? cap * 2 : 65536;
            text = text_or_end(realloc(text, cap));
        }
        ssize_t n = read(fd, text + len, cap - len - 1);
        if (n > 0) {
            len += (size_t)n;
            problem = len > max ? EFBIG : 0;
        } else if (n < 0 && errno != EINTR) {
            problem = errno;
        }
        if (n == 0 || problem) {
            break;
        }
    }
    close(fd);
    if (problem) {
        free(text);
        return problem;
    }
    text[len] = '\0';
    *ret_text = (struct rlm_str){text, len};
    return 0;
}
