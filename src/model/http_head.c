#include "model/http_head.h"

#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

static rlm_str trim(rlm_str s)
{
    while (s.len && isspace((unsigned char)s.ptr[0])) {
        s = rlm_str_sub(s, 1, s.len);
    }
    while (s.len && isspace((unsigned char)s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

static void take_status(struct rlm_http_answer *answer, rlm_str line)
{
    const char *blank = memchr(line.ptr, ' ', line.len);
    size_t i = blank ? (size_t)(blank - line.ptr) + 1 : line.len;
    *answer = (struct rlm_http_answer){.retry_after_ms = -1};
    for (; i < line.len && isdigit((unsigned char)line.ptr[i]) && answer->status < 1000; i++) {
        answer->status = answer->status * 10 + (line.ptr[i] - '0');
    }
}

static void take_content_type(struct rlm_http_answer *answer, const char *value)
{
    size_t len = 0;
    while (len < sizeof answer->content_type - 1 && value[len] && value[len] != ';' &&
           value[len] != ' ') {
        answer->content_type[len] = (char)tolower((unsigned char)value[len]);
        len++;
    }
    answer->content_type[len] = '\0';
}

/* Seconds (a fraction is accepted) or a date. */
static int64_t retry_after_ms(const char *value, time_t (*getdate)(const char *, const time_t *))
{
    char *end;
    double seconds = strtod(value, &end);
    if (end != value && *end == '\0' && seconds >= 0) {
        return seconds < 1e12 ? (int64_t)(seconds * 1000) : INT64_C(1000000000000000);
    }
    time_t when = getdate(value, NULL);
    if (when == (time_t)-1) {
        return -1;
    }
    int64_t ms = (int64_t)when * 1000 - rlm_wall_us() / 1000;
    return ms > 0 ? ms : 0;
}

static int64_t milliseconds(const char *value)
{
    char *end;
    double ms = strtod(value, &end);
    if (end == value || *end || !(ms >= 0)) {
        return -1;
    }
    return ms < 1e15 ? (int64_t)ms : INT64_C(1000000000000000);
}

void rlm_http_head_line(struct rlm_http_answer *answer,
                        rlm_str line,
                        time_t (*getdate)(const char *text, const time_t *unused))
{
    char text[512];
    line = trim(line);
    if (rlm_str_starts(line, "HTTP/")) {
        take_status(answer, line);
        return;
    }
    const char *colon = line.len ? memchr(line.ptr, ':', line.len) : NULL;
    if (!colon || line.len >= sizeof text) {
        return; /* none that concerns us */
    }
    size_t name_len = (size_t)(colon - line.ptr);
    rlm_str value = trim(rlm_str_sub(line, name_len + 1, line.len));
    memcpy(text, line.ptr, name_len);
    text[name_len] = '\0';
    const char *name = text;
    char *copy = text + name_len + 1;
    memcpy(copy, value.ptr, value.len);
    copy[value.len] = '\0';
    if (strcasecmp(name, "content-type") == 0) {
        take_content_type(answer, copy);
    } else if (strcasecmp(name, "retry-after-ms") == 0) {
        int64_t ms = milliseconds(copy);
        answer->retry_after_ms = ms >= 0 ? ms : answer->retry_after_ms;
        answer->exact_retry_after = ms >= 0;
    } else if (strcasecmp(name, "retry-after") == 0 && !answer->exact_retry_after) {
        answer->retry_after_ms = retry_after_ms(copy, getdate);
    }
}
