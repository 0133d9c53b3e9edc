#include "tool/number.h"

static const int64_t MOST_EXPONENT = 1000000000000000;

/* Sign, significant digits, and the powers of ten of the first and the last of them. Zero has none. */
struct decimal {
    bool negative;
    const char *digits; /* from the first digit that is not 0 ... */
    const char *end;    /* ... to behind the last one; a point may stand between */
    int64_t first;
    int64_t last;
};

static int64_t read_exponent(const char *p, const char *end)
{
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) {
        p++;
    }
    int64_t exponent = 0;
    for (; p < end; p++) {
        exponent = exponent * 10 + (*p - '0');
        if (exponent > MOST_EXPONENT) {
            exponent = MOST_EXPONENT;
        }
    }
    return negative ? -exponent : exponent;
}

static struct decimal read_decimal(rlm_str text)
{
    const char *p = text.ptr, *end = text.ptr + text.len;
    struct decimal d = {0};
    if (p < end && *p == '-') {
        d.negative = true;
        p++;
    }
    int64_t index = 0, point = -1, first = -1, last = -1;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            point = index;
            continue;
        }
        if (*p != '0') {
            if (first < 0) {
                first = index;
                d.digits = p;
            }
            last = index;
            d.end = p + 1;
        }
        index++;
    }
    if (first < 0) {
        return (struct decimal){0};
    }
    int64_t exponent = p < end ? read_exponent(p + 1, end) : 0;
    int64_t ones = exponent + (point < 0 ? index : point) - 1; /* the power of digit number 0 */
    d.first = ones - first;
    d.last = ones - last;
    return d;
}

static bool is_zero(const struct decimal *d)
{
    return d->digits == d->end;
}

/* The next digit, or -1 at the end. */
static int next_digit(const char **p, const char *end)
{
    if (*p < end && **p == '.') {
        ++*p;
    }
    return *p < end ? *(*p)++ - '0' : -1;
}

static int compare_sizes(const struct decimal *a, const struct decimal *b)
{
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    const char *p = a->digits, *q = b->digits;
    for (;;) {
        int left = next_digit(&p, a->end), right = next_digit(&q, b->end);
        if (left != right) {
            return left < right ? -1 : 1;
        }
        if (left < 0) {
            return 0;
        }
    }
}

static int sign_of(const struct decimal *d)
{
    return is_zero(d) ? 0 : d->negative ? -1 : 1;
}

int rlm_number_compare(rlm_str a, rlm_str b)
{
    struct decimal left = read_decimal(a), right = read_decimal(b);
    int left_sign = sign_of(&left), right_sign = sign_of(&right);
    if (left_sign != right_sign) {
        return left_sign < right_sign ? -1 : 1;
    }
    return left_sign == 0 ? 0 : left_sign * compare_sizes(&left, &right);
}

int rlm_number_sign(rlm_str number)
{
    struct decimal d = read_decimal(number);
    return sign_of(&d);
}

bool rlm_number_is_integer(rlm_str number)
{
    return read_decimal(number).last >= 0;
}

size_t rlm_number_digits(rlm_str number)
{
    struct decimal d = read_decimal(number);
    return is_zero(&d) ? 0 : (size_t)(d.first - d.last) + 1;
}

static uint64_t multiply(uint64_t a, uint64_t b, uint64_t modulus)
{
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)(product % modulus);
}

bool rlm_number_is_multiple(rlm_str number, rlm_str divisor)
{
    struct decimal n = read_decimal(number), d = read_decimal(divisor);
    if (is_zero(&n)) {
        return true;
    }
    /* The last digit is not 0, so a number that ends at a lower power of ten is no multiple. */
    if (is_zero(&d) || n.last < d.last) {
        return false;
    }
    uint64_t modulus = 0, rest = 0;
    int digit;
    for (const char *p = d.digits; (digit = next_digit(&p, d.end)) >= 0;) {
        modulus = modulus * 10 + (uint64_t)digit;
    }
    for (const char *p = n.digits; (digit = next_digit(&p, n.end)) >= 0;) {
        rest = (multiply(rest, 10, modulus) + (uint64_t)digit) % modulus;
    }
    uint64_t power = 10 % modulus;
    for (uint64_t shift = (uint64_t)(n.last - d.last); shift; shift >>= 1) {
        if (shift & 1) {
            rest = multiply(rest, power, modulus);
        }
        power = multiply(power, power, modulus);
    }
    return rest == 0;
}

uint64_t rlm_number_hash(rlm_str number)
{
    struct decimal d = read_decimal(number);
    uint64_t hash = (uint64_t)d.first * 31 + d.negative;
    int digit;
    for (const char *p = d.digits; (digit = next_digit(&p, d.end)) >= 0;) {
        hash = (hash ^ (uint64_t)digit) * 0x100000001b3u;
    }
    return hash;
}
