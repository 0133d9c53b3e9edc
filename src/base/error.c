#include "base/error.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct rlm_error {
    int code;
    int sys_errno;
    char *message;
};

static char out_of_memory_text[] = "out of memory";
static rlm_error out_of_memory = {RLM_E_NOMEM, 0, out_of_memory_text};

__attribute__((format(printf, 1, 0))) static char *format_message(const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    char *text = len < 0 ? NULL : rlm_malloc((size_t)len + 1);
    if (text) {
        vsnprintf(text, (size_t)len + 1, format, again);
    }
    va_end(again);
    return text;
}

/* Takes `message`, which may be NULL for want of memory. */
static void assign(rlm_error **err, int code, int sys_errno, char *message)
{
    rlm_error *made = message ? rlm_malloc(sizeof *made) : NULL;
    rlm_error_free(*err);
    if (!made) {
        free(message);
        *err = &out_of_memory;
        return;
    }
    *made = (rlm_error){code, sys_errno, message};
    *err = made;
}

int rlm_error_set(rlm_error **err, int code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        char *message = format_message(format, args);
        va_end(args);
        assign(err, code, 0, message);
    }
    return code;
}

int rlm_error_set_errno(rlm_error **err, int code, int sys_errno, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        rlm_autofree char *what = format_message(format, args);
        va_end(args);
        char *message = NULL;
        if (what && asprintf(&message, "%s: %s", what, strerror(sys_errno)) < 0) {
            message = NULL;
        }
        assign(err, code, sys_errno, message);
    }
    return code;
}

int rlm_error_wrap(rlm_error **err, int code, const char *format, ...)
{
    if (err && *err && *err != &out_of_memory) {
        va_list args;
        va_start(args, format);
        rlm_autofree char *context = format_message(format, args);
        va_end(args);
        char *message = NULL;
        if (context && asprintf(&message, "%s: %s", context, (*err)->message) >= 0) {
            free((*err)->message);
            (*err)->message = message;
        }
    }
    return code;
}

int rlm_error_nomem(rlm_error **err)
{
    if (err) {
        rlm_error_free(*err);
        *err = &out_of_memory;
    }
    return RLM_E_NOMEM;
}

int rlm_error_code(const rlm_error *err)
{
    return err ? err->code : 0;
}

int rlm_error_errno(const rlm_error *err)
{
    return err ? err->sys_errno : 0;
}

const char *rlm_error_message(const rlm_error *err)
{
    return err ? err->message : "";
}

void rlm_error_free(rlm_error *err)
{
    if (err && err != &out_of_memory) {
        free(err->message);
        free(err);
    }
}
