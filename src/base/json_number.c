#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Numbers of JSON to C and back, whatever the locale's decimal point: strtod only ever sees digits
 * and an exponent, and of printf's output only the digits are used. */

/* No integer that fits has more; of what follows only matters whether it is all zero. */
enum { MAX_DIGITS = 19 };

struct decimal { /* digits * 10^exponent, without zeros at either end */
    bool negative;
    bool longer; /* digits that are not zero were left out */
    int count;   /* 0: the number is zero */
    int64_t exponent;
    char digits[MAX_DIGITS];
};

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int64_t read_exponent(const char *p, const char *end)
{
    /* Far outside of what an integer holds, far inside of what the sums below hold. */
    const int64_t most = INT64_C(1) << 60;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) {
        p++;
    }
    int64_t value = 0;
    for (; p < end; p++) {
        value = value > most / 10 ? most : value * 10 + (*p - '0');
    }
    return negative ? -value : value;
}

static void read_decimal(rlm_str text, struct decimal *ret)
{
    const char *p = text.ptr, *end = p + text.len;
    bool fraction = false;
    *ret = (struct decimal){.negative = p < end && *p == '-'};
    p += ret->negative;
    for (; p < end && (is_digit(*p) || *p == '.'); p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        ret->exponent -= fraction;
        if (ret->count == MAX_DIGITS) {
            ret->exponent++;
            ret->longer |= *p != '0';
        } else if (ret->count || *p != '0') {
            ret->digits[ret->count++] = *p;
        }
    }
    if (p < end) {
        ret->exponent += read_exponent(p + 1, end);
    }
    while (ret->count && ret->digits[ret->count - 1] == '0') {
        ret->count--;
        ret->exponent++;
    }
}

int64_t rlm_json_int(const rlm_json *v, int64_t fallback)
{
    if (!rlm_json_is(v, RLM_JSON_NUMBER)) {
        return fallback;
    }
    struct decimal d;
    read_decimal(v->text, &d);
    if (d.count == 0) {
        return 0;
    }
    if (d.longer || d.exponent < 0 || d.count + d.exponent > 19) {
        return fallback;
    }
    uint64_t value = 0; /* 19 digits fit */
    for (int i = 0; i < d.count; i++) {
        value = value * 10 + (uint64_t)(d.digits[i] - '0');
    }
    for (int64_t i = 0; i < d.exponent; i++) {
        value *= 10;
    }
    if (value > (uint64_t)INT64_MAX + d.negative) {
        return fallback;
    }
    return (int64_t)(d.negative ? -value : value);
}

void rlm_json_put_int(struct rlm_json_writer *w, int64_t number)
{
    char text[24], *p = text + sizeof text;
    uint64_t value = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        *--p = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    if (number < 0) {
        *--p = '-';
    }
    rlm_json_put_raw(w, (rlm_str){p, (size_t)(text + sizeof text - p)});
}

/* The fewest digits that read back as `number` (positive); returns how many, at most 17, and the
 * power of ten of the first one. */
static int shortest_digits(double number, char digits[32], int *ret_exponent)
{
    char text[40];
    /* 15 digits of a normal number are kept by a double, so fewer need not be tried. */
    int precision = number < 2.3e-308 ? 1 : 15;
    do {
        snprintf(text, sizeof text, "%.*e", precision - 1, number);
    } while (strtod(text, NULL) != number && ++precision <= 17);
    int count = 0;
    const char *p = text;
    for (; *p != 'e'; p++) {
        if (is_digit(*p)) {
            digits[count++] = *p;
        }
    }
    while (count > 1 && digits[count - 1] == '0') {
        count--;
    }
    *ret_exponent = atoi(p + 1);
    return count;
}

/* Written as Python writes a float, so that 3.0 stays one: with an exponent below 1e-4 and from 1e16. */
void rlm_json_put_double(struct rlm_json_writer *w, double number)
{
    if (!isfinite(number)) {
        rlm_json_put_null(w);
        return;
    }
    char digits[32], text[64];
    const char *sign = signbit(number) ? "-" : "";
    int exponent = 0, count = 1, len;
    digits[0] = '0';
    if (fpclassify(number) != FP_ZERO) {
        count = shortest_digits(fabs(number), digits, &exponent);
    }
    if (exponent < -4 || exponent >= 16) {
        len = snprintf(text, sizeof text, "%s%c%s%.*se%+03d", sign, digits[0], count > 1 ? "." : "",
                       count - 1, digits + 1, exponent);
    } else if (exponent < 0) {
        len =
            snprintf(text, sizeof text, "%s0.%.*s%.*s", sign, -exponent - 1, "000", count, digits);
    } else {
        for (; count < exponent + 2; count++) {
            digits[count] = '0';
        }
        int whole = exponent + 1;
        len = snprintf(text, sizeof text, "%s%.*s.%.*s", sign, whole, digits, count - whole,
                       digits + whole);
    }
    rlm_json_put_raw(w, (rlm_str){text, (size_t)len});
}
