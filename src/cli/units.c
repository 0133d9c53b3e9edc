#include "cli/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Digits with at most one point; *ret_rest is what follows. */
static bool scan(const char *text, double *ret_value, const char **ret_rest)
{
    char digits[64];
    size_t len = strspn(text, "0123456789.");
    const char *point = memchr(text, '.', len);
    if (len == 0 || len >= sizeof digits ||
        (point && memchr(point + 1, '.', len - 1 - (size_t)(point - text))) ||
        (len == 1 && point)) {
        return false;
    }
    memcpy(digits, text, len);
    digits[len] = '\0';
    /* The program never calls setlocale, so strtod reads a point. */
    *ret_value = strtod(digits, NULL);
    *ret_rest = text + len;
    return true;
}

static bool to_integer(double value, int64_t *ret)
{
    if (!(value >= 0 && value < 9e18)) {
        return false;
    }
    *ret = (int64_t)llround(value);
    return true;
}

bool units_number(const char *text, int64_t *ret_number)
{
    double value;
    const char *rest;
    if (!scan(text, &value, &rest)) {
        return false;
    }
    double factor = *rest == '\0'                ? 1
                    : strcasecmp(rest, "k") == 0 ? 1e3
                    : strcasecmp(rest, "m") == 0 ? 1e6
                    : strcasecmp(rest, "g") == 0 ? 1e9
                                                 : 0;
    value *= factor;
    return factor > 0 && value == floor(value) && to_integer(value, ret_number);
}

bool units_time_ms(const char *text, int64_t *ret_ms)
{
    double value;
    const char *rest;
    if (!scan(text, &value, &rest)) {
        return false;
    }
    double factor = *rest == '\0' || strcmp(rest, "s") == 0 ? 1e3
                    : strcmp(rest, "ms") == 0               ? 1
                    : strcmp(rest, "m") == 0                ? 60e3
                    : strcmp(rest, "h") == 0                ? 3600e3
                                                            : 0;
    /* "0.1ms" would become "no limit" if it were rounded to 0. */
    return factor > 0 && to_integer(value * factor, ret_ms) && (*ret_ms > 0 || value == 0);
}

bool units_size_bytes(const char *text, int64_t *ret_bytes)
{
    static const char letters[] = "kmgt";
    double value;
    const char *rest;
    if (!scan(text, &value, &rest)) {
        return false;
    }
    const char *letter = *rest ? strchr(letters, *rest | 0x20) : NULL;
    if (letter) {
        value *= (double)(1LL << (10 * (letter - letters + 1)));
        rest++;
        rest += (*rest | 0x20) == 'b'; /* "4gb" */
    } else {
        rest += (*rest | 0x20) == 'b';
    }
    return *rest == '\0' && to_integer(value, ret_bytes) && (*ret_bytes > 0 || value == 0);
}

bool units_money_nano(const char *text, int64_t *ret_nano)
{
    double value;
    const char *rest;
    return scan(text + (*text == '$'), &value, &rest) && *rest == '\0' &&
           to_integer(value * 1e9, ret_nano) && (*ret_nano > 0 || value == 0);
}

bool units_real(const char *text, double *ret_real)
{
    const char *rest;
    return scan(text, ret_real, &rest) && *rest == '\0';
}

void units_format_size(uint64_t bytes, char *out, size_t size)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes / 1024;
    size_t i = 0;
    if (bytes < 1024) {
        snprintf(out, size, "%llu bytes", (unsigned long long)bytes);
        return;
    }
    while (value >= 1023.95 && i + 1 < sizeof names / sizeof *names) {
        value /= 1024;
        i++;
    }
    snprintf(out, size, "%.1f %s", value, names[i]);
}

void units_format_time(int64_t ms, char *out, size_t size)
{
    long long s = ms / 1000;
    if (ms < 1000) {
        snprintf(out, size, "%lld ms", (long long)ms);
    } else if (s < 60) {
        snprintf(out, size, "%.1f s", (double)ms / 1e3);
    } else if (s < 3600) {
        snprintf(out, size, "%lld min %lld s", s / 60, s % 60);
    } else {
        snprintf(out, size, "%lld h %lld min", s / 3600, s % 3600 / 60);
    }
}
