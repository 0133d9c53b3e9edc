#include "model/sse.h"

#include "base/error.h"

void rlm_sse_init(struct rlm_sse *s, size_t max_event_bytes)
{
    *s = (struct rlm_sse){
        .line = RLM_BUF(max_event_bytes),
        .data = RLM_BUF(max_event_bytes),
        .event = RLM_BUF(max_event_bytes),
    };
}

void rlm_sse_deinit(struct rlm_sse *s)
{
    rlm_buf_deinit(&s->line);
    rlm_buf_deinit(&s->data);
    rlm_buf_deinit(&s->event);
}

static int too_long(const struct rlm_buf *b, rlm_error **err)
{
    if (b->status == RLM_E_LIMIT) {
        return rlm_error_set(err, RLM_E_LIMIT, "an event of the stream is longer than %zu bytes",
                             b->max_bytes);
    }
    return rlm_buf_check(b, err);
}

static int dispatch(struct rlm_sse *s, rlm_sse_handler handler, void *arg, rlm_error **err)
{
    int r = 0;
    if (s->has_data) {
        r = handler(arg, rlm_buf_str(&s->event), rlm_buf_str(&s->data), err);
    }
    rlm_buf_clear(&s->data);
    rlm_buf_clear(&s->event);
    s->has_data = false;
    return r;
}

static int field(struct rlm_sse *s, rlm_str name, rlm_str value, rlm_error **err)
{
    bool is_error = rlm_str_is(name, "error");
    if (is_error) {
        rlm_buf_clear(&s->event);
        if (rlm_buf_adds(&s->event, "error") < 0) {
            return too_long(&s->event, err);
        }
    }
    if (is_error || rlm_str_is(name, "data")) {
        if (s->has_data) {
            rlm_buf_addc(&s->data, '\n');
        }
        s->has_data = true;
        return rlm_buf_add_str(&s->data, value) < 0 ? too_long(&s->data, err) : 0;
    }
    if (rlm_str_is(name, "event")) {
        rlm_buf_clear(&s->event);
        return rlm_buf_add_str(&s->event, value) < 0 ? too_long(&s->event, err) : 0;
    }
    return 0;
}

static int
take_line(struct rlm_sse *s, rlm_str line, rlm_sse_handler handler, void *arg, rlm_error **err)
{
    /* A line that came whole never was in the line buffer, but has the same maximum. */
    if (line.len > s->line.max_bytes) {
        s->line.status = RLM_E_LIMIT;
        return too_long(&s->line, err);
    }
    if (!s->begun) {
        s->begun = true;
        if (rlm_str_starts(line, "\xef\xbb\xbf")) {
            line = rlm_str_sub(line, 3, line.len);
        }
    }
    if (line.len == 0) {
        return dispatch(s, handler, arg, err);
    }
    const char *colon = memchr(line.ptr, ':', line.len);
    size_t name_len = colon ? (size_t)(colon - line.ptr) : line.len;
    size_t start = colon ? name_len + 1 : line.len;
    if (start < line.len && line.ptr[start] == ' ') {
        start++;
    }
    return field(s, rlm_str_sub(line, 0, name_len), rlm_str_sub(line, start, line.len), err);
}

/* The rest of a line whose start came earlier. */
static int
take_continued(struct rlm_sse *s, rlm_str rest, rlm_sse_handler handler, void *arg, rlm_error **err)
{
    if (rlm_buf_add_str(&s->line, rest) < 0) {
        return too_long(&s->line, err);
    }
    int r = take_line(s, rlm_buf_str(&s->line), handler, arg, err);
    rlm_buf_clear(&s->line);
    return r;
}

int rlm_sse_feed(
    struct rlm_sse *s, rlm_str chunk, rlm_sse_handler handler, void *arg, rlm_error **err)
{
    const char *at = chunk.ptr;
    const char *end = chunk.ptr + chunk.len;
    const char *lf = NULL; /* the next one, if it is not before `at` */
    while (at < end) {
        if (s->skip_lf) {
            s->skip_lf = false;
            if (*at == '\n') {
                at++;
                continue;
            }
        }
        if (lf < at) {
            lf = memchr(at, '\n', (size_t)(end - at));
            lf = lf ? lf : end;
        }
        const char *cr = memchr(at, '\r', (size_t)(lf - at));
        const char *stop = cr ? cr : lf;
        rlm_str piece = {at, (size_t)(stop - at)};
        if (stop == end) {
            return rlm_buf_add_str(&s->line, piece) < 0 ? too_long(&s->line, err) : 0;
        }
        s->skip_lf = *stop == '\r';
        at = stop + 1;
        int r = s->line.len ? take_continued(s, piece, handler, arg, err)
                            : take_line(s, piece, handler, arg, err);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

int rlm_sse_end(struct rlm_sse *s, rlm_sse_handler handler, void *arg, rlm_error **err)
{
    int r = s->line.len ? take_continued(s, RLM_STR_NONE, handler, arg, err) : 0;
    return r ? r : dispatch(s, handler, arg, err);
}
